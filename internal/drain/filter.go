// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/utils/ptr"
)

// Reason says in one word why a pod is skipped or refused.
type Reason string

const (
	// ReasonNotSelected: the pod selector doesn't select it.
	ReasonNotSelected Reason = "NotSelected"
	// ReasonDeletionOverdue: it should have ended longer ago than Options.SkipWaitForDelete.
	ReasonDeletionOverdue Reason = "DeletionOverdue"
	// ReasonReturned: it came to the node after the drain began, and would return.
	ReasonReturned Reason = "Returned"
	// ReasonMirrorPod: it mirrors a file on the node; the API can't end it.
	ReasonMirrorPod Reason = "MirrorPod"
	// ReasonDaemonSet: its DaemonSet ignores cordons and would recreate it at once.
	ReasonDaemonSet Reason = "DaemonSet"
	// ReasonDaemonSetUnread: its DaemonSet is gone or can't be read.
	ReasonDaemonSetUnread Reason = "DaemonSetUnread"
	// ReasonLocalStorage: it has emptyDir volumes.
	ReasonLocalStorage Reason = "LocalStorage"
	// ReasonUnmanaged: it has no controller that recreates it.
	ReasonUnmanaged Reason = "Unmanaged"
)

// Verdict is Filter's result for one pod.
type Verdict struct {
	Pod *corev1.Pod
	// State is Skipped or Refused; empty if the pod may be evicted.
	State State
	// Reason and Message say why it may not.
	Reason  Reason
	Message string
}

// Facts are the inputs of the checks besides the pods.
type Facts struct {
	// Now is the time.
	Now time.Time
	// Since is when the drain began. Zero: it begins now.
	Since time.Time
	// DaemonSets holds the errors of DaemonSets that could not be read. Those that were read have no entry.
	DaemonSets map[types.NamespacedName]error
}

// checks are all checks, in order. The first verdict about the pod decides; a pod without one is evicted.
var checks = []func(*corev1.Pod, *Facts, *Options) Verdict{
	isSelected, deletionOverdue, isMirror, isFinished, belongsToDaemonSet, hasReturned, hasLocalStorage, isUnmanaged,
}

// Filter decides for each pod whether it is evicted, skipped or refused. The verdicts are in the order of
// eviction: by ascending priority, then by namespace and name, so that two passes agree.
func Filter(pods []corev1.Pod, f Facts, o Options) []Verdict {
	verdicts := make([]Verdict, 0, len(pods))
	for i := range pods {
		verdicts = append(verdicts, judge(&pods[i], &f, &o))
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		return cmp.Or(
			cmp.Compare(priority(a.Pod), priority(b.Pod)), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
		)
	})
	return verdicts
}

// MayEvict reports whether a drain with the most permissive options would evict the pod.
func MayEvict(pod *corev1.Pod) bool {
	return judge(pod, &Facts{}, &Options{Force: true, IgnoreDaemonSets: true, DeleteEmptyDirData: true}).State == ""
}

func judge(pod *corev1.Pod, f *Facts, o *Options) Verdict {
	for _, check := range checks {
		if v := check(pod, f, o); v.Pod != nil {
			return v
		}
	}
	return Verdict{Pod: pod}
}

// isSelected skips the pods that the selector doesn't select.
func isSelected(pod *corev1.Pod, _ *Facts, o *Options) Verdict {
	if o.PodSelector == nil || o.PodSelector.Matches(labels.Set(pod.Labels)) {
		return Verdict{}
	}
	return Verdict{pod, Skipped, ReasonNotSelected, "is not selected"}
}

// deletionOverdue skips pods that should have ended long ago. The deletion timestamp is the end of the grace period, not the
// time of the request.
func deletionOverdue(pod *corev1.Pod, f *Facts, o *Options) Verdict {
	if o.SkipWaitForDelete <= 0 || pod.DeletionTimestamp.IsZero() || f.Now.Sub(pod.DeletionTimestamp.Time) <= o.SkipWaitForDelete {
		return Verdict{}
	}
	return Verdict{pod, Skipped, ReasonDeletionOverdue, "should have ended more than " + o.SkipWaitForDelete.String() + " ago"}
}

// isMirror skips the mirrors of static pods.
func isMirror(pod *corev1.Pod, _ *Facts, _ *Options) Verdict {
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; !ok {
		return Verdict{}
	}
	return Verdict{pod, Skipped, ReasonMirrorPod, "mirrors a static pod"}
}

// isFinished evicts pods that have succeeded or failed, regardless of controller and volumes, because nothing runs in them.
func isFinished(pod *corev1.Pod, _ *Facts, _ *Options) Verdict {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Verdict{Pod: pod}
	}
	return Verdict{}
}

// belongsToDaemonSet never evicts the pod of a DaemonSet or an ExtendedDaemonSet, which would return at once. The
// exception is a deleted DaemonSet with Force.
func belongsToDaemonSet(pod *corev1.Pod, f *Facts, o *Options) Verdict {
	owner, name, ok := daemonSetOf(pod)
	// The owner of an ExtendedDaemonSet's pod is not read, because the pod is deleted with it.
	if !ok && (owner == nil || owner.Kind != "ExtendedDaemonSetReplicaSet") {
		return Verdict{}
	}
	message := "belongs to " + owner.Kind + " " + owner.Name
	err := f.DaemonSets[name]
	switch {
	case ok && apierrors.IsNotFound(err) && o.Force:
		return Verdict{}
	case ok && err != nil:
		return Verdict{pod, Refused, ReasonDaemonSetUnread, message + ", which can't be read: " + err.Error()}
	case o.IgnoreDaemonSets:
		return Verdict{pod, Skipped, ReasonDaemonSet, message}
	}
	return Verdict{pod, Refused, ReasonDaemonSet, message}
}

// daemonSetOf returns the controller of the pod, and its name if it is a DaemonSet.
func daemonSetOf(pod *corev1.Pod) (owner *metav1.OwnerReference, name types.NamespacedName, ok bool) {
	owner = metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != "apps/v1" {
		return owner, name, false
	}
	return owner, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, true
}

// arrivalGrace is how long after the beginning of a drain a pod without toleration of the cordon can still arrive, because the
// scheduler had not seen the cordon.
const arrivalGrace = 30 * time.Second

// hasReturned skips pods that were created after the drain began. They would return after an eviction, and the drain would
// never end. A pod that does not tolerate the cordon is still evicted if it was created within arrivalGrace.
func hasReturned(pod *corev1.Pod, f *Facts, _ *Options) Verdict {
	created := pod.CreationTimestamp.Time
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	tolerates := corev1helpers.TolerationsTolerateTaint(logr.Discard(), pod.Spec.Tolerations, &cordon, false)
	if f.Since.IsZero() || created.Before(f.Since) || created.Before(f.Since.Add(arrivalGrace)) && !tolerates {
		return Verdict{}
	}
	return Verdict{pod, Skipped, ReasonReturned, "came after the drain began"}
}

// hasLocalStorage refuses pods that would lose the content of emptyDir volumes, unless the options allow it, or the pod is terminating anyway.
func hasLocalStorage(pod *corev1.Pod, _ *Facts, o *Options) Verdict {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir != nil && !o.DeleteEmptyDirData && pod.DeletionTimestamp.IsZero() {
			return Verdict{pod, Refused, ReasonLocalStorage, "has local data in emptyDir volume " + v.Name}
		}
	}
	return Verdict{}
}

// isUnmanaged refuses pods without a controller, unless the options force it, or the pod is terminating anyway.
func isUnmanaged(pod *corev1.Pod, _ *Facts, o *Options) Verdict {
	if o.Force || metav1.GetControllerOfNoCopy(pod) != nil || !pod.DeletionTimestamp.IsZero() {
		return Verdict{}
	}
	return Verdict{pod, Refused, ReasonUnmanaged, "has no controller"}
}

// priority returns the priority of a pod, 0 if it has none.
func priority(pod *corev1.Pod) int32 { return ptr.Deref(pod.Spec.Priority, 0) }
