// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

func (w *World) adding(t *Turn, all []*Turn) bool {
	s := w.set(t.ScaleSet)
	if t.Operation != "" {
		t.Message = "a machine is being added to scale set " + t.ScaleSet
		switch o := s.Operation(t.Operation); {
		case o == nil:
		case o.Sent:
			w.additionLate(t, o)
		default:
			t.Message = or(s.Message, t.Message)
			w.declined(t, s)
		}
		return false
	}
	if t.Failed != nil && w.Ending && !w.Bound(t) && s.Declined != "" {
		t.Over = true // It would ask for ever.
		return false
	}
	if why := w.whyUnwanted(t); why != "" {
		return w.discard(t, why)
	}
	if gone, at := w.gone(s, t.Machine); gone {
		return w.discard(t, "the machine is gone")
	} else if !at.IsZero() {
		t.at(at)
		return false
	}
	if w.exceedsSurge(t, s, all) {
		return w.discard(t, "surge does not allow for it any more") // It begins anew, in the way that is asked for now.
	}
	t.Step = StepAdd
	if why := or(or(s.Message, s.Unfit), s.NoRoomMessage); why != "" {
		t.Message = why
	} else if t.Message == "" {
		t.Message = "a machine is to be added to scale set " + t.ScaleSet
	}
	return w.declined(t, s)
}

// exceedsSurge reports whether a turn that has not asked for its machine yet can't have one, as surge allows for fewer since it began.
func (w *World) exceedsSurge(t *Turn, s *Set, all []*Turn) bool {
	if !s.Known || !t.Surplus() || w.needsReplacement(t) {
		return false
	}
	// What was added and nobody waits for goes, whatever is asked for.
	u := s.usage(slices.DeleteFunc(slices.Clone(all), func(t *Turn) bool { return t.Machine == "" && t.Phase == v1alpha1.MachineDiscarding }))
	before := usage{used: u.used - u.adding} // As many as the set has for certain: of a percentage not less than when the turn began.
	return u.used > w.surge(s, before)
}

// declined is a turn for which the cloud adds no machine, and says that it never will. It fails once a replacement would have had to be ready: until then
// people may mend what is wrong. One that can't do without a replacement, or that may have been given one, goes on asking.
func (w *World) declined(t *Turn, s *Set) bool {
	if s.Declined == "" {
		return false
	}
	if deadline := t.PhaseSince.Add(w.Timeout); w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	why := fmt.Sprintf("scale set %s has not got the machine that was to take the place of %s within replacementReady.timeout, %s: %s",
		s.Name, or(or(t.Node, t.Machine), "one that is gone"), w.Timeout, s.Declined)
	if t.Operation == "" && !w.needsReplacement(t) {
		return w.fail(t, v1alpha1.ReasonReplacementFailed, why)
	}
	w.failsInPlace(t, why)
	return false
}

// asksAgain reports whether a turn that has failed in its phase asks for a machine as before. One that the cloud is only slow to add may come.
func (w *World) asksAgain(t *Turn) bool {
	s := w.set(t.ScaleSet)
	o := s.Operation(t.Operation)
	return t.Phase == v1alpha1.MachineAdding && t.Failed != nil && (s.Declined != "" || o == nil || !o.Sent)
}

// additionsBlocked says that machines which are missing are not made up for, so that no further one may go before its replacement is there, or "".
func (w *World) additionsBlocked(s *Set, turns []*Turn) string {
	for _, t := range turns {
		switch {
		case t.ScaleSet != s.Name || t.Over || t.Phase != v1alpha1.MachineAdding:
		case s.Declined != "":
			return "no machine is added to scale set " + s.Name + ": " + s.Declined
		case w.asksAgain(t):
			return t.Failed.Message
		}
	}
	return ""
}

// additionLate is a turn whose machine is being added still. It has failed once that takes longer than a replacement may take to become ready, and waits on: what
// the cloud has begun can't be called back, and what comes of it is the turn's.
func (w *World) additionLate(t *Turn, o *v1alpha1.CloudOperation) {
	if deadline := o.Since.Add(w.Timeout); w.Now.Before(deadline) {
		t.at(deadline)
		return
	}
	w.failsInPlace(t, fmt.Sprintf("%s for longer than replacementReady.timeout, %s", t.Message, w.Timeout))
}
