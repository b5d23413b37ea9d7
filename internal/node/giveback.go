// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// Done is what whoever drains has done to a node, as Cordon and Excluding say.
type Done struct {
	Cordoned, Excluded bool
}

// GiveBack undoes, in one patch, what was done to a node, as it was read after that, for a drain that has failed. For a rollout (by is not empty) that
// is whatever carries its mark, also from an earlier attempt; for a drain by hand it is what done says, unless a rollout
// has the node cordoned by now. What others did stays. It says whether it has made the node schedulable.
func GiveBack(ctx context.Context, c client.Client, n *corev1.Node, by string, done Done) (bool, error) {
	uncordoned := false
	_, err := rewrite(ctx, c, n, func(n *corev1.Node) bool {
		holder, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]
		ours := marked && holder == by
		if by == "" {
			ours = done.Cordoned && !marked
		}
		uncordoned = n.Spec.Unschedulable && ours
		changed := uncordoned || marked && !n.Spec.Unschedulable
		if changed {
			n.Spec.Unschedulable = false
			mark(n, "")
		}
		return include(n, func(holder string) bool {
			return holder == actor(by) && (by != "" || done.Excluded)
		}) || changed
	})
	if err != nil {
		return false, fmt.Errorf("giving back node %s, %w", n.Name, err)
	}
	return uncordoned, nil
}
