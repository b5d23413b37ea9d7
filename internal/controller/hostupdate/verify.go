// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/turn"
)

// afterthought is how long an agent must have said that a reboot failed, while the kubelet still tells of the boot from before, until that
// is believed: a kubelet that has just started may not have told yet.
const afterthought = 15 * time.Second

// reboots is a turn whose host has been told to reboot. It is never told twice in one turn, whatever becomes of the Node's annotations: what
// counts is what the host does. Once it is gone from the rollout, it is only waited for until it is back.
func (t *unit) reboots(w *world, gone bool) {
	r, c := &t.report, t.Claim
	deadline := c.Rebooting.Add(w.rebootTimeout)
	if t.Message = hostupdate.Awaits(t.Node, r, c, w.host.Hooks); r.Wanted != v1alpha1.HostActionReboot {
		t.Message = "the order to reboot is gone from the Node; the host is judged by what it does"
	}
	switch {
	case gone:
		if t.Message = "the rollout has let go of the node in the middle of its turn; it is waited for until it is back"; !t.speaks {
			t.Unit.Reason, t.Message = v1alpha1.ReasonHostGone, "the node has lost the label that names its host's interface; it is waited for until it is back"
		}
		if t.back() || !w.now.Before(deadline) {
			t.Step = turn.StepRelease
			return
		}
		t.WakeAt(deadline)
		return
	case t.heard():
		t.verify(w)
	case r.Fresh() || r.Wanted != v1alpha1.HostActionReboot && r.Wanted != v1alpha1.HostActionStabilize:
		t.Step = stepWithdraw
		return
	}
	if t.Step != turn.StepNone {
		return
	}
	if w.now.Before(deadline) {
		t.WakeAt(deadline)
		t.expire(w)
		if t.Step == turn.StepNone {
			t.Step = stepTell
		}
		return
	}
	t.late(w, deadline)
}

// boot says whether the host has rebooted since it was told to, or before that since its turn began, as far as its kubelet tells.
func (t *unit) boot() (same, another bool) {
	before, now := t.Claim.BootID, t.report.BootID
	if !t.speaks {
		now = t.Node.Status.NodeInfo.BootID
	}
	known := before != "" && now != ""
	return known && before == now, known && before != now
}

// heard reports whether the agent has said how the reboot ended; or, where the order was withdrawn, what it finds since.
func (t *unit) heard() bool {
	return t.report.Answers(v1alpha1.HostActionReboot) || t.report.Answers(v1alpha1.HostActionStabilize)
}

// back reports whether a host is back that nobody asks how it is.
func (t *unit) back() bool {
	same, another := t.boot()
	return t.ready() && (another || !same && t.Claim.BootID == "" && t.report.Answers(v1alpha1.HostActionReboot))
}

func (t *unit) ready() bool {
	for i := range t.known.Conditions {
		if c := &t.known.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// verify judges a host whose agent has answered: by the boot id that its kubelet tells, and by the version.
func (t *unit) verify(w *world) {
	r := &t.report
	failed := r.State == v1alpha1.HostStateError
	same, another := t.boot()
	switch {
	case same && failed && !t.ready():
		// It has refused, as its agent says, and goes down all the same.
	case same && failed && r.Wanted == v1alpha1.HostActionReboot:
		if at := w.works.Of(t.of(w)).Since(w.now).Add(afterthought); w.now.Before(at) {
			t.WakeAt(at)
			return
		}
		t.Fail(v1alpha1.ReasonNotRebooted, "the host of Node "+t.Node.Name+" was told to reboot and has not: "+t.said(), w.now)
	case same:
		// Its agent says that all is well, or looks for updates: the host may still be on its way down.
	case !another && r.Wanted != v1alpha1.HostActionReboot:
		// Nothing tells that it has rebooted.
	case !another && failed:
		t.Fail(v1alpha1.ReasonHostUpdateFailed, "on Node "+t.Node.Name+" "+string(r.Wanted)+" failed: "+t.said(), w.now)
	default:
		t.compare(w)
	}
}

// compare judges a host that has rebooted by the version that it runs. The kubelet's word counts more than the agent's.
func (t *unit) compare(w *world) {
	r := &t.report
	want := hostupdate.VersionOf(t.Claim)
	runs := r.Version
	if _, another := t.boot(); !another {
		runs = cmp.Or(r.Said, r.Version) // The kubelet tells of both in one write, and has told of neither.
	}
	wrong := ""
	switch {
	case want != "" && hostupdate.CompareVersions(runs, want) != 0:
		wrong = "runs " + cmp.Or(runs, "what nobody tells") + ", not " + want
	case want == "" && r.State == v1alpha1.HostStateError:
		wrong = "is not as it should be"
	case want == "" && r.Wanted == v1alpha1.HostActionStabilize && r.Update == v1alpha1.HostUpdateTrue:
		wrong = "still has an update to take"
	case want == "" && t.Claim.From != "" && hostupdate.CompareVersions(runs, t.Claim.From) == 0:
		wrong = "runs " + runs + " as before"
	}
	switch {
	case wrong != "":
		message := fmt.Sprintf("the host of Node %s has rebooted, and %s", t.Node.Name, wrong)
		if r.Error != "" {
			message += ": " + r.Error
		}
		t.Fail(v1alpha1.ReasonVersionUnchanged, message, w.now)
	case t.ready():
		t.changed(w, w.now)
	}
}

// late lets a turn fail whose host is not back in time.
func (t *unit) late(w *world, deadline time.Time) {
	same, another := t.boot()
	took := fmt.Sprintf("the host of Node %s was told to reboot at %s, and ", t.Node.Name, t.Claim.Rebooting.UTC().Format(time.RFC3339))
	switch {
	case same && t.ready():
		t.Fail(v1alpha1.ReasonNotRebooted, took+"has not within rebootTimeout, "+w.rebootTimeout.String(), deadline)
	case another && t.ready():
		t.Fail(v1alpha1.ReasonRebootTimeout, took+"has rebooted, but its agent has not said what it runs within rebootTimeout, "+w.rebootTimeout.String(), deadline)
	default:
		t.Fail(v1alpha1.ReasonRebootTimeout, took+"its node was not ready again within rebootTimeout, "+w.rebootTimeout.String(), deadline)
	}
}
