// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func (w *World) joining(t *Turn, all []*Turn) bool {
	s := w.set(t.ScaleSet)
	if t.Replacement == "" {
		return w.findReplacement(t, s, all)
	}
	if t.Failed != nil && w.isRetryDue(t) {
		return w.retryReplacement(t, s)
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
	} else if t.at(at); !s.Known {
		return false
	}
	m := s.Machine(t.Replacement)
	if m == nil {
		return w.replacementLost(t)
	}
	return w.checkReplacement(t, s, m)
}

// retryReplacement is a turn that is tried again.
func (w *World) retryReplacement(t *Turn, s *Set) bool {
	t.Failures++
	t.Failed, t.Attempt = nil, w.Attempt(s, w.oldNode(t))
	if w.Bound(t) && w.Stays[t.Turn] != "" {
		return w.enter(t, v1alpha1.MachineJoining) // Etcd can't do without it: it has as long again to become ready.
	}
	return w.discard(t, "it is tried again")
}

// changed is why turns begin anew.
const changed = "what machines are made of has changed"

// checkReplacement is a turn whose replacement is there.
func (w *World) checkReplacement(t *Turn, s *Set, m *Machine) bool {
	n := w.NodeOf(m)
	t.noteReplacementNode(m, n)
	switch {
	case m.State == Failed:
		return w.failsJoining(t, "machine "+m.ID+" was made, and has failed: "+or(m.Message, "the cloud does not say why"))
	case w.replacementDeleting(t, m):
		return false
	case w.mayRejectReplacement(t) && w.Outdated(s, m, n):
		return w.replacementOutdated(t, s, m, n)
	case w.mayRejectReplacement(t) && w.MatchOSImage && n == nil && !m.UpToDate && t.Attempt != w.Attempt(s, w.oldNode(t)):
		return w.discard(t, changed) // It may never have a Node to tell by.
	}
	if n != nil && n.Shieldable && !n.Shielded {
		t.Step = StepShield
	}
	why, next := w.notReady(t)
	t.at(next)
	if why == "" {
		why = w.Unjoined[t.Turn]
	}
	if why != "" {
		return w.replacementLate(t, why)
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

// mayRejectReplacement reports whether a turn may do without a replacement that is not as it should be. Others take what comes: that is replaced in its own turn.
func (w *World) mayRejectReplacement(t *Turn) bool {
	return !t.DeletesFirst && !w.Bound(t) && !t.isDuckletts()
}

// noteReplacementNode notes what the replacement's Node is known by, as far as that is known.
func (t *Turn) noteReplacementNode(m *Machine, n *Node) {
	if m.ProviderID != "" {
		t.ReplacementProviderID = m.ProviderID
	}
	if n == nil {
		return
	}
	t.ReplacementNode = n.Name
	if n.Spec.ProviderID != "" {
		t.ReplacementProviderID = n.Spec.ProviderID
	}
}

// isRetryDue reports whether a turn without surge that failed is tried again.
func (w *World) isRetryDue(t *Turn) bool {
	if w.Ending && !w.Bound(t) {
		return false
	}
	at := rollout.RetryAt(w.Retries, t.Failures+1, t.Failed.Time.Time)
	if at.IsZero() && w.Ending {
		at = t.Failed.Time.Add(w.Timeout) // It can't be released, and nobody is asked to change it.
	}
	t.at(at)
	return t.Attempt != w.Attempt(w.set(t.ScaleSet), w.oldNode(t)) || !at.IsZero() && !w.Now.Before(at)
}

// replacementOutdated is a turn whose replacement is not what machines are to be any more.
func (w *World) replacementOutdated(t *Turn, s *Set, m *Machine, n *Node) bool {
	if t.Attempt != w.Attempt(s, w.oldNode(t)) {
		return w.discard(t, changed)
	}
	why := "machine " + m.ID + " was made, and is outdated at once: the cloud says that it is not made of what scale set " + s.Name + " makes new ones of"
	if w.MatchOSImage {
		why = fmt.Sprintf("machine %s was made of image %s, and its node says that its OS image is %q: it would be replaced for ever", m.ID, s.ImageName, n.Status.NodeInfo.OSImage)
	}
	return w.failsJoining(t, why)
}

// failsJoining fails a turn whose replacement is of no use. One that needs a replacement, as it has deleted its machine already, keeps it until it is
// tried again: the set has no machine to spare. One for which the cloud is still to make a machine stays as well: whose would that be?
func (w *World) failsJoining(t *Turn, why string) bool {
	if !w.needsReplacement(t) && t.Replacement != "" {
		return w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	}
	w.failsInPlace(t, why)
	return false
}

// replacementLate is a turn whose replacement is not ready.
func (w *World) replacementLate(t *Turn, why string) bool {
	deadline := t.PhaseSince.Add(w.Timeout)
	if t.Replacement == "" && t.UnreadySince != nil {
		deadline = t.UnreadySince.Add(w.Timeout)
	}
	t.Message = why
	if w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	name := "the machine that was to take the place of " + or(or(t.Node, t.Machine), "one that is gone")
	return w.failsJoining(t, fmt.Sprintf("%s was not ready within replacementReady.timeout, %s: %s", name, w.Timeout, why))
}
