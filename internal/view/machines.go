// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
)

// machines are the units of one NodeRollout with replacement: of what the cloud says no more is to be seen than its status tells.
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

// Untold is the state of a node of which only the operator knows how it stands.
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

// observe judges every node that the NodeRollout selects, has a claim on or a turn for, and asks the engine. A node that is named counts also where
// it has opted out.
func (u *machines) observe(named string) {
	c, nr := u.cluster, u.of
	told := u.told()
	revision := nr.Status.Revision
	for i := range c.facts {
		f := &c.facts[i]
		own, turn := held(f.claims, nr.UID), u.turnOf(f.node.Name)
		switch {
		case succeeds(turn, own, f.node.Name):
			continue // The line of the node whose place it takes tells of it, also while it is taken back.
		case own != nil, turn != nil:
		case u.elsewhere(f) != "", !u.selector.Matches(labels.Set(f.node.Labels)):
			continue
		case f.node.Labels[v1alpha1.LabelNodeRollout(nr.Name)] == v1alpha1.LabelNodeRolloutDisabled:
			u.optedOut++
			if f.node.Name == named {
				u.asked = append(u.asked, rollout.Unit{Node: named, State: v1alpha1.UnitOutdated, OptedOut: true})
			}
			continue
		}
		line, ask := u.judge(f, turn, own, told[f.node.Name])
		if line.State == Untold {
			u.untold = append(u.untold, line.Node)
			if !u.supposed {
				continue
			}
			line.State, ask.State = v1alpha1.UnitOutdated, v1alpha1.UnitOutdated
		}
		if own == nil {
			ask.Rank = max(1, rollout.Rank(f.node.UID, nr.UID, revision))
		}
		u.nodes, u.asked = append(u.nodes, line), append(u.asked, ask)
	}
	u.spread()
	u.addGone()
	total := len(u.nodes)
	if n := nr.Status.Counts; n != nil && !u.supposed {
		total = max(total, int(n.Total))
	}
	u.strategy = u.strategyFor(revision, total)
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

// addGone adds the turns of which no Node is left, and machines that failed without one.
func (u *machines) addGone() {
	for i := range u.of.Status.Turns {
		t := &u.of.Status.Turns[i]
		if slices.ContainsFunc(u.nodes, func(n Node) bool { return n.Node == t.Node || n.Node == t.ReplacementNode }) {
			continue
		}
		line := Node{Node: t.UnitName()}
		u.turns(&line, t)
		ask := rollout.Unit{Node: line.Node, State: line.State, Claimed: true, Skipped: line.Skipped}
		if line.RetryAt != nil {
			ask.RetryAt = line.RetryAt.Time
		}
		u.nodes, u.asked = append(u.nodes, line), append(u.asked, ask)
	}
	for i := range u.of.Status.Failed {
		f := &u.of.Status.Failed[i]
		if !strings.Contains(f.Node, "/") || slices.ContainsFunc(u.nodes, func(n Node) bool { return n.Node == f.Node }) {
			continue
		}
		// A machine without a Node: the status alone knows it.
		u.nodes = append(u.nodes, Node{Node: f.Node, State: v1alpha1.UnitFailed, Reason: f.Reason, Message: f.Message, Since: f.Since})
		u.asked = append(u.asked, rollout.Unit{Node: f.Node, State: v1alpha1.UnitFailed, Nodeless: true, Reason: f.Reason, Message: f.Message})
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

// replaces reports whether a node is to take the place of another that is not gone yet: it is no unit of its own.
func replaces(t *v1alpha1.MachineTurn, node string) bool { return t.Node != "" && t.Node != node }

// succeeds reports whether a node is no unit of its own, as its machine is the replacement in a turn. It has the turn's claim while it is taken back.
func succeeds(t *v1alpha1.MachineTurn, own *v1alpha1.Claim, node string) bool {
	return t != nil && replaces(t, node) && (own == nil || own.Turn == t.Turn)
}

// judge tells a unit's state from its node's claim and from what the status tells: as a line, and as the engine wants it.
func (u *machines) judge(f *fact, turn *v1alpha1.MachineTurn, own *v1alpha1.Claim, status entry) (Node, rollout.Unit) {
	line := Node{Node: f.node.Name, State: v1alpha1.UnitOutdated, NotReady: !f.ready, Cordoned: f.node.Spec.Unschedulable}
	if u.byOSImage() {
		line.Version = f.node.Status.NodeInfo.OSImage
	}
	image := u.image(f)
	switch {
	case own != nil && own.Failed != nil:
		u.failed(&line, turn, own, status)
	case turn != nil:
		u.turns(&line, turn)
		// The turn is written before the rest: what is told of another phase is not true any more.
		if turn.Failed == nil && status.state == v1alpha1.UnitUpdating && status.Message != "" && status.Phase == v1alpha1.Phase(turn.Phase) {
			line.Reason, line.Message = status.Reason, replacedBy(turn, status.Message)
		}
	case own != nil:
		line.State, line.Phase, line.Since, line.Started = v1alpha1.UnitUpdating, v1alpha1.PhaseClaimed, &own.Since, &own.Since
	case status.state != v1alpha1.UnitOutdated:
		line.State = u.unlisted(line.Version, image, u.unseen(f))
	}
	if u.byOSImage() && image != line.Version && line.State != v1alpha1.UnitUpdated {
		line.Target = image
	}
	ask := rollout.Unit{
		Node: line.Node, State: line.State, Claimed: own != nil && !own.Skipped(), Skipped: line.Skipped, Reason: line.Reason, Message: line.Message,
	}
	if line.RetryAt != nil {
		ask.RetryAt = line.RetryAt.Time
	}
	switch {
	case turn != nil && turn.Phase == v1alpha1.MachineClaiming && own == nil:
		// It asks to be claimed, and what keeps it from that is to be seen.
		ask.State, ask.InTurn, ask.Reason, ask.Message = v1alpha1.UnitOutdated, true, "", ""
	case line.State == v1alpha1.UnitOutdated:
		ask.Reason, ask.Message = u.keeps(status)
	}
	return line, ask
}

// failed makes the line that of a turn that has failed.
func (u *machines) failed(line *Node, turn *v1alpha1.MachineTurn, own *v1alpha1.Claim, status entry) {
	line.Started = &own.Since
	if status.state != v1alpha1.UnitOutdated || status.Reason == own.Failed.Reason {
		line.fails(own, u.of.Spec.Strategy)
	}
	if turn != nil && turn.Phase == v1alpha1.MachineDiscarding {
		line.Message = strings.TrimPrefix(line.Message+"; "+discarded(turn), "; ")
	}
}

// unlisted is the state of a unit that the status does not list as one that waits, in a turn or failed.
func (u *machines) unlisted(version, image string, unseen bool) v1alpha1.UnitState {
	tells := u.byOSImage() && image != "" && version != ""
	switch {
	case tells && version != image:
		return v1alpha1.UnitOutdated
	case tells, u.wholeStatus() && !unseen:
		return v1alpha1.UnitUpdated
	}
	return Untold
}

// unseen reports whether the operator does not know the node's machine: it knows none that is updated, or could not look at its scale set yet.
func (u *machines) unseen(f *fact) bool {
	s, name := &u.of.Status, scaleSetOf(f.node.Spec.ProviderID)
	if s.Counts == nil || s.Counts.Updated == 0 {
		return true
	}
	known := func(s v1alpha1.ScaleSetStatus) bool { return strings.EqualFold(s.Name, name) && s.Machines > 0 }
	return name != "" && !slices.ContainsFunc(s.ScaleSets, known)
}

// keeps is what keeps an outdated unit from being started that the engine can't know.
func (u *machines) keeps(status entry) (v1alpha1.Reason, string) {
	switch {
	case u.of.Spec.Replacement.DetectOnly:
		return v1alpha1.ReasonDetectOnly, "the rollout only detects"
	case machineReason(status.Reason):
		return status.Reason, status.Message // It is the cloud that says so.
	}
	return "", ""
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
	line.State, line.Phase, line.Since, line.Started, line.Message = v1alpha1.UnitUpdating, v1alpha1.Phase(t.Phase), &t.PhaseSince, &t.Since, said(t)
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

// discarded says what becomes of a replacement that nothing is left for.
func discarded(t *v1alpha1.MachineTurn) string {
	by := cmp.Or(t.ReplacementNode, t.Replacement)
	if by == "" {
		return "its replacement is discarded"
	}
	if t.Message != "" {
		return by + " is discarded: " + t.Message
	}
	return by + " is discarded"
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

// byOSImage reports whether outdated machines are told by what their nodes say.
func (u *machines) byOSImage() bool {
	return u.of.Spec.Replacement.ImageMatch == v1alpha1.ImageMatchOSImage
}

// image is the name of the image that the node's machine is to be made of, as far as it is to be seen which scale set that is of.
func (u *machines) image(f *fact) string {
	all, name := u.of.Status.ScaleSets, scaleSetOf(f.node.Spec.ProviderID)
	for i := range all {
		if name == "" && len(all) == 1 || strings.EqualFold(all[i].Name, name) {
			return all[i].Image[strings.LastIndex(all[i].Image, "/")+1:]
		}
	}
	return ""
}

// elsewhere says why the node's machine is in none of the scale sets that the rollout is for, as far as that is to be seen, or "".
func (u *machines) elsewhere(f *fact) string {
	if f.node.Spec.ProviderID == "" {
		return "the node has no spec.providerID, by which the cloud would know its machine"
	}
	name, bounds := scaleSetOf(f.node.Spec.ProviderID), u.of.Spec.Replacement.ScaleSets
	if name == "" || len(bounds) == 0 || slices.ContainsFunc(bounds, func(of string) bool { return strings.EqualFold(of, name) }) {
		return ""
	}
	return fmt.Sprintf("its machine is in scale set %s, and it is for %s", name, strings.Join(bounds, ", "))
}

var uniform = regexp.MustCompile(`(?i)^azure:///subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/virtualMachineScaleSets/([^/]+)/virtualMachines/[^/]+$`)

// scaleSetOf is the name of the scale set in a provider id, where it is in there: of uniform ones of Azure.
func scaleSetOf(providerID string) string {
	if m := uniform.FindStringSubmatch(providerID); m != nil {
		return m[1]
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
	own, turn := held(f.claims, u.of.UID), u.turnOf(f.node.Name)
	switch {
	case succeeds(turn, own, f.node.Name):
		return fmt.Sprintf("its machine is to take the place of that of node %s, whose turn is at %s", turn.Node, turn.Phase)
	case own != nil, turn != nil:
		return ""
	}
	if problem := u.problem(); problem != "" && !invalid(u.of) {
		return problem
	}
	if !u.selector.Matches(labels.Set(f.node.Labels)) {
		return asksFor(u.selector, f)
	}
	return u.elsewhere(f)
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
