// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/nodeturn"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// unit is a turn as the engine sees it, or a node that is in none.
type unit struct {
	nodeturn.Turn
	turn  *machine.Turn
	state *machine.NodeState
}

// stepOwn is any step of a machine's turn: the mechanism takes it, not the engine.
const stepOwn nodeturn.Step = "own"

// units are those of turns, and of the nodes without a turn.
func (p *pass) units() (units []*unit) {
	for _, t := range p.machineTurns {
		if !t.Over {
			units = append(units, &unit{Turn: nodeturn.Turn{Unit: t.Unit, Counted: true, Step: stepOwn, Began: t.Since.Time}, turn: t})
		}
	}
	strategy := p.Spec
	if p.rules.Ending || p.rules.DetectOnly {
		strategy = nil // No node is tainted.
	}
	for _, s := range p.nodes {
		u := &unit{Turn: nodeturn.Turn{Node: s.Node.Node, Unit: s.Unit, Counted: s.Counted, Step: nodeturn.Step(s.Step)}, state: s}
		if s.Step == machine.StepRelease {
			u.Claim = p.claimOn(s.Node)
		} else {
			u.JudgeTaint(strategy, p.Taint)
		}
		units = append(units, u)
	}
	return units
}

// claimOn is the rollout's claim on a node, or a new claim if only the rollout's name is left there.
func (p *pass) claimOn(n *machine.Node) *v1alpha1.Claim {
	if n.Claim != nil {
		return n.Claim
	}
	return &v1alpha1.Claim{Rollout: p.Holder, UID: p.UID}
}

// mechanism is the pass as the engine sees it. The engine decides, claims, releases and reports. Other steps of turns are in apply.go.
type mechanism struct {
	turnof.Mechanism[*unit]
	*pass
}

// Strategy of the rollout.
func (m mechanism) Strategy(total int) rollout.Strategy {
	return nodeturn.Strategy(m.rollout, m.world.Revision, m.options.NodeName, total)
}

// Start claims a node whose replacement is ready. Nodes of a control plane are claimed one at a time: each is checked first.
func (m mechanism) Start(u *unit) *turnof.Write {
	t := u.turn
	if t == nil || !t.Claimable || m.world.Nodes[t.Node] == nil {
		return nil
	}
	if m.rules.ControlPlane {
		first := slices.IndexFunc(m.machineTurns, func(t *machine.Turn) bool { return t.Claimable && slices.Contains(m.Decision.Start, t.Unit.Node) })
		if first < 0 || m.machineTurns[first] != t {
			m.soon()
			return nil
		}
	}
	n, write := m.world.Nodes[t.Node], turnof.Write{Claim: m.claimOf(t), Cordon: t.Drainable}
	u.Node = n.Node
	if write.Cordon {
		write.Claim.Cordoned = &metav1.Time{Time: m.Now}
		write.Also = m.excluding
	}
	write.Then = func() {
		t.Unit.State, t.Unit.Claimed, t.Unit.InTurn, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitUpdating, true, false, "", ""
		t.Phase, t.PhaseSince, t.Step, t.Message = v1alpha1.MachineDraining, *nodeturn.Stamp(m.Now), machine.StepNone, ""
		m.Works.Begin(m.drainID(t)) // The drain reads its pods.
		if n.Claim = u.Claim; write.Cordon && m.rules.Wait <= 0 {
			t.Step = machine.StepDrain
		}
		m.soon()
		m.Mention(events.MachinesDraining(m.rollout), t.Node)
	}
	return &write
}

// drainID names the drain of a turn's old node.
func (p *pass) drainID(t *machine.Turn) turnof.ID {
	return turnof.ID{Rollout: p.Key, Node: t.Node, Turn: t.Key(false)}
}

// previewDrains finds the nodes to be claimed whose pods are known, and which can be drained: their claim also cordons them.
func (p *pass) previewDrains(ctx context.Context) {
	if !p.rules.Drains || p.Gated() {
		return // A gated drain records its evictions with the cordon.
	}
	for _, t := range p.machineTurns {
		if !t.Claimable {
			continue
		}
		if pods, known := p.Works.Known(p.drainID(t)); known {
			r, err := p.Drainer.Preview(ctx, pods, p.Options)
			t.Drainable = err == nil && len(r.In(drain.Refused)) == 0
		}
	}
}

// Release also enables scale-down of the node again.
func (m mechanism) Release(*unit) turnof.Write {
	return turnof.Write{Also: []node.Also{enablingScaleDown(m.Holder)}, Then: m.soon}
}

// start decides which nodes go next. Nodes with a ready replacement are claimed. For other nodes a turn begins, if their scale set has room.
func (p *pass) start(ctx context.Context) error {
	p.checkProtection(ctx)
	p.previewDrains(ctx)
	p.Turns = p.units()
	if p.rules.Ending {
		p.Decide(p.Seen.Fleet)
		p.Decision.Start, p.Decision.Waiting = nil, nil
		return nil
	}
	chosen, err := p.Start(ctx)
	p.rollout.Status.Wave = p.Decision.Wave
	p.begin(ctx, chosen)
	return err
}

// checkProtection reads whether machines of nodes to be claimed are protected from deletion.
func (p *pass) checkProtection(ctx context.Context) {
	due := slices.DeleteFunc(slices.Clone(p.machineTurns), func(t *machine.Turn) bool {
		return !t.Claimable || p.api == nil || p.world.SetOf(t).Machine(t.Machine) == nil
	})
	_ = turnof.Each(due, func(t *machine.Turn) error {
		s, m := p.memo.sets[t.ScaleSet], p.world.SetOf(t).Machine(t.Machine)
		err := p.readProtection(ctx, s, m)
		p.mu.Lock()
		defer p.mu.Unlock()
		if m.Protected {
			p.world.JudgeTurn(t)
		} else if err != nil {
			t.Claimable, t.Message = false, s.looking.message
			t.Unit.Reason, t.Unit.Message = s.looking.reason, s.looking.message
		}
		return nil
	})
}

// readProtection reads whether a machine is protected from deletion, where the cloud needs a request for each. One that was not protected is asked about
// again after the next look.
func (p *pass) readProtection(ctx context.Context, s *set, m *cloud.Machine) error {
	api, can := p.api.ScaleSet(s.Name).(cloud.Protector)
	p.mu.Lock()
	known := s.unprotected[m.ID]
	p.mu.Unlock()
	if !can || known {
		return nil
	}
	protected, err := call(ctx, p, "Protected", func(ctx context.Context) (bool, error) { return api.Protected(ctx, m.ID) })
	p.mu.Lock()
	defer p.mu.Unlock()
	m.Protected, s.unprotected[m.ID] = protected, err == nil && !protected
	if err != nil && !s.looking.isDelayed(p.Now) {
		s.looking.record(err, p.Now)
	}
	return err
}

// claimOf is the claim on the old node.
func (p *pass) claimOf(t *machine.Turn) v1alpha1.Claim {
	return v1alpha1.Claim{
		Rollout: p.Holder, UID: p.UID, Revision: t.Revision, Attempt: t.Attempt, Turn: t.Turn, Since: metav1.Time{Time: p.Now}, Drains: p.rules.Drains,
		Machine: t.Machine, Failures: t.Failures,
	}
}

// begin begins the turns of the chosen nodes that have none, in the order of the decision, while their scale sets have room.
func (p *pass) begin(ctx context.Context, chosen []*unit) {
	slices.SortStableFunc(chosen, func(a, b *unit) int {
		return slices.Index(p.Decision.Start, a.Unit.Node) - slices.Index(p.Decision.Start, b.Unit.Node)
	})
	chosen = slices.DeleteFunc(chosen, func(u *unit) bool { // A node is released before its next turn, which may take long.
		return u.state == nil || u.state.Machine == nil || u.state.Step == machine.StepRelease
	})
	closed := ""
	if len(chosen) > 0 {
		closed = p.whyClosed(ctx)
	}
	for _, u := range chosen {
		s := u.state
		room := p.world.Room(s.Set, p.machineTurns)
		switch {
		case closed != "":
			room = machine.Room{Reason: v1alpha1.ReasonEtcdUnhealthy, Message: closed}
		case machine.IsTaken(p.machineTurns, s.Set.Name, s.Machine.ID):
			room = machine.Room{Reason: v1alpha1.ReasonMachineUnknown, Message: "machine " + s.Machine.ID + " of scale set " + s.Set.Name + " is in a turn already"}
		case room.N > 0 && p.api != nil && !p.memo.sets[s.Set.Name].looking.isDelayed(p.Now):
			// A turn that waits for a person would hold the surge. It is read again before the claim.
			_ = p.readProtection(ctx, p.memo.sets[s.Set.Name], s.Machine)
			if reason, why := p.world.MustStay(s.Machine, s.Node); why != "" {
				p.soon() // Another node may begin.
				room = machine.Room{Reason: reason, Message: why}
			}
		}
		if room.N <= 0 {
			p.Decision.Waiting = slices.Insert(p.Decision.Waiting, 0, rollout.Wait{Node: u.Unit.Node, Reason: room.Reason, Message: room.Message})
			continue
		}
		t := p.world.Begin(s, p.id(string(s.UID)), room.DeletesFirst)
		p.soon()
		p.machineTurns = append(p.machineTurns, t)
		p.Mention(events.MachinesStarted(p.rollout), u.Unit.Node)
		log.FromContext(ctx).Info("turn begun", "node", u.Unit.Node, "scaleSet", s.Set.Name, "machine", s.Machine.ID, "deletesFirst", t.DeletesFirst)
	}
	p.nodes = slices.DeleteFunc(p.nodes, func(s *machine.NodeState) bool {
		return slices.ContainsFunc(p.machineTurns, func(t *machine.Turn) bool { return t.Node == s.Name && t.NodeUID == s.UID })
	})
}

// id identifies a turn of this Node.
func (p *pass) id(uid string) string { return nodeturn.Digest(string(p.UID), uid, p.Now.UnixNano()) }

// rollBack restores the images that are known to work, after the failure limit has halted the rollout. It does nothing while the rollout is paused,
// or only detects.
func (p *pass) rollBack() {
	strategy := p.rollout.Spec.Strategy
	if p.Decision.Halted == "" || !p.replacement.Rollback || p.rules.DetectOnly || p.rules.Ending || strategy != nil && strategy.Paused {
		return
	}
	var impossible []string
	for _, status := range p.rollout.Status.ScaleSets {
		s := p.world.Sets[status.Name]
		isSetting := func(o v1alpha1.CloudOperation) bool { return o.Kind == v1alpha1.CloudOperationSetImage }
		// The image stays if nothing has failed with it: it may have been changed since.
		if s == nil || !s.Known || s.Reason != "" || s.Unfit != "" || slices.ContainsFunc(s.Operations, isSetting) || !p.hasFailures(s) {
			continue
		}
		image := machine.NextSetStatus(status, s, 0).PreviousImage
		if image == "" {
			impossible = append(impossible, "no image is known that all nodes of scale set "+s.Name+" had before")
			continue
		}
		p.orders = append(p.orders, machine.Batch{CloudOperation: v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationSetImage, Image: image, From: s.Image}, Set: s})
	}
	if len(impossible) > 0 {
		p.CannotRollBack(strings.Join(impossible, ", "))
	}
}

// hasFailures reports whether turns of a set have failed with its present model.
func (p *pass) hasFailures(s *machine.Set) bool {
	return slices.ContainsFunc(p.machineTurns, func(t *machine.Turn) bool {
		return t.ScaleSet == s.Name && t.Failed != nil && !t.Failed.Skipped && t.Attempt == p.attempt(s, p.world.Nodes[t.Node])
	}) || slices.ContainsFunc(p.nodes, func(n *machine.NodeState) bool {
		return n.Set == s && n.Unit.State == v1alpha1.UnitFailed && !n.Unit.Skipped
	})
}
