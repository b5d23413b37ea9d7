// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
)

func (w *World) joining(t *Turn) {
	s, why := w.SetOf(t), w.whyUnwanted(t)
	switch {
	case t.Replacement == "":
		w.findReplacement(t, s)
	case t.Failed != nil && w.isRetryDue(t):
		t.Failures++
		t.Failed, t.Attempt = nil, w.Attempt(s, w.oldNode(t))
		if w.Bound(t) && t.WhyReplacementMustStay != "" {
			w.enter(t, v1alpha1.MachineJoining) // Etcd needs it: it has Timeout once more to become ready.
		} else {
			w.discard(t, "it is tried again")
		}
	case why != "":
		w.discard(t, why)
	case t.Failed != nil && w.Ending && !w.Bound(t):
		t.Over = true
	case !w.machineListed(t), !s.Known, !w.replacementListed(t):
	default:
		w.checkReplacement(t, s, s.Machine(t.Replacement))
	}
}

// checkReplacement judges a turn whose replacement is listed.
func (w *World) checkReplacement(t *Turn, s *Set, m *cloud.Machine) {
	n := w.NodeOf(m)
	mayReject, hasChanged := w.mayRejectReplacement(t), t.Attempt != w.Attempt(s, w.oldNode(t))
	switch {
	case m.State == cloud.Failed:
		w.failReplacement(t, "machine "+m.ID+" was made, and has failed: "+cmp.Or(m.Message, "the cloud does not say why"))
	case mayReject && hasChanged && (w.Outdated(s, m, n) || n == nil && !m.UpToDate):
		w.discard(t, "the model of the scale set has changed")
	case mayReject && w.Outdated(s, m, n) && w.MatchOSImage:
		w.failReplacement(t, fmt.Sprintf("machine %s was made of image %s, and its node says that its OS image is %q: it would be replaced for ever",
			m.ID, s.ImageName, n.Status.NodeInfo.OSImage))
	case mayReject && w.Outdated(s, m, n):
		w.failReplacement(t, "machine "+m.ID+" is new, but the cloud reports it as outdated: its model is not the current model of scale set "+s.Name)
	default:
		w.awaitReplacement(t)
	}
}

// awaitReplacement moves a turn on when its replacement is ready, and fails it after Timeout.
func (w *World) awaitReplacement(t *Turn) {
	switch why := cmp.Or(w.notReady(t), t.WhyNotJoined); {
	case why != "":
		w.waitForReplacement(t, t.PhaseSince.Time, why)
		return
	case !t.DeletesFirst:
		w.enter(t, v1alpha1.MachineClaiming)
	case t.Node != "":
		w.enter(t, v1alpha1.MachineLeaving) // The old machine has gone by itself.
	default:
		w.enter(t, v1alpha1.MachineDeleting)
	}
	t.Failed = nil
}

// mayRejectReplacement reports whether a turn may discard an outdated replacement. Other turns keep it: a later turn replaces it.
func (w *World) mayRejectReplacement(t *Turn) bool { return !t.DeletesFirst && !w.Bound(t) }

// noteReplacementNode records the name and provider id of the replacement's Node, if known.
func (t *Turn) noteReplacementNode(m *cloud.Machine, n *Node) {
	t.ReplacementProviderID = cmp.Or(m.ProviderID, t.ReplacementProviderID)
	if n != nil {
		t.ReplacementNode = n.Name
	}
}

// isRetryDue reports whether a failed turn that kept its replacement must now try another one.
func (w *World) isRetryDue(t *Turn) bool {
	if w.Ending && !w.Bound(t) {
		return false
	}
	at := w.nextAttempt(t)
	if at.IsZero() && w.Ending {
		at = t.Failed.Time.Add(w.Timeout) // The turn can't be cancelled, and blocks the rollout's deletion.
	}
	t.wakeAt(at)
	s := w.SetOf(t)
	return s.Known && t.Attempt != w.Attempt(s, w.oldNode(t)) || !at.IsZero() && !w.Now.Before(at)
}

// failReplacement fails a turn that has no ready replacement. A turn that needs one, whose addition is under way, or that soaks, is marked failed and
// keeps waiting.
func (w *World) failReplacement(t *Turn, why string) {
	if !w.needsReplacement(t) && t.Operation == "" && t.Phase != v1alpha1.MachineSoaking {
		w.fail(t, v1alpha1.ReasonReplacementFailed, why)
		return
	}
	t.Message = why
	if t.Failed == nil {
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: nodeturn.Short(why), Time: *nodeturn.Stamp(w.Now)}
	}
}

// waitForReplacement says why the replacement is not ready, and fails the turn after Timeout.
func (w *World) waitForReplacement(t *Turn, since time.Time, why string) {
	t.Message = why
	if !t.waitUntil(since.Add(w.Timeout), w.Now) {
		w.failReplacement(t, fmt.Sprintf("the machine in place of %s was not ready within replacementReady.timeout, %s: %s", t.oldName(), w.Timeout, why))
	}
}
