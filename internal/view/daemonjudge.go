// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

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
	*daemonset.Judge
	cluster *Cluster
	problem string
	// hasPods is true when pods were read. partial is true when only one node's pods were read.
	hasPods, partial bool
	// decided is true when all pods were read and the judge has decided.
	decided bool
	lines   []Node
}

// daemonSet judges an ExtendedDaemonSet by its pods, or else takes its status.
func (c *Cluster) daemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	d := c.readDaemonSet(eds)
	rests, decidable := AtRest(eds), d.hasPods && !d.partial && d.Active != nil
	switch { // The revisions may not exist yet, or may not be readable.
	case d.Active == nil && rests:
		d.Active = d.Target
	case d.Active != nil && !d.TargetExists:
		d.Target = d.Active
	}
	if c.facts == nil || d.problem != "" || d.Active == nil || !d.hasPods && !rests || !d.survey(d.CanaryNodes()) {
		d.list()
		return d
	}
	switch {
	case decidable:
		d.decided = true
		if d.CanaryWanted() {
			d.StartCanary()
			d.JudgeCanaryPods()
			d.DecideCanary()
		}
		d.Decide()
		d.describe()
	case rests:
		d.presume()
	default:
		d.list()
	}
	return d
}

// newRevision is the suffix after the ExtendedDaemonSet's name for a revision that has no name yet.
const newRevision = "-(new)"

// readDaemonSet collects the revisions, settings and pods of an ExtendedDaemonSet.
func (c *Cluster) readDaemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	d := &daemonSet{cluster: c}
	facts := daemonset.Facts{
		EDS: eds.DeepCopy(), ValidationMode: modeOf(eds), ReplicaSets: c.daemons.Revisions, Settings: c.daemons.Settings,
		Kept: map[types.UID]bool{}, Fleet: c.fleet, Memory: daemonset.Memory{Refused: map[string]daemonset.Refusal{}},
	}
	for _, f := range c.byName {
		facts.Nodes = append(facts.Nodes, f.node)
	}
	of, ok := c.daemons.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}]
	d.hasPods, d.partial = ok, of.Partial
	for i := range of.Items {
		switch pod := &of.Items[i]; {
		case daemonset.TakesOver(eds, pod):
			facts.Kept[pod.UID] = metav1.GetControllerOf(pod) != nil
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
	switch {
	case d.TargetExists:
	case AtRest(eds):
		d.Target.Name = eds.Status.ActiveReplicaSet
	default:
		d.Target.Name = eds.Name + newRevision
	}
	return d
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

// line is a node's line, without any decision about the node.
func (d *daemonSet) line(s *daemonset.NodeState, state v1alpha1.UnitState) Node {
	line := Node{Node: s.Node.Name, State: state, Canary: s.Canary, NotReady: !d.cluster.named[s.Node.Name].ready, Cordoned: s.Node.Spec.Unschedulable}
	if pods := podsOf(s); len(pods) > 0 {
		line.Pod = pods[0].Name
	}
	return line
}

// podsOf returns the daemon's pods on a node, the current pod first.
func podsOf(s *daemonset.NodeState) []*daemonset.Pod {
	pods := []*daemonset.Pod{s.Current, s.Outdated, s.Terminating, s.Ended}
	return slices.DeleteFunc(append(pods, s.Extra...), func(p *daemonset.Pod) bool { return p == nil })
}

// describe adds a line for each unit. Waiting units come in the order of their start.
func (d *daemonSet) describe() {
	units := make(map[string]*rollout.Unit, len(d.Units))
	for i := range d.Units {
		units[d.Units[i].Node] = &d.Units[i]
	}
	place, waits := make(map[string]int, len(d.States)), make(map[string]rollout.Wait, len(d.States))
	for _, name := range d.Decision.Start {
		place[name] = len(place) + 1
	}
	for _, w := range d.Waits() {
		place[w.Node], waits[w.Node] = len(place)+1, w
	}
	for _, s := range d.States {
		u := units[s.Node.Name]
		if u == nil && !s.Canary {
			continue
		}
		line := d.line(s, s.UnitState())
		switch {
		case !s.Canary:
			line.State, line.Reason, line.Message = u.State, u.Reason, u.Message
		case s.Current.Available():
			line.State = v1alpha1.UnitUpdated
		default:
			line.State = v1alpha1.UnitUpdating
		}
		w, waiting := waits[line.Node]
		upToDate := line.State == v1alpha1.UnitUpdated || line.State == v1alpha1.UnitSoaking
		switch {
		case d.Canary != nil && !s.Canary && upToDate:
			// Its pod has the active revision. The canary's revision comes later.
			line.State, line.Reason, line.Message = v1alpha1.UnitOutdated, w.Reason, w.Message
		case line.State == v1alpha1.UnitOutdated && waiting:
			line.Reason, line.Message = w.Reason, w.Message
		case line.State == v1alpha1.UnitOutdated:
			line.Reason, line.Message = "", "" // Its turn starts now.
		default:
			d.fill(&line, s, u)
		}
		d.lines = append(d.lines, line)
	}
	slices.SortStableFunc(d.lines, func(a, b Node) int { return cmp.Compare(place[a.Node], place[b.Node]) })
}

// fill sets the phase of a unit's turn, since when, and what the turn waits for.
func (d *daemonSet) fill(line *Node, s *daemonset.NodeState, u *rollout.Unit) {
	switch line.State {
	case v1alpha1.UnitUpdated:
		line.Since = known(s.Current.State.ReadySince)
	case v1alpha1.UnitSoaking:
		line.Phase, line.Since = v1alpha1.PhaseSoaking, known(s.Current.State.ReadySince)
	case v1alpha1.UnitFailed:
		line.Since = known(s.Current.CreationTimestamp.Time)
	case v1alpha1.UnitUpdating:
		if s.NoPod.Reason != "" {
			line.State, line.Reason, line.Message = v1alpha1.UnitOutdated, s.NoPod.Reason, s.NoPod.Message
			return
		}
		line.Phase = v1alpha1.PhaseChanging
		since, message := d.Progress(s)
		line.Since, line.Message = known(since), message
		line.Started = line.Since
		if u != nil && u.Excused {
			line.Message += "; not counted: " + cmp.Or(s.NodeProblem, "spec.strategy.rollingUpdate.maxPodSchedulerFailure allows it")
		}
	case v1alpha1.UnitOutdated:
	}
}

// presume adds lines for the nodes of a complete ExtendedDaemonSet whose pods were not all read.
func (d *daemonSet) presume() {
	for _, s := range d.States {
		line := d.line(s, v1alpha1.UnitUpdated)
		if !s.Counts() && (!line.NotReady || !s.Placement.Keep) {
			continue // The taint of a node that is not ready keeps away new pods only.
		}
		if len(podsOf(s)) > 0 {
			line.State = s.UnitState()
			d.fill(&line, s, nil)
		}
		d.lines = append(d.lines, line)
	}
}
