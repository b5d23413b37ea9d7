// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
)

// Release takes the claim off the node, uncordons it if the turn had cordoned it, and clears its maintenance conditions before that:
// without the claim nothing would come back for them.
func Release(ctx context.Context, c client.Client, n *corev1.Node, claim v1alpha1.Claim, now time.Time, also []node.Also) error {
	n, err := EndMaintenance(ctx, c, n, claim.Rollout, now)
	if err == nil {
		err = node.Write(ctx, c, n, node.Step{Claim: claim, Release: true, Restore: true, Also: also})
	}
	return client.IgnoreNotFound(err)
}

// EndMaintenance clears the conditions by which this rollout says that it works on the node. It returns the node as it is then.
func EndMaintenance(ctx context.Context, c client.Client, n *corev1.Node, rollout string, now time.Time) (*corev1.Node, error) {
	if !node.InMaintenance(n, rollout) {
		return n, nil
	}
	return node.ClearConditions(ctx, c, n, rollout, now)
}

// Clear removes from all Nodes what a rollout that is gone has left, or an earlier one of the same name: its taint, its claims, and its marks where
// a person has removed the claim, or it could not be read. The live rollout's UID is empty when there is none. A claim of another mechanism stays.
func (e *Engine) Clear(
	ctx context.Context, holder, taint string, live types.UID, s *fleet.Snapshot, release func(*corev1.Node, v1alpha1.Claim) error,
) []error {
	var errs []error
	for _, n := range s.Objects {
		known := s.Nodes[n.Name]
		left := slices.IndexFunc(known.Claims, func(c v1alpha1.Claim) bool { return c.Rollout == holder && c.UID != live && c.Machine == "" })
		marked := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case live == "" && node.Tainted(n, taint):
			errs = append(errs, node.Untaint(ctx, e.Client, n, taint)) // The change of the node wakes the rollout, which then releases the claim.
		case left >= 0:
			errs = append(errs, release(n, known.Claims[left]))
		case live == "" && marked && known.ClaimError == "":
			errs = append(errs, release(n, v1alpha1.Claim{Rollout: holder}))
		}
	}
	return errs
}
