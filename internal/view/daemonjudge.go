// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// daemonSet is one ExtendedDaemonSet, and what package kind/daemonset decides about it, as its controller does.
type daemonSet struct {
	*daemonset.Judge
	cluster *Cluster
	problem string
	// exists is false where the revision of the template is not created yet, or may not be read.
	exists bool
	// pods are by their nodes. hasPods is true when pods were read, and partial when only those of one node were.
	pods             map[string][]*corev1.Pod
	hasPods, partial bool
	// decided is true when all pods were read, so that the judge has decided.
	decided bool
	lines   []Node
}

// daemonSet judges an ExtendedDaemonSet, as far as its pods were read.
func (c *Cluster) daemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	d := c.readDaemonSet(eds)
	if c.facts == nil || d.problem != "" || d.Active == nil && !AtRest(eds) || !d.hasPods && !AtRest(eds) {
		d.list()
		return d
	}
	d.decided = d.hasPods && !d.partial && d.Active != nil
	d.assumeRevisions()
	if d.survey(d.CanaryNodes()); d.problem != "" {
		d.decided = false
		d.list()
		return d
	}
	switch {
	case d.decided:
		if d.CanaryWanted() {
			d.StartCanary()
			d.JudgeCanaryPods()
			d.DecideCanary()
		}
		d.Decide()
		d.describe()
	case AtRest(eds):
		d.presume()
	default:
		d.list()
	}
	return d
}

// readDaemonSet gathers what belongs to an ExtendedDaemonSet.
func (c *Cluster) readDaemonSet(eds *edsv1.ExtendedDaemonSet) *daemonSet {
	d := &daemonSet{cluster: c, pods: map[string][]*corev1.Pod{}}
	facts := daemonset.Facts{
		EDS: eds.DeepCopy(), ValidationMode: modeOf(eds), ReplicaSets: c.daemons.Revisions, Settings: c.daemons.Settings,
		Kept: map[types.UID]bool{}, Fleet: c.fleet, InFlight: daemonset.InFlight{Refused: map[string]daemonset.Refusal{}},
	}
	for _, f := range c.byName {
		facts.Nodes = append(facts.Nodes, f.node)
	}
	of, ok := c.daemons.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}]
	d.hasPods, d.partial = ok, of.Partial
	for i := range of.Items {
		pod := &of.Items[i]
		takesOver := daemonset.TakesOver(eds, pod)
		if !takesOver && (pod.Labels[edsv1.LabelName] != eds.Name || !daemonset.IsDaemonPod(pod)) {
			continue
		}
		facts.Migrates = facts.Migrates || takesOver
		facts.Kept[pod.UID] = takesOver && metav1.GetControllerOf(pod) != nil
		facts.Pods = append(facts.Pods, pod)
		d.pods[daemonset.NodeOf(pod)] = append(d.pods[daemonset.NodeOf(pod)], pod)
	}
	for _, u := range eds.Status.Waiting {
		if u.Reason == v1alpha1.ReasonNodeUnfit && u.Message == daemonset.MessageRefused { // The controller alone knows when.
			facts.InFlight.Refused[u.Node] = daemonset.Refusal{At: c.now, Message: u.Message}
		}
	}
	var err error
	if d.Judge, err = daemonset.New(facts, c.now); err != nil {
		d.problem = err.Error()
	}
	d.exists = d.Target != nil
	return d
}

// modeOf is how a canary that does not say so ends: its controller knows, and its status shows.
func modeOf(eds *edsv1.ExtendedDaemonSet) edsv1.ValidationMode {
	if w := eds.Status.Wave; eds.Status.Canary != nil && w != nil && w.ApproveWith != "" {
		return edsv1.ValidationModeManual
	}
	return edsv1.ValidationModeAuto
}

// newRevision follows the name of an ExtendedDaemonSet for a revision that has no name yet.
const newRevision = "-(new)"

// template is the revision of the template, whether or not it is created.
func (d *daemonSet) template() *daemonset.ReplicaSet {
	if d.Target != nil && d.exists {
		return d.Target
	}
	rs := &daemonset.ReplicaSet{}
	rs.Namespace, rs.Name = d.EDS.Namespace, d.EDS.Name+newRevision
	if AtRest(d.EDS) {
		rs.Name = d.EDS.Status.ActiveReplicaSet
	}
	rs.Spec.Template, rs.Spec.TemplateGeneration = d.Spec.Template, d.Hash
	return rs
}

// assumeRevisions takes the active revision for the one of the template, and the other way around, where one of them can't be read.
func (d *daemonSet) assumeRevisions() {
	if d.Active == nil {
		d.Active = d.template()
	}
	if d.Target == nil {
		d.Target = d.Active
	}
}

// survey finds the state of each node.
func (d *daemonSet) survey(canary []string) {
	if err := d.Survey(canary); err != nil {
		d.problem = err.Error()
	}
}

// place says whether pods of a revision belong on a node. None do where that is invalid.
func (d *daemonSet) place(n *corev1.Node, rs *daemonset.ReplicaSet) daemonset.Placement {
	placer, err := daemonset.NewPlacer(d.Spec.Selector, &rs.Spec.Template)
	if err != nil {
		return daemonset.Placement{Why: err.Error()}
	}
	return placer.Place(n)
}

// line is a node, without what is decided about it.
func (d *daemonSet) line(s *daemonset.NodeState, state v1alpha1.UnitState) Node {
	line := Node{Node: s.Node.Name, State: state, Canary: s.Canary, NotReady: !d.cluster.named[s.Node.Name].ready, Cordoned: s.Node.Spec.Unschedulable}
	if pods := podsOf(s); len(pods) > 0 {
		line.Pod = pods[0].Name
	}
	return line
}

// podsOf are the pods on a node, the one that counts first.
func podsOf(s *daemonset.NodeState) []*daemonset.Pod {
	pods := []*daemonset.Pod{s.Current, s.Outdated, s.Terminating, s.Ended}
	return slices.DeleteFunc(append(pods, s.Extra...), func(p *daemonset.Pod) bool { return p == nil })
}

// describe makes a line of each unit. Those that wait come in the order in which they are started.
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
	for i := range d.States {
		s := &d.States[i]
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
			// It has what it should have up to now. The canary's revision comes later.
			line.State, line.Reason, line.Message = v1alpha1.UnitOutdated, w.Reason, w.Message
		case line.State == v1alpha1.UnitOutdated && waiting:
			line.Reason, line.Message = w.Reason, w.Message
		case line.State == v1alpha1.UnitOutdated:
			line.Reason, line.Message = "", "" // It is started now.
		default:
			d.fill(&line, s, u)
		}
		d.lines = append(d.lines, line)
	}
	slices.SortStableFunc(d.lines, func(a, b Node) int { return cmp.Compare(place[a.Node], place[b.Node]) })
}

// fill says where a unit's turn stands, since when, and what it waits for.
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
		line.Since, line.Message = d.turn(s)
		line.Started = line.Since
		if u != nil && u.Excused {
			line.Message += "; not counted: " + cmp.Or(s.NodeProblem, "spec.strategy.rollingUpdate.maxPodSchedulerFailure allows it")
		}
	case v1alpha1.UnitOutdated:
	}
}

// turn says what a node in its turn waits for, and since when.
func (d *daemonSet) turn(s *daemonset.NodeState) (since *metav1.Time, message string) {
	switch p := s.Current; {
	case p.Available():
		return known(p.CreationTimestamp.Time), "pod " + s.Outdated.Name + " is deleted, its successor is available"
	case p != nil && p.State.Ready:
		end := p.State.ReadySince.Add(time.Duration(d.Spec.MinReadySeconds) * time.Second)
		return known(p.CreationTimestamp.Time), "pod " + p.Name + " is available at " + end.UTC().Format(time.RFC3339)
	case p != nil && p.State.Message == "":
		return known(p.CreationTimestamp.Time), "pod " + p.Name + " is not ready"
	case p != nil:
		return known(p.CreationTimestamp.Time), "pod " + p.Name + ": " + p.State.Message
	case s.Terminating != nil:
		return deletedAt(s.Terminating.Pod), "pod " + s.Terminating.Name + " has been deleted, and is not gone yet"
	case s.Ended != nil:
		return known(s.Ended.CreationTimestamp.Time), "pod " + s.Ended.Name + ": " + s.Ended.State.Message + "; it is replaced a minute after it was created"
	case s.Canary && d.Canary.Paused():
		_, paused := d.CanaryCheck()
		return nil, paused + "; no pod is made"
	case s.Outdated != nil:
		return nil, "pod " + s.Outdated.Name + " is deleted next"
	}
	return nil, "no pod yet"
}

// deletedAt is when a pod was deleted: its timestamp is when the grace period ends.
func deletedAt(p *corev1.Pod) *metav1.Time {
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return known(at)
}

// presume makes lines of the nodes of an ExtendedDaemonSet that is complete, without its pods.
func (d *daemonSet) presume() {
	for i := range d.States {
		s := &d.States[i]
		line := d.line(s, v1alpha1.UnitUpdated)
		if !s.Counts() && (!line.NotReady || !s.Placement.Keep) {
			continue // A node that is not ready has a taint that keeps new pods away only.
		}
		if s.Current != nil || s.Outdated != nil || s.Terminating != nil || s.Ended != nil {
			line.State = s.UnitState()
			d.fill(&line, s, nil)
		}
		d.lines = append(d.lines, line)
	}
}
