// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
)

// machines are the units of one NodeRollout with replacement. They come from its status and the Nodes, without asking the cloud.
type machines struct {
	selection

	nodes    []Node
	optedOut int32
	// untold are nodes whose machines may be outdated. Neither the status nor the node shows whether they are.
	untold []string

	// asked and strategy are the engine's input. decision is its output.
	asked    []rollout.Unit
	strategy rollout.Strategy
	decision rollout.Decision
}

// Untold is the state of a node when only the operator knows whether it is outdated.
const Untold v1alpha1.UnitState = "Untold"

// Machine is a machine's part in a turn, as the status of its NodeRollout records it.
type Machine struct {
	// Rollout is the NodeRollout.
	Rollout string `json:"rollout"`
	// MachineTurn is the turn in the status.
	v1alpha1.MachineTurn `json:",inline"`
	// Replaces is true for the replacement machine of the turn.
	Replaces bool `json:"replaces,omitempty"`
}

// machinesOf returns the turns of a node's machine, also as replacement.
func (c *Cluster) machinesOf(node string) []Machine {
	var all []Machine
	for i := range c.nodeRollouts {
		for _, t := range c.nodeRollouts[i].Status.Turns {
			if t.Node == node || t.ReplacementNode == node {
				all = append(all, Machine{Rollout: c.nodeRollouts[i].Name, MachineTurn: t, Replaces: t.Node != node})
			}
		}
	}
	return all
}

// machineUnit is one unit. turn is nil for a node that is in no turn.
type machineUnit struct {
	nodeturn.Turn
	turn *v1alpha1.MachineTurn
}

// observe judges the units in the NodeRollout's status and the Nodes, and asks the engine which are next.
// The node called named counts even if it opted out.
func (u *machines) observe(named string) {
	nr := u.of
	listed := u.told()
	for _, f := range nr.Status.Failed {
		listed[f.Node] = entry{f, v1alpha1.UnitFailed, 0}
	}
	w := u.world(listed)
	units := u.unitsOfNodes(w, listed, named, u.unitsOfTurns(w))
	u.spread(units)
	var total int
	if u.asked, total = nodeturn.Units(units); nr.Status.Counts != nil && !u.supposed {
		total = max(total, int(nr.Status.Counts.Total))
	}
	u.strategy = u.strategyFor(nr.Status.Revision, total)
	if u.problem() == "" {
		u.decision = rollout.Decide(u.strategy, u.asked, u.cluster.fleet, u.cluster.now)
	}
	for _, m := range units {
		if m.turn != nil || m.Unit.HoldsSlot() || m.Counted && (!m.Unit.OptedOut || m.Claim != nil) {
			u.nodes = append(u.nodes, u.line(m, listed[m.Unit.Node]))
		}
	}
	explain(u.nodes, u.decision.Waiting, listed)
}

// unitsOfTurns returns the units that are in a turn.
func (u *machines) unitsOfTurns(w *replacement.World) (units []*machineUnit) {
	nr := u.of
	for i := range nr.Status.Turns {
		t := &nr.Status.Turns[i]
		m := &machineUnit{nodeturn.Turn{Unit: w.UnitOf(t), Counted: true}, t}
		if m.Unit.State == v1alpha1.UnitOutdated && t.Phase != v1alpha1.MachineClaiming {
			m.Unit.State = v1alpha1.UnitUpdating // It waits for its replacement, not for the engine.
		}
		if f := u.cluster.named[t.Node]; f != nil && m.Unit.State == v1alpha1.UnitFailed {
			if own := held(f.claims, nr.UID); own != nil && own.Failed != nil {
				m.Claim, m.turn = own, nil
				m.ShowFailure(nr.Spec.Strategy)
			}
		}
		units = append(units, m)
	}
	return units
}

// unitsOfNodes adds the units of nodes that are in no turn.
func (u *machines) unitsOfNodes(w *replacement.World, listed map[string]entry, named string, units []*machineUnit) []*machineUnit {
	for i := range u.cluster.facts {
		name := u.cluster.facts[i].node.Name
		n := w.Nodes[name]
		if n == nil || slices.Contains(u.untold, name) && !u.supposed {
			continue
		}
		p := w.JudgeNode(n, nil)
		if p.Unit.OptedOut && n.Claim == nil {
			if u.optedOut++; name != named {
				continue
			}
		}
		if s := listed[name]; s.state == v1alpha1.UnitOutdated && p.Unit.State == s.state && p.Unit.Reason == "" && machineReason(s.Reason) {
			p.Unit.Reason, p.Unit.Message = s.Reason, s.Message // The cloud decides it.
		}
		units = append(units, &machineUnit{Turn: nodeturn.Turn{Node: n.Node, Claim: n.Claim, Unit: p.Unit, Counted: p.Counted}})
	}
	return units
}

// world is the input for judging nodes without a turn. It models each one as a scale set with one machine, both with the node's name.
func (u *machines) world(listed map[string]entry) *replacement.World {
	c, nr := u.cluster, u.of
	r := nr.Spec.Replacement
	image := u.image()
	w := &replacement.World{
		Rules: replacement.Rules{
			DetectOnly: r.DetectOnly, ControlPlane: r.ControlPlane != nil, Ending: nr.DeletionTimestamp != nil,
			MatchOSImage: r.ImageMatch == v1alpha1.ImageMatchOSImage && image != "",
		},
		Now: c.now, Sets: map[string]*replacement.Set{}, Nodes: map[string]*replacement.Node{},
		Rank: func(uid types.UID) uint64 { return max(1, rollout.Rank(uid, nr.UID, nr.Status.Revision)) },
		Attempt: func(_ *replacement.Set, n *replacement.Node) string {
			if listed[n.Name].state == v1alpha1.UnitOutdated {
				return "" // Not the attempt that failed.
			}
			return n.Claim.Attempt
		},
	}
	if s := nr.Spec.Strategy; s != nil {
		w.Retries = s.Retries
	}
	var unlisted []*replacement.Set
	for i := range c.facts {
		f := &c.facts[i]
		n := &replacement.Node{
			Node: f.node, Claim: held(f.claims, nr.UID), Selected: u.selector.Matches(labels.Set(f.node.Labels)),
			OptedOut: f.node.Labels[v1alpha1.LabelNodeRollout(nr.Name)] == v1alpha1.LabelNodeRolloutDisabled,
		}
		if u.turnOf(f.node.Name) != nil || n.Claim == nil && u.unmanaged(f) != "" {
			continue
		}
		m := replacement.Machine{ID: f.node.Name, ProviderID: f.node.Spec.ProviderID, State: replacement.Running}
		s := &replacement.Set{Name: f.node.Name, Known: true, ImageName: image, Machines: []replacement.Machine{m}}
		w.Nodes[f.node.Name], w.Sets[s.Name] = n, s
		byImage := w.MatchOSImage && f.node.Status.NodeInfo.OSImage != ""
		if listed[f.node.Name].state == "" && n.Claim == nil && !n.OptedOut && !byImage {
			unlisted = append(unlisted, s)
		}
	}
	// Unlisted nodes are updated if the status lists all others and counts these as updated.
	areUpdated := u.wholeStatus() && len(unlisted) <= int(nr.Status.Counts.Updated)
	for _, s := range unlisted {
		if s.Machines[0].UpToDate = areUpdated; !areUpdated {
			u.untold = append(u.untold, s.Name)
		}
	}
	return w
}

// spread alternates between zones, like the controller. The machines' scale sets are not known here.
func (u *machines) spread(units []*machineUnit) {
	var starting []*rollout.Unit
	var zones []string
	for _, m := range units {
		if m.Unit.Rank > 0 {
			starting, zones = append(starting, &m.Unit), append(zones, m.Node.Labels[corev1.LabelTopologyZone])
		}
	}
	replacement.Spread(starting, zones)
}

// turnOf is the turn that a node is in: its own, or else that of the node that it replaces.
func (u *machines) turnOf(node string) (turn *v1alpha1.MachineTurn) {
	for i := range u.of.Status.Turns {
		switch t := &u.of.Status.Turns[i]; node {
		case t.Node:
			return t
		case t.ReplacementNode:
			turn = t
		}
	}
	return turn
}

// line shows a unit as its controller writes it to the status, and the unit's replacement.
func (u *machines) line(m *machineUnit, listed entry) Node {
	line := Node{Node: m.Unit.Node, State: m.Unit.State}
	if f := u.cluster.named[line.Node]; f != nil {
		line.NotReady, line.Cordoned = !f.ready, f.node.Spec.Unschedulable
		if u.of.Spec.Replacement.ImageMatch == v1alpha1.ImageMatchOSImage {
			line.Version = f.node.Status.NodeInfo.OSImage
			if image := u.image(); image != line.Version && line.State != v1alpha1.UnitUpdated {
				line.Target = image
			}
		}
	}
	if m.Claim != nil {
		line.Started = &m.Claim.Since
	}
	var wait *rollout.Wait
	if i := slices.IndexFunc(u.decision.Waiting, func(w rollout.Wait) bool { return w.Node == line.Node }); i >= 0 {
		wait = &u.decision.Waiting[i]
	}
	t := m.turn
	if t != nil {
		line.Phase, line.Since, line.Started, line.Message = v1alpha1.Phase(t.Phase), &t.PhaseSince, &t.Since, t.Message
	}
	switch {
	case line.State == v1alpha1.UnitFailed:
		s := m.FailedStatus(wait)
		line.Since, line.Reason, line.Skipped, line.RetryAt = s.Since, s.Reason, m.Unit.Skipped, known(m.Unit.RetryAt)
		if !strings.Contains(line.Message, s.Message) {
			line.Message = strings.TrimPrefix(line.Message+"; "+s.Message, "; ")
		}
	case m.Unit.HoldsSlot():
		s := m.TurnStatus(line.Phase, m.Unit.Since, line.Message, wait)
		line.State, line.Reason, line.Message = turning(line.Phase), s.Reason, s.Message
		// The controller writes Turns before Updating: an entry with another phase is out of date.
		if listed.state == v1alpha1.UnitUpdating && listed.Message != "" && listed.Phase == line.Phase {
			line.Reason, line.Message = listed.Reason, listed.Message
		}
	}
	if t != nil {
		line.Message = replacedBy(t, line.Message)
	}
	return line
}

// machineReasons are the reasons that only the operator can give, from the cloud and etcd.
var machineReasons = []v1alpha1.Reason{
	v1alpha1.ReasonMachineUnknown, v1alpha1.ReasonMachineProtected, v1alpha1.ReasonSurgeExhausted, v1alpha1.ReasonScaleSetFull, v1alpha1.ReasonScaleSetBusy,
	v1alpha1.ReasonScaleSetUnfit, v1alpha1.ReasonScaleSetNotFound, v1alpha1.ReasonCloudQuota, v1alpha1.ReasonCloudThrottled, v1alpha1.ReasonCloudDenied,
	v1alpha1.ReasonCloudError, v1alpha1.ReasonReplacementPending, v1alpha1.ReasonEtcdUnhealthy,
}

func machineReason(r v1alpha1.Reason) bool { return slices.Contains(machineReasons, r) }

// replacedBy names the replacement and then appends the message.
func replacedBy(t *v1alpha1.MachineTurn, message string) string {
	by := ""
	switch {
	case t.Node == "" || t.Phase == v1alpha1.MachineSoaking: // The line is about the replacement itself.
	case t.ReplacementNode != "" && !strings.Contains(message, t.ReplacementNode):
		by = "replaced by " + t.ReplacementNode
	case t.ReplacementNode == "" && t.Replacement != "" && !strings.Contains(message, t.Replacement):
		by = "replaced by machine " + t.Replacement
	}
	if by != "" && message != "" {
		by += "; "
	}
	return by + message
}

// image is the short name of the scale sets' image; empty if they have several.
func (u *machines) image() (name string) {
	for i := range u.of.Status.ScaleSets {
		of := u.of.Status.ScaleSets[i].Image
		if of = of[strings.LastIndex(of, "/")+1:]; name != "" && of != name {
			return ""
		}
		name = of
	}
	return name
}

// unmanaged says why the rollout ignores a node that is in no turn; else "".
func (u *machines) unmanaged(f *fact) string {
	if !u.selector.Matches(labels.Set(f.node.Labels)) {
		return asksFor(u.selector, f)
	}
	if f.node.Spec.ProviderID == "" {
		return "the node has no spec.providerID, by which the cloud would know its machine"
	}
	return ""
}

// rollout summarizes the units.
func (u *machines) rollout() Rollout {
	r := describeNodeRollout(u.of)
	r.OptedOut = u.optedOut
	if len(u.untold) == 0 {
		r.Counts, r.Wave = count(u.nodes), u.decision.Wave
	}
	if h := u.decision.Halted; h != nil {
		r.Halted = h.Message
	}
	r.Nodes = sorted(u.nodes)
	r.State, r.Message, r.Since = nodeRolloutState(u.of, r.Counts, r.Nodes, u.cluster.now)
	r.Budgets = u.cluster.selecting(r.Nodes)
	return r
}

// unselected says why the NodeRollout does not concern a node; else "".
func (u *machines) unselected(f *fact) string {
	turn := u.turnOf(f.node.Name)
	switch {
	case turn != nil && turn.UnitName() != f.node.Name:
		return fmt.Sprintf("its machine is to take the place of that of node %s, whose turn is at %s", turn.Node, turn.Phase)
	case turn != nil, held(f.claims, u.of.UID) != nil:
		return ""
	}
	if problem := u.problem(); problem != "" && !invalid(u.of) {
		return problem
	}
	return u.unmanaged(f)
}

// part is the node's part in a NodeRollout that selects or claims it.
func (u *machines) part(name string) Part {
	part := newPart(u.rollout(), u.asked, name)
	part.Replaces = true
	if slices.Contains(u.untold, name) {
		part.Unit.State, part.Unit.Message = Untold, "whether its machine is outdated is for the cloud to tell, and its rollout's status does not list the node"
		ready := meta.FindStatusCondition(u.of.Status.Conditions, v1alpha1.ConditionReady)
		switch n := u.of.Status.Counts; {
		case ready != nil && machineReason(v1alpha1.Reason(ready.Reason)) && u.wholeStatus():
			part.Unit.Reason, part.Unit.Message = v1alpha1.Reason(ready.Reason), ready.Message // This is why the operator does not know.
		case n != nil:
			part.Unit.Message += fmt.Sprintf(": of %d nodes %d are updated, and it lists the first %d of %d that wait", n.Total, n.Updated, len(u.of.Status.Waiting), n.Waiting)
		}
		return part
	}
	if u.problem() == "" {
		u.cluster.explain(&part, u.strategy, u.asked, name, u.told()[name])
	}
	return part
}
