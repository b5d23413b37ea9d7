// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

func (w *World) adding(t *Turn) {
	s, why := w.SetOf(t), w.whyUnwanted(t)
	switch {
	case t.Operation != "":
		t.Message = "a machine is being added to scale set " + t.ScaleSet
		if o := s.Operation(t.Operation); o != nil && !o.Sent {
			t.Message = cmp.Or(s.Message, t.Message)
		}
		w.failIfNotAdded(t, s)
	case t.Failed != nil && w.Ending && !w.Bound(t) && s.Declined != "":
		t.Over = true // It would wait for ever.
	case why != "":
		w.discard(t, why)
	case s.isGone(t.Machine):
		w.discard(t, "the machine is gone")
	case s.isMissing(t.Machine):
	case w.exceedsSurge(t, s):
		w.discard(t, "surge does not allow for it any more") // A later turn begins with the new surge.
	default:
		t.Step = StepAdd
		t.Message = cmp.Or(s.Message, s.Unfit, s.NoRoomMessage, t.Message, "a machine will be added to scale set "+t.ScaleSet)
		w.failIfNotAdded(t, s)
	}
}

// exceedsSurge reports whether surge was lowered too far for a turn whose machine is not ordered yet.
func (w *World) exceedsSurge(t *Turn, s *Set) bool {
	if !s.Known || !t.isSurplus() || w.needsReplacement(t) {
		return false
	}
	// A replacement that no turn needs is deleted in any case.
	u := s.usage(slices.DeleteFunc(slices.Clone(w.turns), func(t *Turn) bool { return t.Machine == "" && t.Phase == v1alpha1.MachineDiscarding }))
	before := usage{used: u.used - u.adding} // Only extra machines that exist count: a percentage then gives no less than at the start.
	return u.used > w.surge(s, before)
}

// failIfNotAdded fails a turn after Timeout if the cloud declines to add its machine, or is still adding it. If room, quota or rights are missing,
// the turn waits.
func (w *World) failIfNotAdded(t *Turn, s *Set) {
	why, since := s.Declined, t.PhaseSince
	if o := s.Operation(t.Operation); o != nil && o.Sent {
		why, since = "the cloud is still adding it", o.Since
	}
	if why == "" || t.waitUntil(since.Add(w.Timeout), w.Now) {
		return
	}
	w.failReplacement(t, fmt.Sprintf("scale set %s has no machine in place of %s within replacementReady.timeout, %s: %s", s.Name, t.oldName(), w.Timeout, why))
}

// additionsBlocked says why the cloud adds no machines in place of deleted ones, or "". Meanwhile no further machine may be deleted first.
func (w *World) additionsBlocked(s *Set, turns []*Turn) string {
	if s.Unfit != "" {
		return s.Unfit
	}
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
