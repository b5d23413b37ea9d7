// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/kind/hostupdate"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// gather puts together what is to be seen.
func (p *pass) gather() {
	healthy := turnof.Healthy(p.snapshot.Fleet, p.rollout.Spec.Health)
	v := &machine.World{
		Rules: p.rules, Now: p.now, Sets: map[string]*machine.Set{}, Nodes: map[string]*machine.Node{}, Attempt: p.attempt,
		Drained: p.memo.drained, Left: p.memo.left, Deleted: p.memo.deleted, Held: map[string]bool{},
		Unjoined: map[string]string{}, Waits: map[string]string{}, Stays: map[string]string{},
		Unhealthy: func(name string) (string, time.Time) { return unhealthy(&healthy, name, p.now) },
		SoakEnd: func(name string, since time.Time) time.Time {
			if s := p.rollout.Spec.Strategy; s != nil && s.Soak != nil {
				return healthy.SoakEnd(name, since, s.Soak.Duration)
			}
			return since
		},
		Unstable: p.unstable,
	}
	p.view = v
	for name, s := range p.memo.sets {
		v.Sets[name] = s.view(p.operationsOf(name), p.now)
		for _, t := range []*trouble{&s.preparing, &s.changing, &s.adding} {
			if t.rests(p.now) {
				p.at(t.until)
			}
		}
		if !s.known && s.looking.failures > 0 {
			p.blind, p.blindMessage = s.looking.reason, "scale set "+name+": "+s.looking.message
		}
	}
	v.Blind, v.BlindMessage = p.blind, p.blindMessage
	v.Revision = v.NextRevision(p.rollout.Status.Revision, p.rollout.Status.ScaleSets)
	v.Rank = func(uid types.UID) uint64 { return max(1, rollout.Rank(uid, p.rollout.UID, v.Revision)) }
	for _, n := range p.snapshot.Objects {
		v.Nodes[n.Name] = p.nodeOf(n)
	}
	p.turns = make([]*machine.Turn, len(p.rollout.Status.Turns))
	for i := range p.turns {
		p.turns[i] = &machine.Turn{MachineTurn: p.rollout.Status.Turns[i]}
	}
}

// unhealthy says why a node is not healthy, and when the clock alone can change that.
func unhealthy(f *rollout.Fleet, name string, now time.Time) (why string, next time.Time) {
	if why = f.Unhealthy(name, now); why == "" {
		return "", next
	}
	if end := f.SoakEnd(name, time.Time{}, 0); end.After(now) {
		next = end
	}
	return why, next
}

// nodeOf is a Node, and what the rollout has to do with it.
func (p *pass) nodeOf(n *corev1.Node) *machine.Node {
	known := p.snapshot.Nodes[n.Name]
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	value, told := n.Annotations[v1alpha1.AnnotationScaleDownDisabled]
	by, ours := n.Annotations[v1alpha1.AnnotationScaleDownBy]
	return &machine.Node{
		Node: n, Claim: node.Held(known.Claims, p.rollout.UID), Unreadable: known.ClaimError != "",
		Foreign:  slices.ContainsFunc(known.Claims, func(c v1alpha1.Claim) bool { return c.UID != p.rollout.UID && !c.Parked() }),
		Selected: p.selector.Matches(labels.Set(n.Labels)), OptedOut: n.Labels[p.optOut] == v1alpha1.LabelNodeRolloutDisabled,
		Marked: n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordonedBy] == p.holder ||
			excluded && n.Annotations[v1alpha1.AnnotationExcludedBy] == p.holder,
		Shielded: ours && by == p.holder, Shieldable: !told && !ours || ours && by == p.holder && value != "true",
	}
}

// unstable says why the pods of a replacement's node are not well in the sense of spec.health.pods.
func (p *pass) unstable(t *machine.Turn, name string) (why string, next time.Time) {
	h := p.rollout.Spec.Health
	if h == nil || len(h.Pods) == 0 {
		return "", next
	}
	pods, known := p.works.Pods(turnof.Of{Rollout: p.key, Node: name, Turn: t.Turn})
	if !known {
		return "its pods are being looked up", next
	}
	return hostupdate.Stable(pods, h.Pods, t.PhaseSince.Time, p.now)
}

// ask asks the control plane, where nodes are of it: whether replacements are members, and whether others may leave.
func (p *pass) ask(ctx context.Context) {
	if !p.rules.ControlPlane {
		return
	}
	var leaving []string
	for _, t := range p.turns {
		if t.Node != "" && (t.Phase == v1alpha1.MachineDraining || t.Phase == v1alpha1.MachineLeaving) {
			leaving = append(leaving, t.Node)
		}
	}
	for _, t := range p.turns {
		switch t.Phase {
		case v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming:
			p.askOf(ctx, t, leaving)
		default:
		}
	}
	if len(p.turns) == 0 && p.etcd() { // Else what more may begin is asked in its time.
		p.askForMore(ctx)
	}
}

// askForMore asks whether turns may begin.
func (p *pass) askForMore(ctx context.Context) {
	n, why, err := p.options.Plane.Leavable(ctx, nil)
	switch {
	case err != nil:
		p.view.Closed = "the control plane can't be looked at: " + err.Error()
	case n == 0:
		p.view.Closed = why
	}
	if p.view.Closed != "" {
		p.at(p.now.Add(planeEvery))
	}
}

// askOf asks of a turn. It may come through several phases before this is asked again.
func (p *pass) askOf(ctx context.Context, t *machine.Turn, leaving []string) {
	note := func(in map[string]string, why string, err error) {
		if err != nil {
			why = "the control plane can't be looked at: " + err.Error()
		}
		if why != "" {
			in[t.Turn] = why
			p.at(p.now.Add(planeEvery))
		}
	}
	o := p.departure(leaving)
	if p.etcd() && t.Failed != nil && t.Phase == v1alpha1.MachineJoining && p.view.Bound(t) {
		if name, _ := p.view.Remains(t); name != "" {
			why, err := p.options.Plane.MayLeave(ctx, name, o)
			note(p.view.Stays, why, err)
		}
	}
	if p.etcd() && (!t.DeletesFirst || t.Phase != v1alpha1.MachineClaiming) {
		name, why, err := p.joined(ctx, t)
		note(p.view.Unjoined, why, err)
		if why != "" || err != nil {
			return
		}
		o.Replacement = name
	}
	if t.Machine != "" {
		why, err := p.options.Plane.MayLeave(ctx, t.Node, o)
		note(p.view.Waits, why, err)
	}
}

// planeEvery is how often a control plane is asked that is waited for.
const planeEvery = 5 * time.Second

// etcd reports whether its members are on the nodes.
func (p *pass) etcd() bool {
	return p.replacement.ControlPlane == nil || p.replacement.ControlPlane.Etcd != v1alpha1.EtcdExternal
}

// joined is the node of a turn's replacement, and says why that is no member of the control plane yet, or "".
func (p *pass) joined(ctx context.Context, t *machine.Turn) (node, why string, err error) {
	if m := p.view.Sets[t.ScaleSet].Machine(t.Replacement); m != nil {
		if n := p.view.NodeOf(m); n != nil {
			why, err = p.options.Plane.Joined(ctx, n.Name)
			return n.Name, why, err
		}
	}
	return "", "its replacement has not joined the control plane yet", nil
}

// departure says how nodes leave.
func (p *pass) departure(leaving []string) controlplane.Options {
	return controlplane.Options{Etcd: p.etcd(), Leaving: leaving}
}

// judge says what every turn needs next, and how every other node stands.
func (p *pass) judge() {
	before := map[string]v1alpha1.MachineTurn{}
	for _, t := range p.turns {
		before[t.Turn] = t.MachineTurn
	}
	p.turns = p.view.Judge(p.turns)
	for _, t := range p.turns {
		p.at(t.Wake)
		switch then, known := before[t.Turn]; {
		case !known:
		case then.Phase != t.Phase:
			p.turned(t, then.Phase)
		case t.Phase == v1alpha1.MachineAdding && then.Failed == nil && t.Failed != nil:
			p.failed(t) // It waits on for the cloud all the same.
		}
	}
	p.judgeNodes()
}

// judgeNodes judges the nodes that are in no turn, and the machines without one.
func (p *pass) judgeNodes() {
	p.nodes, p.alone = p.nodes[:0], 0
	inTurn := map[string]bool{}
	for _, t := range p.turns {
		if !t.Over {
			p.inTurn(t, inTurn)
		}
	}
	rooms := p.view.Rooms(p.turns)
	for _, n := range p.snapshot.Objects {
		known := p.view.Nodes[n.Name]
		if inTurn[n.Name] || !known.Selected && known.Claim == nil && !known.Marked && !known.Shielded && !node.Tainted(n, p.taint) {
			continue
		}
		s := p.view.Look(known, rooms)
		if known.Selected && s.Machine == nil && !s.Unit.OptedOut {
			p.stranger(known)
		}
		p.nodes = append(p.nodes, s)
	}
	p.nodes = append(p.nodes, p.view.MachinesWithoutNode(p.turns)...)
	p.spread()
}

// spread lets the zones of each scale set take turns.
func (p *pass) spread() {
	var places []string
	var ranks []uint64
	var asking []*rollout.Unit
	for i := range p.nodes {
		if s := &p.nodes[i]; s.Unit.Rank > 0 {
			places, ranks, asking = append(places, s.Set.Name+"/"+s.Machine.Zone), append(ranks, s.Unit.Rank), append(asking, &s.Unit)
		}
	}
	rollout.Spread(places, ranks)
	for i, u := range asking {
		u.Rank = ranks[i]
	}
}

// inTurn notes the nodes of a turn, which are no units of their own.
func (p *pass) inTurn(t *machine.Turn, nodes map[string]bool) {
	if n := p.view.Nodes[t.Node]; n != nil && (t.NodeUID == "" || n.UID == t.NodeUID) {
		nodes[t.Node] = true
	}
	if m := p.view.Sets[t.ScaleSet].Machine(t.Replacement); m != nil {
		if n := p.view.NodeOf(m); n != nil {
			nodes[n.Name] = true
		}
		return
	}
	// Its machine is not listed, or is gone already. Another node may have its name by now.
	if n := p.view.Nodes[t.ReplacementNode]; n != nil {
		if _, m := p.view.MachineOf(n); m == nil || n.Claim != nil && n.Claim.Turn == t.Turn {
			nodes[n.Name] = true
		}
	}
}

// stranger is a selected node whose machine is not known. One that is new in a set that is known is looked for.
func (p *pass) stranger(n *machine.Node) {
	p.alone++
	where := p.memo.places[n.Spec.ProviderID]
	for name, s := range p.memo.sets {
		mayBe := len(p.replacement.ScaleSets) > 0 && n.Spec.ProviderID != "" || where.known && where.ScaleSet == name
		if mayBe && s.known && !s.at.After(n.CreationTimestamp.Time) && !s.stale {
			s.stale = true
			p.at(s.due(true, p.checkPeriod))
		}
	}
}
