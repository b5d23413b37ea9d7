// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// judgeClaimed judges a node in a turn.
func (w *World) judgeClaimed(t *Unit) {
	c := t.Claim
	t.Unit.Since = c.Since.Time
	gone := !t.Counted || t.Unit.OptedOut
	switch {
	case !w.Ready && c.Failed != nil:
		t.ShowFailure(nil)
	case !w.Ready:
		// The spec is not known, so the turn does not change.
	case c.Failed != nil:
		w.judgeFailed(t, gone)
	case c.Soaking != nil:
		w.judgeSoaking(t, gone)
	case c.Changed != nil && gone:
		t.Step = nodeturn.StepFinish
	case c.Changed != nil:
		w.judgeChanged(t, c.Changed.Time)
	case c.Rebooting != nil:
		w.judgeRebooting(t, gone)
	case gone || !w.isWanted(t):
		t.Step = nodeturn.StepRelease
	default:
		w.judgePreparing(t)
	}
	t.Unmark()
}

// isWanted reports whether the rollout still wants the version of the turn.
func (w *World) isWanted(t *Unit) bool {
	return !w.Host.DetectOnly && (w.Host.Version == "" && !t.Claim.Back || CompareVersions(VersionOf(t.Claim), w.Host.Version) == 0)
}

// judgePreparing judges a turn whose host has no order to reboot yet.
func (w *World) judgePreparing(t *Unit) {
	r := &t.Report
	switch _, another := compareBoot(t.Node, t.Claim); { // If so, a person has rebooted it.
	case another && VersionOf(t.Claim) == "":
		t.Step = nodeturn.StepRelease // Its agent is asked again.
		return
	case another && sameVersion(r.Version, VersionOf(t.Claim)):
		w.judgeChanged(t, w.Now)
		return
	}
	t.Message = Awaits(t.Node, r, t.Claim, w.Hooks())
	switch {
	case t.Claim.Back && (r.Wanted != v1alpha1.HostActionRollback || r.MustBeAsked()):
		w.judgePerformed(t) // There is nothing to fetch. The order is given when the node is drained.
	case !t.Claim.Back && r.Wanted != v1alpha1.HostActionPrepare && r.Wanted != v1alpha1.HostActionPerform, r.MustBeAsked():
		t.Step = StepPrepare // The order was removed.
	case r.Answers(r.Wanted) && r.State == v1alpha1.HostStateError:
		t.Fail(v1alpha1.ReasonHostUpdateFailed, "on Node "+t.Node.Name+" "+string(r.Wanted)+" failed: "+r.said(), w.Now)
		return
	case r.Ready(v1alpha1.HostActionPrepare):
		t.Step = StepPerform
	case r.Ready(v1alpha1.HostActionPerform), r.Ready(v1alpha1.HostActionRollback):
		w.judgePerformed(t)
	}
	w.expire(t)
}

// judgePerformed judges a turn whose host boots into the version next, or is ordered to when its node is drained. The turn waits for hooks, then
// cordons and drains the node.
func (w *World) judgePerformed(t *Unit) {
	if t.Claim.Cordoned == nil {
		_, called := t.Node.Labels[v1alpha1.LabelBeforeReboot]
		switch {
		case len(w.Hooks().BeforeReboot) > 0 && !called:
			t.Step = StepCallHooks
		case len(Unset(t.Node, w.Hooks().BeforeReboot)) == 0:
			t.Step = StepCordon
		}
		return
	}
	since := w.DrainSince(t)
	switch {
	case !t.Node.Spec.Unschedulable:
		t.Step = StepCordon // A person has uncordoned the node. New pods must leave too.
	case w.Now.Before(since):
		t.WakeAt(since)
		t.Message = "load balancers have time to take the node out until " + since.UTC().Format(time.RFC3339)
	default:
		t.Step, t.Message = StepDrain, t.DrainMessage(w.Holder)
	}
}

// DrainSince is when the drain of a cordoned node begins: after the time that load balancers get.
func (w *World) DrainSince(t *Unit) time.Time { return t.Claim.Cordoned.Add(w.wait) }

// judgeChanged judges a turn whose host has run the version since this time. It waits for a healthy node and for hooks. Then
// the turn soaks, or ends if the rollout has no soak.
func (w *World) judgeChanged(t *Unit, since time.Time) {
	if !w.isHealthy(t, since) {
		if t.Step != StepChanged { // A turn that fails after that step fails as one whose host has changed.
			w.expire(t)
		}
		return
	}
	t.Unit.State, t.Unit.Since, t.Step, t.Message = v1alpha1.UnitSoaking, w.Now, nodeturn.StepSoak, ""
	if end := nodeturn.SoakEnd(&w.healthy, w.Rollout.Spec.Strategy, t.Node.Name, w.Now); !w.Now.Before(end) {
		t.Step = nodeturn.StepFinish
	}
}

// isHealthy reports whether the node is healthy and the hooks have answered, after a host change at this time. Otherwise it sets the message,
// or the step that records the change first.
func (w *World) isHealthy(t *Unit, since time.Time) bool {
	hooks := w.Hooks().AfterReboot
	_, called := t.Node.Labels[v1alpha1.LabelAfterReboot]
	call := len(hooks) > 0 && !called
	why := w.unhealthy(t, since)
	switch {
	case t.Claim.Changed == nil && why != "", call:
		t.Step, t.Message = StepChanged, why
	case why != "":
		t.Message = "the host runs what it should; its node is not well: " + why
	case len(Unset(t.Node, hooks)) > 0:
		t.Message = Awaits(t.Node, &t.Report, t.Claim, w.Hooks())
	default:
		return true
	}
	return false
}

// unhealthy says why a node that changed at this time is not healthy, or "".
func (w *World) unhealthy(t *Unit, since time.Time) string {
	why, next := w.healthy.Unhealthy(t.Node.Name, w.Now)
	if h := w.Rollout.Spec.Health; why == "" && h != nil && len(h.Pods) > 0 {
		why = "its pods are being looked up"
		if pods, known := w.Pods(t); known {
			why, next = Stable(pods, h.Pods, since, w.Now)
		}
	}
	t.WakeAt(next)
	return why
}

// judgeSoaking judges a turn that soaks and only keeps its slot. A node that is not healthy continues to soak.
func (w *World) judgeSoaking(t *Unit, gone bool) {
	since := t.Claim.Soaking.Time
	t.Unit.State, t.Unit.Since = v1alpha1.UnitSoaking, since
	end := nodeturn.SoakEnd(&w.healthy, w.Rollout.Spec.Strategy, t.Node.Name, since)
	switch why, next := w.healthy.Unhealthy(t.Node.Name, w.Now); {
	case !gone && why != "":
		t.Message = why
		t.WakeAt(next)
	case !gone && w.Now.Before(end):
		t.WakeAt(end)
	default:
		t.Step = nodeturn.StepFinish
	}
}

// judgeFailed judges a turn that failed. The turn waits for another attempt, or until its host is updated.
func (w *World) judgeFailed(t *Unit, gone bool) {
	t.ShowFailure(w.Rollout.Spec.Strategy)
	r, v := &t.Report, &t.Verdict
	pin, version := w.Host.Version, VersionOf(t.Claim)
	_, rebooted := compareBoot(t.Node, t.Claim)
	switch {
	case gone:
		t.Step = nodeturn.StepRelease
		return
	case v.State == v1alpha1.UnitUpdated, !r.Knows() && rebooted && sameVersion(r.Booted, version):
		w.judgeRecovering(t)
		return
	}
	if w.ask(t); t.Step == StepAsk {
		return
	}
	// A different spelling of the pinned version (v1.2.3, 1.2.3) is the same version.
	if pin != "" && CompareVersions(pin, version) != 0 || pin == "" && r.Knows() {
		version = v.Version
	}
	current := t.Claim.Attempt == w.attempt(t.Node, version)
	due := !t.Unit.RetryAt.IsZero() && !w.Now.Before(t.Unit.RetryAt)
	switch {
	case v.Reason != "" && (!current || due):
		// The host is not ready for another attempt, and may be dead.
		t.Unit.RetryAt = time.Time{}
		t.WakeAt(v.RetryAt)
		t.Unit.Message = nodeturn.Short(t.Unit.Message + "; another attempt waits: " + v.Message)
	case !current:
		w.markOutdated(t)
		t.Unit.InTurn = t.Claim.Changed != nil // Its node is out of service.
	}
}

// judgeRecovering judges a failed turn whose host is up to date after all. If the host has rebooted, the turn ends when its node is healthy,
// and is not retried before.
func (w *World) judgeRecovering(t *Unit) {
	since, rebooted := w.Now, t.Claim.Rebooting != nil
	if t.Claim.Changed != nil {
		since, rebooted = t.Claim.Changed.Time, true
	}
	if !rebooted || w.isHealthy(t, since) {
		t.Step, t.Unit.State = nodeturn.StepFinish, v1alpha1.UnitUpdated
		return
	}
	t.Recovers, t.Unit.RetryAt = true, time.Time{}
	if t.Message != "" && !strings.HasSuffix(t.Unit.Message, t.Message) {
		t.Unit.Message = nodeturn.Short(t.Unit.Message + "; " + t.Message)
	}
}

// expire fails a turn that takes longer than turnTimeout.
func (w *World) expire(t *Unit) { t.Expire(w.Rollout.Spec.Strategy, t.Message, w.Now) }

// NewClaim returns the claim of a turn that begins, or that begins again after a failure.
func (w *World) NewClaim(t *Unit) v1alpha1.Claim {
	claim := w.claim(t, t.Verdict.Version)
	claim.Drains, claim.From, claim.BootID, claim.Back = w.Drains, t.Report.Version, t.Report.BootID, t.Verdict.Back
	if c := t.Claim; c != nil {
		claim.Uncordon = c.Uncordon && c.Changed != nil && t.Node.Spec.Unschedulable // The node is still cordoned by the failed turn.
		if c.Attempt == claim.Attempt {
			claim.Failures = c.Failures
		}
	}
	return claim
}

// Adoption returns the claim on a node whose host has an order to reboot and no claim. Another operator gave the order, or Moult did and its
// claim was removed. Only Moult writes the wanted version and who cordoned the node, and only Moult uses its own protocol. Other operators always
// uncordon the node, so Adoption does that for them.
func (w *World) Adoption(t *Unit) v1alpha1.Claim {
	version := t.Node.Annotations[v1alpha1.AnnotationHostWanted]
	theirs := version == "" && !strings.HasPrefix(t.Report.Protocol.Wanted, v1alpha1.GroupName+"/")
	claim := w.claim(t, version)
	claim.Uncordon = theirs && t.Node.Spec.Unschedulable && t.Node.Annotations[v1alpha1.AnnotationCordonedBy] == ""
	claim.Rebooting, claim.BootID = &metav1.Time{Time: w.Now}, t.Report.RebootingFrom
	if t.Report.Active != v1alpha1.HostActionReboot {
		claim.BootID = t.Report.BootID // The host has not gone down yet.
	}
	return claim
}

func (w *World) claim(t *Unit, version string) v1alpha1.Claim {
	return v1alpha1.Claim{
		Rollout: w.Holder, UID: w.Rollout.UID, Revision: RevisionOf(version, w.Revision), Attempt: w.attempt(t.Node, version),
		Turn: strconv.FormatInt(w.Now.UnixNano(), 36), Since: metav1.Time{Time: w.Now},
	}
}
