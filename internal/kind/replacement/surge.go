// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"

	"moult.dev/moult/api/v1alpha1"
)

// Room is how many turns may begin in a set, and why not more.
type Room struct {
	N int
	// DeletesFirst is true when they begin without surge.
	DeletesFirst bool
	Reason       v1alpha1.Reason
	Message      string
}

// usage is how many machines the turns of a set use.
type usage struct {
	// used is how many extra machines the set has for them, or soon will. Of these, unordered are those that the cloud was not asked for. adding is how
	// many turns wait until a machine is added, also without surge.
	used, unordered, adding int
	// smaller is how many turns will delete their machine before another is added.
	smaller int
}

func (s *Set) usage(turns []*Turn) (u usage) {
	for _, t := range turns {
		if t.ScaleSet != s.Name || t.Over {
			continue
		}
		if t.isSurplus() {
			u.used++
			if t.Phase == v1alpha1.MachineAdding && t.Operation == "" {
				u.unordered++
			}
		}
		if t.Phase == v1alpha1.MachineAdding {
			u.adding++
		}
		if t.DeletesFirst && t.Machine != "" {
			u.smaller++
		}
	}
	return u
}

// roomWithoutSurge is how many turns may begin without surge, at most left. There are none while the cloud adds no machines, for the reason why.
func (s *Set) roomWithoutSurge(u usage, left int, why string) Room {
	if s.Min > 0 {
		left = min(left, s.Capacity-s.Min-u.smaller-u.used)
	}
	switch {
	case why != "":
		return Room{Reason: v1alpha1.ReasonScaleSetUnfit, Message: why}
	case left > 0:
		return Room{N: left, DeletesFirst: true}
	case u.smaller+u.adding > 0:
		why = fmt.Sprintf("other machines of scale set %s are replaced first; its minimum is %d", s.Name, s.Min)
		return Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: why}
	}
	return Room{Reason: v1alpha1.ReasonScaleSetUnfit, Message: s.tooFew()}
}

// surge is how many extra machines a set may have. A percentage is one of the machines without the extra ones.
func (w *World) surge(s *Set, u usage) int {
	return min(w.Surge.Up(max(1, s.Capacity-u.used+u.unordered)), v1alpha1.MaxMachineTurns)
}

// Rooms says how many turns may begin in each set.
func (w *World) Rooms(turns []*Turn) map[string]Room {
	rooms := map[string]Room{}
	for name, s := range w.Sets {
		rooms[name] = w.Room(s, turns)
	}
	return rooms
}

// Room says how many turns may begin in a set.
func (w *World) Room(s *Set, turns []*Turn) Room {
	u, left := s.usage(turns), v1alpha1.MaxMachineTurns-len(turns)
	surge := w.surge(s, u)
	isFull := s.Max > 0 && s.Capacity+u.adding >= s.Max
	switch {
	case left <= 0:
		return Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: fmt.Sprintf("%d machines are being replaced, which is the most at once", len(turns))}
	case s.hasLostMachine(turns):
		return Room{Reason: v1alpha1.ReasonScaleSetBusy, Message: "a machine of a turn is gone from scale set " + s.Name + ": it is not known yet whether the cloud makes another"}
	case surge == 0, (s.NoRoom != "" || isFull && u.used == 0) && w.OnFull == v1alpha1.OnFullDeleteFirst:
		return s.roomWithoutSurge(u, left, w.additionsBlocked(s, turns))
	case s.NoRoom != "":
		return Room{Reason: s.NoRoom, Message: s.NoRoomMessage}
	case u.used >= surge:
		return Room{Reason: v1alpha1.ReasonSurgeExhausted, Message: fmt.Sprintf("scale set %s has %d machines more than before, and surge allows %d", s.Name, u.used, surge)}
	case isFull:
		return Room{Reason: v1alpha1.ReasonScaleSetFull, Message: fmt.Sprintf("scale set %s is at its maximum of %d machines", s.Name, s.Max)}
	case s.Max > 0:
		left = min(left, s.Max-s.Capacity-u.adding)
	}
	return Room{N: min(left, surge-u.used)}
}
