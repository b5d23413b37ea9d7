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

func (w *World) joining(t *Turn, all []*Turn) bool {
	s := w.set(t.ScaleSet)
	if t.Replacement == "" {
		// The one that the cloud makes is the turn's, whatever becomes of the turn.
		if m := w.successor(t, s, all, t.PhaseSince.Time); m != nil {
			if t.Replacement = m.ID; t.Failed != nil {
				t.Failed = nil // For the time that it took: now it has as long as any.
				return w.enter(t, v1alpha1.MachineJoining)
			}
			return true
		}
	}
	if t.Failed != nil && w.retries(t) {
		return w.rejoins(t, s)
	}
	if t.Replacement == "" && (w.Now.Before(t.PhaseSince.Add(w.Timeout)) || s.owes()) {
		return w.late(t, "no machine has come to scale set "+s.Name+" that could take the place")
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

// rejoins is a turn that is tried again.
func (w *World) rejoins(t *Turn, s *Set) bool {
	t.Failures++
	t.Failed, t.Attempt = nil, w.Attempt(s, w.old(t))
	switch {
	case t.Replacement == "" && s.owes():
		return w.enter(t, v1alpha1.MachineJoining) // Whatever was asked for besides would be one too many.
	case w.Bound(t) && w.Stays[t.Turn] != "":
		return w.enter(t, v1alpha1.MachineJoining) // Etcd can't do without it: it has as long again to become ready.
	}
	return w.discard(t, "it is tried again")
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
	case w.goes(t, m):
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
	if at.IsZero() && w.Ending {
		at = t.Failed.Time.Add(w.Timeout) // Nobody is to be asked any more, and it can't be given up.
	}
	t.at(at)
	return t.Attempt != w.Attempt(w.set(t.ScaleSet), w.old(t)) || !at.IsZero() && !w.Now.Before(at)
}

// skew is by how much the clocks of a cloud may differ, where that is to cost no machine, and soon where it may be that another one is taken.
const (
	skew = 5 * time.Minute
	soon = 10 * time.Second
)

// newcomer is a machine that could take a place, and does not yet: the newest of those that newcomers finds.
func (w *World) newcomer(t *Turn, s *Set, all []*Turn, gone time.Time) *Machine {
	_, newest := w.newcomers(t, s, all, gone)
	return newest
}

// successor is the one that takes the place of a replacement that is gone: the first that has come since, as the cloud has made later ones in the place of
// others. Where none has come it is the newest.
func (w *World) successor(t *Turn, s *Set, all []*Turn, gone time.Time) *Machine {
	first, newest := w.newcomers(t, s, all, gone)
	if first != nil {
		return first
	}
	return newest
}

// newcomers are machines that could take a place, and do not yet: the first of those that have come since the replacement was gone, and the newest of all. They
// are as they should be, and have come since the turn began. One that has come since the replacement was gone is one whatever it is: the cloud has made it in
// its place, by what it was to be then. As long as the cloud is still to make one no older one is.
// When a turn of Ducklett's began is not known: if what it had added has failed that is the one, and not some other that serves.
func (w *World) newcomers(t *Turn, s *Set, all []*Turn, gone time.Time) (first, newest *Machine) {
	for i := range s.Machines {
		m := &s.Machines[i]
		made := !gone.IsZero() && !m.Created.Before(gone.Add(-soon))
		if !w.fits(t, s, m, made) || Taken(all, s.Name, m.ID) || s.promised(m.ID) {
			continue
		}
		if newest == nil || m.newer(newest) {
			newest = m
		}
		if made && (first == nil || first.newer(m)) {
			first = m
		}
	}
	return first, newest
}

// fits reports whether a machine could take a turn's place; made is that it may have been made in that of the replacement.
func (w *World) fits(t *Turn, s *Set, m *Machine, made bool) bool {
	n, ducklett := w.NodeOf(m), strings.HasPrefix(t.Turn, v1alpha1.DucklettPrefix)
	// One that was bound to have another takes it as it is, if it is known to be new.
	unfit := w.Outdated(s, m, n) && (m.Created.IsZero() || !w.Bound(t)) || m.State == Failed && !ducklett
	if m.State == Deleting || !made && (unfit || s.owes() && !ducklett) || s.unsure(m, n) {
		return false
	}
	return m.Created.IsZero() || !m.Created.Before(t.Since.Add(-skew)) || ducklett
}

// unsure reports whether a machine may be one that an addition under way has made for other turns: not all of that one's machines are known yet.
func (s *Set) unsure(m *Machine, n *Node) bool {
	return slices.ContainsFunc(s.Operations, func(o v1alpha1.CloudOperation) bool {
		return maybeOf(&o, m, n) && len(s.Added[o.Token])+len(s.Ended[o.Token].Added) < int(o.Count)
	})
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

// owes reports whether the cloud is still to make machines: it has fewer than the set is to have.
func (s *Set) owes() bool {
	there := 0
	for i := range s.Machines {
		if s.Machines[i].State != Deleting {
			there++
		}
	}
	return s.Known && s.Capacity > there
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
	if w.behind(t) || !w.detached(t, s) && w.buried(t, s) {
		return false
	}
	id, lost, since := t.Replacement, s.Lost > 0, s.seen(t)
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
		return w.awaits(t, since)
	case w.insists(t):
		return w.enter(t, v1alpha1.MachineAdding)
	}
	return w.fail(t, v1alpha1.ReasonReplacementFailed, "machine "+id+" of scale set "+s.Name+", which was to take the place of "+t.Machine+", is gone")
}

// seen is since when a turn's replacement may be gone: since it was listed for the last time or, where it has never been, since the turn's phase began.
func (s *Set) seen(t *Turn) time.Time {
	if last, ok := s.Last[t.Replacement]; ok {
		return last
	}
	return t.PhaseSince.Time
}

// awaits is a turn whose replacement is gone since then: the cloud makes another in its place, or has made it.
func (w *World) awaits(t *Turn, since time.Time) bool {
	w.enter(t, v1alpha1.MachineJoining)
	t.PhaseSince = stamp(since)
	return true
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
// tried again: the set has no machine to spare. One for which the cloud is still to make a machine stays as well: whose would that be?
func (w *World) failsJoining(t *Turn, why string) bool {
	if owed := t.Replacement == "" && w.set(t.ScaleSet).owes(); !w.insists(t) && !owed {
		return w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	}
	w.failsInPlace(t, why)
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
