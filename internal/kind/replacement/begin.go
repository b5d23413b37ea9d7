// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Spot is a node that is in no turn, or a machine without one.
type Spot struct {
	*Node
	Set     *Set
	Machine *Machine
	// Counted is false for a node that is none of the rollout's.
	Counted bool
	Unit    rollout.Unit
	Step    Step
	// Message says why a claim is given back.
	Message string
}

// Look judges a node that is in no turn. StepRelease gives it back, and nothing else is to be done.
func (w *World) Look(n *Node, room map[string]Room) Spot {
	s, m := w.MachineOf(n)
	p := Spot{Node: n, Set: s, Machine: m}
	p.Counted = n.Selected && m != nil && w.isFor(s.Name)
	u := &p.Unit
	u.Node, u.State, u.OptedOut = n.Name, v1alpha1.UnitOutdated, n.OptedOut
	outdated := m != nil && w.Outdated(s, m, n)
	if p.Counted && !outdated {
		u.State = v1alpha1.UnitUpdated
	}
	if w.given(&p, outdated) {
		return p
	}
	if u.State == v1alpha1.UnitOutdated && p.Counted {
		u.Reason, u.Message = w.hindrance(s, m, n, room[s.Name])
		u.Rank = w.Rank(n.UID)
	}
	return p
}

// given judges what the rollout still has on a node, and says whether the node waits because its turn has failed.
func (w *World) given(p *Spot, outdated bool) bool {
	n, u := p.Node, &p.Unit
	switch own := n.Claim; {
	case n.Unreadable:
		u.InTurn = n.Marked && outdated
	case own == nil && n.Marked, n.Shielded:
		p.Step = StepRelease
	case own == nil:
	case own.Failed == nil || !p.Counted || n.OptedOut || w.Ending || !outdated:
		p.Step = StepRelease
	case own.Attempt == w.Attempt(p.Set, n): // Else something else is asked for since.
		return w.stays(u, own)
	}
	return false
}

// stays is a node whose turn has failed, and that waits for a retry or for a person; or it is time to try again.
func (w *World) stays(u *rollout.Unit, own *v1alpha1.Claim) bool {
	f := own.Failed
	u.State, u.Reason, u.Message, u.Since, u.Skipped, u.Claimed = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time, f.Skipped, !own.Skipped()
	if !f.Skipped {
		u.RetryAt = rollout.RetryAt(w.Retries, own.Failures, f.Time.Time)
	}
	if u.RetryAt.IsZero() || w.Now.Before(u.RetryAt) {
		return true
	}
	u.State, u.InTurn = v1alpha1.UnitOutdated, true
	return false
}

// hindrance says why a machine can't be replaced at all now.
func (w *World) hindrance(s *Set, m *Machine, n *Node, room Room) (v1alpha1.Reason, string) {
	switch {
	case w.DetectOnly:
		return v1alpha1.ReasonDetectOnly, "the machine is outdated, and the rollout only detects"
	case s.Unfit != "":
		return v1alpha1.ReasonScaleSetUnfit, "scale set " + s.Name + ": " + s.Unfit
	case s.Reason != "":
		return s.Reason, s.Message
	case w.Waves && w.Blind != "":
		return w.Blind, "whether the waves begin anew is not known before all scale sets are: " + w.BlindMessage
	case s.Busy != "" && len(s.Operations) == 0:
		return v1alpha1.ReasonScaleSetBusy, "scale set " + s.Name + ": " + s.Busy
	case m.Protected:
		return v1alpha1.ReasonMachineProtected, protected(m)
	case m.State == Deleting, m.State == Creating:
		return v1alpha1.ReasonScaleSetBusy, fmt.Sprintf("machine %s is %s", m.ID, m.State)
	case s.maybeAdded(m, n):
		return v1alpha1.ReasonScaleSetBusy, "machine " + m.ID + " may be one of those that are being added"
	case w.doubled(m) != "":
		return v1alpha1.ReasonMachineUnknown, w.doubled(m)
	case w.stray(n) != "":
		return v1alpha1.ReasonMachineProtected, w.stray(n)
	case w.Closed != "":
		return v1alpha1.ReasonEtcdUnhealthy, w.Closed
	}
	return room.Reason, room.Message
}

// least reports whether a set may not get smaller.
func (s *Set) least() bool { return s.Min > 0 && s.Capacity <= s.Min }

func (s *Set) tooFew() string {
	return fmt.Sprintf("scale set %s has %d machines of at least %d, and none can be deleted before another is added: lower its minimum, or raise its maximum and surge",
		s.Name, s.Capacity, s.Min)
}

// maxClockSkew is by how much the clocks of the cloud and of the operator may differ when it is told which machines are new.
const maxClockSkew = 30 * time.Second

// maybeAdded reports whether a machine may be one that an operation under way has added, and that takes the place of another.
func (s *Set) maybeAdded(m *Machine, n *Node) bool {
	return slices.ContainsFunc(s.Operations, func(o v1alpha1.CloudOperation) bool { return maybeOf(&o, m, n) })
}

// maybeOf reports whether a machine may be one that an operation has added. Its Node may be nil.
func maybeOf(o *v1alpha1.CloudOperation, m *Machine, n *Node) bool {
	made := m.Created
	if made.IsZero() && n != nil {
		made = n.CreationTimestamp.Time
	}
	return o.Kind == v1alpha1.CloudOperationAdd && made.After(o.Since.Add(-maxClockSkew))
}

// Room is how many turns may begin in a set, and why not more.
type Room struct {
	N int
	// DeletesFirst is true when they begin without surge.
	DeletesFirst bool
	Reason       v1alpha1.Reason
	Message      string
}

// usage is what the turns of a set come to.
type usage struct {
	// used is how many machines more than before it has for them, or is about to, and adding how many of these are not asked for yet, or just now.
	used, adding int
	// without is how many go on without surge, and smaller how many of these have their machine still.
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

// lean is how many turns may begin without surge, of as many as are left: none where machines are missing that are not added, and why.
func (s *Set) lean(u usage, left int, why string) Room {
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
		room.Reason, room.Message = v1alpha1.ReasonSurgeExhausted, fmt.Sprintf("machines of scale set %s are to be made up for first: it must have %d", s.Name, s.Min)
	default:
		room.Reason, room.Message = v1alpha1.ReasonScaleSetUnfit, s.tooFew()
	}
	return room
}

// hasRoom reports whether a set may have a machine more than it has.
func (w *World) hasRoom(s *Set, turns []*Turn) bool {
	u := s.usage(turns)
	return u.used < w.surge(s, u) && s.NoRoom == "" && s.Reason == "" && (s.Max <= 0 || s.Capacity+u.adding < s.Max)
}

// surge is how many machines more than before a set may have.
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
		switch lost := s.lostMachine(turns); {
		case lost != "":
			room = Room{Reason: v1alpha1.ReasonScaleSetBusy, Message: "machine " + lost + " is gone from scale set " + s.Name + ": whether the cloud makes another is not known yet"}
		case surge == 0:
			room = s.lean(u, left, w.declining(s, turns))
		case (s.NoRoom != "" || s.Max > 0 && s.Capacity+u.adding >= s.Max) && w.OnFull == v1alpha1.OnFullDeleteFirst:
			room = s.lean(u, left, w.declining(s, turns))
		case s.NoRoom != "":
			room = Room{Reason: s.NoRoom, Message: s.NoRoomMessage}
		case s.Max > 0 && s.Capacity+u.adding >= s.Max:
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

// Begin is a new turn of a node.
func (w *World) Begin(p *Spot, turn string, deletesFirst bool) *Turn {
	t := &Turn{MachineTurn: v1alpha1.MachineTurn{
		Turn: turn, Node: p.Name, NodeUID: p.UID, ScaleSet: p.Set.Name, Machine: p.Machine.ID, Zone: p.Machine.Zone, Revision: w.Revision,
		Attempt: w.Attempt(p.Set, p.Node), Phase: v1alpha1.MachineAdding, Since: stamp(w.Now), PhaseSince: stamp(w.Now), DeletesFirst: deletesFirst,
	}}
	if own := p.Claim; own != nil && own.Attempt == t.Attempt {
		t.Failures = own.Failures
	}
	if deletesFirst {
		t.Phase = v1alpha1.MachineClaiming
	}
	return t
}

// Batch is one operation to be asked of a cloud, for all these turns.
type Batch struct {
	Set      *Set
	Kind     v1alpha1.CloudOperationKind
	Zone     string
	Machines []string
	Turns    []*Turn
}

// The most that is under way in a set at once, and that one operation does.
const (
	maxDeletes = 8
	maxBatch   = 100
)

// Batches puts the steps that clouds are asked for together: in each set one Add for each zone at a time, and a few Deletes.
func (w *World) Batches(turns []*Turn) []Batch {
	var all []Batch
	for _, s := range w.Sets {
		if !s.Known || s.Reason != "" || s.Unfit != "" {
			continue
		}
		all = append(append(all, s.adds(turns)...), s.deletes(turns)...)
	}
	slices.SortFunc(all, func(a, b Batch) int {
		return cmp.Or(cmp.Compare(a.Set.Name, b.Set.Name), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Zone, b.Zone))
	})
	return all
}

// zone that a machine is asked for in the place of a turn's; empty where that can't be chosen.
func (s *Set) zone(t *Turn) string {
	if slices.Contains(s.Zones, t.Zone) {
		return t.Zone
	}
	return ""
}

// adds are what is to be added, in zones where nothing is being added already.
func (s *Set) adds(turns []*Turn) []Batch {
	if s.NoRoom != "" || s.Busy != "" {
		return nil
	}
	busy, zones, waited := map[string]bool{}, map[string]*Batch{}, map[string]bool{}
	for _, t := range turns {
		if o := s.Operation(t.Operation); t.ScaleSet == s.Name && o != nil && o.Kind == v1alpha1.CloudOperationAdd {
			busy[s.zone(t)], waited[o.Token] = true, true
		}
	}
	for i := range s.Operations {
		if o := &s.Operations[i]; o.Kind == v1alpha1.CloudOperationAdd && !waited[o.Token] {
			return nil // Nobody waits for it any more: what comes of it is not known yet.
		}
	}
	// Those first that can't do without: nothing may keep machines that are gone already from being made up for.
	turns = slices.Clone(turns)
	slices.SortStableFunc(turns, func(a, b *Turn) int { return cmp.Compare(order(a), order(b)) })
	room := s.room()
	for _, t := range turns {
		z := s.zone(t)
		if !s.asks(t) || t.Step != StepAdd || busy[z] {
			continue
		}
		if room--; room < 0 {
			break
		}
		if zones[z] == nil {
			zones[z] = &Batch{Set: s, Kind: v1alpha1.CloudOperationAdd, Zone: z}
		}
		if b := zones[z]; len(b.Turns) < maxBatch {
			b.Turns = append(b.Turns, t)
		}
	}
	var all []Batch
	for _, b := range zones {
		all = append(all, *b)
	}
	return all
}

func order(t *Turn) int {
	if t.restores() || t.Bound {
		return 0
	}
	return 1
}

// room is how many machines can be asked for now.
func (s *Set) room() int {
	room := maxBatch
	if s.Careful {
		room = 1
	}
	if s.Max > 0 {
		room = min(room, max(1, s.Max-s.Capacity)) // What is too much, the cloud refuses; it may know better.
	}
	return room
}

// deletes is what is to be deleted.
func (s *Set) deletes(turns []*Turn) []Batch {
	under := 0
	for i := range s.Operations {
		if s.Operations[i].Kind == v1alpha1.CloudOperationDelete {
			under++
		}
	}
	b := Batch{Set: s, Kind: v1alpha1.CloudOperationDelete}
	most := maxBatch
	if s.Min > 0 {
		most = min(most, max(1, s.Capacity-s.Min)) // What is too much, the cloud refuses; it may know better.
	}
	for _, t := range turns {
		if !s.asks(t) || under >= maxDeletes || len(b.Turns) >= most {
			continue
		}
		switch t.Step {
		case StepDelete:
			b.Turns, b.Machines = append(b.Turns, t), append(b.Machines, t.Machine)
		case StepDiscard:
			b.Turns, b.Machines = append(b.Turns, t), append(b.Machines, t.Replacement)
		default:
		}
	}
	if len(b.Turns) == 0 {
		return nil
	}
	return []Batch{b}
}

// asks reports whether a turn may ask the set for something.
func (s *Set) asks(t *Turn) bool { return t.ScaleSet == s.Name && !t.Over && t.Operation == "" }

// Ordered is a batch that has become an operation: it is written down, and the turns wait for it.
func (b *Batch) Ordered(o v1alpha1.CloudOperation) {
	b.Set.Operations = append(b.Set.Operations, o)
	for _, t := range b.Turns {
		t.Operation = o.Token
		t.Ordered = t.Ordered || o.Kind == v1alpha1.CloudOperationDelete && t.Phase == v1alpha1.MachineDeleting
	}
}

// Refused is a batch that the cloud has no room for, or an operation that has had no effect: the turns do not wait for it.
func (w *World) Refused(set *Set, token string, turns []*Turn, noRoom bool, why string) {
	set.Operations = slices.DeleteFunc(slices.Clone(set.Operations), func(o v1alpha1.CloudOperation) bool { return o.Token == token })
	for _, t := range turns {
		if t.ScaleSet != set.Name || t.Operation != token {
			continue
		}
		t.Operation, t.Ordered = "", false
		if t.Phase != v1alpha1.MachineAdding {
			continue
		}
		if noRoom && w.OnFull == v1alpha1.OnFullDeleteFirst && !t.DeletesFirst && !w.Bound(t) {
			t.DeletesFirst = true
			w.enter(t, v1alpha1.MachineClaiming)
			continue
		}
		t.Message = short(why)
	}
}
