// SPDX-License-Identifier: Apache-2.0

// Package plan carries out Plans: a Job on each node that lacks the Plan's latest hash, so many at a time.
//
// A reconcile is one pass over what the caches show:
//
//	read      the Plan, one by one decoded, so that a bad one harms no other
//	resolve   version and hash                                              resolve.go, channel.go, hash.go
//	gather    nodes, Jobs and pods                                          snapshot.go
//	judge     each node's state, and what its turn needs next               units.go, verify.go, claim.go, taint.go
//	settle    do that: finish, fail, soak, abandon, adopt, stop, create     apply.go
//	decide    who goes next (package rollout)                               decide.go
//	admit     decide again under the fleet's lock, and claim those nodes    decide.go
//	start     make their Jobs                                               apply.go
//	report    one status write, then Events                                 status.go
//
// All memory is in the API: the turn in the claim on the Node, its result in the Job, the outcome in the Node's label.
package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

const kind = "Plan"

// GroupVersionKind of what this controller reconciles.
var groupVersionKind = upgradev1.GroupVersion.WithKind(kind)

// +kubebuilder:rbac:groups=upgrade.cattle.io,resources=plans,verbs=get;list;watch
// +kubebuilder:rbac:groups=upgrade.cattle.io,resources=plans/status,verbs=get;patch;update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=batch,namespace=system-upgrade,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",namespace=system-upgrade,resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=system-upgrade,resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=system-upgrade,resources=leases,verbs=get;create;update

// Controller reconciles Plans.
type Controller struct {
	clock    clock.PassiveClock
	client   client.Client
	fleet    *fleet.Fleet
	events   *events.Recorder
	options  Options
	channels *channels
	reports  *fleet.Reports
	seen     *sightings
	refusals *refusals
	waves    *fleet.Waves
	memos    *memos
	pace     fleet.Pace
	queued   *fleet.Waiters
	retries  workqueue.TypedRateLimiter[types.NamespacedName]
}

// NewController returns a controller of Plans; SetupWithManager makes it run.
func NewController(clk clock.PassiveClock, c client.Client, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	return &Controller{
		clock: clk, client: c, fleet: f, events: recorder, options: o, reports: fleet.NewReports(),
		seen: newSightings(), refusals: newRefusals(), waves: fleet.NewWaves(), memos: newMemos(), queued: fleet.NewWaiters(), retries: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
	}
}

// Reconcile brings one Plan a step further. It comes back by itself when the clock alone calls for it, and after an error no
// later than that: what fails on one node keeps no other waiting.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	key := request.NamespacedName
	wake, err := c.reconcile(ctx, key)
	var after time.Duration
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctrl.Result{}, nil // The process ends, and so do its requests.
	case apierrors.IsConflict(err):
		// Somebody was faster: decide again on what is true now.
		log.FromContext(ctx).V(1).Info("deciding again", "conflict", err.Error())
		after = fleet.Coalesce
	case err != nil:
		metrics.CountError(named(key))
		after = c.retries.When(key)
		log.FromContext(ctx).Error(err, "a step failed, and is tried again", "after", after.String())
	default:
		c.retries.Forget(key)
	}
	if !wake.IsZero() {
		until := max(wake.Sub(c.clock.Now()), time.Millisecond)
		if after == 0 || until < after {
			after = until
		}
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	p, stored, malformed, err := c.read(ctx, key)
	if err != nil {
		return wake, err
	}
	now := c.clock.Now()
	// What changes from here on is not in the snapshot, so the Plan must be told of it until it is known to wait for nothing.
	c.queued.Set(key, true)
	s, err := c.gather(ctx, key)
	if err != nil {
		return wake, err
	}
	if p == nil {
		c.channels.forget(key)
		c.queued.Done(key)
		c.waves.Forget(key)
		c.memos.forget(key)
		metrics.Forget(named(key))
		return wake, c.clear(ctx, key, "", s)
	}
	r := c.resolve(ctx, p, malformed, now)
	w := &world{
		plan: p, options: &c.options, selector: r.selector, ready: r.ready, template: templateDigest(p), spec: specDigest(p),
		fleet: s.Fleet, nodesVersion: s.Version, memo: c.memos.of(key), seen: c.seen, now: now,
	}
	pass := &pass{Controller: c, world: w, window: r.window, wake: r.wake}
	pass.turns = turns(w, s)
	pass.cost = c.clock.Since(now)
	defer func() { c.pace.Took(pass.cost, c.clock.Now()) }()
	errs := []error{c.clear(ctx, key, p.UID, s)}
	errs = append(errs, pass.settle(ctx))
	if r.ready {
		errs = append(errs, pass.start(ctx))
	} else {
		c.queued.Done(key)
	}
	errs = append(errs, pass.report(ctx, stored, r))
	return pass.wake, first(errs)
}

// read gets a Plan. One whose text does not fit the type comes back with as much of it as is needed to say so.
func (c *Controller) read(ctx context.Context, key types.NamespacedName) (p *upgradev1.Plan, stored *unstructured.Unstructured, malformed, err error) {
	stored = &unstructured.Unstructured{}
	stored.SetGroupVersionKind(groupVersionKind)
	if err := c.client.Get(ctx, key, stored); err != nil {
		return nil, nil, nil, client.IgnoreNotFound(err)
	}
	if stored.GetDeletionTimestamp() != nil {
		return nil, nil, nil, nil
	}
	p = &upgradev1.Plan{}
	text, err := stored.MarshalJSON()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("reading plan, %w", err)
	}
	if malformed = json.Unmarshal(text, p); malformed != nil {
		malformed = fmt.Errorf("the plan can't be read: %w", malformed)
		p.TypeMeta = metav1.TypeMeta{APIVersion: stored.GetAPIVersion(), Kind: kind}
		p.Namespace, p.Name, p.UID = stored.GetNamespace(), stored.GetName(), stored.GetUID()
		p.Generation, p.ResourceVersion = stored.GetGeneration(), stored.GetResourceVersion()
	}
	return p, stored, malformed, nil
}

// pass is one reconcile of a live Plan.
type pass struct {
	*Controller
	*world
	turns    []turn
	cost     time.Duration // of looking and deciding, without what is written
	window   *rollout.Window
	settled  bool // Something has been written, so the nodes are no longer those of the world.
	decision rollout.Decision
	started  []*turn // those that the decision names
	happened []events.Event
	mu       sync.Mutex // guards what is written for several turns at once: happened and decision
	wake     time.Time
}

// at notes an instant to come back at.
func (p *pass) at(when time.Time) {
	if !when.IsZero() && (p.wake.IsZero() || when.Before(p.wake)) {
		p.wake = when
	}
}

func named(key types.NamespacedName) metrics.Rollout {
	return metrics.Rollout{Kind: kind, NamespacedName: key}
}

func holder(p *upgradev1.Plan) string { return node.Holder(kind, client.ObjectKeyFromObject(p)) }

// first of some errors, one that is no conflict before those that are: a conflict needs no telling.
func first(errs []error) error {
	var conflict error
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
		if err != nil {
			conflict = err
		}
	}
	return conflict
}
