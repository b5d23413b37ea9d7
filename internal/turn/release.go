// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
)

// Release gives the node back, and says on it that its maintenance is over.
func Release(ctx context.Context, c client.Client, n *corev1.Node, claim v1alpha1.Claim, now time.Time, also []node.Also) error {
	if err := EndMaintenance(ctx, c, n, claim.Rollout, now); err != nil {
		return err
	}
	return client.IgnoreNotFound(node.Write(ctx, c, n, node.Step{Claim: claim, Release: true, GiveBack: true, Also: also}))
}

// EndMaintenance says on the node that this rollout is no longer at work there. That comes before the node is given back:
// once the claim is gone, nobody would come back for it. The node is another one then, and its turn is looked at again.
func EndMaintenance(ctx context.Context, c client.Client, n *corev1.Node, rollout string, now time.Time) error {
	if !node.InMaintenance(n, rollout) {
		return nil
	}
	if err := node.ClearConditions(ctx, c, n, rollout, now); err != nil {
		return client.IgnoreNotFound(err)
	}
	return apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("its conditions have been cleared"))
}
