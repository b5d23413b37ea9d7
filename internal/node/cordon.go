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
const attempts = 10

// ByHand stands in marks and conditions for who drains a node without a rollout.
const ByHand = "moult drain"

func actor(by string) string {
	if by == "" {
		return ByHand
	}
	return by
}

// Also is what Cordon writes besides, in the same patch and also to a node that is cordoned already. It says whether it
// changed the node.
type Also func(n *corev1.Node, by string) bool

// Cordon makes the node unschedulable and, if by is not empty, marks that it was by who did it, in one patch. A node
// that is unschedulable already is left so and unmarked: whoever cordoned it keeps it. It says whether it has made the
// node unschedulable. It needs to get and to patch nodes, and does not change the object it is given.
func Cordon(ctx context.Context, c client.Client, n *corev1.Node, by string, also ...Also) (bool, error) {
	cordoned := false
	_, err := rewrite(ctx, c, n, func(n *corev1.Node) bool {
		cordoned = !n.Spec.Unschedulable
		if cordoned {
			n.Spec.Unschedulable = true
			mark(n, by)
		}
		changed := cordoned
		for _, edit := range also {
			changed = edit(n, by) || changed
		}
		return changed
	})
	if err != nil {
		return false, fmt.Errorf("cordoning node %s, %w", n.Name, err)
	}
	return cordoned, nil
}

// Uncordon makes the node schedulable and lets external load balancers have it again, whoever cordoned it, and takes the
// marks off, in one patch. A label that has no mark stays: it is somebody else's. It says whether it changed the node. A
// rollout does not use it: Release uncordons what the rollout cordoned, and nothing else.
func Uncordon(ctx context.Context, c client.Client, n *corev1.Node) (bool, error) {
	changed, err := rewrite(ctx, c, n, func(n *corev1.Node) bool {
		included := include(n, func(string) bool { return true })
		if _, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]; !marked && !n.Spec.Unschedulable {
			return included
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
	set(&n.Annotations, v1alpha1.AnnotationCordonedBy, by)
}

// rewrite patches a Node from how it was read to how edit makes it, and reads it again if somebody else wrote meanwhile.
// edit says whether there is something to write.
func rewrite(ctx context.Context, c client.Client, n *corev1.Node, edit func(*corev1.Node) bool) (bool, error) {
	wrote := false
	err := retry(ctx, c, n, func(n *corev1.Node) error {
		changed := n.DeepCopy()
		if wrote = edit(changed); !wrote {
			return nil
		}
		return c.Patch(ctx, changed, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{}))
	})
	return wrote && err == nil, err
}

// retry writes to a Node, and reads it again and writes anew when the write lost against somebody else's.
func retry(ctx context.Context, c client.Reader, n *corev1.Node, write func(*corev1.Node) error) error {
	for attempt := 1; ; attempt++ {
		err := write(n)
		if err == nil || !lost(err) || attempt == attempts {
			return err
		}
		fresh := &corev1.Node{}
		if getErr := c.Get(ctx, client.ObjectKeyFromObject(n), fresh); getErr != nil {
			return getErr
		}
		if fresh.UID != n.UID || fresh.ResourceVersion == n.ResourceVersion {
			return err // Another node of the same name, or a cache that has not caught up: the caller decides again.
		}
		n = fresh
	}
}

// lost says that the write was made for a Node that is not so any more: by its resourceVersion, or by what a JSON patch
// tests.
func lost(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }
