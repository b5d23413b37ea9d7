// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// settle takes account of operations that have ended.
func (w *World) settle(turns []*Turn) []*Turn {
	for _, s := range w.Sets {
		s.Operations = slices.DeleteFunc(slices.Clone(s.Operations), func(o v1alpha1.CloudOperation) bool {
			end, ended := s.Ended[o.Token]
			if !ended || !s.Known || s.LookedAt.Before(end.At) {
				return false
			}
			waiting := waitingFor(turns, s, o.Token)
			switch o.Kind {
			case v1alpha1.CloudOperationAdd:
				turns = append(turns, w.added(s, &o, end, waiting, turns)...)
			case v1alpha1.CloudOperationDelete:
				return w.deleted(s, end, waiting)
			case v1alpha1.CloudOperationSetImage:
			}
			return true
		})
		for i := range s.Operations {
			if o := &s.Operations[i]; o.Kind == v1alpha1.CloudOperationAdd && s.Known {
				w.assignEarly(s, o, turns)
			}
		}
	}
	for _, t := range turns {
		if t.Operation != "" && w.set(t.ScaleSet).Known && w.set(t.ScaleSet).Operation(t.Operation) == nil {
			t.Operation = "" // Somebody has edited the status.
		}
	}
	return turns
}

// waitingFor are the turns that wait for an operation.
func waitingFor(turns []*Turn, s *Set, token string) (waiting []*Turn) {
	for _, t := range turns {
		if t.ScaleSet == s.Name && t.Operation == token {
			waiting = append(waiting, t)
		}
	}
	return waiting
}

// Taken reports whether a machine has a part in a turn already.
func Taken(turns []*Turn, set, id string) bool {
	return slices.ContainsFunc(turns, func(t *Turn) bool { return t.ScaleSet == set && (t.Replacement == id || t.Machine == id) })
}

// assignEarly gives machines that run to turns while others of the same operation are still being added: one that hangs keeps no other waiting. The operation
// keepsFailed in mind which these are, since their turns may be over before it is.
func (w *World) assignEarly(s *Set, o *v1alpha1.CloudOperation, all []*Turn) {
	_, ended := s.Ended[o.Token]
	waiting := waitingFor(all, s, o.Token)
	if ended || len(waiting) == 0 {
		return
	}
	ids := slices.DeleteFunc(slices.Clone(s.Added[o.Token]), func(id string) bool {
		m := s.Machine(id)
		return m == nil || m.State != Running || Taken(all, s.Name, id) || slices.Contains(o.Machines, id)
	})
	given := slices.Clone(ids)
	_, ids = w.assign(s, o, ids, waiting)
	given = slices.DeleteFunc(given, func(id string) bool { return slices.Contains(ids, id) })
	o.Machines = slices.Concat(o.Machines, given)
}

// assign gives machines that were added to the turns that wait for them: one of the same zone where there is. It returns which are left of both.
func (w *World) assign(s *Set, o *v1alpha1.CloudOperation, ids []string, waiting []*Turn) (still []*Turn, left []string) {
	take := func(fits func(id string) bool, t *Turn) bool {
		i := slices.IndexFunc(ids, fits)
		if i < 0 {
			return false
		}
		t.Replacement, t.Operation, t.Failed = ids[i], "", nil
		ids = slices.Delete(ids, i, i+1)
		w.enter(t, v1alpha1.MachineJoining)
		t.PhaseSince = o.Since
		return true
	}
	var others []*Turn
	for _, t := range waiting {
		if !take(func(id string) bool { m := s.Machine(id); return m != nil && m.Zone == t.Zone }, t) {
			others = append(others, t)
		}
	}
	for _, t := range others {
		if !take(func(string) bool { return true }, t) {
			still = append(still, t)
		}
	}
	return still, ids
}

// added gives machines that were added to the turns that wait for them. It returns turns that discard what nobody waits for.
func (w *World) added(s *Set, o *v1alpha1.CloudOperation, end Ended, waiting, all []*Turn) (surplus []*Turn) {
	ids := slices.DeleteFunc(slices.Clone(end.Added), func(id string) bool { return Taken(all, s.Name, id) || slices.Contains(o.Machines, id) })
	var useless []string
	if end.NoRoom {
		// What the cloud had no room for it may have made all the same, as machines that have failed.
		failed := func(id string) bool { m := s.Machine(id); return m != nil && m.State == Failed }
		useless = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !failed(id) })
		ids = slices.DeleteFunc(ids, failed)
	}
	before := len(waiting)
	waiting, ids = w.assign(s, o, ids, waiting)
	// More than were asked for: others of the set have come at the same time, in the place of some that have died.
	ids = ids[:min(len(ids), max(0, int(o.Count)-len(o.Machines)-(before-len(waiting))))]
	for _, t := range waiting {
		failed := t.Failed
		t.Operation, t.Failed = "", nil // For the time that it took: what came of it says more.
		why := fmt.Sprintf("scale set %s has not got the machine that was to take the place of %s", s.Name, t.Machine)
		if end.Message != "" {
			why += ": " + end.Message
		}
		switch {
		case end.NoRoom && w.OnFull == v1alpha1.OnFullDeleteFirst && !t.DeletesFirst && !w.Bound(t):
			t.DeletesFirst = true
			w.enter(t, v1alpha1.MachineClaiming)
		case end.NoRoom:
			t.Message = short(why)
		case w.needsReplacement(t):
			t.Message, t.Failed = short(why), failed // It asks again, and has failed until it gets one.
		default:
			w.fail(t, v1alpha1.ReasonReplacementFailed, why)
		}
	}
	for _, id := range slices.Concat(useless, ids) {
		t := &Turn{MachineTurn: v1alpha1.MachineTurn{
			Turn: o.Token + "-" + id, ScaleSet: s.Name, Replacement: id, Revision: w.Revision, Since: stamp(w.Now), Phase: v1alpha1.MachineDiscarding, PhaseSince: stamp(w.Now),
			Message: "nothing waits for the machine",
		}}
		surplus = append(surplus, t)
	}
	return surplus
}

// listedFor is how long a machine may still be listed that is said to be deleted.
const listedFor = 2 * time.Minute

// deleted takes account of a deletion that has ended, unless it is too early for that.
func (w *World) deleted(s *Set, end Ended, waiting []*Turn) bool {
	target := func(t *Turn) string {
		if t.Phase == v1alpha1.MachineDiscarding {
			return t.Replacement
		}
		return t.Machine
	}
	if end.OK && w.Now.Before(end.At.Add(listedFor)) && slices.ContainsFunc(waiting, func(t *Turn) bool { return s.Machine(target(t)) != nil }) {
		for _, t := range waiting {
			t.at(end.At.Add(listedFor))
		}
		return false
	}
	for _, t := range waiting {
		t.Operation, t.Ordered = "", true
		m := s.Machine(target(t))
		switch {
		case m == nil && !end.OK:
			// Whether it is gone, later looks tell.
		case m == nil && t.Phase == v1alpha1.MachineDiscarding:
			w.noteDeleted(t, true, end)
			t.Replacement = ""          // Its Node is still to go,
			delete(w.Left, t.Key(true)) // and a member that it may have added in its last moment.
		case m == nil:
			w.noteDeleted(t, false, end)
			t.Machine = ""
		case m.State == Deleting:
			// It goes.
		case t.Phase == v1alpha1.MachineDiscarding, w.Bound(t):
			t.Message = short("machine " + m.ID + " was not deleted: " + end.Message)
		default:
			why := end.Message
			if why == "" {
				why = "the cloud says that it is, and still lists it"
			}
			w.fail(t, v1alpha1.ReasonDeleteFailed, fmt.Sprintf("machine %s of scale set %s was not deleted: %s", m.ID, s.Name, why))
		}
	}
	return true
}

// noteDeleted notes that a machine which the turn had asked to be deleted is gone, and that the cloud says so.
func (w *World) noteDeleted(t *Turn, back bool, end Ended) {
	if end.OK && end.Sure && w.Deleted != nil {
		w.Deleted[t.Key(back)] = end.At
	}
}

// confirmedFor is how long a Node may be deleted for that alone. Later another machine may have come by its name.
const confirmedFor = time.Minute

// Silent reports whether nobody can be speaking for a Node whose machine is gone: the cloud has just confirmed that, or the Node is not Ready any more.
func (w *World) Silent(t *Turn, back bool, n *Node) bool {
	if at, ok := w.Deleted[t.Key(back)]; ok && w.Now.Before(at.Add(confirmedFor)) {
		return true
	}
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
