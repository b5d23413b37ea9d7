// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/turn"
)

// judgeClaimed judges a node in a turn.
func (t *unit) judgeClaimed(w *world) {
	c := t.Claim
	t.Unit.Since = c.Since.Time
	gone := !t.Counted || t.Unit.OptedOut
	switch {
	case !w.ready:
		// What was begun stays as it is: how it is to go on is not known.
		t.observe()
	case c.Failed != nil:
		t.failed(w, gone)
	case c.Soaking != nil:
		t.soak(w)
	case c.Changed != nil && gone:
		t.Step = turn.StepFinish
	case c.Changed != nil:
		t.changed(w, c.Changed.Time)
	case c.Rebooting != nil:
		t.reboots(w, gone)
	case gone || t.unwanted(w):
		t.Step = turn.StepRelease
	default:
		t.prepares(w)
	}
}

// observe notes a failure of a rollout whose spec can't be carried out.
func (t *unit) observe() {
	if f := t.Claim.Failed; f != nil {
		t.Unit.State, t.Unit.Reason, t.Unit.Message, t.Unit.Since = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time
		t.Unit.Skipped = t.Claim.Parked()
	}
}

// unwanted reports whether the host is being brought to what nobody wants any more. It has not been told to reboot.
func (t *unit) unwanted(w *world) bool {
	version := hostupdate.VersionOf(t.Claim)
	return w.wish.DetectOnly || w.wish.Version != "" && hostupdate.CompareVersions(version, w.wish.Version) != 0
}

// prepares is a turn whose host has not been told to reboot. It still serves until it is cordoned.
func (t *unit) prepares(w *world) {
	r := &t.report
	version := hostupdate.VersionOf(t.Claim)
	runs := func(v string) bool {
		return v != "" && v != t.Claim.From && hostupdate.CompareVersions(v, version) == 0
	}
	if same, _ := t.boot(); !same && version != "" && runs(r.Version) {
		// Somebody has rebooted it.
		t.changed(w, w.now)
		return
	}
	t.Message = hostupdate.Awaits(t.Node, r, t.Claim, w.host.Hooks)
	switch {
	case r.Wanted != v1alpha1.HostActionPrepare && r.Wanted != v1alpha1.HostActionPerform, r.Fresh():
		t.Step = stepPrepare // Somebody has taken away what was said.
	case r.Answers(r.Wanted) && r.State == v1alpha1.HostStateError:
		t.Fail(v1alpha1.ReasonHostUpdateFailed, "on Node "+t.Node.Name+" "+string(r.Wanted)+" failed: "+t.said(), w.now)
		return
	case r.Ready(v1alpha1.HostActionPrepare):
		t.Step = stepPerform
	case r.Ready(v1alpha1.HostActionPerform):
		t.leaves(w)
	}
	t.expire(w)
}

// leaves is a turn whose host would boot into what it should: hooks are waited for, and the node is cordoned and drained.
func (t *unit) leaves(w *world) {
	c := t.Claim
	if c.Cordoned == nil {
		_, called := t.Node.Labels[v1alpha1.LabelBeforeReboot]
		switch {
		case len(before(&w.host)) > 0 && !called:
			t.Step = stepCall
		case len(hostupdate.Unset(t.Node, before(&w.host))) == 0:
			t.Step = stepCordon
		}
		return
	}
	since := t.drainSince(w)
	switch {
	case !t.Node.Spec.Unschedulable:
		t.Step = stepCordon // Somebody has lifted the cordon, and what has come since has to go.
	case w.now.Before(since):
		t.WakeAt(since)
		t.Step, t.Message = stepTell, "load balancers take the node out until "+since.UTC().Format(time.RFC3339)
	case !w.drains:
		t.Step = stepReboot
	default:
		t.Step, t.Message = stepDrain, w.works.Of(t.of(w)).Left
	}
}

// drainSince is when the drain begins: after the time that load balancers get.
func (t *unit) drainSince(w *world) time.Time { return t.Claim.Cordoned.Add(w.wait) }

// said is what the agent says of its last action, which failed.
func (t *unit) said() string {
	if t.report.Error == "" {
		return "the host's agent does not say why"
	}
	return t.report.Error
}

// changed is a turn whose host runs what it should since this time: its node must be healthy, hooks are waited for, and then it soaks.
func (t *unit) changed(w *world, since time.Time) {
	switch {
	case t.well(w, since):
		t.done(w)
		return
	case t.Step == stepChanged:
		return // It fails as one whose host has changed, or not at all.
	}
	t.expire(w)
	if t.Step == turn.StepNone {
		t.Step = stepTell
	}
}

// well reports whether the node of a host that runs what it should since this time is healthy, and hooks have answered. Otherwise it says what
// is waited for, or to be recorded first.
func (t *unit) well(w *world, since time.Time) bool {
	hooks := after(&w.host)
	_, called := t.Node.Labels[v1alpha1.LabelAfterReboot]
	call := len(hooks) > 0 && !called
	why := t.unhealthy(w, since)
	switch {
	case t.Claim.Changed == nil && (why != "" || call), call:
		t.Step = stepChanged
		t.Message = why
	case why != "":
		t.Message = "the host runs what it should; its node is not well: " + why
	case len(hostupdate.Unset(t.Node, hooks)) > 0:
		t.Message = hostupdate.Awaits(t.Node, &t.report, t.Claim, w.host.Hooks)
	default:
		return true
	}
	return false
}

// unhealthy says why a node is not healthy that was changed at this time, or "".
func (t *unit) unhealthy(w *world, since time.Time) string {
	if why := w.healthy.Unhealthy(t.Node.Name, w.now); why != "" {
		if end := w.healthy.SoakEnd(t.Node.Name, time.Time{}, 0); end.After(w.now) {
			t.WakeAt(end)
		}
		return why
	}
	h := w.rollout.Spec.Health
	if h == nil || len(h.Pods) == 0 {
		return ""
	}
	pods, known := w.works.Pods(t.of(w))
	if !known {
		return "its pods are being looked up"
	}
	why, next := hostupdate.Stable(pods, h.Pods, since, w.now)
	t.WakeAt(next)
	return why
}

// done is a turn whose node is well: it is given back to the scheduler, soaks, and is released.
func (t *unit) done(w *world) {
	t.Unit.State, t.Unit.Since, t.Message = v1alpha1.UnitSoaking, w.now, ""
	if t.SoakEnd = t.soaked(w, w.now); w.now.Before(t.SoakEnd) || t.keeps(w) {
		t.Step = turn.StepSoak
		return
	}
	t.Step = turn.StepFinish
}

// keeps reports whether something of the turn keeps the node from serving, which goes before the node is released.
func (t *unit) keeps(w *world) bool {
	_, called := t.Node.Labels[v1alpha1.LabelAfterReboot]
	return called || t.marked(w) || t.Claim.Uncordon && t.Node.Spec.Unschedulable
}

// soaked is when a node has soaked that has been well since this time.
func (t *unit) soaked(w *world, since time.Time) time.Time {
	s := w.rollout.Spec.Strategy
	if s == nil || s.Soak == nil {
		return since
	}
	return w.healthy.SoakEnd(t.Node.Name, since, s.Soak.Duration)
}

// soak is a turn that only keeps its slot. A node that is not healthy does not end it.
func (t *unit) soak(w *world) {
	since := t.Claim.Soaking.Time
	t.Unit.State, t.Unit.Since = v1alpha1.UnitSoaking, since
	if why := w.healthy.Unhealthy(t.Node.Name, w.now); why != "" && t.Counted && !t.Unit.OptedOut {
		t.Message = why
		t.WakeAt(soon(w.healthy.SoakEnd(t.Node.Name, time.Time{}, 0), w.now))
		return
	}
	if end := t.soaked(w, since); w.now.Before(end) && t.Counted && !t.Unit.OptedOut {
		t.WakeAt(end)
		return
	}
	t.Step = turn.StepFinish
}

// soon is an instant, or zero if it has passed.
func soon(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return time.Time{}
}

// failed is a turn that failed: it waits, until what was asked for then is not what is asked for now, or until its host is as it should be.
func (t *unit) failed(w *world, gone bool) {
	f := t.Claim.Failed
	version := hostupdate.VersionOf(t.Claim)
	// What the rollout asks for by a name of its own for it is no other version.
	if pin := w.wish.Version; pin != "" && hostupdate.CompareVersions(pin, version) != 0 || pin == "" && t.report.Knows() {
		version = t.verdict.Version
	}
	current := t.Claim.Attempt == w.attempt(t.Node, version)
	t.ShowFailure(w.rollout.Spec.Strategy)
	switch {
	case gone:
		t.Step = turn.StepRelease
	case t.unmoved():
		t.Unit.RetryAt = time.Time{} // There is nothing to try again, and it is not done either.
		t.ask(w)
	case t.verdict.State == v1alpha1.UnitUpdated && (t.report.Knows() || w.wish.Version != ""), t.arrived() && !t.report.Knows():
		// It has come to it later, or there is nothing any more to bring it to.
		t.recovers(w)
	case t.asks(w):
	case !current && t.verdict.Reason == "":
		t.outdated(w)
		t.Unit.InTurn = t.Claim.Changed != nil // Its node is still out of service.
	case !t.Unit.RetryAt.IsZero() && !w.now.Before(t.Unit.RetryAt) && t.verdict.Reason != "":
		// It is time, and the host is not ready for it. It keeps its slot.
		t.outdated(w)
		t.Unit.InTurn = !f.Skipped
	case !current:
		// The host is not ready for another attempt, and may be dead. It has failed until it is.
		t.WakeAt(t.verdict.RetryAt)
		t.Unit.Message = turn.Short(f.Message + "; another attempt waits: " + t.verdict.Message)
	}
}

// recovers is a turn that failed, and whose host has nothing left to be brought to. One that has been through a reboot ends as any turn does, once
// its node is well, and is not tried again until then.
func (t *unit) recovers(w *world) {
	since, rebooted := w.now, t.Claim.Rebooting != nil
	if t.Claim.Changed != nil {
		since, rebooted = t.Claim.Changed.Time, true
	}
	if !rebooted || t.well(w, since) {
		t.Step, t.Unit.State = turn.StepFinish, v1alpha1.UnitUpdated
		return
	}
	t.Unit.RetryAt = time.Time{}
	if !strings.Contains(t.Unit.Message, t.Message) {
		t.Unit.Message = turn.Short(t.Unit.Message + "; " + t.Message)
	}
}

// unmoved reports whether a host is said to run what it was to boot into, and has not booted since it was told to.
func (t *unit) unmoved() bool {
	same, _ := t.boot()
	version := hostupdate.VersionOf(t.Claim)
	return same && version != "" && version != t.Claim.From && hostupdate.CompareVersions(cmp.Or(t.report.Said, t.report.Version), version) == 0
}

// arrived reports whether the kubelet of a host tells that it has booted into what it was to run. It does so whether an agent is there or not.
func (t *unit) arrived() bool {
	_, another := t.boot()
	version := hostupdate.VersionOf(t.Claim)
	return another && t.report.Booted != "" && version != "" && hostupdate.CompareVersions(t.report.Booted, version) == 0
}

// asks lets the agent of a host whose turn has failed look for updates, and says whether it does so now.
func (t *unit) asks(w *world) bool {
	t.ask(w)
	return t.Step == stepAsk
}

// expire fails a turn that takes longer than turnTimeout.
func (t *unit) expire(w *world) { t.Expire(w.rollout.Spec.Strategy, t.Message, w.now) }
