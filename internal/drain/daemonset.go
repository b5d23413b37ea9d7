// SPDX-License-Identifier: Apache-2.0

package drain

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// daemonSet never evicts the pod of a DaemonSet or an ExtendedDaemonSet, which would return at once. The exception is a
// deleted DaemonSet with Force.
func daemonSet(pod *corev1.Pod, f *Facts, o *Options) ruling {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "ExtendedDaemonSetReplicaSet" {
		// It would return at once too. No owner is read, because the pod is deleted with its owner.
		if o.IgnoreDaemonSets {
			return ruling{Skip, ReasonDaemonSet, "belongs to " + owner.Kind + " " + owner.Name}
		}
		return ruling{Block, ReasonDaemonSet, "belongs to " + owner.Kind + " " + owner.Name}
	}
	owner, _, ok := daemonSetOf(pod)
	if !ok {
		return ruling{}
	}
	if err := f.DaemonSets[owner]; err != nil {
		if apierrors.IsNotFound(err) && o.Force {
			return ruling{reason: ReasonDaemonSetUnread}
		}
		return ruling{Block, ReasonDaemonSetUnread, "belongs to DaemonSet " + owner.Name + ", which can't be read: " + err.Error()}
	}
	if !o.IgnoreDaemonSets {
		return ruling{Block, ReasonDaemonSet, "belongs to DaemonSet " + owner.Name}
	}
	return ruling{Skip, ReasonDaemonSet, "belongs to DaemonSet " + owner.Name}
}
