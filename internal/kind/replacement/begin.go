// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// NodeState is a node that is in no turn.
type NodeState struct {
	*Node
	Set     *Set
	Machine *cloud.Machine
	// Counted is true for a selected node with a machine in the rollout's sets.
	Counted bool
	Unit    rollout.Unit
	Step    Step
}

// JudgeNode judges a node that is in no turn. With StepRelease the node is released, and nothing else is done.
func (w *World) JudgeNode(n *Node, room map[string]Room) *NodeState {
	s, m := w.MachineOf(n)
	p := &NodeState{Node: n, Set: s, Machine: m}
	p.Counted = n.Selected && m != nil && w.isFor(s.Name)
	u := &p.Unit
	u.Node, u.State, u.OptedOut = n.Name, v1alpha1.UnitOutdated, n.OptedOut
	outdated := m != nil && w.Outdated(s, m, n)
	if p.Counted && !outdated {
		u.State = v1alpha1.UnitUpdated
	}
	switch own := n.Claim; {
	case n.Unreadable:
		u.InTurn = n.Marked && outdated // It may be in a turn, and holds a slot.
	case own == nil && n.Marked, n.NoScaleDown:
		p.Step = StepRelease
	case own == nil:
	case own.Failed == nil || !p.Counted || n.OptedOut || w.Ending || !outdated:
		p.Step = StepRelease
	case own.Attempt == w.Attempt(s, n) && w.setFailedUnit(u, own): // A different attempt need not wait.
		return p
	}
	if u.State == v1alpha1.UnitOutdated && p.Counted {
		u.Reason, u.Message = w.blockedBy(s, m, n, room[s.Name])
		u.Rank = w.Rank(n.UID)
	}
	return p
}

// setFailedUnit makes u the unit of a node whose turn has failed. It returns false if a retry is due: then the unit is outdated again.
func (w *World) setFailedUnit(u *rollout.Unit, own *v1alpha1.Claim) bool {
	f := own.Failed
	u.State, u.Reason, u.Message, u.Since, u.Skipped, u.Retried = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time, f.Skipped, !own.Skipped()
	u.RetryAt = nodeturn.RetryAt(w.Strategy, own)
	if u.RetryAt.IsZero() || w.Now.Before(u.RetryAt) {
		return true
	}
	u.State, u.InTurn = v1alpha1.UnitOutdated, true
	return false
}

// blockedBy says why a machine can't be replaced now.
func (w *World) blockedBy(s *Set, m *cloud.Machine, n *Node, room Room) (v1alpha1.Reason, string) {
	reason, message := w.MustStay(m, n)
	switch {
	case w.DetectOnly:
		return v1alpha1.ReasonDetectOnly, "the machine is outdated, and the rollout only detects"
	case s.Unfit != "":
		return v1alpha1.ReasonScaleSetUnfit, "scale set " + s.Name + ": " + s.Unfit
	case s.Reason != "":
		return s.Reason, s.Message
	case w.Unreadable != "" && w.Strategy != nil && len(w.Strategy.Waves) > 0:
		return w.Unreadable, "the waves may start again; this is known only after all scale sets are read: " + w.UnreadableMessage
	case s.isBusy():
		return v1alpha1.ReasonScaleSetBusy, "scale set " + s.Name + ": " + s.Busy
	case m.State == cloud.Deleting, m.State == cloud.Creating:
		return v1alpha1.ReasonScaleSetBusy, fmt.Sprintf("machine %s is %s", m.ID, m.State)
	case s.maybeAdded(m, n):
		return v1alpha1.ReasonScaleSetBusy, "machine " + m.ID + " may be one of those that are being added"
	case reason != "":
		return reason, message
	}
	return room.Reason, room.Message
}

// isBusy reports whether a set is busy with anything but the rollout's own operations.
func (s *Set) isBusy() bool { return s.Busy != "" && (s.BusyByOthers || len(s.Operations) == 0) }

// isAtMinimum reports whether a set may not get smaller.
func (s *Set) isAtMinimum() bool { return s.Min > 0 && s.Capacity <= s.Min }

func (s *Set) tooFew() string {
	return fmt.Sprintf("scale set %s has %d machines, and its minimum is %d: none can be deleted before another is added; lower its minimum, "+
		"or raise its maximum and surge", s.Name, s.Capacity, s.Min)
}

// maxClockSkew is how much the clocks of the cloud and of the operator may differ. Creation times decide which machines are new.
const maxClockSkew = 30 * time.Second

// maybeAdded reports whether a machine may be one that an operation under way has added. Its Node may be nil.
func (s *Set) maybeAdded(m *cloud.Machine, n *Node) bool {
	return slices.ContainsFunc(s.Operations, func(o v1alpha1.CloudOperation) bool {
		return o.Kind == v1alpha1.CloudOperationAdd && createdAt(m, n).After(o.Since.Add(-maxClockSkew))
	})
}

// Begin returns a new turn of a node.
func (w *World) Begin(p *NodeState, turn string, deletesFirst bool) *Turn {
	t := &Turn{MachineTurn: v1alpha1.MachineTurn{
		Turn: turn, Node: p.Name, NodeUID: p.UID, ScaleSet: p.Set.Name, Machine: p.Machine.ID, Zone: p.Machine.Zone, Revision: w.Revision,
		Attempt: w.Attempt(p.Set, p.Node), Phase: v1alpha1.MachineAdding, Since: *nodeturn.Stamp(w.Now), PhaseSince: *nodeturn.Stamp(w.Now),
		DeletesFirst: deletesFirst,
	}}
	if own := p.Claim; own != nil && own.Attempt == t.Attempt {
		t.Failures = own.Failures
	}
	if deletesFirst {
		t.Phase = v1alpha1.MachineClaiming
	} else {
		t.Step, t.Message = StepAdd, "a machine will be added to scale set "+t.ScaleSet
	}
	w.setUnit(t)
	return t
}
