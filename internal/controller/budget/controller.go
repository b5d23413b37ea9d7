// SPDX-License-Identifier: Apache-2.0

// Package budget reports on NodeDisruptionBudgets. That they are kept is not its doing: every rollout asks them when it
// decides. It says how they stand, asks Prometheus for them, and clears the Nodes' records of evictions that nobody needs
// any more.
//
//	read      the budget, and the fleet with the gates that are closed
//	examine   which nodes are unavailable, and what blocks (package rollout)
//	report    one status write, then Events                                   status.go
//
//	records   of evictions, once all that was evicted is available again      records.go
package budget

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
)

// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=namespaces;pods;replicationcontrollers,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets;replicasets,verbs=get;list;watch

// Controller reconciles NodeDisruptionBudgets.
type Controller struct {
	clock   clock.PassiveClock
	client  client.Client
	fleet   *fleet.Fleet
	events  *events.Recorder
	reports *reports
	budgets *known
	nodes   *known
}

// NewController returns a controller of budgets; SetupWithManager makes it run.
func NewController(clk clock.PassiveClock, c client.Client, f *fleet.Fleet, recorder *events.Recorder) *Controller {
	return &Controller{clock: clk, client: c, fleet: f, events: recorder, reports: newReports(), budgets: newKnown(), nodes: newKnown()}
}

// Reconcile reports how one budget stands. It comes back by itself when the clock alone can change that.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.NodeDisruptionBudget{}
	if err := c.client.Get(ctx, request.NamespacedName, b); err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading budget, %w", err)
	}
	if b.UID == "" || b.DeletionTimestamp != nil {
		c.forget(request.Name)
		return ctrl.Result{}, nil
	}
	c.budgets.add(request.Name)
	c.fleet.Poll(b)
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	i := slices.IndexFunc(s.Budgets, func(of rollout.Budget) bool { return of.Name == b.Name })
	if i < 0 {
		return ctrl.Result{}, nil // It has just gone, and comes here again for that.
	}
	now := c.clock.Now()
	next, err := c.report(ctx, b, &s.Budgets[i], s.Nodes, now)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: coalesce}, nil
	}
	if err != nil || next.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(now), time.Millisecond)}, nil
}

// forget drops what there is of a budget that is gone.
func (c *Controller) forget(name string) {
	c.budgets.drop(name)
	c.fleet.Forget(name)
	c.reports.forget(name)
	metrics.ForgetBudget(name)
}
