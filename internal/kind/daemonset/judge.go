// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// ReplicaSet is one revision of an ExtendedDaemonSet.
type ReplicaSet = edsv1.ExtendedDaemonSetReplicaSet

// Facts are the input of the judge. The judge changes nothing in them, except the status of EDS.
type Facts struct {
	// EDS is a copy of the ExtendedDaemonSet. The judge writes the new status into it.
	EDS *edsv1.ExtendedDaemonSet
	// ValidationMode is the default for canaries.
	ValidationMode edsv1.ValidationMode
	// ReplicaSets and Settings are those of the namespace.
	ReplicaSets []ReplicaSet
	Settings    []edsv1.ExtendedDaemonsetSetting
	// Pods are those of the ExtendedDaemonSet, and of the DaemonSet that it takes over from.
	Pods []*corev1.Pod
	// Recreated has an entry for each pod of a DaemonSet. It is true while the DaemonSet would create the pod again.
	Recreated map[types.UID]bool
	// Nodes are all nodes, by name, and Fleet has the same as budgets and checks see them.
	Nodes []*corev1.Node
	Fleet rollout.Fleet
	Memory
}

// Memory is what the operator remembers of an ExtendedDaemonSet because no object shows it yet. Without it the operator retries refused
// pods at once.
type Memory struct {
	// Refused says by node which pods the API server has refused.
	Refused map[string]Refusal
	// Batches says when pods were last created, replaced and cleaned up. The key is the type of the condition for it.
	Batches map[string]time.Time
	// Slow is the pod whose Events were read last. It is never nil in the controller.
	Slow *SlowPod
}

// SlowPod is a pod that takes long to start, with the newest warning about it when its Events were read. Reason is empty if there was none.
type SlowPod struct {
	Pod             types.UID
	At              time.Time
	Reason, Message string
}

// Refusal is when the API server last refused a node's pod, and why.
type Refusal struct {
	At      time.Time
	Message string
}

// Judge decides what happens to one ExtendedDaemonSet. Its methods are called in this order:
//
//	New          the revisions: the wanted one, and the active one
//	Survey       the state of each node
//	StartCanary  if CanaryWanted: the canary's nodes, verdict and end
//	Decide       which pods are created, replaced and deleted, and why the others wait
//	Summarize    the status
type Judge struct {
	Facts
	Now time.Time
	// Wake is the next instant at which the clock alone changes a decision; zero: none.
	Wake time.Time

	Spec     *edsv1.ExtendedDaemonSetSpec // with defaults
	Strategy *edsv1.ExtendedDaemonSetSpecStrategy
	// Target is the ReplicaSet of the template. Active is the ReplicaSet of all nodes outside of the canary.
	Target, Active *ReplicaSet
	// TargetExists is false until the ReplicaSet of the template is created.
	TargetExists bool
	// Owned are the ExtendedDaemonSet's ReplicaSets, the oldest first. Counts has the counts of their pods, by ReplicaSet name.
	Owned  []*ReplicaSet
	Counts map[string]*PodCounts

	States  []*NodeState  // by the names of the nodes
	Orphans []*corev1.Pod // that wait for nodes that do not exist
	Canary  *Canary       // nil without one

	Limits   Limits
	Rolling  rollout.Strategy
	Units    []rollout.Unit
	Decision rollout.Decision
	Actions  Actions

	key            types.NamespacedName
	settings       []SettingVerdict
	active, target *Placer
}

// New returns the judge of an ExtendedDaemonSet. The error says what is invalid in its spec.
func New(f Facts, now time.Time) (*Judge, error) {
	j := &Judge{Facts: f, Now: now, Spec: Defaulted(&f.EDS.Spec, f.ValidationMode)}
	j.Strategy = &j.Spec.Strategy
	j.key = types.NamespacedName{Namespace: f.EDS.Namespace, Name: f.EDS.Name}
	// The verdicts in the status of Settings are written later. An old one would make pods be replaced twice.
	j.settings = JudgeSettings(f.Settings, j.key, f.Nodes)
	for i := range f.ReplicaSets {
		rs := &f.ReplicaSets[i]
		owner := metav1.GetControllerOfNoCopy(rs)
		if rs.Namespace == f.EDS.Namespace && rs.Labels[edsv1.LabelName] == f.EDS.Name && rs.DeletionTimestamp == nil &&
			(owner == nil || owner.UID == f.EDS.UID) {
			j.Owned = append(j.Owned, rs)
		}
	}
	slices.SortFunc(j.Owned, func(a, b *ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	j.Active = j.Find(f.EDS.Status.ActiveReplicaSet)
	hash := TemplateHash(&j.Spec.Template)
	for _, rs := range j.Owned {
		if rs.Spec.TemplateGeneration == hash && (j.Target == nil || rs == j.Active) {
			j.Target = rs
		}
	}
	if j.TargetExists = j.Target != nil; !j.TargetExists {
		j.Target = newReplicaSet(f.EDS, j.Spec, hash)
	}
	return j, Validate(j.Spec)
}

// IsDaemonPod reports whether a pod with the ExtendedDaemonSet's label is one of its pods: it belongs to a revision, or has no owner.
func IsDaemonPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return (owner == nil || owner.Kind == kindReplicaSet) && NodeOf(pod) != ""
}

const kindReplicaSet = "ExtendedDaemonSetReplicaSet"

// ReplicaSetOf returns the name of the ReplicaSet that a pod was created for, or "".
func ReplicaSetOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == kindReplicaSet {
		return owner.Name
	}
	return ""
}

// HasFailed reports whether a revision has failed as a canary.
func HasFailed(rs *ReplicaSet) bool {
	return edsv1.IsConditionTrue(rs.Status.Conditions, edsv1.ConditionCanaryFailed)
}

// Find returns the ReplicaSet of this name, or nil.
func (j *Judge) Find(name string) *ReplicaSet {
	i := slices.IndexFunc(j.Owned, func(rs *ReplicaSet) bool { return rs.Name == name })
	if i < 0 {
		return nil
	}
	return j.Owned[i]
}

// Successor returns the ReplicaSet that becomes active if none is: the status has lost its name, or it was deleted. It is a ReplicaSet with
// the condition Active, or else the template's. A template that is a canary, or has failed, is not promoted this way if an earlier
// revision exists that has not failed. That revision becomes active instead.
func (j *Judge) Successor() *ReplicaSet {
	for _, rs := range slices.Backward(j.Owned) {
		if edsv1.IsConditionTrue(rs.Status.Conditions, edsv1.ConditionActive) {
			return rs
		}
	}
	s := &j.EDS.Status
	changed := s.Canary != nil || s.ObservedGeneration != j.EDS.Generation
	if s.ActiveReplicaSet != "" && (HasFailed(j.Target) || changed && j.Strategy.Canary != nil) {
		for _, rs := range slices.Backward(j.Owned) {
			if rs != j.Target && !HasFailed(rs) {
				return rs
			}
		}
	}
	return j.Target
}

// Idle returns the ReplicaSets to delete: they have no pods, and exceed revisionHistoryLimit. Those that never were active are
// deleted first, and then the longest inactive ones, so the last good one stays.
func (j *Judge) Idle() []*ReplicaSet {
	idle := slices.DeleteFunc(slices.Clone(j.Owned), func(rs *ReplicaSet) bool {
		return rs == j.Active || rs == j.Target || j.counts(rs.Name).All != 0
	})
	slices.SortStableFunc(idle, func(a, b *ReplicaSet) int { return lastActive(a).Compare(lastActive(b)) })
	return idle[:max(0, len(idle)-int(*j.Spec.RevisionHistoryLimit))]
}

// lastActive returns when a revision became active or was replaced; zero if it never was active.
func lastActive(rs *ReplicaSet) time.Time {
	return ptr.Deref(edsv1.FindCondition(rs.Status.Conditions, edsv1.ConditionActive), edsv1.Condition{}).LastTransitionTime.Time
}

// Annotated reports whether an annotation of the ExtendedDaemonSet is "true".
func (j *Judge) Annotated(key string) bool { return j.EDS.Annotations[key] == edsv1.True }

// WakeAt makes Wake no later than this time. It ignores a zero time.
func (j *Judge) WakeAt(t time.Time) { j.Wake = rollout.Earlier(j.Wake, t) }

// HasPassed reports whether this time has come. If not, it sets Wake to that time or earlier.
func (j *Judge) HasPassed(at time.Time) bool { return hasPassed(&j.Wake, at, j.Now) }

// TakesOver reports whether the ExtendedDaemonSet takes over a pod of its old DaemonSet, or an orphan of that DaemonSet. An orphan has the
// DaemonSet's name as prefix, and the label that DaemonSets set.
func TakesOver(eds *edsv1.ExtendedDaemonSet, pod *corev1.Pod) bool {
	from := eds.Annotations[edsv1.AnnotationOldDaemonset]
	if _, ours := pod.Labels[edsv1.LabelName]; from == "" || ours || NodeOf(pod) == "" {
		return false
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.Kind == "DaemonSet" && owner.Name == from
	}
	_, revised := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	return revised && pod.GenerateName == from+"-"
}
