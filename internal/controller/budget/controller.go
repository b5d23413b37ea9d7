// SPDX-License-Identifier: Apache-2.0

// Package budget reports on NodeDisruptionBudgets. It does not enforce them: each rollout enforces them when it decides. It writes
// their status, and removes a Node's record of evictions once all workloads are available again.
//
//	read      the fleet with its budgets, and the gates that are closed
//	examine   which nodes are unavailable, and what blocks (package rollout)
//	report    one status write, then Events                                   status.go
//	records   of evictions are removed
package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=namespaces;pods;replicationcontrollers,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets;replicasets,verbs=list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets,verbs=list;watch

// coalesce is how long the controller waits after a change of the fleet, so that one reconcile covers several changes. It
// bounds how often a status is written.
const coalesce = time.Second

// perBudget is how much longer it waits for each budget that there is, if that is longer than coalesce: thousands leave time to rollouts.
const perBudget = 2 * time.Millisecond

// retry is the time until the next attempt to write a status, if no change comes before.
const retry = 30 * time.Second

// Controller reconciles NodeDisruptionBudgets.
type Controller struct {
	clock  clock.PassiveClock
	client client.Client
	fleet  *fleet.Fleet
	events *events.Recorder
	// pause is the wait after a change.
	pause atomic.Int64
}

// NewController returns a controller of budgets; SetupWithManager makes it run.
func NewController(clk clock.PassiveClock, c client.Client, f *fleet.Fleet, recorder *events.Recorder) *Controller {
	return &Controller{clock: clk, client: c, fleet: f, events: recorder}
}

// SetupWithManager makes the manager run this controller, and one that removes records. That one does not wait while thousands of budgets are
// reported. The fleet must be set up too.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(m).
		Named("budget.status").
		For(&v1alpha1.NodeDisruptionBudget{}, builder.WithPredicates(specChanged)).
		WatchesRawSource(c.onChange(func() time.Duration { return max(coalesce, time.Duration(c.pause.Load())) })).
		Complete(c)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(m).
		Named("budget.records").
		WatchesRawSource(c.onChange(func() time.Duration { return coalesce })).
		Complete(reconcile.Func(c.removeRecords))
}

// specChanged leaves out this controller's own status writes.
var specChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return fleet.SpecChanged(e.ObjectOld, e.ObjectNew) }}

// all is the request to report all budgets; for budget.records, to remove all records.
var all = reconcile.Request{}

// onChange enqueues the request all at the start, and after each change of the fleet, with a delay.
func (c *Controller) onChange(delay func() time.Duration) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		wake := func() { q.AddAfter(all, delay()) }
		c.fleet.OnChange(wake)
		wake()
		return nil
	})
}

// Reconcile reports the state of one budget. For the request all it reports all budgets. It requeues itself for the next time at which the clock
// alone can change a status.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	// The budgets are read before the snapshot, so that no status claims to reflect a later generation.
	budgets, err := make([]v1alpha1.NodeDisruptionBudget, 1), error(nil)
	if request == all {
		var list v1alpha1.NodeDisruptionBudgetList
		err = c.client.List(ctx, &list, client.UnsafeDisableDeepCopy)
		budgets = list.Items
	} else {
		err = c.client.Get(ctx, request.NamespacedName, &budgets[0])
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading budgets, %w", err)
	}
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := c.clock.Now()
	var result ctrl.Result
	if request == all {
		c.pause.Store(int64(len(budgets)) * int64(perBudget))
	}
	for i := range budgets {
		b := &budgets[i]
		if s.Generations[b.UID] < b.Generation { // The snapshot does not show it yet.
			result.RequeueAfter = min(cmp.Or(result.RequeueAfter, coalesce), coalesce)
			continue
		}
		of, found := slices.BinarySearchFunc(s.Budgets, b.Name, func(of rollout.Budget, name string) int { return strings.Compare(of.Name, name) })
		if !found {
			metrics.ForgetBudget(cmp.Or(b.Name, request.Name))
			continue
		}
		next, err := c.report(ctx, b, s.Gates(&s.Budgets[of]), &s.Fleet, now)
		switch {
		case apierrors.IsConflict(err):
			next = now.Add(coalesce)
		case err != nil:
			log.FromContext(ctx).Error(err, "a budget's status can't be written", "budget", b.Name)
			next = now.Add(retry)
		}
		if wait := max(next.Sub(now), time.Millisecond); !next.IsZero() && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
			result.RequeueAfter = wait
		}
	}
	return result, nil
}

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
