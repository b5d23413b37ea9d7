// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Action is what may be done with a pod.
type Action string

const (
	// Evict: the pod is evicted.
	Evict Action = "Evict"
	// Skip: the pod stays, and the drain does not wait for it.
	Skip Action = "Skip"
	// Block: the pod may not be evicted, so the drain evicts nothing.
	Block Action = "Block"
)

// Reason says in one word why a pod is skipped or blocks, or what evicting it costs.
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
	Pod    *corev1.Pod
	Action Action
	// Reason and Message say why, unless the pod is simply evicted.
	Reason  Reason
	Message string
	// Costs is what the eviction loses, as the options allow.
	Costs []Reason
}

// Facts are the inputs of the rules besides the pods.
type Facts struct {
	// Now is the time.
	Now time.Time
	// Since is when the drain began. Zero: it begins now.
	Since time.Time
	// DaemonSets holds the errors of DaemonSets that could not be read. Those that were read have no entry.
	DaemonSets map[types.NamespacedName]error
}

// ruling is the result of one rule for one pod. An empty action continues with the next rule; a reason with it is a cost.
type ruling struct {
	action  Action
	reason  Reason
	message string
}

// rules is the chain, in order. The first rule with an action decides; a pod without one is evicted.
var rules = []struct {
	name string
	rule func(*corev1.Pod, *Facts, *Options) ruling
}{
	{"selected", selected},
	{"skipWait", skipWait},
	{"mirror", mirror},
	{"finished", finished},
	{"daemonSet", daemonSet},
	{"returned", returned},
	{"localStorage", localStorage},
	{"unmanaged", unmanaged},
}

// Filter decides for each pod whether it is evicted, skipped or blocks the drain. The verdicts are in the order of
// eviction.
func Filter(pods []corev1.Pod, f Facts, o Options) []Verdict {
	verdicts := make([]Verdict, 0, len(pods))
	for i := range pods {
		verdicts = append(verdicts, judge(&pods[i], &f, &o))
	}
	order(verdicts)
	return verdicts
}

func judge(pod *corev1.Pod, f *Facts, o *Options) Verdict {
	v := Verdict{Pod: pod, Action: Evict}
	for _, r := range rules {
		switch said := r.rule(pod, f, o); {
		case said.action != "":
			v.Action, v.Reason, v.Message = said.action, said.reason, said.message
			if v.Action != Evict {
				v.Costs = nil
			}
			return v
		case said.reason != "":
			v.Costs = append(v.Costs, said.reason)
		}
	}
	return v
}

// daemonSetOf returns the DaemonSet that controls the pod, if there is one.
func daemonSetOf(pod *corev1.Pod) (types.NamespacedName, types.UID, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != "apps/v1" {
		return types.NamespacedName{}, "", false
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, owner.UID, true
}
