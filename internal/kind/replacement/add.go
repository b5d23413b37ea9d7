// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

func (w *World) adding(t *Turn) {
	s := w.set(t.ScaleSet)
	if t.Operation != "" {
		t.Message = "a machine is being added to scale set " + t.ScaleSet
		if o := s.Operation(t.Operation); o != nil && !o.Sent {
			t.Message = cmp.Or(s.Message, t.Message)
		}
		w.failIfNotAdded(t, s)
		return
	}
	why := w.whyUnwanted(t)
	gone, uncertain := w.isGone(t, t.Machine)
	switch {
	case t.Failed != nil && w.Ending && !w.Bound(t) && s.Declined != "":
		t.Over = true // It would wait for ever.
	case why != "":
		w.discard(t, why)
	case gone:
		w.discard(t, "the machine is gone")
	case uncertain:
	case w.exceedsSurge(t, s):
		w.discard(t, "surge does not allow for it any more") // The node begins anew, with surge as it is now.
	default:
		t.Step = StepAdd
		t.Message = cmp.Or(s.Message, s.Unfit, s.NoRoomMessage, t.Message, "a machine will be added to scale set "+t.ScaleSet)
		w.failIfNotAdded(t, s)
	}
}

// exceedsSurge reports whether surge was lowered so far that a turn which waits for its machine to be ordered can't have one.
func (w *World) exceedsSurge(t *Turn, s *Set) bool {
	if !s.Known || !t.Surplus() || w.needsReplacement(t) {
		return false
	}
	// A machine that no turn waits for is deleted, whatever else happens.
	u := s.usage(slices.DeleteFunc(slices.Clone(w.turns), func(t *Turn) bool { return t.Machine == "" && t.Phase == v1alpha1.MachineDiscarding }))
	before := usage{used: u.used - u.adding} // As many as the set has for certain: of a percentage not less than when the turn began.
	return u.used > w.surge(s, before)
}

// failIfNotAdded fails a turn once its machine should have been ready: where the cloud says that it adds none, or is still adding it. Where room, quota or rights are
// missing, the turn waits. A turn that needs a replacement, or that may have been given one, fails and waits on.
func (w *World) failIfNotAdded(t *Turn, s *Set) {
	why, since := s.Declined, t.PhaseSince
	if o := s.Operation(t.Operation); o != nil && o.Sent {
		why, since = "the cloud is still adding it", o.Since
	}
	if why == "" || t.waitUntil(since.Add(w.Timeout), w.Now) {
		return
	}
	why = fmt.Sprintf("scale set %s has no machine in place of %s within replacementReady.timeout, %s: %s", s.Name, cmp.Or(t.Node, t.Machine, "one that is gone"), w.Timeout, why)
	if t.Operation == "" && !w.needsReplacement(t) {
		w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	} else {
		w.failInPlace(t, why)
	}
}

// additionsBlocked says why a set gets no machines in place of those that are deleted, so that no further one may be deleted first, or "".
func (w *World) additionsBlocked(s *Set, turns []*Turn) string {
	for _, t := range turns {
		switch {
		case t.ScaleSet != s.Name || t.Over || t.Phase != v1alpha1.MachineAdding:
		case s.Declined != "":
			return "no machine is added to scale set " + s.Name + ": " + s.Declined
		case t.Failed != nil:
			return t.Failed.Message
		}
	}
	return ""
}
