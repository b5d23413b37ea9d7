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
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/node"
)

// Release removes the claim from the node, and uncordons the node if the turn cordoned it. It clears the maintenance conditions first,
// because nothing clears them once the claim is gone.
func Release(ctx context.Context, c client.Client, n *corev1.Node, claim v1alpha1.Claim, now time.Time, also []node.Also) error {
	n, err := node.ClearConditions(ctx, c, n, claim.Rollout, now)
	if err == nil {
		err = node.Write(ctx, c, n, node.Edit{Claim: claim, Release: true, Restore: true, Also: also})
	}
	return client.IgnoreNotFound(err)
}

// Clear removes from all Nodes the claims of a deleted rollout, or of an earlier one with the same name. current is the UID of the current rollout.
// If it is empty, Clear also removes the taint, and marks without a claim. Claims that name a machine belong to replacements, and stay.
func (e *Engine) Clear(
	ctx context.Context, holder, taint string, current types.UID, s *fleet.Snapshot, release func(*corev1.Node, v1alpha1.Claim) error,
) []error {
	var errs []error
	for _, n := range s.Objects {
		known := s.Nodes[n.Name]
		left := slices.IndexFunc(known.Claims, func(c v1alpha1.Claim) bool { return c.Rollout == holder && c.UID != current && c.Machine == "" })
		marked := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case current == "" && nodeturn.Tainted(n, taint):
			errs = append(errs, node.Taint(ctx, e.Client, n, taint, false)) // This write wakes the rollout. Its next pass releases the claim.
		case left >= 0:
			errs = append(errs, release(n, known.Claims[left]))
		case current == "" && marked && known.ClaimError == "":
			errs = append(errs, release(n, v1alpha1.Claim{Rollout: holder}))
		}
	}
	return errs
}
