// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"slices"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
)

// settle applies the results of operations that have ended.
func (w *World) settle() {
	for _, s := range w.Sets {
		if s.Deleted {
			s.Operations = nil
		}
		if !s.Known {
			continue
		}
		s.Operations = slices.DeleteFunc(slices.Clone(s.Operations), func(o v1alpha1.CloudOperation) bool {
			end, ended := s.Ended[o.Token]
			switch {
			case ended && o.Kind == v1alpha1.CloudOperationAdd:
				w.turns = append(w.turns, w.applyAddition(s, &o, end)...)
			case ended && o.Kind == v1alpha1.CloudOperationDelete:
				return w.applyDeletion(s, &o, end)
			}
			return ended
		})
		for i := range s.Operations {
			if o := &s.Operations[i]; o.Kind == v1alpha1.CloudOperationAdd {
				w.assignEarly(s, o)
			}
		}
	}
}

// turnsWaitingFor are the turns that wait for an operation.
func (s *Set) turnsWaitingFor(turns []*Turn, token string) []*Turn {
	return slices.DeleteFunc(slices.Clone(turns), func(t *Turn) bool { return t.ScaleSet != s.Name || t.Operation != token })
}

// IsTaken reports whether a machine belongs to a turn already.
func IsTaken(turns []*Turn, set, id string) bool {
	return slices.ContainsFunc(turns, func(t *Turn) bool { return t.ScaleSet == set && (t.Replacement == id || t.Machine == id) })
}

// assignEarly assigns machines that run, or whose Node has joined, to turns while others of the same operation are still being added: a slow machine
// delays no other turn. The operation lists the assigned machines, because a turn may end before the operation ends.
func (w *World) assignEarly(s *Set, o *v1alpha1.CloudOperation) {
	ids := slices.DeleteFunc(slices.Clone(s.Added[o.Token]), func(id string) bool {
		m := s.Machine(id)
		return m == nil || m.State != cloud.Running && (m.State != cloud.Creating || w.NodeOf(m) == nil) || IsTaken(w.turns, s.Name, id) || slices.Contains(o.Machines, id)
	})
	left := w.assign(s, o, ids)
	o.Machines = slices.Concat(o.Machines, slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(left, id) }))
}

// assign assigns added machines to the turns that wait for them, in the same zone if possible. It returns the rest.
func (w *World) assign(s *Set, o *v1alpha1.CloudOperation, ids []string) (left []string) {
	left = slices.Clone(ids)
	for _, anyZone := range []bool{false, true} {
		for _, t := range s.turnsWaitingFor(w.turns, o.Token) {
			i := slices.IndexFunc(left, func(id string) bool {
				m := s.Machine(id)
				return anyZone || m != nil && m.Zone == t.Zone
			})
			if i < 0 {
				continue
			}
			t.Replacement, t.Operation, t.Failed = left[i], "", nil
			left = slices.Delete(left, i, i+1)
			w.enter(t, v1alpha1.MachineJoining)
			t.PhaseSince = o.Since
		}
	}
	return left
}

// applyAddition applies the result of an addition: it assigns machines to the turns that wait, and returns new turns that discard the rest.
func (w *World) applyAddition(s *Set, o *v1alpha1.CloudOperation, end Ended) (surplus []*Turn) {
	var ids, failed []string
	for _, id := range end.Added {
		m := s.Machine(id)
		switch {
		case IsTaken(w.turns, s.Name, id), slices.Contains(o.Machines, id):
		case end.NoRoom && m != nil && m.State == cloud.Failed:
			failed = append(failed, id) // The cloud had no room for it.
		default:
			ids = append(ids, id)
		}
	}
	unneeded := int(o.Count) - len(o.Machines) - len(s.turnsWaitingFor(w.turns, o.Token)) // Their turns no longer wait.
	ids = w.assign(s, o, ids)
	waiting := s.turnsWaitingFor(w.turns, o.Token)
	// Machines beyond the ordered number replace others that have died: they stay.
	ids = ids[:min(len(ids), max(0, unneeded+len(waiting)))]
	for _, t := range waiting {
		why := fmt.Sprintf("scale set %s did not get a replacement for %s", s.Name, t.oldName())
		if end.Message != "" {
			why += ": " + end.Message
		}
		w.notAdded(t, end.NoRoom, why)
	}
	for _, id := range slices.Concat(failed, ids) {
		surplus = append(surplus, &Turn{MachineTurn: v1alpha1.MachineTurn{
			Turn: o.Token + "-" + id, ScaleSet: s.Name, Replacement: id, Revision: w.Revision, Since: *nodeturn.Stamp(w.Now),
			Phase: v1alpha1.MachineDiscarding, PhaseSince: *nodeturn.Stamp(w.Now), Message: "no turn needs the machine",
		}})
	}
	return surplus
}

// notAdded handles a turn that the cloud has added no machine for. Without room the turn goes on without surge, or waits. Else it fails, unless it
// needs a replacement: then the machine is ordered again.
func (w *World) notAdded(t *Turn, noRoom bool, why string) {
	t.Operation = ""
	switch {
	case noRoom && w.OnFull == v1alpha1.OnFullDeleteFirst && !t.DeletesFirst && !w.Bound(t):
		t.Failed, t.DeletesFirst = nil, true
		w.enter(t, v1alpha1.MachineClaiming)
	case noRoom:
		t.Failed, t.Message = nil, nodeturn.Short(why)
	case w.needsReplacement(t):
		t.Message = nodeturn.Short(why) // If it has failed it stays failed until it has a replacement.
	default:
		w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	}
}

// applyDeletion applies the result of a deletion, and reports whether it is over. A successful one stays under way while the machine is still listed,
// for at most Timeout.
func (w *World) applyDeletion(s *Set, o *v1alpha1.CloudOperation, end Ended) bool {
	waiting := s.turnsWaitingFor(w.turns, o.Token)
	if end.OK && w.Now.Before(o.Since.Add(w.Timeout)) && slices.ContainsFunc(waiting, func(t *Turn) bool { return s.Machine(*t.machineToDelete()) != nil }) {
		return false
	}
	for _, t := range waiting {
		t.Operation = ""
		m := s.Machine(*t.machineToDelete())
		switch {
		case m == nil && end.OK:
			t.Confirmed = true
			*t.machineToDelete() = ""
		case m == nil, m.State == cloud.Deleting:
			// Later lists show whether it is gone.
		case t.Phase == v1alpha1.MachineDiscarding, w.Bound(t):
			t.Message = nodeturn.Short("machine " + m.ID + " was not deleted: " + end.Message)
		default:
			why := cmp.Or(end.Message, "the cloud says that it is deleted, and still lists it")
			w.fail(t, v1alpha1.ReasonDeleteFailed, fmt.Sprintf("machine %s of scale set %s was not deleted: %s", m.ID, s.Name, why))
		}
	}
	return true
}

// MayDeleteNode reports whether a Node whose machine is gone may be deleted. The cloud must have just confirmed the deletion, or the Node must not be
// Ready.
func (t *Turn) MayDeleteNode(n *Node) bool {
	confirmed := t.Confirmed && t.OnReplacement == (t.Phase == v1alpha1.MachineDiscarding)
	ready, _ := nodeturn.Ready(n.Node)
	return confirmed || !ready
}

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
