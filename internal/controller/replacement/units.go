// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// gather collects the World of the rollout for Judge.
func (p *pass) gather() {
	healthy := nodeturn.Healthy(p.Seen.Fleet, p.rollout.Spec.Health)
	v := &machine.World{
		Rules: p.rules, Now: p.Now, Sets: map[string]*machine.Set{}, Nodes: map[string]*machine.Node{}, Attempt: p.attempt,
		Drained: map[string]bool{}, Left: p.memo.left,
		Unhealthy: func(name string) (string, time.Time) { return healthy.Unhealthy(name, p.Now) },
		SoakEnd:   func(name string, since time.Time) time.Time { return nodeturn.SoakEnd(&healthy, p.Spec, name, since) },
		Unstable:  p.whyUnstable,
	}
	p.world = v
	for _, name := range slices.Sorted(maps.Keys(p.memo.sets)) {
		s := p.memo.sets[name]
		v.Sets[name] = s.view(p.operationsOf(name), p.Now)
		for _, t := range []*trouble{&s.changing, &s.adding} {
			if t.isDelayed(p.Now) {
				p.at(t.until)
			}
		}
		if !s.Known && s.looking.failures > 0 {
			p.unreadable, p.unreadableMessage = s.looking.reason, "scale set "+name+": "+s.looking.message
		}
	}
	v.Unreadable, v.UnreadableMessage = p.unreadable, p.unreadableMessage
	v.Revision = v.NextRevision(p.rollout.Status.Revision, p.rollout.Status.ScaleSets)
	v.Rank = func(uid types.UID) uint64 { return max(1, rollout.Rank(uid, p.UID, v.Revision)) }
	for _, n := range p.Seen.Objects {
		v.Nodes[n.Name] = p.nodeOf(n)
		p.ExpectRecord(n, v.Nodes[n.Name].Claim) // Units of turns have no claim.
	}
	p.machineTurns = make([]*machine.Turn, len(p.rollout.Status.Turns))
	for i := range p.machineTurns {
		p.machineTurns[i] = &machine.Turn{MachineTurn: p.rollout.Status.Turns[i]}
	}
}

// turnNode is one of a turn's two nodes, or nil.
func (p *pass) turnNode(t *machine.Turn, ofReplacement bool) *machine.Node {
	if !ofReplacement {
		return p.world.Nodes[t.Node]
	}
	return cmp.Or(p.world.ReplacementNode(t), p.world.Nodes[t.ReplacementNode])
}

// nodeOf is a Node with the claim and the marks of the rollout.
func (p *pass) nodeOf(n *corev1.Node) *machine.Node {
	t := nodeturn.Turn{}
	t.ReadClaims(p.Seen.Nodes[n.Name], p.UID)
	_, isSet := n.Annotations[v1alpha1.AnnotationScaleDownDisabled]
	by, ours := n.Annotations[v1alpha1.AnnotationScaleDownBy]
	return &machine.Node{
		Node: n, Claim: t.Claim, Unreadable: t.Unreadable,
		Foreign:  slices.ContainsFunc(t.Claims, func(c v1alpha1.Claim) bool { return c.UID != p.UID && !c.RecordsResult() }),
		Selected: p.selector.Matches(labels.Set(n.Labels)), OptedOut: n.Labels[p.optOut] == v1alpha1.LabelNodeRolloutDisabled,
		Marked:      nodeturn.IsMarked(n, p.Holder),
		NoScaleDown: ours && by == p.Holder, MayDisableScaleDown: !isSet && !ours,
	}
}

// whyUnstable says why the pods of a replacement's node are not healthy by spec.health.pods.
func (p *pass) whyUnstable(t *machine.Turn, name string) (why string, next time.Time) {
	h := p.rollout.Spec.Health
	if h == nil || len(h.Pods) == 0 {
		return "", next
	}
	pods, known := p.Works.Pods(turnof.ID{Rollout: p.Key, Node: name, Turn: t.Turn})
	if !known {
		return "its pods are not known yet", next
	}
	return hostupdate.Stable(pods, h.Pods, t.PhaseSince.Time, p.Now)
}

// judge says what every turn needs next, and the state of every other node.
func (p *pass) judge(ctx context.Context) error {
	p.machineTurns = p.world.Judge(p.machineTurns)
	err := p.advance(ctx)
	inTurn := map[string]bool{}
	for _, t := range p.machineTurns {
		p.at(t.Wake)
		if t.Phase == v1alpha1.MachineJoining && t.Node != "" && p.world.ReplacementNode(t) != nil {
			p.Works.Watch(p.drainID(t)) // Its pods are known when it is claimed.
		}
		if !t.Over {
			p.inTurn(t, inTurn)
		}
	}
	rooms := p.world.Rooms(p.machineTurns)
	var ranks []*uint64
	var places []string
	for _, n := range p.Seen.Objects {
		known := p.world.Nodes[n.Name]
		if known == nil || inTurn[n.Name] || !known.Selected && known.Claim == nil && !known.Marked && !known.NoScaleDown && !nodeturn.Tainted(n, p.Taint) {
			continue
		}
		s := p.world.JudgeNode(known, rooms)
		if known.Selected && s.Machine == nil && !s.Unit.OptedOut {
			p.countUnmatched(known)
		}
		if s.Unit.Rank > 0 {
			ranks, places = append(ranks, &s.Unit.Rank), append(places, s.Set.Name+"/"+s.Machine.Zone)
		}
		p.nodes = append(p.nodes, s)
	}
	rollout.Spread(places, ranks) // The zones of each scale set alternate.
	return err
}

// advance cordons and drains nodes, and deletes the Nodes of deleted machines, before the cloud is asked for anything, which may take long. It judges
// these turns again: they may go on in this pass. A Node that budgets count on is deleted only after the status says so.
func (p *pass) advance(ctx context.Context) error {
	due := slices.DeleteFunc(slices.Clone(p.machineTurns), func(t *machine.Turn) bool {
		return t.Over || t.Step != machine.StepCordon && t.Step != machine.StepDrain && (t.Step != machine.StepDeleteNode || t.DeletesFirst || t.OnReplacement)
	})
	err := turnof.Each(due, func(t *machine.Turn) error { return p.step(ctx, t) })
	for _, t := range due {
		switch {
		case !t.Stepped:
			t.Step = machine.StepNone
			continue
		case t.Step == machine.StepDeleteNode:
			delete(p.world.Nodes, t.Node)
		default:
			p.world.Drained[t.Key(t.OnReplacement)] = true
		}
		p.world.JudgeTurn(t)
	}
	return err
}

// inTurn marks the nodes of a turn: they are no units of their own.
func (p *pass) inTurn(t *machine.Turn, nodes map[string]bool) {
	if n := p.world.Nodes[t.Node]; n != nil && (t.NodeUID == "" || n.UID == t.NodeUID) {
		nodes[t.Node] = true
	}
	n := p.turnNode(t, true)
	if n == nil {
		return
	}
	// While its machine is not listed, or is gone, another node may have its name.
	if _, m := p.world.MachineOf(n); m == nil || m.ID == t.Replacement || n.Claim != nil && n.Claim.Turn == t.Turn {
		nodes[n.Name] = true
	}
}

// countUnmatched counts a selected node whose machine is not known. If the node is new, the sets are read again.
func (p *pass) countUnmatched(n *machine.Node) {
	p.unmatched++
	for _, s := range p.memo.sets {
		if s.Known && !s.LookedAt.After(n.CreationTimestamp.Time) && n.Spec.ProviderID != "" {
			s.stale = true
			p.at(s.due(nil, true, p.checkPeriod))
		}
	}
}

// adopt takes over the nodes that Ducklett was replacing. Ducklett's marks on a node are removed only after its turn is in status. While no turn may
// begin, the marks stay: Ducklett can continue with these nodes.
func (p *pass) adopt(ctx context.Context) error {
	s := p.rollout.Spec.Strategy
	stopped := s != nil && (s.Paused || s.MaxConcurrent != nil && *s.MaxConcurrent == intstr.FromInt32(0))
	if p.problem != nil || p.rules.DetectOnly || stopped {
		return nil //nolint:nilerr // The status says what the problem is.
	}
	var errs []error
	for _, n := range p.Seen.Objects {
		known := p.world.Nodes[n.Name]
		s, _ := p.world.MachineOf(known)
		if s == nil || !s.Known || !known.Selected || known.Unreadable || !machine.LeftByDucklett(n) {
			continue // The node may be in no scale set of the rollout.
		}
		isInTurn := slices.ContainsFunc(p.before.Turns, func(t v1alpha1.MachineTurn) bool { return t.Node == n.Name && t.NodeUID == n.UID })
		t := p.world.Adopt(known, p.id(string(n.UID)), p.machineTurns)
		switch {
		case isInTurn, t == nil && !p.rules.Ending:
			errs = append(errs, p.removeDucklett(ctx, n, isInTurn))
		case t != nil && len(p.machineTurns) < v1alpha1.MaxMachineTurns:
			p.machineTurns = append(p.machineTurns, t)
			p.Happened(events.MachineAdopted(p.rollout, n.Name))
			p.soon()
			log.FromContext(ctx).Info("node taken over from Ducklett", "node", n.Name, "was", n.Annotations[v1alpha1.AnnotationDucklettStatus])
		}
	}
	return turnof.First(errs)
}

// removeDucklett removes what Ducklett has left on a node. If the turn continues, a node that Ducklett cordoned counts as cordoned by the rollout;
// otherwise it is uncordoned.
func (p *pass) removeDucklett(ctx context.Context, n *corev1.Node, goesOn bool) error {
	remove := func(n *corev1.Node, holder string) {
		maps.DeleteFunc(n.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.DucklettPrefix) })
		others := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintDucklett })
		if len(others) < len(n.Spec.Taints) && n.Spec.Unschedulable {
			if n.Spec.Unschedulable = goesOn; goesOn {
				node.Annotating(map[string]*string{v1alpha1.AnnotationCordonedBy: &holder})(n, holder)
			}
		}
		n.Spec.Taints = others
	}
	if err := node.Write(ctx, p.Client, n, node.Edit{Claim: v1alpha1.Claim{Rollout: p.Holder}, KeepClaims: true, Also: []node.Also{remove}}); err != nil {
		return fmt.Errorf("removing what Ducklett has left, %w", err)
	}
	p.soon()
	return nil
}
