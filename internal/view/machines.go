// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
)

// machines are the units of one NodeRollout with replacement, as its status lists them: the cloud is not asked.
type machines struct {
	selection

	nodes    []Node
	optedOut int32
	// untold are the nodes of which neither the status nor the node itself tells whether their machine is outdated.
	untold []string

	// asked is what the engine is asked about, with this strategy, and decision its answer.
	asked    []rollout.Unit
	strategy rollout.Strategy
	decision rollout.Decision
}

// Untold is the state of a node of which only the operator knows whether it is outdated.
const Untold v1alpha1.UnitState = "Untold"

// Machine is a machine's part in a turn, as the status of its NodeRollout tells it.
type Machine struct {
	// Rollout is the NodeRollout.
	Rollout string `json:"rollout"`
	// Turn is what is known of the turn.
	v1alpha1.MachineTurn `json:",inline"`
	// Replaces is true for the machine that takes the place of the one whose turn it is.
	Replaces bool `json:"replaces,omitempty"`
}

// machinesOf are the turns that a node's machine has a part in.
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

// observe collects the units that the NodeRollout's status lists, and asks the engine who is next. Nothing is judged but what Nodes tell by themselves. A node that
// is named counts also where it has opted out.
func (u *machines) observe(named string) {
	c, nr := u.cluster, u.of
	told := u.told()
	for _, f := range nr.Status.Failed {
		told[f.Node] = entry{f, v1alpha1.UnitFailed, 0}
	}
	var unlisted []*fact
	for i := range c.facts {
		f := &c.facts[i]
		own, turn, status := held(f.claims, nr.UID), u.turnOf(f.node.Name), told[f.node.Name]
		switch {
		case turn != nil && turn.UnitName() != f.node.Name:
			// The line of the turn's unit names its replacement.
		case own != nil, turn != nil:
			u.add(f, turn, own, status)
		case u.unmanaged(f) != "":
		case f.node.Labels[v1alpha1.LabelNodeRollout(nr.Name)] == v1alpha1.LabelNodeRolloutDisabled:
			u.optedOut++
			if f.node.Name == named {
				u.asked = append(u.asked, rollout.Unit{Node: named, State: v1alpha1.UnitOutdated, OptedOut: true})
			}
		case status.state == "":
			unlisted = append(unlisted, f)
		default:
			u.add(f, nil, nil, status)
		}
	}
	// Those that the status does not list are updated, if it lists all others and counts them.
	areUpdated := u.wholeStatus() && len(unlisted) <= int(nr.Status.Counts.Updated)
	for _, f := range unlisted {
		var status entry
		switch state := u.byOSImage(f); {
		case state != "":
			status.state = state
		case areUpdated:
			status.state = v1alpha1.UnitUpdated
		default:
			u.untold = append(u.untold, f.node.Name)
			if !u.supposed {
				continue
			}
			status.state = v1alpha1.UnitOutdated
		}
		u.add(f, nil, nil, status)
	}
	u.spread()
	u.addWithoutNode()
	total := len(u.nodes)
	if n := nr.Status.Counts; n != nil && !u.supposed {
		total = max(total, int(n.Total))
	}
	u.strategy = u.strategyFor(nr.Status.Revision, total)
	if u.problem() == "" {
		u.decision = rollout.Decide(u.strategy, u.asked, c.fleet, c.now)
	}
	explain(u.nodes, u.decision.Waiting, told)
}

// spread lets the zones take turns, as the controller does. Of which scale set a machine is, is not to be seen here.
func (u *machines) spread() {
	var zones []string
	var ranks []uint64
	var asking []*rollout.Unit
	for i := range u.asked {
		if a := &u.asked[i]; a.Rank > 0 && a.State == v1alpha1.UnitOutdated {
			zone := ""
			if n := u.cluster.fleet.Nodes[a.Node]; n != nil {
				zone = n.Labels[corev1.LabelTopologyZone]
			}
			zones, ranks, asking = append(zones, zone), append(ranks, a.Rank), append(asking, a)
		}
	}
	rollout.Spread(zones, ranks)
	for i, a := range asking {
		a.Rank = ranks[i]
	}
}

// addWithoutNode adds the turns and the failed machines that have no Node.
func (u *machines) addWithoutNode() {
	isKnown := func(name string) bool {
		return slices.ContainsFunc(u.nodes, func(n Node) bool { return n.Node == name })
	}
	for i := range u.of.Status.Turns {
		if t := &u.of.Status.Turns[i]; !isKnown(t.UnitName()) {
			line := Node{Node: t.UnitName()}
			u.turns(&line, t)
			u.ask(line, rollout.Unit{Claimed: true})
		}
	}
	for _, f := range u.of.Status.Failed {
		if strings.Contains(f.Node, "/") && !isKnown(f.Node) {
			u.ask(unit(f, v1alpha1.UnitFailed), rollout.Unit{NoNode: true})
		}
	}
}

// turnOf is the turn that a node is in: its own, or that of the node whose place it takes.
func (u *machines) turnOf(node string) *v1alpha1.MachineTurn {
	turns := u.of.Status.Turns
	for _, of := range []func(*v1alpha1.MachineTurn) string{
		func(t *v1alpha1.MachineTurn) string { return t.Node },
		func(t *v1alpha1.MachineTurn) string { return t.ReplacementNode },
	} {
		if i := slices.IndexFunc(turns, func(t v1alpha1.MachineTurn) bool { return of(&t) == node }); i >= 0 {
			return &turns[i]
		}
	}
	return nil
}

// add adds the unit of a node: as its turn tells it, or its claim, or the status.
func (u *machines) add(f *fact, turn *v1alpha1.MachineTurn, own *v1alpha1.Claim, status entry) {
	line := unit(status.UnitStatus, status.state)
	line.Node, line.NotReady, line.Cordoned = f.node.Name, !f.ready, f.node.Spec.Unschedulable
	if status.state == v1alpha1.UnitUpdating {
		line.State = turning(status.Phase)
	}
	if u.of.Spec.Replacement.ImageMatch == v1alpha1.ImageMatchOSImage {
		line.Version = f.node.Status.NodeInfo.OSImage
		if image := u.image(); image != line.Version && line.State != v1alpha1.UnitUpdated {
			line.Target = image
		}
	}
	ask := rollout.Unit{Claimed: own != nil && !own.Skipped()}
	switch {
	case own != nil && own.Failed != nil && status.state != v1alpha1.UnitOutdated:
		line.Started = &own.Since
		line.fails(own, u.of.Spec.Strategy)
	case turn != nil:
		u.turns(&line, turn)
		// The turn is written before the rest: what is listed of another phase is not true any more.
		if turn.Failed == nil && status.state == v1alpha1.UnitUpdating && status.Message != "" && status.Phase == v1alpha1.Phase(turn.Phase) {
			line.Reason, line.Message = status.Reason, replacedBy(turn, status.Message)
		}
	case own != nil && status.state == "":
		line.State, line.Phase, line.Since, line.Started = v1alpha1.UnitUpdating, v1alpha1.PhaseClaimed, &own.Since, &own.Since
	}
	switch {
	case turn != nil && turn.Phase == v1alpha1.MachineClaiming && own == nil:
		// It is about to be claimed, and the engine says what blocks it.
		ask.State, ask.InTurn = v1alpha1.UnitOutdated, true
	case line.State == v1alpha1.UnitOutdated && u.of.Spec.Replacement.DetectOnly:
		ask.Reason, ask.Message = v1alpha1.ReasonDetectOnly, "the rollout only detects"
	case line.State == v1alpha1.UnitOutdated && machineReason(status.Reason):
		ask.Reason, ask.Message = status.Reason, status.Message // The cloud says so.
	case line.State != v1alpha1.UnitOutdated:
		ask.Reason, ask.Message = line.Reason, line.Message
	}
	if own == nil {
		ask.Rank = max(1, rollout.Rank(f.node.UID, u.of.UID, u.of.Status.Revision))
	}
	u.ask(line, ask)
}

// ask adds a line, and its unit for the engine.
func (u *machines) ask(line Node, ask rollout.Unit) {
	if ask.Node = line.Node; ask.State == "" {
		ask.State = line.State
	}
	if ask.Skipped = line.Skipped; line.RetryAt != nil {
		ask.RetryAt = line.RetryAt.Time
	}
	u.nodes, u.asked = append(u.nodes, line), append(u.asked, ask)
}

// byOSImage is the state of a node whose machine is told by its OS image, or "" if it is not.
func (u *machines) byOSImage(f *fact) v1alpha1.UnitState {
	image := u.image()
	w := replacement.World{Rules: replacement.Rules{MatchOSImage: true}}
	switch {
	case u.of.Spec.Replacement.ImageMatch != v1alpha1.ImageMatchOSImage, image == "", f.node.Status.NodeInfo.OSImage == "":
		return ""
	case w.Outdated(&replacement.Set{ImageName: image}, nil, &replacement.Node{Node: f.node}):
		return v1alpha1.UnitOutdated
	}
	return v1alpha1.UnitUpdated
}

// machineReasons are the reasons that only the operator can give, by what the cloud and etcd say.
var machineReasons = []v1alpha1.Reason{
	v1alpha1.ReasonMachineUnknown, v1alpha1.ReasonMachineProtected, v1alpha1.ReasonSurgeExhausted, v1alpha1.ReasonScaleSetFull, v1alpha1.ReasonScaleSetBusy,
	v1alpha1.ReasonScaleSetUnfit, v1alpha1.ReasonScaleSetNotFound, v1alpha1.ReasonCloudQuota, v1alpha1.ReasonCloudThrottled, v1alpha1.ReasonCloudDenied,
	v1alpha1.ReasonCloudError, v1alpha1.ReasonReplacementPending, v1alpha1.ReasonEtcdUnhealthy,
}

func machineReason(r v1alpha1.Reason) bool { return slices.Contains(machineReasons, r) }

// turns makes the line that of a node in a turn. One that has failed is failed in whatever phase it stays: not every failure is in the claim of its node.
func (u *machines) turns(line *Node, t *v1alpha1.MachineTurn) {
	line.State, line.Phase, line.Since, line.Started = v1alpha1.UnitUpdating, v1alpha1.Phase(t.Phase), &t.PhaseSince, &t.Since
	line.Reason, line.Message = "", said(t)
	if t.Phase == v1alpha1.MachineSoaking {
		line.State = v1alpha1.UnitSoaking
	}
	f := t.Failed
	if f == nil {
		return
	}
	line.State, line.Reason, line.Since, line.Skipped = v1alpha1.UnitFailed, f.Reason, &f.Time, f.Skipped
	s := u.of.Spec.Strategy
	if s == nil || t.Phase == v1alpha1.MachineSoaking {
		return // There is nothing to be tried again.
	}
	line.RetryAt = known(replacement.RetryAt(t, s.Retries, u.cluster.now))
}

// said is what the turn itself says.
func said(t *v1alpha1.MachineTurn) string {
	message := t.Message
	if t.Failed != nil && !strings.Contains(message, t.Failed.Message) {
		message = strings.TrimPrefix(message+"; "+t.Failed.Message, "; ")
	}
	return replacedBy(t, message)
}

// replacedBy says what takes the place, before what else there is to say.
func replacedBy(t *v1alpha1.MachineTurn, message string) string {
	by := ""
	switch {
	case t.Node == "" || t.Phase == v1alpha1.MachineSoaking: // The line is that of the machine that took the place.
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

// image is the name of the image of all scale sets; empty where they have several.
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

// unmanaged says why the rollout has nothing to do with a node that is in no turn, or "".
func (u *machines) unmanaged(f *fact) string {
	if !u.selector.Matches(labels.Set(f.node.Labels)) {
		return asksFor(u.selector, f)
	}
	if f.node.Spec.ProviderID == "" {
		return "the node has no spec.providerID, by which the cloud would know its machine"
	}
	return ""
}

// rollout is how the units stand together.
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

// unselected says why the NodeRollout has nothing to do with a node, or "".
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

// part says how the node stands in a NodeRollout that selects it, or has it.
func (u *machines) part(name string) Part {
	r := u.rollout()
	part := Part{Rollout: r, Unit: Node{Node: name, State: v1alpha1.UnitOutdated}, Replaces: true}
	part.Rollout.Nodes = nil
	part.OptedOut = slices.ContainsFunc(u.asked, func(u rollout.Unit) bool { return u.Node == name && u.OptedOut })
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Node == name }); i >= 0 {
		part.Unit = r.Nodes[i]
	}
	if slices.Contains(u.untold, name) {
		part.Unit.State, part.Unit.Message = Untold, "whether its machine is outdated is for the cloud to tell, and its rollout's status does not list the node"
		ready := meta.FindStatusCondition(u.of.Status.Conditions, v1alpha1.ConditionReady)
		switch n := u.of.Status.Counts; {
		case ready != nil && machineReason(v1alpha1.Reason(ready.Reason)) && u.wholeStatus():
			part.Unit.Reason, part.Unit.Message = v1alpha1.Reason(ready.Reason), ready.Message // It is why the operator does not know.
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
