// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

func (w *World) soaking(t *Turn) bool {
	s, n := w.set(t.ScaleSet), w.ReplacementNode(t)
	if gone, at := w.gone(s, t.Replacement); gone {
		return w.placeLost(t, s)
	} else if m := s.Machine(t.Replacement); w.ControlPlane && s.Known && (m == nil || m.State == Deleting) {
		t.at(at)
		t.Message = "machine " + t.Replacement + ", which has taken the place, goes: its node is to leave the control plane"
		return false
	} else if t.at(at); n == nil {
		return w.replacementIll(t, nil, "the node of machine "+t.Replacement+" is not there")
	}
	t.ReplacementNode = n.Name
	if w.Ending || n.OptedOut || !n.Selected {
		return w.finishTurn(t, n)
	}
	if why, next := w.Unhealthy(n.Name); why != "" {
		t.at(next)
		return w.replacementIll(t, n, why)
	}
	if why, next := w.Unstable(t, n.Name); why != "" {
		t.at(next)
		return w.replacementIll(t, n, why)
	}
	t.Message, t.Failed = "", nil
	if end := w.SoakEnd(n.Name, t.PhaseSince.Time); w.Now.Before(end) {
		t.at(end)
		return false
	}
	return w.finishTurn(t, n)
}

// placeLost is a turn whose replacement took the place, and is gone before it was well for long enough. A control plane needs another one, or it would have a
// member less from then on; elsewhere it is as if any machine had died.
func (w *World) placeLost(t *Turn, s *Set) bool {
	if w.memberRemains(t) || w.nodeRemains(t, s) {
		return false
	}
	if !w.ControlPlane || s.Absent {
		t.Over = true
		return false
	}
	t.forgetReplacement(w)
	t.Failed, t.DeletesFirst = nil, true
	w.awaitReplacement(t)
	return true
}

// replacementIll is a turn whose replacement, which has the place, is not well. It has failed once that has lasted for as long as it had to become ready, and until
// it is well: there is nothing to go back to.
func (w *World) replacementIll(t *Turn, n *Node, why string) bool {
	since := t.PhaseSince.Time
	if n != nil {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && c.LastTransitionTime.After(since) {
				since = c.LastTransitionTime.Time
			}
		}
	}
	t.Message = why
	if deadline := since.Add(w.Timeout); w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	if t.Failed == nil {
		message := fmt.Sprintf("machine %s has taken the place, and is not well for longer than replacementReady.timeout, %s: %s", t.Replacement, w.Timeout, why)
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: short(message), Time: stamp(w.Now)}
	}
	return false
}

// finishTurn ends a turn well, once nothing of it is left on the replacement's node.
func (w *World) finishTurn(t *Turn, n *Node) bool {
	if n.Shielded {
		t.Step = StepFinish
		return false
	}
	t.Over, t.Updated = true, true
	return false
}
