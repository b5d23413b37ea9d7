// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
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
