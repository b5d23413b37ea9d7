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
)

// KindDaemonSet is the kind of the rollouts that ExtendedDaemonSets are.
const KindDaemonSet = "ExtendedDaemonSet"

// Daemons are the ExtendedDaemonSets of a cluster, and what belongs to them.
type Daemons struct {
	Sets []edsv1.ExtendedDaemonSet
	// Revisions and Settings are theirs, and may be those of others too; none where they may not be read.
	Revisions []edsv1.ExtendedDaemonSetReplicaSet
	Settings  []edsv1.ExtendedDaemonsetSetting
	// Pods are those of the ExtendedDaemonSets whose pods were read. The view has only the status of the others.
	Pods map[types.NamespacedName]DaemonPods
}

// DaemonPods are the pods of one ExtendedDaemonSet, and of the DaemonSet that it takes over from.
type DaemonPods struct {
	Items []corev1.Pod
	// Partial is true when these are only the pods on one node.
	Partial bool
}

// Daemons adds ExtendedDaemonSets to the cluster.
func (c *Cluster) Daemons(d Daemons) *Cluster {
	c.daemons = d
	return c
}

// TrimPod keeps the fields of a Pod that are read here. It is a transform of a cache, and changes the Pod that it is given.
func TrimPod(object any) (any, error) { return daemonset.TrimPod(object) }

// AtRest reports whether all pods of an ExtendedDaemonSet are as they should be, by its status. Then they need not be read.
func AtRest(eds *edsv1.ExtendedDaemonSet) bool {
	s := &eds.Status
	if edsv1.FindCondition(s.Conditions, edsv1.ConditionReady) != nil {
		return s.ObservedGeneration == eds.Generation && edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady)
	}
	// Its own controller gives no such condition, and observes no generation.
	return s.ActiveReplicaSet != "" && s.Canary == nil && s.State != edsv1.StateCanaryFailed &&
		s.Current == s.Desired && s.Ready == s.Desired && s.Available == s.Desired && s.UpToDate == s.Desired
}

// RevisionOf is what identifies the template of an ExtendedDaemonSet; empty when it has none that could be read.
func RevisionOf(eds *edsv1.ExtendedDaemonSet) string {
	hash, err := daemonset.TemplateHash(&eds.Spec.Template)
	if err != nil {
		return ""
	}
	return hash
}

// NodeOf is the node that a pod of an ExtendedDaemonSet is on or is bound for, or "" when that is open.
func NodeOf(p *corev1.Pod) string { return daemonset.NodeOf(p) }

// TakesOver reports whether a pod belongs to the DaemonSet that an ExtendedDaemonSet takes over from, or was orphaned by it.
func TakesOver(eds *edsv1.ExtendedDaemonSet, p *corev1.Pod) bool { return daemonset.TakesOver(eds, p) }

// rollout is the state of an ExtendedDaemonSet.
func (d *daemonSet) rollout() Rollout {
	s := &d.EDS.Status
	r := Rollout{
		Kind: KindDaemonSet, Namespace: d.EDS.Namespace, Name: d.EDS.Name, Version: s.ActiveReplicaSet, Revision: RevisionOf(d.EDS), Stage: s.State,
		Wave: s.Wave, Canary: d.canary(), Pods: &PodCounts{s.Desired, s.Current, s.Ready, s.Available, s.UpToDate},
	}
	if s.Canary != nil {
		r.Version = s.Canary.ReplicaSet
	}
	r.Paused, r.PausedBy = d.IsPaused()
	r.Nodes = sorted(d.lines)
	if d.decided {
		r.Counts = count(r.Nodes)
		if h := d.Decision.Halted; h != nil {
			r.Halted = h.Message
		}
	} else {
		r.Counts = d.statusCounts()
	}
	if c := trueCondition(s.Conditions, edsv1.ConditionStalled); r.Halted == "" && c.Reason == string(v1alpha1.ReasonHalted) {
		r.Halted = c.Message
	}
	r.State, r.Message, r.Since = d.state(r.Counts)
	r.Budgets = d.cluster.selecting(r.Nodes)
	return r
}

// statusCounts counts the units as far as the status shows them.
func (d *daemonSet) statusCounts() v1alpha1.UnitCounts {
	s := &d.EDS.Status
	c := v1alpha1.UnitCounts{Total: s.Desired}
	for i := range s.Updating {
		if s.Updating[i].Phase == "" {
			c.Failed++
		} else {
			c.Updating++
		}
	}
	// Pods that are up to date and not available are those of nodes in their turn.
	c.Updated = max(0, min(s.UpToDate-min(c.Updating, max(0, s.Current-s.Available)), c.Total-c.Updating-c.Failed))
	c.Waiting = max(0, c.Total-c.Updated-c.Updating-c.Failed)
	return c
}

// state sums up the conditions of an ExtendedDaemonSet.
func (d *daemonSet) state(counts v1alpha1.UnitCounts) (State, string, *metav1.Time) {
	s, now := &d.EDS.Status, d.cluster.now
	ready, stalled := edsv1.FindCondition(s.Conditions, edsv1.ConditionReady), trueCondition(s.Conditions, edsv1.ConditionStalled)
	unseen := ready == nil && s.ActiveReplicaSet == ""
	var since *metav1.Time
	if ready != nil && !ready.LastTransitionTime.IsZero() {
		since = &ready.LastTransitionTime
	}
	trouble := trueCondition(s.Conditions, edsv1.ConditionReconcileError).Message
	switch {
	case unseen && now.Sub(d.EDS.CreationTimestamp.Time) < unnoticed:
		return Pending, "", nil
	case unseen:
		return Pending, "no controller has looked at it: does one run, and for namespace " + d.EDS.Namespace + "?", nil
	case s.ObservedGeneration != 0 && s.ObservedGeneration != d.EDS.Generation:
		return Pending, "the controller has not looked at its latest change yet", nil
	case stalled.Type != "":
		return Stalled, stalled.Message, known(stalled.LastTransitionTime.Time)
	case AtRest(d.EDS):
		return Complete, trouble, since
	case counts.Updating > 0 || d.decided && slices.ContainsFunc(d.lines, func(n Node) bool { return n.State == v1alpha1.UnitOutdated && n.Reason == "" }):
		return Progressing, trouble, since
	default:
		return Waiting, trouble, since
	}
}

// canary is the state of the canary; nil when there is none, and none has failed.
func (d *daemonSet) canary() *Canary {
	s := &d.EDS.Status
	failed := trueCondition(s.Conditions, edsv1.ConditionCanaryFailed)
	switch {
	case s.Canary == nil && failed.Type != "":
		of := trueCondition(d.Target.Status.Conditions, edsv1.ConditionCanaryFailed)
		return &Canary{Revision: d.Target.Name, State: CanaryFailed, Reason: edsv1.StatusReason(of.Reason), Message: cmp.Or(of.Message, failed.Message)}
	case s.Canary == nil:
		return nil
	}
	c := &Canary{Revision: s.Canary.ReplicaSet, Nodes: s.Canary.Nodes, State: CanaryProgressing}
	if d.Annotated(edsv1.AnnotationCanaryPaused) || s.State == edsv1.StateCanaryPaused {
		c.State, c.Reason = CanaryPaused, s.Reason
		if rs := d.Find(c.Revision); rs != nil {
			c.Message = trueCondition(rs.Status.Conditions, edsv1.ConditionCanaryPaused).Message
		}
	}
	return c
}

// trueCondition is a condition, or empty where it is not true.
func trueCondition(conditions []edsv1.Condition, kind string) edsv1.Condition {
	if c := edsv1.FindCondition(conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
		return *c
	}
	return edsv1.Condition{}
}

// onCanary reports whether the canary runs on a node, as the status says.
func (d *daemonSet) onCanary(node string) bool {
	return d.EDS.Status.Canary != nil && slices.Contains(d.EDS.Status.Canary.Nodes, node)
}

// list takes what the status lists.
func (d *daemonSet) list() {
	for _, u := range d.EDS.Status.Updating {
		state := turning(u.Phase)
		if u.Phase == "" && u.Reason != "" {
			state = v1alpha1.UnitFailed
		}
		d.lines = append(d.lines, unit(u, state))
	}
	for _, u := range d.EDS.Status.Waiting {
		if !slices.ContainsFunc(d.lines, func(n Node) bool { return n.Node == u.Node }) {
			d.lines = append(d.lines, unit(u, v1alpha1.UnitOutdated))
		}
	}
	for i := range d.lines {
		d.lines[i].Canary = d.onCanary(d.lines[i].Node)
	}
}

// PodCounts are how many pods a daemon has, by its status.
type PodCounts struct {
	// Desired is how many nodes should have one.
	Desired int32 `json:"desired"`
	Current int32 `json:"current"`
	Ready   int32 `json:"ready"`
	// Available is how many have been ready for long enough.
	Available int32 `json:"available"`
	// UpToDate is how many have the active revision; during a canary, how many have the canary's.
	UpToDate int32 `json:"upToDate"`
}

// CanaryState is the state of a canary, in one word.
type CanaryState string

// The states of a canary.
const (
	CanaryProgressing CanaryState = "Progressing"
	CanaryPaused      CanaryState = "Paused"
	CanaryFailed      CanaryState = "Failed"
)

// Canary is the trial of a daemon's new revision.
type Canary struct {
	Revision string      `json:"revision"`
	Nodes    []string    `json:"nodes,omitempty"`
	State    CanaryState `json:"state"`
	// Reason and Message say why it is paused, or has failed.
	Reason  edsv1.StatusReason `json:"reason,omitempty"`
	Message string             `json:"message,omitempty"`
}

// Said is why a canary is paused or has failed, in one line.
func (c *Canary) Said() string {
	if c.Reason == "" || c.Message == "" {
		return cmp.Or(string(c.Reason), c.Message)
	}
	return string(c.Reason) + ": " + c.Message
}
