// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// start asks who goes next. Nodes whose replacement is ready are claimed, under the fleet's lock, on what is to be seen there; of others the turn
// begins, as far as their scale set has room for it.
func (p *pass) start(ctx context.Context) error {
	p.decide(p.snapshot.Fleet)
	if p.rules.Ending {
		p.decision.Start, p.decision.Waiting = nil, nil
		return nil
	}
	var err error
	if len(p.decision.Start) > 0 {
		err = p.fleet.Admit(ctx, func(now fleet.Snapshot) error {
			before := p.now
			p.now = p.clock.Now() // To be let in may have taken long.
			if fleet.Elapsed(before, p.now) || now.Version != p.snapshot.Version || !reflect.DeepEqual(now.Budgets, p.snapshot.Budgets) {
				p.decide(now.Fleet) // Otherwise the answer would be the same.
			}
			return p.claim(ctx)
		})
		p.begin(ctx)
	}
	log.FromContext(ctx).V(1).Info("decided", "start", p.decision.Start, "waiting", len(p.decision.Waiting), "next", p.decision.Next)
	p.at(p.decision.Next)
	return err
}

// units are those of turns, and of the nodes that are in none.
func (p *pass) units() (units []rollout.Unit, total int) {
	for _, t := range p.turns {
		if !t.Over {
			units = append(units, t.Unit)
			total++
		}
	}
	for i := range p.nodes {
		s := &p.nodes[i]
		if s.Counted && (!s.Unit.OptedOut || s.Unit.State != v1alpha1.UnitOutdated) {
			total++
		}
		if s.Counted || s.Unit.HoldsSlot() {
			units = append(units, s.Unit)
		}
	}
	return units, total
}

// decide asks the engine.
func (p *pass) decide(f rollout.Fleet) {
	units, total := p.units()
	s := rollout.New(p.rollout.Spec.Strategy, 1, total)
	s.UID, s.Revision, s.Drains, s.OwnNode = p.rollout.UID, p.view.Revision, p.rules.Drains, p.options.NodeName
	s.Health = rollout.NewHealth(p.rollout.Spec.Health)
	s.Wave = p.waves.Latest(p.key, p.rollout.UID, p.rollout.Status.Wave)
	s.Approved = p.rollout.Annotations[v1alpha1.AnnotationApprove]
	if p.rules.ControlPlane {
		s.MaxConcurrent = min(s.MaxConcurrent, p.atOnce(total))
	}
	if slices.ContainsFunc(s.Order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst }) {
		f.Nodes = p.fleet.CountEvictions(f.Nodes)
	}
	p.decision = rollout.Decide(s, units, f, p.now)
	p.rollout.Status.Wave = p.waves.Keep(p.key, p.rollout.UID, p.decision.Wave)
	p.queued.Set(p.key, slices.ContainsFunc(p.decision.Waiting, fleet.ForBudget))
}

// atOnce is how many nodes of a control plane of so many may be in a turn at once: as many as leaves a quorum of their etcd if one more fails.
func (p *pass) atOnce(nodes int) int {
	if !p.etcd() {
		return 1
	}
	return max(1, nodes-3)
}

// claim claims the nodes that the decision names and whose replacement is ready. Of a control plane it is one at a time: whether the next may go is
// asked then.
func (p *pass) claim(ctx context.Context) error {
	var chosen []*machine.Turn
	for _, t := range p.turns {
		if t.Claimable && slices.Contains(p.decision.Start, t.Unit.Node) && p.view.Nodes[t.Node] != nil {
			chosen = append(chosen, t)
		}
	}
	if p.rules.ControlPlane && len(chosen) > 1 {
		chosen = chosen[:1]
		p.soon()
	}
	return turnof.Each(chosen, func(t *machine.Turn) error {
		claim := p.claimOf(t)
		n := p.view.Nodes[t.Node]
		if err := node.Write(ctx, p.client, n.Node, node.Step{Claim: claim}); err != nil {
			p.waits(t.Unit.Node, v1alpha1.ReasonClaimLost, err.Error())
			return err
		}
		t.Unit.State, t.Unit.Claimed, t.Unit.InTurn, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitUpdating, true, false, "", ""
		t.Phase, t.PhaseSince, t.Step, t.Message = v1alpha1.MachineDraining, *turnof.Stamp(p.now), machine.StepNone, ""
		p.soon()
		log.FromContext(ctx).Info("node claimed", "node", t.Node, "replacement", t.Replacement, "revision", claim.Revision)
		p.happens(events.MachineDraining(p.rollout, &t.MachineTurn))
		return nil
	})
}

// claimOf is the claim on the node that goes.
func (p *pass) claimOf(t *machine.Turn) v1alpha1.Claim {
	return v1alpha1.Claim{
		Rollout: p.holder, UID: p.rollout.UID, Revision: t.Revision, Attempt: t.Attempt, Turn: t.Turn, Since: metav1.Time{Time: p.now}, Drains: p.rules.Drains,
		Machine: t.Machine, Failures: t.Failures,
	}
}

// begin begins the turns of nodes that the decision names, in order, as far as their scale sets have room.
func (p *pass) begin(ctx context.Context) {
	rooms := p.view.Rooms(p.turns)
	nodes := map[string]*machine.NodeState{}
	for i := range p.nodes {
		nodes[p.nodes[i].Unit.Node] = &p.nodes[i]
	}
	total := len(p.turns)
	for _, name := range p.decision.Start {
		s := nodes[name]
		if s == nil || s.Machine == nil {
			continue
		}
		if machine.Taken(p.turns, s.Set.Name, s.Machine.ID) {
			p.waits(name, v1alpha1.ReasonMachineUnknown, "machine "+s.Machine.ID+" of scale set "+s.Set.Name+" is in a turn already")
			continue
		}
		room := rooms[s.Set.Name]
		if room.N <= 0 || total >= v1alpha1.MaxMachineTurns {
			if room.Reason == "" {
				room.Reason, room.Message = v1alpha1.ReasonSurgeExhausted, "scale set "+s.Set.Name+" has as many machines more than before as surge allows, or is about to"
			}
			p.waits(name, room.Reason, room.Message)
			continue
		}
		total++
		room.N--
		rooms[s.Set.Name] = room
		t := p.view.Begin(s, p.id(string(s.UID)), room.DeletesFirst)
		t.Unit = s.Unit
		t.Unit.InTurn, t.Unit.Reason, t.Unit.Message, t.Unit.State = true, v1alpha1.ReasonReplacementPending, "a machine is to be added to scale set "+s.Set.Name, v1alpha1.UnitOutdated
		if t.Phase == v1alpha1.MachineAdding {
			t.Step = machine.StepAdd
		} else {
			p.soon()
		}
		p.turns = append(p.turns, t)
		p.reports.Start(p.rollout.UID, name)
		log.FromContext(ctx).Info("turn begun", "node", name, "scaleSet", s.Set.Name, "machine", s.Machine.ID, "deletesFirst", t.DeletesFirst)
	}
	p.nodes = slices.DeleteFunc(p.nodes, func(s machine.NodeState) bool {
		return slices.ContainsFunc(p.turns, func(t *machine.Turn) bool { return t.Node == s.Name && t.NodeUID == s.UID })
	})
}

// id identifies a turn of what is known by this.
func (p *pass) id(of string) string {
	return turnof.Digest(string(p.rollout.UID), of, p.now.UnixNano())
}

// token identifies an operation: it is of lower case letters and digits.
func token() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // It never fails.
	return hex.EncodeToString(random[:])
}

// waits notes why a unit that was to start did not.
func (p *pass) waits(node string, reason v1alpha1.Reason, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decision.Waiting = append([]rollout.Wait{{Node: node, Reason: reason, Message: message}}, p.decision.Waiting...)
}

// rollBack puts the images back that are known to work, once the failure limit has halted the rollout. One that only detects leaves them, and
// so does one that is paused.
func (p *pass) rollBack() {
	if p.decision.Halted == nil {
		p.memo.impossible = "" // What comes later is told anew.
	}
	strategy := p.rollout.Spec.Strategy
	if p.decision.Halted == nil || !p.replacement.Rollback || p.rules.DetectOnly || p.rules.Ending || strategy != nil && strategy.Paused {
		return
	}
	var impossible []string
	for i := range p.rollout.Status.ScaleSets {
		status := &p.rollout.Status.ScaleSets[i]
		s := p.view.Sets[status.Name]
		if s == nil || !s.Known || s.Reason != "" || s.Unfit != "" {
			continue
		}
		if slices.ContainsFunc(s.Operations, func(o v1alpha1.CloudOperation) bool { return o.Kind == v1alpha1.CloudOperationSetImage }) {
			continue
		}
		if !p.failing(s) {
			continue // Nothing has failed there, or it was another image, which somebody has replaced already.
		}
		seen := machine.Note(*status, s, 0)
		image, why := machine.Rollback(&seen)
		if why != "" {
			impossible = append(impossible, why)
			continue
		}
		p.orders = append(p.orders, order{set: s, kind: v1alpha1.CloudOperationSetImage, image: image})
	}
	why := strings.Join(impossible, ", ")
	if why != "" {
		p.decision.Halted.Message += "; it can't be rolled back: " + why
	}
	if why != "" && why != p.memo.impossible {
		p.happens(events.RollbackImpossible(p.rollout, why))
	}
	p.memo.impossible = why
}

// failing reports whether turns of a set have failed for what its machines are made of now.
func (p *pass) failing(s *machine.Set) bool {
	return slices.ContainsFunc(p.turns, func(t *machine.Turn) bool {
		return t.ScaleSet == s.Name && t.Failed != nil && !t.Failed.Skipped && t.Attempt == p.attempt(s, p.view.Nodes[t.Node])
	}) || slices.ContainsFunc(p.nodes, func(n machine.NodeState) bool {
		return n.Set == s && n.Unit.State == v1alpha1.UnitFailed && !n.Unit.Skipped && !n.WithoutNode()
	})
}
