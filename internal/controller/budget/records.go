// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
)

// removeRecords removes the records of evictions whose workloads are all available again, and those that do not count.
func (c *Controller) removeRecords(ctx context.Context, _ ctrl.Request) (result ctrl.Result, err error) {
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return result, err
	}
	for _, n := range s.Objects {
		if n.Annotations[v1alpha1.AnnotationEvicted] != "" {
			err = errors.Join(err, c.removeRecord(ctx, &s, n))
		}
	}
	if !s.RecordsEnd.IsZero() {
		result.RequeueAfter = max(s.RecordsEnd.Sub(c.clock.Now()), time.Millisecond)
	}
	return result, err
}

func (c *Controller) removeRecord(ctx context.Context, s *fleet.Snapshot, n *corev1.Node) error {
	evicted, err := v1alpha1.ParseEvicted(n.Annotations)
	counts := slices.Contains(s.Evicted, n)
	if err != nil && counts {
		// It stays until a person repairs it, a drain replaces it, or it counts no more.
		log.FromContext(ctx).Error(err, "a record of evictions stays", "node", n.Name)
	}
	if mayEvictMore(n) || counts && (len(evicted) == 0 || !c.fleet.Recovered(s, evicted)) {
		return nil
	}
	if err := node.ForgetEvicted(ctx, c.client, n); err != nil {
		if apierrors.IsConflict(err) {
			return nil // The Node has changed, and that wakes this controller again.
		}
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).V(1).Info("a record of evictions is removed", "node", n.Name, "workloads", len(evicted), "counts", counts)
	return nil
}

// mayEvictMore reports whether the node is in a turn or in a drain, or its claims can't be read.
func mayEvictMore(n *corev1.Node) bool {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	return err != nil || slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool { return !c.RecordsResult() }) ||
		slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue
		})
}
