// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	corev1 "k8s.io/api/core/v1"
)

func (w *World) soaking(t *Turn) {
	s, n, m := w.set(t.ScaleSet), w.ReplacementNode(t), w.set(t.ScaleSet).Machine(t.Replacement)
	switch gone, _ := w.isGone(t, t.Replacement); {
	case gone:
		// The turn ends once the etcd member and the Node of the lost machine are gone.
		t.Over = !w.replacementRemains(t, s)
	case s.Known && (m == nil || m.State == Deleting):
		t.Message = "machine " + t.Replacement + ", which has taken the place, is being deleted"
	case n == nil:
		w.replacementUnhealthy(t, nil, "the node of machine "+t.Replacement+" is not there")
	case !w.Ending && !n.OptedOut && n.Selected && !w.hasSoaked(t, n):
	case n.Shielded:
		t.Step, t.OnReplacement, t.ReplacementNode = StepUnshield, true, n.Name
	default:
		t.Over, t.Updated, t.ReplacementNode = true, true, n.Name
	}
}

// hasSoaked reports whether the replacement was healthy for long enough.
func (w *World) hasSoaked(t *Turn, n *Node) bool {
	t.ReplacementNode = n.Name
	why, next := w.Unhealthy(n.Name)
	if why == "" {
		why, next = w.Unstable(t, n.Name)
	}
	if t.wakeAt(next); why != "" {
		w.replacementUnhealthy(t, n, why)
		return false
	}
	t.Message, t.Failed = "", nil
	return !t.waitUntil(w.SoakEnd(n.Name, t.PhaseSince.Time), w.Now)
}

// replacementUnhealthy handles a soaking replacement that is not healthy. After Timeout the turn is marked failed until the replacement is healthy: the old
// machine is gone.
func (w *World) replacementUnhealthy(t *Turn, n *Node, why string) {
	since := t.PhaseSince.Time
	if n != nil {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && c.LastTransitionTime.After(since) {
				since = c.LastTransitionTime.Time
			}
		}
	}
	if !t.waitUntil(since.Add(w.Timeout), w.Now) {
		w.failInPlace(t, "machine "+t.Replacement+" has taken the place, and is not healthy for longer than replacementReady.timeout, "+w.Timeout.String()+": "+why)
	}
	t.Message = why
}
