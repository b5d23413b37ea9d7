// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/hostupdate"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// judgeClaimed judges a node in a turn.
func (t *turn) judgeClaimed(w *world) {
	c := t.claim
	t.unit.Since = c.Since.Time
	gone := !t.counted || t.unit.OptedOut
	switch {
	case !w.ready:
		// What was begun stays as it is: how it is to go on is not known.
		t.observe()
	case c.Failed != nil:
		t.failed(w, gone)
	case c.Soaking != nil:
		t.soak(w)
	case c.Changed != nil && gone:
		t.step = stepFinish
	case c.Changed != nil:
		t.changed(w, c.Changed.Time)
	case c.Rebooting != nil:
		t.reboots(w, gone)
	case gone || t.unwanted(w):
		t.step = stepAbandon
	default:
		t.prepares(w)
	}
}

// observe notes a failure of a rollout whose spec can't be carried out.
func (t *turn) observe() {
	if f := t.claim.Failed; f != nil {
		t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time
		t.unit.Skipped = t.claim.Parked()
	}
}

// unwanted reports whether the host is being brought to what nobody wants any more. It has not been told to reboot.
func (t *turn) unwanted(w *world) bool {
	version := hostupdate.VersionOf(t.claim)
	return w.wish.DetectOnly || w.wish.Version != "" && hostupdate.CompareVersions(version, w.wish.Version) != 0
}

// prepares is a turn whose host has not been told to reboot. It still serves until it is cordoned.
func (t *turn) prepares(w *world) {
	r := &t.report
	version := hostupdate.VersionOf(t.claim)
	runs := func(v string) bool {
		return v != "" && v != t.claim.From && hostupdate.CompareVersions(v, version) == 0
	}
	if same, _ := t.boot(); !same && version != "" && runs(r.Version) {
		// Somebody has rebooted it.
		t.changed(w, w.now)
		return
	}
	t.message = hostupdate.Awaits(t.node, r, t.claim, w.host.Hooks)
	switch {
	case r.Wanted != v1alpha1.HostActionPrepare && r.Wanted != v1alpha1.HostActionPerform, r.Fresh():
		t.step = stepPrepare // Somebody has taken away what was said.
	case r.Answers(r.Wanted) && r.State == v1alpha1.HostStateError:
		t.fails(v1alpha1.ReasonHostUpdateFailed, "on Node "+t.node.Name+" "+string(r.Wanted)+" failed: "+t.said(), w.now)
		return
	case r.Ready(v1alpha1.HostActionPrepare):
		t.step = stepPerform
	case r.Ready(v1alpha1.HostActionPerform):
		t.leaves(w)
	}
	t.expire(w)
}

// leaves is a turn whose host would boot into what it should: hooks are waited for, and the node is cordoned and drained.
func (t *turn) leaves(w *world) {
	c := t.claim
	if c.Cordoned == nil {
		_, called := t.node.Labels[v1alpha1.LabelBeforeReboot]
		switch {
		case len(before(&w.host)) > 0 && !called:
			t.step = stepCall
		case len(hostupdate.Unset(t.node, before(&w.host))) == 0:
			t.step = stepCordon
		}
		return
	}
	since := t.drainSince(w)
	switch {
	case !t.node.Spec.Unschedulable:
		t.step = stepCordon // Somebody has lifted the cordon, and what has come since has to go.
	case w.now.Before(since):
		t.at(since)
		t.step, t.message = stepTell, "load balancers take the node out until "+since.UTC().Format(time.RFC3339)
	case !w.drains:
		t.step = stepReboot
	default:
		t.step, t.message = stepDrain, w.works.Of(t.of(w)).Left
	}
}

// drainSince is when the drain begins: after the time that load balancers get.
func (t *turn) drainSince(w *world) time.Time { return t.claim.Cordoned.Add(w.wait) }

// said is what the agent says of its last action, which failed.
func (t *turn) said() string {
	if t.report.Error == "" {
		return "the host's agent does not say why"
	}
	return t.report.Error
}

// changed is a turn whose host runs what it should since this time: its node must be healthy, hooks are waited for, and then it soaks.
func (t *turn) changed(w *world, since time.Time) {
	switch {
	case t.well(w, since):
		t.done(w)
		return
	case t.step == stepChanged:
		return // It fails as one whose host has changed, or not at all.
	}
	t.expire(w)
	if t.step == stepNone {
		t.step = stepTell
	}
}

// well reports whether the node of a host that runs what it should since this time is healthy, and hooks have answered. Otherwise it says what
// is waited for, or to be recorded first.
func (t *turn) well(w *world, since time.Time) bool {
	hooks := after(&w.host)
	_, called := t.node.Labels[v1alpha1.LabelAfterReboot]
	call := len(hooks) > 0 && !called
	why := t.unhealthy(w, since)
	switch {
	case t.claim.Changed == nil && (why != "" || call), call:
		t.step = stepChanged
		t.message = why
	case why != "":
		t.message = "the host runs what it should; its node is not well: " + why
	case len(hostupdate.Unset(t.node, hooks)) > 0:
		t.message = hostupdate.Awaits(t.node, &t.report, t.claim, w.host.Hooks)
	default:
		return true
	}
	return false
}

// unhealthy says why a node is not healthy that was changed at this time, or "".
func (t *turn) unhealthy(w *world, since time.Time) string {
	if why := w.healthy.Unhealthy(t.node.Name, w.now); why != "" {
		if end := w.healthy.SoakEnd(t.node.Name, time.Time{}, 0); end.After(w.now) {
			t.at(end)
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
	t.at(next)
	return why
}

// done is a turn whose node is well: it is given back to the scheduler, soaks, and is released.
func (t *turn) done(w *world) {
	t.unit.State, t.unit.Since, t.message = v1alpha1.UnitSoaking, w.now, ""
	if t.soakEnd = t.soaked(w, w.now); w.now.Before(t.soakEnd) || t.keeps(w) {
		t.step = stepSoak
		return
	}
	t.step = stepFinish
}

// keeps reports whether something of the turn keeps the node from serving, which goes before the node is released.
func (t *turn) keeps(w *world) bool {
	_, called := t.node.Labels[v1alpha1.LabelAfterReboot]
	return called || t.marked(w) || t.claim.Uncordon && t.node.Spec.Unschedulable
}

// soaked is when a node has soaked that has been well since this time.
func (t *turn) soaked(w *world, since time.Time) time.Time {
	s := w.rollout.Spec.Strategy
	if s == nil || s.Soak == nil {
		return since
	}
	return w.healthy.SoakEnd(t.node.Name, since, s.Soak.Duration)
}

// soak is a turn that only keeps its slot. A node that is not healthy does not end it.
func (t *turn) soak(w *world) {
	since := t.claim.Soaking.Time
	t.unit.State, t.unit.Since = v1alpha1.UnitSoaking, since
	if why := w.healthy.Unhealthy(t.node.Name, w.now); why != "" && t.counted && !t.unit.OptedOut {
		t.message = why
		t.at(soon(w.healthy.SoakEnd(t.node.Name, time.Time{}, 0), w.now))
		return
	}
	if end := t.soaked(w, since); w.now.Before(end) && t.counted && !t.unit.OptedOut {
		t.at(end)
		return
	}
	t.step = stepFinish
}

// soon is an instant, or zero if it has passed.
func soon(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return time.Time{}
}

// failed is a turn that failed: it waits, until what was asked for then is not what is asked for now, or until its host is as it should be.
func (t *turn) failed(w *world, gone bool) {
	f := t.claim.Failed
	version := hostupdate.VersionOf(t.claim)
	// What the rollout asks for by a name of its own for it is no other version.
	if pin := w.wish.Version; pin != "" && hostupdate.CompareVersions(pin, version) != 0 || pin == "" && t.report.Knows() {
		version = t.verdict.Version
	}
	current := t.claim.Attempt == w.attempt(t.node, version)
	t.stays(w, f)
	switch {
	case gone:
		t.step = stepAbandon
	case t.unmoved():
		t.unit.RetryAt = time.Time{} // There is nothing to try again, and it is not done either.
		t.ask(w)
	case t.verdict.State == v1alpha1.UnitUpdated && (t.report.Knows() || w.wish.Version != ""), t.arrived() && !t.report.Knows():
		// It has come to it later, or there is nothing any more to bring it to.
		t.recovers(w)
	case t.asks(w):
	case !current && t.verdict.Reason == "":
		t.outdated(w)
		t.unit.InTurn = t.claim.Changed != nil // Its node is still out of service.
	case !t.unit.RetryAt.IsZero() && !w.now.Before(t.unit.RetryAt) && t.verdict.Reason != "":
		// It is time, and the host is not ready for it. It keeps its slot.
		t.outdated(w)
		t.unit.InTurn = !f.Skipped
	case !current:
		// The host is not ready for another attempt, and may be dead. It has failed until it is.
		t.at(t.verdict.RetryAt)
		t.unit.Message = turnof.Short(f.Message + "; another attempt waits: " + t.verdict.Message)
	}
}

// recovers is a turn that failed, and whose host has nothing left to be brought to. One that has been through a reboot ends as any turn does, once
// its node is well, and is not tried again until then.
func (t *turn) recovers(w *world) {
	since, rebooted := w.now, t.claim.Rebooting != nil
	if t.claim.Changed != nil {
		since, rebooted = t.claim.Changed.Time, true
	}
	if !rebooted || t.well(w, since) {
		t.step, t.unit.State = stepFinish, v1alpha1.UnitUpdated
		return
	}
	t.unit.RetryAt = time.Time{}
	if !strings.Contains(t.unit.Message, t.message) {
		t.unit.Message = turnof.Short(t.unit.Message + "; " + t.message)
	}
}

// unmoved reports whether a host is said to run what it was to boot into, and has not booted since it was told to.
func (t *turn) unmoved() bool {
	same, _ := t.boot()
	version := hostupdate.VersionOf(t.claim)
	return same && version != "" && version != t.claim.From && hostupdate.CompareVersions(cmp.Or(t.report.Said, t.report.Version), version) == 0
}

// arrived reports whether the kubelet of a host tells that it has booted into what it was to run. It does so whether an agent is there or not.
func (t *turn) arrived() bool {
	_, another := t.boot()
	version := hostupdate.VersionOf(t.claim)
	return another && t.report.Booted != "" && version != "" && hostupdate.CompareVersions(t.report.Booted, version) == 0
}

// asks lets the agent of a host whose turn has failed look for updates, and says whether it does so now.
func (t *turn) asks(w *world) bool {
	t.ask(w)
	return t.step == stepAsk
}

// stays is a turn that has failed: it waits for a retry, or for a person.
func (t *turn) stays(w *world, f *v1alpha1.ClaimFailure) {
	t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time
	t.unit.Skipped = f.Skipped
	if s := w.rollout.Spec.Strategy; s != nil && !f.Skipped {
		t.unit.RetryAt = rollout.RetryAt(s.Retries, t.claim.Failures, f.Time.Time)
	}
}

// fails lets a turn fail.
func (t *turn) fails(reason v1alpha1.Reason, message string, at time.Time) {
	t.failing(v1alpha1.ClaimFailure{Reason: reason, Message: turnof.Short(message), Time: metav1.Time{Time: at}})
}

func (t *turn) failing(f v1alpha1.ClaimFailure) {
	t.step, t.failure = stepFail, f
	t.unit.State, t.unit.Reason, t.unit.Message, t.unit.Since, t.unit.Skipped = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time, f.Skipped
}

// expire lets a turn fail that takes longer than the strategy allows.
func (t *turn) expire(w *world) {
	s := w.rollout.Spec.Strategy
	if s == nil || s.TurnTimeout == nil || t.step == stepFail {
		return
	}
	deadline := t.claim.Since.Add(s.TurnTimeout.Duration)
	if w.now.Before(deadline) {
		t.at(deadline)
		return
	}
	message := fmt.Sprintf("the turn of Node %s took longer than turnTimeout, %s", t.node.Name, s.TurnTimeout.Duration)
	if t.message != "" {
		message += "; " + t.message
	}
	t.fails(v1alpha1.ReasonTurnTimeout, message, deadline)
}
