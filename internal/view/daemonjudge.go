// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// daemonSet is one ExtendedDaemonSet with the decisions of package kind/daemonset, which its controller uses too.
type daemonSet struct {
	units
	*daemonset.Judge
	// hasPods is true when the pods were read.
	hasPods bool
}

// daemonSet judges an ExtendedDaemonSet by its pods, or else takes its status. It only reads it for a preview.
func (c *Cluster) daemonSet(eds *edsv1.ExtendedDaemonSet, preview *Supposition) *daemonSet {
	if preview != nil {
		eds = eds.DeepCopy()
		fillPorts(&eds.Spec.Template.Spec)
		return c.readDaemonSet(eds)
	}
	d := c.readDaemonSet(eds)
	isAtRest, mayDecide := AtRest(eds), d.hasPods && d.Active != nil
	switch { // The revisions may not exist yet, or may not be readable.
	case d.Active == nil && isAtRest:
		if d.Active = d.Target; !d.TargetExists {
			d.Active.Name = eds.Status.ActiveReplicaSet
		}
	case d.Active != nil && !d.TargetExists:
		d.Target = d.Active
	}
	switch {
	case c.nodes == nil, d.problem != "", d.Active == nil, !mayDecide && !isAtRest, !d.survey(d.CanaryNodes()):
		d.listStatus()
	case !mayDecide:
		d.listAtRest()
	default:
		d.decided = true
		if d.CanaryWanted() {
			d.StartCanary()
			d.JudgeCanaryPods()
			d.DecideCanary()
		}
		d.Decide()
		d.listNodes()
	}
	return d
}

// newRevision is the suffix after the ExtendedDaemonSet's name for a revision that has no name yet.
const newRevision = "-(new)"

// readDaemonSet collects the revisions, settings and pods of an ExtendedDaemonSet.
func (c *Cluster) readDaemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	facts := daemonset.Facts{
		EDS: eds.DeepCopy(), ValidationMode: modeOf(eds), ReplicaSets: c.daemons.Revisions, Settings: c.daemons.Settings, Nodes: c.nodes,
		Recreated: map[types.UID]bool{}, Fleet: c.fleet, Memory: daemonset.Memory{Refused: map[string]daemonset.Refusal{}},
	}
	facts.Fleet.Gates = ignoreOwnPods(eds)
	pods, hasPods := c.daemons.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}]
	d := &daemonSet{units: units{cluster: c, listed: listedUnits(nil, eds.Status.Updating, eds.Status.Waiting)}, hasPods: hasPods}
	for i := range pods {
		switch pod := &pods[i]; {
		case daemonset.TakesOver(eds, pod):
			facts.Recreated[pod.UID] = metav1.GetControllerOf(pod) != nil
			facts.Pods = append(facts.Pods, pod)
		case pod.Labels[edsv1.LabelName] == eds.Name && daemonset.IsDaemonPod(pod):
			facts.Pods = append(facts.Pods, pod)
		}
	}
	for _, u := range eds.Status.Waiting {
		if u.Reason == v1alpha1.ReasonNodeUnfit && u.Message == daemonset.MessageRefused { // Only the controller knows when.
			facts.Refused[u.Node] = daemonset.Refusal{At: c.now, Message: u.Message}
		}
	}
	var err error
	if d.Judge, err = daemonset.New(facts, c.now); err != nil {
		d.problem = err.Error()
	}
	if !d.TargetExists {
		d.Target.Name = eds.Name + newRevision
	}
	return d
}

// ignoreOwnPods opens a workloads gate that is closed for the missing pods of this ExtendedDaemonSet alone, as the operator does.
func ignoreOwnPods(eds *edsv1.ExtendedDaemonSet) func(*rollout.Budget) *rollout.Budget {
	own := KindDaemonSet + " " + eds.Namespace + "/" + eds.Name + " "
	return func(of *rollout.Budget) *rollout.Budget {
		b := *of
		b.Blocks = slices.DeleteFunc(slices.Clone(b.Blocks), func(block rollout.Block) bool {
			return strings.HasPrefix(block.Message, own) && !strings.Contains(block.Message, "; ")
		})
		return &b
	}
}

// modeOf is the default validation mode for canaries that set none. The controller has it; its status shows it.
func modeOf(eds *edsv1.ExtendedDaemonSet) edsv1.ValidationMode {
	if w := eds.Status.Wave; eds.Status.Canary != nil && w != nil && w.ApproveWith != "" {
		return edsv1.ValidationModeManual
	}
	return edsv1.ValidationModeAuto
}

// survey finds the state of each node. It returns false, and sets problem, on an error.
func (d *daemonSet) survey(canary []string) bool {
	err := d.Survey(canary)
	if err != nil {
		d.problem = err.Error()
	}
	return err == nil
}

// place says whether pods of a revision belong on a node. Pods of an invalid revision belong nowhere.
func (d *daemonSet) place(n *corev1.Node, rs *daemonset.ReplicaSet) daemonset.Placement {
	placer, err := daemonset.NewPlacer(d.Spec.Selector, &rs.Spec.Template)
	if err != nil {
		return daemonset.Placement{Why: err.Error()}
	}
	return placer.Place(n)
}

// line is a node's line, with the turn's phase if the node is in one.
func (d *daemonSet) line(s *daemonset.NodeState, state v1alpha1.UnitState) Node {
	line := Node{Node: s.Node.Name, State: state, Canary: s.Canary}
	d.cluster.addNodeState(&line)
	if pods := podsOf(s); len(pods) > 0 {
		line.Pod = pods[0].Name
	}
	switch {
	case state == v1alpha1.UnitUpdating:
		line.Phase = v1alpha1.PhaseChanging
		since, message := d.Progress(s)
		line.Since, line.Message = timeOrNil(since), message
		line.Started = line.Since
	case state == v1alpha1.UnitOutdated || s.Current == nil:
	case state == v1alpha1.UnitFailed:
		line.Since = timeOrNil(s.Current.CreationTimestamp.Time)
	default:
		line.Since = timeOrNil(s.Current.State.ReadySince)
	}
	if state == v1alpha1.UnitSoaking {
		line.Phase = v1alpha1.PhaseSoaking
	}
	return line
}

// listNodes adds a line for each unit. Waiting units come in the order of their start.
func (d *daemonSet) listNodes() {
	units := make(map[string]*rollout.Unit, len(d.Units))
	for i := range d.Units {
		units[d.Units[i].Node] = &d.Units[i]
	}
	waits := d.Waits()
	for _, s := range d.States {
		u := units[s.Node.Name]
		var state v1alpha1.UnitState
		switch {
		case s.Canary && s.Current.Available():
			state = v1alpha1.UnitUpdated
		case d.Canary.WaitOf(s.Node.Name).Reason != "":
			state = v1alpha1.UnitOutdated
		case s.Canary:
			state = v1alpha1.UnitUpdating
		case u == nil:
			continue
		case s.NoPod.Reason != "":
			state = v1alpha1.UnitOutdated
			waits = append(waits, s.NoPod)
		case d.Canary != nil && (u.State == v1alpha1.UnitUpdated || u.State == v1alpha1.UnitSoaking):
			state = v1alpha1.UnitOutdated // Its pod has the active revision. The canary's revision comes later.
		default:
			state = u.State
		}
		line := d.line(s, state)
		switch {
		case u == nil || s.Canary:
		case state == v1alpha1.UnitFailed:
			line.Reason, line.Message = u.Reason, u.Message
		case state == v1alpha1.UnitUpdating && u.Excused:
			line.Message += "; not counted: " + cmp.Or(s.NodeProblem, "spec.strategy.rollingUpdate.maxPodSchedulerFailure allows it")
		}
		d.nodes = append(d.nodes, line)
	}
	sortByStart(d.nodes, waits)
}

// listAtRest adds lines for the nodes of a complete ExtendedDaemonSet whose pods were not read.
func (d *daemonSet) listAtRest() {
	for _, s := range d.States {
		if !s.IsCounted() && (!s.Placement.Keep || IsNodeReady(s.Node)) {
			continue // The taint of a node that is not ready keeps away new pods only.
		}
		d.nodes = append(d.nodes, d.line(s, v1alpha1.UnitUpdated))
	}
}

// listStatus adds the nodes that the status lists. A node in no phase has failed.
func (d *daemonSet) listStatus() {
	d.nodes = d.listed
	for i := range d.nodes {
		n := &d.nodes[i]
		n.Canary = d.onCanary(n.Node)
		if n.State == v1alpha1.UnitUpdating && n.Phase == "" {
			n.State = v1alpha1.UnitFailed
		}
	}
}
