// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func (w *World) adding(t *Turn) bool {
	s := w.set(t.ScaleSet)
	if t.Operation != "" {
		t.Message = "a machine is being added to scale set " + t.ScaleSet
		switch o := s.Operation(t.Operation); {
		case o == nil:
		case o.Sent:
			w.overdue(t, o)
		case s.Message != "":
			t.Message = s.Message
		}
		return false
	}
	if why := w.unwanted(t); why != "" {
		return w.discard(t, why)
	}
	if gone, at := w.gone(s, t.Machine); gone {
		return w.discard(t, "the machine is gone")
	} else if !at.IsZero() {
		t.at(at)
		return false
	}
	t.Step = StepAdd
	if why := or(s.Message, s.NoRoomMessage); why != "" {
		t.Message = why
	} else if t.Message == "" {
		t.Message = "a machine is to be added to scale set " + t.ScaleSet
	}
	return false
}

// overdue is a turn whose machine is being added still. It has failed once that takes longer than a replacement may take to become ready, and waits on: what
// the cloud has begun can't be called back, and what comes of it is the turn's.
func (w *World) overdue(t *Turn, o *v1alpha1.CloudOperation) {
	if deadline := o.Since.Add(w.Timeout); w.Now.Before(deadline) {
		t.at(deadline)
		return
	}
	t.Message += fmt.Sprintf(" for longer than replacementReady.timeout, %s", w.Timeout)
	if t.Failed == nil {
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: short(t.Message), Time: stamp(w.Now)}
	}
}

func (w *World) joining(t *Turn, all []*Turn) bool {
	s := w.set(t.ScaleSet)
	if t.Failed != nil && w.retries(t) {
		t.Failures++
		t.Failed, t.Attempt = nil, w.Attempt(s, w.old(t))
		return w.discard(t, "it is tried again")
	}
	if t.Replacement == "" {
		// The one that the cloud makes is the turn's, whatever becomes of the turn.
		if m := w.newcomer(t, s, all); m != nil {
			t.Replacement = m.ID
			return true
		}
		if w.Now.Before(t.PhaseSince.Add(w.Timeout)) {
			return w.late(t, "no machine has come to scale set "+s.Name+" that could take the place")
		}
	}
	if why := w.unwanted(t); why != "" {
		return w.discard(t, why)
	}
	if t.Failed != nil && w.Ending && !w.Bound(t) {
		t.Over = true
		return false
	}
	if gone, at := w.gone(s, t.Machine); gone {
		return w.vanished(t)
	} else if t.at(at); !s.Known {
		return false
	}
	if t.Replacement == "" {
		return w.late(t, "no machine has come to scale set "+s.Name+" that could take the place")
	}
	m := s.Machine(t.Replacement)
	if m == nil {
		return w.bereft(t)
	}
	return w.comes(t, s, m)
}

// changed is why turns begin anew.
const changed = "what machines are made of has changed"

// comes is a turn whose replacement is there.
func (w *World) comes(t *Turn, s *Set, m *Machine) bool {
	n := w.NodeOf(m)
	t.joins(m, n)
	switch {
	case m.State == Failed:
		return w.failsJoining(t, "machine "+m.ID+" was made, and has failed: "+or(m.Message, "the cloud does not say why"))
	case m.State == Deleting:
		t.Message = "machine " + m.ID + ", which was to take the place, is being deleted"
		return false
	case w.chooses(t) && w.Outdated(s, m, n):
		return w.drifted(t, s, m, n)
	case w.chooses(t) && w.MatchOSImage && n == nil && !m.UpToDate && t.Attempt != w.Attempt(s, w.old(t)):
		return w.discard(t, changed) // It may never have a Node to tell by.
	}
	if n != nil && n.Shieldable && !n.Shielded {
		t.Step = StepShield
	}
	why, next := w.unready(t)
	t.at(next)
	if why == "" {
		why = w.Unjoined[t.Turn]
	}
	if why != "" {
		return w.late(t, why)
	}
	t.Failed = nil
	if t.DeletesFirst && t.Node != "" {
		return w.leave(t) // Its machine has gone by itself.
	}
	if t.DeletesFirst {
		return w.enter(t, v1alpha1.MachineDeleting)
	}
	return w.enter(t, v1alpha1.MachineClaiming)
}

// chooses reports whether a turn may do without a replacement that is not as it should be. Others take what comes: that is replaced in its own turn.
func (w *World) chooses(t *Turn) bool {
	return !t.DeletesFirst && !w.Bound(t) && !strings.HasPrefix(t.Turn, v1alpha1.DucklettPrefix)
}

// joins notes what the replacement's Node is known by, as far as that is known.
func (t *Turn) joins(m *Machine, n *Node) {
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

// retries reports whether a turn without surge that failed is tried again.
func (w *World) retries(t *Turn) bool {
	if w.Ending && !w.Bound(t) {
		return false
	}
	at := rollout.RetryAt(w.Retries, t.Failures+1, t.Failed.Time.Time)
	t.at(at)
	return t.Attempt != w.Attempt(w.set(t.ScaleSet), w.old(t)) || !at.IsZero() && !w.Now.Before(at)
}

// skew is by how much the clocks of a cloud may differ.
const skew = 5 * time.Minute

// newcomer is a machine that could take a place, and does not yet: the newest of those that are as they should be, and have come since the turn began.
// When a turn of Ducklett's began is not known.
func (w *World) newcomer(t *Turn, s *Set, all []*Turn) *Machine {
	began := t.Since.Add(-skew)
	var newest *Machine
	for i := range s.Machines {
		m := &s.Machines[i]
		n := w.NodeOf(m)
		// One that was bound to have another takes it as it is, if it is known to be new.
		unfit := w.Outdated(s, m, n) && (m.Created.IsZero() || !w.Bound(t))
		if m.State == Deleting || m.State == Failed || unfit || Taken(all, s.Name, m.ID) || s.promised(m.ID) {
			continue
		}
		if !m.Created.IsZero() && m.Created.Before(began) && !strings.HasPrefix(t.Turn, v1alpha1.DucklettPrefix) {
			continue
		}
		if newest == nil || m.newer(newest) {
			newest = m
		}
	}
	return newest
}

func (m *Machine) newer(than *Machine) bool {
	return m.Created.After(than.Created) || m.Created.Equal(than.Created) && m.ID > than.ID
}

// promised reports whether a machine is known to be one that an addition under way has made: turns wait for that one.
func (s *Set) promised(id string) bool {
	return slices.ContainsFunc(s.Operations, func(o v1alpha1.CloudOperation) bool {
		return slices.Contains(slices.Concat(s.Added[o.Token], s.Ended[o.Token].Added), id) && !slices.Contains(o.Machines, id)
	})
}

// bereft is a turn whose replacement is not listed. Perhaps the cloud makes another.
func (w *World) bereft(t *Turn) bool {
	s := w.set(t.ScaleSet)
	gone, at := w.gone(s, t.Replacement)
	t.at(at)
	if !gone {
		t.Message = "machine " + t.Replacement + " is not listed by the cloud"
		return false
	}
	if w.behind(t) || w.buried(t, s) {
		return false
	}
	id, lost := t.Replacement, s.Lost > 0
	delete(w.Left, t.Key(true)) // Another has not.
	t.Replacement, t.ReplacementNode, t.ReplacementProviderID = "", "", ""
	if lost {
		s.Lost--
	}
	bound, left := w.Bound(t), t.Phase == v1alpha1.MachineDeleting || t.Phase == v1alpha1.MachineLeaving && w.Left[t.Key(false)]
	switch {
	case lost && bound && left:
		t.DeletesFirst = true // It is made up for once the machine is gone.
		return true
	case bound:
		t.Bound = true // The control plane may not let its node go before there is another, and it may have left by half.
	case !lost:
		w.forget(t, false)
	}
	switch {
	case !lost:
		return w.enter(t, v1alpha1.MachineJoining) // The cloud makes another in its place, or has made it.
	case w.insists(t):
		return w.enter(t, v1alpha1.MachineAdding)
	}
	return w.fail(t, v1alpha1.ReasonReplacementFailed, "machine "+id+" of scale set "+s.Name+", which was to take the place of "+t.Machine+", is gone")
}

// drifted is a turn whose replacement is not what machines are to be any more.
func (w *World) drifted(t *Turn, s *Set, m *Machine, n *Node) bool {
	if t.Attempt != w.Attempt(s, w.old(t)) {
		return w.discard(t, changed)
	}
	why := "machine " + m.ID + " was made, and is outdated at once: the cloud says that it is not made of what scale set " + s.Name + " makes new ones of"
	if w.MatchOSImage {
		why = fmt.Sprintf("machine %s was made of image %s, and its node says that its OS image is %q: it would be replaced for ever", m.ID, s.ImageName, n.Status.NodeInfo.OSImage)
	}
	return w.failsJoining(t, why)
}

// failsJoining fails a turn whose replacement is of no use. One that needs a replacement, as it has deleted its machine already, keeps it until it is
// tried again: the set has no machine to spare.
func (w *World) failsJoining(t *Turn, why string) bool {
	if !w.insists(t) {
		return w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	}
	if t.Failed == nil {
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: short(why), Time: stamp(w.Now)}
	}
	t.Message = why
	return false
}

// late is a turn whose replacement is not ready.
func (w *World) late(t *Turn, why string) bool {
	deadline := t.PhaseSince.Add(w.Timeout)
	t.Message = why
	if w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	name := "the machine that was to take the place of " + or(or(t.Node, t.Machine), "one that is gone")
	return w.failsJoining(t, fmt.Sprintf("%s was not ready within replacementReady.timeout, %s: %s", name, w.Timeout, why))
}
