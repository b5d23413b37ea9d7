// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// judgeRebooting judges a turn whose host has the order to reboot. One turn orders only one reboot, even if annotations are removed from the
// Node: the host is judged by its boot id and version. A node that has left the rollout is released when it is back.
func (w *World) judgeRebooting(t *Unit, gone bool) {
	r := &t.Report
	deadline := t.Claim.Rebooting.Add(w.rebootTimeout)
	if gone {
		if t.Message = "the rollout no longer selects the node; the turn ends when the host is back"; !t.Labelled {
			t.Unit.Reason, t.Message = v1alpha1.ReasonHostGone, "the node has lost the label that names its host's interface; it is waited for until it is back"
		}
		if IsBack(t.Node, t.Claim) || !w.Now.Before(deadline) {
			t.Step = nodeturn.StepRelease
		} else {
			t.WakeAt(deadline)
		}
		return
	}
	if t.Message = Awaits(t.Node, r, t.Claim, w.Hooks()); r.Wanted != v1alpha1.HostActionReboot {
		t.Message = "the order to reboot is gone from the Node; the host is judged when rebootTimeout is over"
	}
	if r.Answers(v1alpha1.HostActionReboot) {
		w.verify(t)
	}
	switch {
	case t.Step != nodeturn.StepNone:
	case !w.Now.Before(deadline):
		w.failLate(t, deadline)
	default:
		t.WakeAt(deadline)
		w.expire(t)
	}
}

// compareBoot compares the host's boot id with the boot id in the claim. Both results are false if an id is not known.
func compareBoot(n *corev1.Node, c *v1alpha1.Claim) (same, another bool) {
	before, now := c.BootID, n.Status.NodeInfo.BootID
	known := before != "" && now != ""
	return known && before == now, known && before != now
}

// IsBack reports whether a host that has the order to reboot has rebooted, and its node is ready.
func IsBack(n *corev1.Node, c *v1alpha1.Claim) bool {
	_, another := compareBoot(n, c)
	r, _ := Read(n)
	return notReady(n) == "" && (another || c.BootID == "" && r.Answers(v1alpha1.HostActionReboot))
}

// verify judges a host whose agent has answered the order to reboot: by the boot id that the kubelet reports, and by the version.
func (w *World) verify(t *Unit) {
	r := &t.Report
	failed, ready := r.State == v1alpha1.HostStateError, notReady(t.Node) == ""
	switch same, another := compareBoot(t.Node, t.Claim); {
	case same && failed && ready:
		t.Fail(v1alpha1.ReasonNotRebooted, "the host of Node "+t.Node.Name+" was ordered to reboot and has not: "+r.said(), w.Now)
	case same:
		// The host may be going down, whatever its agent says.
	case !another && failed:
		t.Fail(v1alpha1.ReasonHostUpdateFailed, "on Node "+t.Node.Name+" "+string(r.Wanted)+" failed: "+r.said(), w.Now)
	default:
		w.verifyVersion(t)
	}
}

// verifyVersion judges a host that has rebooted by the version that it runs.
func (w *World) verifyVersion(t *Unit) {
	r, want, wrong := &t.Report, VersionOf(t.Claim), ""
	switch {
	case want != "" && CompareVersions(r.Version, want) != 0:
		wrong = "runs " + cmp.Or(r.Version, "an unknown version") + ", not " + want
	case want == "" && r.State == v1alpha1.HostStateError:
		wrong = "its agent reports an error"
	case want == "" && sameVersion(r.Version, t.Claim.From):
		wrong = "runs " + r.Version + " as before"
	}
	switch {
	case wrong != "":
		message := fmt.Sprintf("the host of Node %s has rebooted, and %s", t.Node.Name, wrong)
		if r.Error != "" {
			message += ": " + r.Error
		}
		t.Fail(v1alpha1.ReasonVersionUnchanged, message, w.Now)
	case notReady(t.Node) == "":
		w.judgeChanged(t, w.Now)
	}
}

// failLate fails a turn whose host is not back within rebootTimeout.
func (w *World) failLate(t *Unit, deadline time.Time) {
	same, another := compareBoot(t.Node, t.Claim)
	ready := notReady(t.Node) == ""
	reason, what := v1alpha1.ReasonRebootTimeout, "its node was not ready again"
	switch {
	case same && ready:
		reason, what = v1alpha1.ReasonNotRebooted, "has not"
	case another && ready:
		what = "has rebooted, but its agent has not said what it runs"
	}
	t.Fail(reason, fmt.Sprintf("the host of Node %s was ordered to reboot at %s, and %s within rebootTimeout, %s",
		t.Node.Name, t.Claim.Rebooting.UTC().Format(time.RFC3339), what, w.rebootTimeout), deadline)
}
