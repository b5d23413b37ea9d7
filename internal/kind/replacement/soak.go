// SPDX-License-Identifier: Apache-2.0

package replacement

import "moult.dev/moult/internal/cloud"

func (w *World) soaking(t *Turn) {
	s, n := w.SetOf(t), w.ReplacementNode(t)
	m := s.Machine(t.Replacement)
	switch {
	case s.isGone(t.Replacement):
		// The turn ends once the etcd member and the Node of the lost machine are gone.
		t.Over = !w.replacementRemains(t, s)
	case s.Known && (m == nil || m.State == cloud.Deleting):
		t.Message = "machine " + t.Replacement + ", the replacement, is being deleted"
	case n == nil:
		w.replacementUnhealthy(t, "the Node of machine "+t.Replacement+" does not exist")
	case t.Absent != nil && len(t.Absent.Evicted) > 0: // They are recorded on the replacement's Node first.
	case !w.Ending && !n.OptedOut && n.Selected && !w.hasSoaked(t, n):
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
		w.replacementUnhealthy(t, why)
		return false
	}
	t.Message, t.Failed, t.UnreadySince = "", nil, nil
	return !t.waitUntil(w.SoakEnd(n.Name, t.PhaseSince.Time), w.Now)
}

// replacementUnhealthy handles a soaking replacement that is not healthy. After Timeout the turn is marked failed until the replacement is healthy:
// the old machine is gone.
func (w *World) replacementUnhealthy(t *Turn, why string) {
	if w.isUnreadyForLong(t, why) {
		w.failReplacement(t, "machine "+t.Replacement+", the replacement, is not healthy for longer than replacementReady.timeout, "+w.Timeout.String()+": "+why)
	}
}
