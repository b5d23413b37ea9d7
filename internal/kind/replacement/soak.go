// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	corev1 "k8s.io/api/core/v1"
)

func (w *World) soaking(t *Turn) bool {
	s, n, m := w.set(t.ScaleSet), w.ReplacementNode(t), w.set(t.ScaleSet).Machine(t.Replacement)
	gone, at := w.gone(s, t.Replacement)
	t.wakeAt(at)
	switch {
	case gone:
		// It is as if any machine had died, once its member has left etcd and its Node is gone.
		t.Over = !w.replacementRemains(t, s)
		return false
	case s.Known && (m == nil || m.State == Deleting):
		t.Message = "machine " + t.Replacement + ", which has taken the place, is being deleted"
		return false
	case n == nil:
		return w.replacementUnhealthy(t, nil, "the node of machine "+t.Replacement+" is not there")
	}
	t.ReplacementNode = n.Name
	if !w.Ending && !n.OptedOut && n.Selected {
		why, next := w.Unhealthy(n.Name)
		if why == "" {
			why, next = w.Unstable(t, n.Name)
		}
		if t.wakeAt(next); why != "" {
			return w.replacementUnhealthy(t, n, why)
		}
		t.Message, t.Failed = "", nil
		if end := w.SoakEnd(n.Name, t.PhaseSince.Time); w.Now.Before(end) {
			t.wakeAt(end)
			return false
		}
	}
	if n.Shielded {
		t.Step, t.OnReplacement = StepUnshield, true
		return false
	}
	t.Over, t.Updated = true, true
	return false
}

// replacementUnhealthy is a turn whose replacement, which has the place, is not healthy. It has failed once that has lasted for as long as it had to become ready,
// and until it is healthy: the old machine is gone.
func (w *World) replacementUnhealthy(t *Turn, n *Node, why string) bool {
	since := t.PhaseSince.Time
	if n != nil {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && c.LastTransitionTime.After(since) {
				since = c.LastTransitionTime.Time
			}
		}
	}
	if deadline := since.Add(w.Timeout); w.Now.Before(deadline) {
		t.wakeAt(deadline)
	} else {
		w.failInPlace(t, "machine "+t.Replacement+" has taken the place, and is not healthy for longer than replacementReady.timeout, "+w.Timeout.String()+": "+why)
	}
	t.Message = why
	return false
}
