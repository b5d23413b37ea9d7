// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
)

func hasRecord(o client.Object) bool { return len(fleet.Evicted(o)) > 0 }

// reconcileRecords removes the records of evictions of which all workloads are available again.
func (c *Controller) reconcileRecords(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, client.MatchingFields{fleet.IndexEvicted: fleet.HasRecord}); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing nodes, %w", err)
	}
	var failed []error
	for i := range nodes.Items {
		failed = append(failed, c.removeRecord(ctx, &nodes.Items[i]))
	}
	return ctrl.Result{}, errors.Join(failed...)
}

func (c *Controller) removeRecord(ctx context.Context, n *corev1.Node) error {
	evicted, err := node.ParseEvicted(n.Annotations)
	if err != nil {
		// The record stays until a person repairs it. A workloads gate says so too.
		log.FromContext(ctx).Error(err, "a record of evictions stays", "node", n.Name)
	}
	if len(evicted) == 0 || mayEvictMore(n) {
		return nil
	}
	recovered, err := c.fleet.Recovered(ctx, evicted)
	if err != nil || !recovered {
		return err
	}
	if err := node.ForgetEvicted(ctx, c.client, n, evicted...); err != nil {
		if apierrors.IsConflict(err) {
			return nil // The Node has changed, and comes here again for that.
		}
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).V(1).Info("what was evicted is available again", "node", n.Name, "workloads", len(evicted))
	return nil
}

// mayEvictMore reports whether the node is in a turn, or a person drains it.
func mayEvictMore(n *corev1.Node) bool {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	return err != nil || slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool { return !c.Parked() }) ||
		slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue
		})
}
