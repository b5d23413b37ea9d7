// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// owner is whose a PodTemplate is.
type owner int

const (
	// own is one that the ExtendedDaemonSet controls, or that has lost its owner and was made for one.
	own owner = iota
	// predecessors is one that belongs to an ExtendedDaemonSet of the same name which is gone.
	predecessors
	// foreign is any other.
	foreign
)

// whose says whose a PodTemplate of the ExtendedDaemonSet's name is.
func whose(t *corev1.PodTemplate, d *edsv1.ExtendedDaemonSet) owner {
	by := metav1.GetControllerOf(t)
	switch {
	case by == nil:
		if t.Labels[edsv1.AnnotationDaemonsetPod] == edsv1.True && t.Annotations[edsv1.AnnotationTemplateHash] != "" {
			return own
		}
		return foreign
	case by.UID == d.UID:
		return own
	case by.Kind == "ExtendedDaemonSet" && by.Name == d.Name:
		return predecessors
	default:
		return foreign
	}
}

func controlledBy(t *corev1.PodTemplate, uid types.UID) bool {
	by := metav1.GetControllerOfNoCopy(t)
	return by != nil && by.UID == uid
}

// told remembers of which foreign PodTemplates this process has told. To forget one costs an Event that was sent already.
type told struct {
	mu   sync.Mutex
	uids map[types.NamespacedName]types.UID
}

func newTold() *told { return &told{uids: map[types.NamespacedName]types.UID{}} }

// first reports whether this one has not been told of, and notes that it has.
func (t *told) first(d *edsv1.ExtendedDaemonSet, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	if t.uids[key] == uid {
		return false
	}
	t.uids[key] = uid
	return true
}

func (t *told) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.uids, key)
}
