// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
)

// machines are the units of one NodeRollout with replacement. They come from its status and the Nodes, without asking the cloud.
type machines struct {
	units
	of       *v1alpha1.NodeRollout
	selector labels.Selector
	// image is the short name of the scale sets' image; empty if they have several.
	image string
	// assumed is how many nodes count as outdated in a preview because it is unknown whether they are.
	assumed int
	// newer is true in a preview whose spec may be newer than the status.
	newer bool
}

// Untold is the state of a node when only the operator knows whether it is outdated, or when the rollout does not judge it.
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
	for _, nr := range c.nodeRollouts {
		for _, t := range nr.Status.Turns {
			if t.Node == node || t.ReplacementNode == node {
				all = append(all, Machine{Rollout: nr.Name, MachineTurn: t, Replaces: t.Node != node})
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

// machines judges the turns in the NodeRollout's status and the Nodes, and asks the engine which are next. In a preview the spec may be newer
// than the status, and nodes that may be outdated count as outdated.
func (c *Cluster) machines(nr *v1alpha1.NodeRollout, named string, preview *Supposition) *machines {
	selector, err := nodeturn.NodeSelector(&nr.Spec)
	u := &machines{units: c.describe(nr, err, preview), of: nr, selector: selector, image: imageOf(nr), newer: preview != nil && preview.Changed}
	if u.problem != "" || c.nodes == nil {
		return u
	}
	w, unlisted := u.world(preview != nil)
	if preview != nil {
		u.assumed = len(unlisted)
	} else {
		u.unknown = unlisted
	}
	u.decided = true
	decide(&u.units, append(u.unitsOfTurns(w), u.unitsOfNodes(w)...), named, func(total int) rollout.Strategy {
		if nr.Status.Counts != nil && preview == nil {
			total = max(total, int(nr.Status.Counts.Total))
		}
		return nodeturn.Strategy(nr, nr.Status.Revision, c.ownNode, total)
	}, u.line)
	return u
}

// world is the input for judging nodes without a turn. It models each one as a scale set with one machine, both with the node's name.
// unlisted are the nodes that the status does not list and whose state, or what keeps them waiting, may not be known.
func (u *machines) world(isPreview bool) (w *replacement.World, unlisted []string) {
	nr := u.of
	r := nr.Spec.Replacement
	w = &replacement.World{
		Rules: replacement.Rules{
			DetectOnly: r.DetectOnly, ControlPlane: r.ControlPlane != nil, Ending: nr.DeletionTimestamp != nil, Strategy: nr.Spec.Strategy,
			MatchOSImage: r.ImageMatch == v1alpha1.ImageMatchOSImage && u.image != "",
		},
		Now: u.cluster.now, Sets: map[string]*replacement.Set{}, Nodes: map[string]*replacement.Node{},
		Rank: func(uid types.UID) uint64 { return max(1, rollout.Rank(uid, nr.UID, nr.Status.Revision)) },
		Attempt: func(_ *replacement.Set, n *replacement.Node) string {
			if u.inStatus(n.Name).State == v1alpha1.UnitOutdated {
				return "" // Not the attempt that failed.
			}
			return n.Claim.Attempt
		},
	}
	for _, node := range u.cluster.nodes {
		n := &replacement.Node{
			Node: node, Claim: u.cluster.claimOn(node.Name, nr.UID), Selected: u.selector.Matches(labels.Set(node.Labels)),
			OptedOut: node.Labels[v1alpha1.LabelNodeRollout(nr.Name)] == v1alpha1.LabelNodeRolloutDisabled,
		}
		if u.turnOf(n.Name) != nil || n.Claim == nil && u.unmanaged(node) != "" {
			continue
		}
		m := cloud.Machine{ID: n.Name, ProviderID: n.Spec.ProviderID, State: cloud.Running}
		w.Nodes[n.Name] = n
		w.Sets[n.Name] = &replacement.Set{Set: cloud.Set{Name: n.Name, ImageName: u.image}, Known: true, Machines: []cloud.Machine{m}}
		image := n.Status.NodeInfo.OSImage
		byImage := w.MatchOSImage && image != "" && (image == u.image || isPreview)
		if u.inStatus(n.Name).State == "" && n.Claim == nil && !n.OptedOut && !byImage {
			unlisted = append(unlisted, n.Name)
		}
	}
	if !u.wholeStatus() || !isPreview && len(unlisted) > int(nr.Status.Counts.Updated) {
		return w, unlisted
	}
	for i, name := range unlisted { // The status lists all others, and counts so many of these as updated.
		if w.Sets[name].Machines[0].UpToDate = true; i >= int(nr.Status.Counts.Updated) {
			delete(w.Nodes, name)
		}
	}
	return w, nil
}

// unitsOfTurns returns the units that are in a turn.
func (u *machines) unitsOfTurns(w *replacement.World) (units []*machineUnit) {
	for i := range u.of.Status.Turns {
		t := &u.of.Status.Turns[i]
		m := &machineUnit{nodeturn.Turn{Unit: w.UnitOf(t), Counted: true}, t}
		if m.Unit.State == v1alpha1.UnitOutdated && t.Phase != v1alpha1.MachineClaiming {
			m.Unit.State = v1alpha1.UnitUpdating // It waits for its replacement, not for the engine.
		}
		if own := u.cluster.claimOn(t.Node, u.of.UID); m.Unit.State == v1alpha1.UnitFailed && own != nil && own.Failed != nil {
			m.Claim, m.turn = own, nil
			m.ShowFailure(u.of.Spec.Strategy)
		}
		units = append(units, m)
	}
	return units
}

// unitsOfNodes returns the units of nodes that are in no turn. They alternate between zones, like in the controller: the machines' scale sets
// are not known here.
func (u *machines) unitsOfNodes(w *replacement.World) (units []*machineUnit) {
	var ranks []*uint64
	var zones []string
	for _, node := range u.cluster.nodes {
		n := w.Nodes[node.Name]
		if n == nil || slices.Contains(u.unknown, node.Name) {
			continue
		}
		p := w.JudgeNode(n, nil)
		m := &machineUnit{Turn: nodeturn.Turn{Node: node, Claim: n.Claim, Unit: p.Unit, Counted: p.Counted}}
		status := u.inStatus(node.Name)
		if status.State == v1alpha1.UnitOutdated && p.Unit.State == status.State && p.Unit.Reason == "" && slices.Contains(machineReasons, status.Reason) {
			m.Unit.Reason, m.Unit.Message = status.Reason, status.Message // The cloud decides it.
		}
		if m.Unit.Rank > 0 && (!m.Unit.OptedOut || n.Claim != nil) {
			ranks, zones = append(ranks, &m.Unit.Rank), append(zones, node.Labels[corev1.LabelTopologyZone])
		}
		units = append(units, m)
	}
	rollout.Spread(zones, ranks)
	return units
}

// wholeStatus reports whether the status lists all nodes that are not updated.
func (u *machines) wholeStatus() bool {
	s := &u.of.Status
	return !u.newer && s.Counts != nil && s.ObservedGeneration == u.of.Generation && int(s.Counts.Waiting) == len(s.Waiting) && len(s.Waiting) < v1alpha1.MaxListedUnits
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

// line shows a unit, and the unit's replacement.
func (u *machines) line(m *machineUnit, wait *rollout.Wait) Node {
	t := cmp.Or(m.turn, &v1alpha1.MachineTurn{})
	line := u.units.line(&m.Turn, wait, v1alpha1.Phase(t.Phase), t.PhaseSince.Time, t.Message)
	if m.turn != nil {
		line.Phase, line.Started, line.Message = v1alpha1.Phase(t.Phase), &t.Since, replacedBy(t, line.Message)
	}
	if n := u.cluster.nodeByName[line.Node]; n != nil && u.of.Spec.Replacement.ImageMatch == v1alpha1.ImageMatchOSImage {
		line.Version = n.Status.NodeInfo.OSImage
		if u.image != line.Version && line.State != v1alpha1.UnitUpdated {
			line.Target = u.image
		}
	}
	return line
}

// machineReasons are the reasons that only the operator can give, from the cloud and etcd.
var machineReasons = []v1alpha1.Reason{
	v1alpha1.ReasonMachineUnknown, v1alpha1.ReasonMachineProtected, v1alpha1.ReasonSurgeExhausted, v1alpha1.ReasonScaleSetFull, v1alpha1.ReasonScaleSetBusy,
	v1alpha1.ReasonScaleSetUnfit, v1alpha1.ReasonScaleSetNotFound, v1alpha1.ReasonCloudQuota, v1alpha1.ReasonCloudThrottled, v1alpha1.ReasonCloudDenied,
	v1alpha1.ReasonCloudError, v1alpha1.ReasonReplacementPending, v1alpha1.ReasonEtcdUnhealthy,
}

// replacedBy names the replacement before the message, unless the message does, or is about a unit that is the replacement itself.
func replacedBy(t *v1alpha1.MachineTurn, message string) string {
	by, name := "replaced by ", t.ReplacementNode
	if name == "" {
		by, name = "replaced by machine ", t.Replacement
	}
	switch {
	case name == "" || t.Node == "" || t.Phase == v1alpha1.MachineSoaking || strings.Contains(message, name):
		return message
	case message == "":
		return by + name
	}
	return by + name + "; " + message
}

func imageOf(nr *v1alpha1.NodeRollout) (name string) {
	for i := range nr.Status.ScaleSets {
		of := nr.Status.ScaleSets[i].Image
		if of = of[strings.LastIndex(of, "/")+1:]; i > 0 && of != name {
			return ""
		}
		name = of
	}
	return name
}

// unmanaged says why the rollout ignores a node that is in no turn; else "".
func (u *machines) unmanaged(n *corev1.Node) string {
	why := u.unmetRequirements(u.selector, n)
	if why == "" && n.Spec.ProviderID == "" {
		why = "the node has no spec.providerID, by which the cloud would know its machine"
	}
	isListed := u.inStatus(n.Name).State != "" || n.Labels[v1alpha1.LabelNodeRollout(u.of.Name)] == v1alpha1.LabelNodeRolloutDisabled
	if why == "" && u.image != "" && u.of.Spec.Replacement.ImageMatch == v1alpha1.ImageMatchOSImage && u.wholeStatus() && !isListed &&
		n.Status.NodeInfo.OSImage != u.image {
		why = "its machine is in none of the rollout's scale sets"
	}
	return why
}

// unselected says why the NodeRollout does not concern a node; else "".
func (u *machines) unselected(n *corev1.Node) string {
	turn := u.turnOf(n.Name)
	switch {
	case turn != nil && turn.UnitName() != n.Name:
		return fmt.Sprintf("its machine is to take the place of that of node %s, whose turn is at %s", turn.Node, turn.Phase)
	case turn != nil, u.cluster.claimOn(n.Name, u.of.UID) != nil:
		return ""
	}
	return u.unmanaged(n)
}

// explain adds what is known only of a node's part.
func (u *machines) explain(part *Part) {
	part.Replaces = true
	if !slices.Contains(u.unknown, part.Unit.Node) {
		u.units.explain(part)
		return
	}
	part.Unit.State, part.Unit.Message = Untold, "only the operator knows its state, and the status of its rollout does not list the node"
	ready := u.conditions.complete
	switch n := u.of.Status.Counts; {
	case ready != nil && slices.Contains(machineReasons, v1alpha1.Reason(ready.Reason)) && u.wholeStatus():
		part.Unit.Reason, part.Unit.Message = v1alpha1.Reason(ready.Reason), ready.Message // This is why the operator does not know.
	case n != nil:
		part.Unit.Message += fmt.Sprintf(": of %d nodes %d are updated, and it lists the first %d of %d that wait",
			n.Total, n.Updated, len(u.of.Status.Waiting), n.Waiting)
	}
}

// preview says what the NodeRollout would do, and what is not known about that.
func (u *machines) preview(s Supposition) Preview {
	var notes []string
	if u.assumed > 0 {
		note := "Which machines are outdated the cloud alone knows, and it is not asked; counted as outdated: " + rollout.NodeCount(u.assumed) + " whose state is unknown"
		if c := u.of.Status.Counts; c != nil && !s.New {
			note += fmt.Sprintf("; by the status %d of %d wait", c.Waiting, c.Total)
		}
		notes = append(notes, note+".")
	}
	v := u.units.preview(s, nil, notes)
	if v.Surge = surgeOf(u.of); v.Schedule != nil {
		v.Schedule.Without = append(v.Schedule.Without, "that each scale set bounds how many machines are added at once")
	}
	return v
}

// surgeOf describes how machines are added and deleted.
func surgeOf(nr *v1alpha1.NodeRollout) *Surge {
	r := nr.Spec.Replacement
	rule := ptr.Deref(r.Surge, intstr.FromInt32(1))
	s := &Surge{Rule: rule.String(), OnFull: cmp.Or(r.OnFull, v1alpha1.OnFullWait)}
	amount, err := rollout.ParseAmount(rule)
	s.DeletesFirst = err == nil && amount.N == 0
	for _, of := range nr.Status.ScaleSets {
		s.ScaleSets = append(s.ScaleSets, SurgeOf{
			Name: of.Name, Image: of.Image, Machines: of.Machines, Outdated: of.Outdated, Message: of.Message,
			More: min(amount.Up(int(of.Capacity)), v1alpha1.MaxMachineTurns),
		})
	}
	return s
}
