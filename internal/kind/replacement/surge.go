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
	// used is how many extra machines the set has for them, or soon will. adding is how many turns wait until a machine is added, also without surge.
	used, adding int
	// without is how many turns delete first, and smaller how many of these still have their machine.
	without, smaller int
}

func (s *Set) usage(turns []*Turn) (u usage) {
	for _, t := range turns {
		if t.ScaleSet != s.Name || t.Over {
			continue
		}
		if t.Surplus() {
			u.used++
		}
		if t.Phase == v1alpha1.MachineAdding {
			u.adding++
		}
		if t.DeletesFirst {
			u.without++
		}
		if t.DeletesFirst && t.Machine != "" {
			u.smaller++
		}
	}
	return u
}

// roomWithoutSurge is how many turns may begin without surge, at most left. There are none while the cloud adds no machines, for the reason why.
func (s *Set) roomWithoutSurge(u usage, left int, why string) Room {
	if why != "" {
		return Room{Reason: v1alpha1.ReasonScaleSetUnfit, Message: why}
	}
	room := Room{N: left, DeletesFirst: true}
	if s.Min > 0 {
		room.N = min(left, max(0, s.Capacity-s.Min-u.smaller-u.used))
	}
	switch {
	case room.N > 0 || left <= 0:
	case u.without > 0:
		room.Reason, room.Message = v1alpha1.ReasonSurgeExhausted, fmt.Sprintf("machines of scale set %s are replaced first: it must have %d", s.Name, s.Min)
	default:
		room.Reason, room.Message = v1alpha1.ReasonScaleSetUnfit, s.tooFew()
	}
	return room
}

// surge is how many extra machines a set may have.
func (w *World) surge(s *Set, u usage) int {
	return min(w.Surge.Up(max(1, s.Capacity-u.used)), v1alpha1.MaxMachineTurns)
}

// Rooms says how many turns may begin in each set.
func (w *World) Rooms(turns []*Turn) map[string]Room {
	rooms := map[string]Room{}
	for _, s := range w.Sets {
		u := s.usage(turns)
		left := v1alpha1.MaxMachineTurns - len(turns)
		surge := w.surge(s, u)
		room := Room{N: min(surge-u.used, left)}
		isFull := s.Max > 0 && s.Capacity+u.adding >= s.Max
		switch lost := s.lostMachine(turns); {
		case lost != "":
			room = Room{Reason: v1alpha1.ReasonScaleSetBusy, Message: "machine " + lost + " is gone from scale set " + s.Name + ": it is not known yet whether the cloud makes another"}
		case surge == 0, (s.NoRoom != "" || isFull) && w.OnFull == v1alpha1.OnFullDeleteFirst:
			room = s.roomWithoutSurge(u, left, w.additionsBlocked(s, turns))
		case s.NoRoom != "":
			room = Room{Reason: s.NoRoom, Message: s.NoRoomMessage}
		case isFull:
			room = Room{Reason: v1alpha1.ReasonScaleSetFull, Message: fmt.Sprintf("scale set %s is at its maximum of %d machines", s.Name, s.Max)}
		case s.Max > 0:
			room.N = min(room.N, s.Max-s.Capacity-u.adding)
		}
		if room.N <= 0 && room.Reason == "" {
			room.Reason = v1alpha1.ReasonSurgeExhausted
			room.Message = fmt.Sprintf("scale set %s has %d machines more than before, and surge allows %d", s.Name, u.used, surge)
			if left <= 0 {
				room.Message = fmt.Sprintf("%d machines are being replaced, which is the most at once", len(turns))
			}
		}
		rooms[s.Name] = room
	}
	return rooms
}
