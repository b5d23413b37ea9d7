// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
)

// reconcileRecord takes the record of evictions off a Node when nobody needs it any more.
func (c *Controller) reconcileRecord(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := c.client.Get(ctx, request.NamespacedName, n); err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading node, %w", err)
	}
	evicted, err := node.ParseEvicted(n.Annotations)
	if err != nil {
		// It stays until a person has seen to it. A workloads gate says so too.
		log.FromContext(ctx).Error(err, "a record of evictions stays", "node", n.Name)
	}
	if len(evicted) == 0 {
		c.nodes.drop(request.Name)
		return ctrl.Result{}, nil
	}
	c.nodes.add(request.Name)
	if busy(n) {
		return ctrl.Result{}, nil
	}
	recovered, err := c.fleet.Recovered(ctx, evicted)
	if err != nil || !recovered {
		return ctrl.Result{}, err
	}
	if err := node.ForgetEvicted(ctx, c.client, n, evicted...); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: coalesce}, nil
		}
		return ctrl.Result{}, ignoreNotFound(err)
	}
	log.FromContext(ctx).V(1).Info("what was evicted is available again", "node", n.Name, "workloads", len(evicted))
	return ctrl.Result{}, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// busy reports whether more may yet be evicted from the node: it is in a turn, or a person drains it.
func busy(n *corev1.Node) bool {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	return err != nil || slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool { return !c.Parked() }) ||
		slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeDrainInProgress && c.Status == corev1.ConditionTrue
		})
}
