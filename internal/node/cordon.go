// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// attempts bounds how often a patch is tried on a Node that others write at the same time.
const attempts = 5

// Cordon makes the node unschedulable and, if by is not empty, marks that it was by who did it, in one patch. A node
// that is unschedulable already is left as it is and unmarked: whoever cordoned it keeps it. It says whether it changed
// the node. It needs to get and to patch nodes, and does not change the object it is given.
func Cordon(ctx context.Context, c client.Client, n *corev1.Node, by string) (bool, error) {
	changed, err := rewrite(ctx, c, n, func(n *corev1.Node) bool {
		if n.Spec.Unschedulable {
			return false
		}
		n.Spec.Unschedulable = true
		mark(n, by)
		return true
	})
	if err != nil {
		return false, fmt.Errorf("cordoning node %s, %w", n.Name, err)
	}
	return changed, nil
}

// Uncordon makes the node schedulable, whoever cordoned it, and takes the mark off, in one patch. It says whether it
// changed the node. A rollout does not use it: Release uncordons what the rollout cordoned, and nothing else.
func Uncordon(ctx context.Context, c client.Client, n *corev1.Node) (bool, error) {
	changed, err := rewrite(ctx, c, n, func(n *corev1.Node) bool {
		if _, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]; !marked && !n.Spec.Unschedulable {
			return false
		}
		n.Spec.Unschedulable = false
		mark(n, "")
		return true
	})
	if err != nil {
		return false, fmt.Errorf("uncordoning node %s, %w", n.Name, err)
	}
	return changed, nil
}

// mark names who cordoned the node. Without a name it takes an older mark off, which would no longer be true.
func mark(n *corev1.Node, by string) {
	if by == "" {
		delete(n.Annotations, v1alpha1.AnnotationCordonedBy)
		return
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[v1alpha1.AnnotationCordonedBy] = by
}

// rewrite patches a Node from how it was read to how edit makes it, and reads it again if somebody else wrote meanwhile.
// edit says whether there is something to write.
func rewrite(ctx context.Context, c client.Client, n *corev1.Node, edit func(*corev1.Node) bool) (bool, error) {
	for attempt := 1; ; attempt++ {
		changed := n.DeepCopy()
		if !edit(changed) {
			return false, nil
		}
		err := c.Patch(ctx, changed, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return true, nil
		}
		if !apierrors.IsConflict(err) || attempt == attempts {
			return false, err
		}
		fresh := &corev1.Node{}
		if getErr := c.Get(ctx, client.ObjectKeyFromObject(n), fresh); getErr != nil {
			return false, getErr
		}
		if fresh.UID != n.UID || fresh.ResourceVersion == n.ResourceVersion {
			return false, err // Another node of the same name, or a cache that has not caught up: the caller decides again.
		}
		n = fresh
	}
}
