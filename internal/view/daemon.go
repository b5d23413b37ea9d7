// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// KindDaemonSet is Rollout.Kind of an ExtendedDaemonSet.
const KindDaemonSet = "ExtendedDaemonSet"

// Daemons are the ExtendedDaemonSets of a cluster with their revisions, settings and pods.
type Daemons struct {
	Sets []edsv1.ExtendedDaemonSet
	// Revisions and Settings may include those of other ExtendedDaemonSets. They are empty if they may not be read.
	Revisions []edsv1.ExtendedDaemonSetReplicaSet
	Settings  []edsv1.ExtendedDaemonsetSetting
	// Pods has an entry for each ExtendedDaemonSet whose pods were read. For others the view has only the status.
	// The pods are those of the ExtendedDaemonSet, and of the DaemonSet that it replaces.
	Pods map[types.NamespacedName][]corev1.Pod
}

// Daemons adds ExtendedDaemonSets to the cluster. Others are not shown, but the nodes where they replace pods count.
func (c *Cluster) Daemons(shown Daemons, others ...Daemons) *Cluster {
	c.fleet.Replaced = map[string][]rollout.Replacement{}
	for _, c.daemons = range append(others, shown) {
		c.addReplaced()
	}
	return c
}

// addReplaced adds the nodes where pods are being replaced to the fleet.
func (c *Cluster) addReplaced() {
	for i := range c.daemons.Sets {
		eds := &c.daemons.Sets[i]
		if c.nodes == nil || AtRest(eds) || eds.DeletionTimestamp != nil {
			continue
		}
		d := c.readDaemonSet(eds)
		if !d.hasPods || d.Active == nil || d.problem != "" || !d.survey(d.CanaryNodes()) {
			continue
		}
		by := KindDaemonSet + "/" + d.EDS.Namespace + "/" + d.EDS.Name
		for node, since := range d.Replaced() {
			c.fleet.Replaced[node] = append(c.fleet.Replaced[node], rollout.Replacement{By: by, Since: since})
		}
	}
}

// TrimPod keeps only the Pod fields that package view reads. It is a cache transform: it modifies the Pod.
func TrimPod(object any) (any, error) { return daemonset.TrimPod(object) }

// AtRest reports whether the status says that all pods of an ExtendedDaemonSet are as desired. Then its pods need not be read.
func AtRest(eds *edsv1.ExtendedDaemonSet) bool {
	s := &eds.Status
	if edsv1.FindCondition(s.Conditions, edsv1.ConditionReady) != nil {
		return s.ObservedGeneration == eds.Generation && edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady)
	}
	// Datadog's own controller sets neither this condition nor observedGeneration.
	return s.ActiveReplicaSet != "" && s.Canary == nil && s.State != edsv1.StateCanaryFailed &&
		s.Current == s.Desired && s.Ready == s.Desired && s.Available == s.Desired && s.UpToDate == s.Desired
}

// RevisionOf is the hash of an ExtendedDaemonSet's template.
func RevisionOf(eds *edsv1.ExtendedDaemonSet) string {
	return daemonset.TemplateHash(&eds.Spec.Template)
}

// NodeOf is the node that a pod of an ExtendedDaemonSet runs on or is pinned to; "" if there is none.
func NodeOf(p *corev1.Pod) string { return daemonset.NodeOf(p) }

// TakesOver reports whether a pod belongs to, or was orphaned by, the DaemonSet that an ExtendedDaemonSet replaces.
func TakesOver(eds *edsv1.ExtendedDaemonSet, p *corev1.Pod) bool { return daemonset.TakesOver(eds, p) }

// rollout is the state of an ExtendedDaemonSet.
func (d *daemonSet) rollout() Rollout {
	s := &d.EDS.Status
	canary := ptr.Deref(s.Canary, edsv1.ExtendedDaemonSetStatusCanary{})
	d.described = Rollout{
		Kind: KindDaemonSet, Namespace: d.EDS.Namespace, Name: d.EDS.Name, Version: cmp.Or(canary.ReplicaSet, s.ActiveReplicaSet),
		Revision: RevisionOf(d.EDS), Stage: s.State, Wave: s.Wave, Canary: d.canary(),
		Pods: &PodCounts{s.Desired, s.Current, s.Ready, s.Available, s.UpToDate}, History: s.History,
	}
	r := &d.described
	r.Paused, r.PausedBy = d.IsPaused()
	if d.judged = d.decided; !d.judged {
		r.Counts = d.statusCounts(count(d.nodes))
	}
	d.decision, d.conditions = d.Decision, daemonConditions(d.EDS)
	if c := d.conditions.stalled; c != nil && c.Reason == string(v1alpha1.ReasonHalted) {
		r.Halted = c.Message
	}
	return d.units.rollout()
}

// statusCounts counts the units as far as the status shows them, from the counts of those that it lists.
func (d *daemonSet) statusCounts(c v1alpha1.UnitCounts) v1alpha1.UnitCounts {
	s := &d.EDS.Status
	c.Total = s.Desired
	// Up-to-date pods that are not available belong to nodes that are in a turn.
	c.Updated = max(0, min(s.UpToDate-min(c.Updating, max(0, s.Current-s.Available)), c.Total-c.Updating-c.Failed))
	c.Waiting = max(0, c.Total-c.Updated-c.Updating-c.Failed)
	return c
}

// daemonConditions returns the conditions that show the state of an ExtendedDaemonSet.
func daemonConditions(eds *edsv1.ExtendedDaemonSet) rolloutConditions {
	all := eds.Status.Conditions
	c := rolloutConditions{object: eds, observed: eds.Status.ObservedGeneration}
	if s := edsv1.TrueCondition(all, edsv1.ConditionStalled); s != nil {
		c.stalled = &metav1.Condition{Status: s.Status, Reason: s.Reason, Message: s.Message, LastTransitionTime: s.LastTransitionTime}
	}
	c.message = ptr.Deref(edsv1.TrueCondition(all, edsv1.ConditionReconcileError), edsv1.Condition{}).Message
	ready := edsv1.FindCondition(all, edsv1.ConditionReady)
	if ready == nil && eds.Status.ActiveReplicaSet == "" {
		return c
	}
	c.complete = &metav1.Condition{LastTransitionTime: ptr.Deref(ready, edsv1.Condition{}).LastTransitionTime}
	if AtRest(eds) {
		c.complete.Status = metav1.ConditionTrue
	}
	return c
}

// canary is the state of the running or failed canary; nil if there is neither.
func (d *daemonSet) canary() *Canary {
	s := &d.EDS.Status
	if s.Canary == nil {
		failed := edsv1.TrueCondition(s.Conditions, edsv1.ConditionCanaryFailed)
		if failed == nil {
			return nil
		}
		of := ptr.Deref(edsv1.TrueCondition(d.Target.Status.Conditions, edsv1.ConditionCanaryFailed), edsv1.Condition{})
		return &Canary{Revision: d.Target.Name, State: CanaryFailed, Reason: edsv1.StatusReason(of.Reason), Message: cmp.Or(of.Message, failed.Message)}
	}
	c := &Canary{Revision: s.Canary.ReplicaSet, Nodes: s.Canary.Nodes, State: CanaryProgressing}
	if d.Annotated(edsv1.AnnotationCanaryPaused) || s.State == edsv1.StateCanaryPaused {
		c.State, c.Reason = CanaryPaused, s.Reason
		if rs := d.Find(c.Revision); rs != nil {
			c.Message = ptr.Deref(edsv1.TrueCondition(rs.Status.Conditions, edsv1.ConditionCanaryPaused), edsv1.Condition{}).Message
		}
	}
	return c
}

// onCanary reports whether the status lists a node as a canary node.
func (d *daemonSet) onCanary(node string) bool {
	return d.EDS.Status.Canary != nil && slices.Contains(d.EDS.Status.Canary.Nodes, node)
}

// PodCounts are the pod counts in an ExtendedDaemonSet's status.
type PodCounts struct {
	// Desired is how many nodes should have a pod.
	Desired int32 `json:"desired"`
	Current int32 `json:"current"`
	Ready   int32 `json:"ready"`
	// Available is how many have been ready for minReadySeconds.
	Available int32 `json:"available"`
	// UpToDate is how many have the active revision, or the canary's revision during a canary.
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

// Canary is the canary of an ExtendedDaemonSet's new revision.
type Canary struct {
	Revision string      `json:"revision"`
	Nodes    []string    `json:"nodes,omitempty"`
	State    CanaryState `json:"state"`
	// Reason and Message say why the canary is paused or has failed.
	Reason  edsv1.StatusReason `json:"reason,omitempty"`
	Message string             `json:"message,omitempty"`
}
