// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func (w *World) joining(t *Turn, all []*Turn) bool {
	s := w.set(t.ScaleSet)
	if t.Replacement == "" {
		return w.findReplacement(t, s, all)
	}
	if t.Failed != nil && w.isRetryDue(t) {
		t.Failures++
		t.Failed, t.Attempt = nil, w.Attempt(s, w.oldNode(t))
		if w.Bound(t) && w.Stays[t.Turn] != "" {
			return w.enter(t, v1alpha1.MachineJoining) // Etcd can't do without it: it has as long again to become ready.
		}
		return w.discard(t, "it is tried again")
	}
	if why := w.whyUnwanted(t); why != "" {
		return w.discard(t, why)
	}
	if t.Failed != nil && w.Ending && !w.Bound(t) {
		t.Over = true
		return false
	}
	if gone, at := w.gone(s, t.Machine); gone {
		return w.machineLost(t, all)
	} else if t.wakeAt(at); !s.Known {
		return false
	}
	m := s.Machine(t.Replacement)
	if m == nil {
		return w.replacementLost(t)
	}
	return w.checkReplacement(t, s, m)
}

// checkReplacement judges a turn whose replacement is listed.
func (w *World) checkReplacement(t *Turn, s *Set, m *Machine) bool {
	n := w.NodeOf(m)
	t.noteReplacementNode(m, n)
	mayReject, hasChanged := w.mayRejectReplacement(t), t.Attempt != w.Attempt(s, w.oldNode(t))
	const changed = "what machines are made of has changed"
	switch {
	case m.State == Failed:
		return w.failJoining(t, "machine "+m.ID+" was made, and has failed: "+or(m.Message, "the cloud does not say why"))
	case t.isReplacementDeleting(m):
		return false
	case mayReject && hasChanged && (w.Outdated(s, m, n) || n == nil && !m.UpToDate):
		return w.discard(t, changed)
	case mayReject && w.Outdated(s, m, n) && w.MatchOSImage:
		return w.failJoining(t, fmt.Sprintf("machine %s was made of image %s, and its node says that its OS image is %q: it would be replaced for ever",
			m.ID, s.ImageName, n.Status.NodeInfo.OSImage))
	case mayReject && w.Outdated(s, m, n):
		return w.failJoining(t, "machine "+m.ID+" was made, and is outdated at once: the cloud says that it is not made of what scale set "+s.Name+" makes new ones of")
	}
	if n != nil && n.Shieldable && !n.Shielded {
		t.Step, t.OnReplacement = StepShield, true
	}
	why, next := w.notReady(t)
	t.wakeAt(next)
	if why == "" {
		why = w.Unjoined[t.Turn]
	}
	if why != "" {
		return w.replacementLate(t, t.PhaseSince.Time, why)
	}
	t.Failed = nil
	if t.DeletesFirst && t.Node != "" {
		return w.enterLeaving(t) // Its machine has gone by itself.
	}
	if t.DeletesFirst {
		return w.enter(t, v1alpha1.MachineDeleting)
	}
	return w.enter(t, v1alpha1.MachineClaiming)
}

// mayRejectReplacement reports whether a turn can do without a replacement that is outdated. Others take it: it is replaced in its own turn.
func (w *World) mayRejectReplacement(t *Turn) bool { return !t.DeletesFirst && !w.Bound(t) }

// noteReplacementNode notes what identifies the replacement's Node, as far as that is known.
func (t *Turn) noteReplacementNode(m *Machine, n *Node) {
	t.ReplacementProviderID = or(m.ProviderID, t.ReplacementProviderID)
	if n != nil {
		t.ReplacementNode = n.Name
	}
}

// isRetryDue reports whether a turn that failed, and keeps its replacement, is tried again with another.
func (w *World) isRetryDue(t *Turn) bool {
	if w.Ending && !w.Bound(t) {
		return false
	}
	at := rollout.RetryAt(w.Retries, t.Failures+1, t.Failed.Time.Time)
	if at.IsZero() && w.Ending {
		at = t.Failed.Time.Add(w.Timeout) // It can't be released, and its rollout has no other chance.
	}
	t.wakeAt(at)
	return t.Attempt != w.Attempt(w.set(t.ScaleSet), w.oldNode(t)) || !at.IsZero() && !w.Now.Before(at)
}

// failJoining fails a turn whose replacement can't be used. A turn that needs a replacement keeps it until it is tried again: the set has no machine to spare.
// One that waits for the cloud to make a machine stays as well.
func (w *World) failJoining(t *Turn, why string) bool {
	if !w.needsReplacement(t) && t.Replacement != "" {
		return w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	}
	w.failInPlace(t, why)
	return false
}

// replacementLate fails a turn whose replacement is not ready in time, and says until then why not.
func (w *World) replacementLate(t *Turn, since time.Time, why string) bool {
	t.Message = why
	if deadline := since.Add(w.Timeout); w.Now.Before(deadline) {
		t.wakeAt(deadline)
		return false
	}
	return w.failJoining(t, fmt.Sprintf("the machine in place of %s was not ready within replacementReady.timeout, %s: %s", or(or(t.Node, t.Machine), "one that is gone"), w.Timeout, why))
}
