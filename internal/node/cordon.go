// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// attempts limits how often a patch is tried on a Node that others write at the same time.
const attempts = 10

// Also is a further change in the same patch. It reports whether it changed the node.
type Also func(n *corev1.Node, by string) bool

// mark sets which rollout cordoned the node. Without a name it removes an outdated mark.
func mark(n *corev1.Node, by string) {
	if by == "" {
		delete(n.Annotations, v1alpha1.AnnotationCordonedBy)
		return
	}
	set(&n.Annotations, v1alpha1.AnnotationCordonedBy, by)
}

// rewrite patches a Node with the change of edit, and retries after a conflict. edit reports whether there is something to
// write.
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

// retry writes to a Node. After a conflict it reads the Node and writes again.
func retry(ctx context.Context, c client.Reader, n *corev1.Node, write func(*corev1.Node) error) error {
	for attempt := 1; ; attempt++ {
		err := write(n)
		if err == nil || !isConflict(err) || attempt == attempts {
			return err
		}
		fresh := &corev1.Node{}
		if getErr := c.Get(ctx, client.ObjectKeyFromObject(n), fresh); getErr != nil {
			return getErr
		}
		if fresh.UID != n.UID || fresh.ResourceVersion == n.ResourceVersion {
			return err // Another node of the same name, or an outdated cache: the caller decides again.
		}
		n = fresh
	}
}

// isConflict reports whether the Node changed before the write: by its resourceVersion, or by a test of the JSON patch.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }
