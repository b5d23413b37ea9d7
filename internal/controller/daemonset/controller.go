// SPDX-License-Identifier: Apache-2.0

// Package daemonset carries out ExtendedDaemonSets: a pod on each node, brought to a new template after a canary, so many at
// a time.
//
// A reconcile is one pass over what the caches show:
//
//	read      the ExtendedDaemonSet, with its defaults filled in
//	gather    its revisions, its pods, settings and nodes                    snapshot.go, legacy.go
//	revise    which revision is wanted, and which is active                  revisions.go
//	survey    what is on each node, and what should be                      spots.go
//	try       the canary: its nodes, its end                                canary.go
//	decide    whose pod is replaced next (package rollout)                  units.go, decide.go
//	apply     create and delete pods                                        apply.go, expectations.go, backoff.go
//	report    the status of the revisions and of the ExtendedDaemonSet      status.go, report.go
//
// What is decided for good is written down before anything follows from it: the nodes of a canary, its failure, and its
// promotion each end a pass. All memory is in the API: pods, revisions, and the two statuses.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
)

const kind = "ExtendedDaemonSet"

// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets/finalizers,verbs=update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetreplicasets,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetreplicasets/status,verbs=get;patch;update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetreplicasets/finalizers,verbs=update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetsettings,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch

// Options of the controller.
type Options struct {
	// Namespaces that are watched; none is all.
	Namespaces []string
	// ValidationMode of canaries that name none.
	ValidationMode edsv1.ValidationMode
	// NodeName binds pods by spec.nodeName in place of a node affinity.
	NodeName bool
	// Threads is how many ExtendedDaemonSets are reconciled at once.
	Threads int
}

// Controller reconciles ExtendedDaemonSets.
type Controller struct {
	clock    clock.PassiveClock
	client   client.Client
	live     client.Reader
	pods     cache.Cache
	legacy   *legacy
	fleet    *fleet.Fleet
	events   *events.Recorder
	options  Options
	expected *expectations
	failures *backoffs
	refusals refusals
	reports  *reports
	memos    *memos
	queued   *fleet.Waiters
	pace     pace
	retries  workqueue.TypedRateLimiter[types.NamespacedName]
}

// Caches are what the controller reads besides the client's cache: the pods that bear the label of an ExtendedDaemonSet, and
// all pods and DaemonSets, which are watched only while one is being replaced.
type Caches struct {
	Pods, Legacy cache.Cache
}

// NewController returns a controller of ExtendedDaemonSets; SetupWithManager makes it run. What must not be stale is read live.
func NewController(clk clock.PassiveClock, c client.Client, live client.Reader, caches Caches, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	return &Controller{
		clock: clk, client: c, live: live, pods: caches.Pods, legacy: newLegacy(caches.Legacy), fleet: f, events: recorder, options: o,
		expected: newExpectations(), failures: newBackoffs(), reports: newReports(), memos: newMemos(), queued: fleet.NewWaiters(),
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
	}
}

// Reconcile brings one ExtendedDaemonSet a step further. It comes back by itself when the clock alone calls for it.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	key := request.NamespacedName
	wake, err := c.reconcile(ctx, key)
	var after time.Duration
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctrl.Result{}, nil // The process ends, and so do its requests.
	case apierrors.IsConflict(err):
		log.FromContext(ctx).V(1).Info("deciding again", "conflict", err.Error())
		after = coalesce
	case err != nil:
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
	eds := &edsv1.ExtendedDaemonSet{}
	if err := c.client.Get(ctx, key, eds); err != nil && !apierrors.IsNotFound(err) {
		return wake, fmt.Errorf("reading the ExtendedDaemonSet, %w", err)
	}
	if eds.UID == "" || eds.DeletionTimestamp != nil {
		c.forget(key)
		return wake, nil // What it owns goes with it.
	}
	p := &pass{Controller: c, key: key, stored: eds, eds: eds.DeepCopy(), spec: daemon.Defaulted(&eds.Spec, c.options.ValidationMode), now: c.clock.Now()}
	p.strategy = &p.spec.Strategy
	if err := p.gather(ctx); errors.Is(err, errStillNotSeen) {
		p.problem, p.problemReason = err, "DaemonSetNotSeen"
		return p.wake, errors.Join(err, p.report(ctx))
	} else if err != nil {
		return wake, err
	}
	defer func() { c.pace.took(p.cost) }()
	if p.problem = daemon.Validate(p.spec); p.problem != nil {
		p.problemReason = "InvalidSpec"
		return p.wake, p.report(ctx)
	}
	if again, err := p.revise(ctx); refuses(err) {
		p.problem, p.problemReason = sameAgain(err, p.key.Name), "RevisionRefused"
		return p.wake, errors.Join(err, p.report(ctx))
	} else if again || err != nil {
		return p.soon(err), err
	}
	if err := p.survey(); err != nil {
		return wake, err
	}
	if again, err := p.try(ctx); again || err != nil {
		return p.soon(err), err
	}
	p.decide()
	return p.wake, errors.Join(p.apply(ctx), p.report(ctx))
}

// refuses reports whether the API server does not want what was written, as against being out of reach for a moment.
func refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// sameAgain is an error without the name that the API server has made up for a revision: it is another each time, and the status
// would be written each time.
func sameAgain(err error, eds string) error {
	return errors.New(madeUp(eds).ReplaceAllString(err.Error(), `"`+eds+`-…"`))
}

func madeUp(eds string) *regexp.Regexp {
	return regexp.MustCompile(`"` + regexp.QuoteMeta(eds[:min(len(eds), 57)]) + `[^" ]*-?[a-z0-9]{5}"`)
}

// forget drops what there is of an ExtendedDaemonSet that is gone.
func (c *Controller) forget(key types.NamespacedName) {
	c.expected.forget(key)
	c.memos.forget(key)
	c.reports.forget(key)
	c.queued.Set(key, false)
	c.refusals.forget(key)
	c.legacy.forget(key)
	metrics.ForgetDaemonSet(key)
}

// soon is the next moment, for a pass that goes on from what this one has written. What could not be written is tried again
// in its time.
func (p *pass) soon(err error) time.Time {
	if err != nil {
		return time.Time{}
	}
	return p.now.Add(time.Millisecond)
}

// at notes an instant at which there may be something to do.
func (p *pass) at(t time.Time) {
	if !t.IsZero() && (p.wake.IsZero() || t.Before(p.wake)) {
		p.wake = t
	}
}
