// SPDX-License-Identifier: Apache-2.0

// Package daemonset carries out ExtendedDaemonSets: a pod on each node, brought to a new template after a canary, so many at
// a time.
//
// A reconcile is one pass over what the caches show. package kind/daemonset decides, and this package reads and writes:
//
//	gather     its revisions, pods, settings and nodes                       gather.go, legacy.go
//	revise     which revision is wanted, and which is active                 revisions.go
//	canary     its nodes, its failure, its promotion                         canary.go
//	apply      create and delete pods                                        apply.go
//	report     the status of the revisions and of the ExtendedDaemonSet      report.go
//
// The nodes of a canary, its failure and its promotion are written before anything follows from them: each ends a pass. memory.go holds what
// this process has requested, and the caches do not show yet.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
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
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/daemonset"
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
	clock   clock.PassiveClock
	client  client.Client
	live    client.Reader
	pods    cache.Cache
	legacy  *legacy
	fleet   *fleet.Fleet
	events  *events.Recorder
	options Options
	memory  *memory
	reports *fleet.Reports
	queued  *fleet.Waiters
	retries workqueue.TypedRateLimiter[types.NamespacedName]
}

// What fails is tried again, first soon and then more and more seldom.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Caches are what the controller reads besides the client's cache: the pods with the label of an ExtendedDaemonSet, and
// all pods and DaemonSets, which are watched only while one is being replaced.
type Caches struct {
	Pods, Legacy cache.Cache
}

// NewController returns a controller of ExtendedDaemonSets; SetupWithManager makes it run. What must not be stale is read live.
func NewController(clk clock.PassiveClock, c client.Client, live client.Reader, caches Caches, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	return &Controller{
		clock: clk, client: c, live: live, pods: caches.Pods, legacy: newLegacy(caches.Legacy), fleet: f, events: recorder, options: o,
		memory: newMemory(), reports: fleet.NewReports(), queued: fleet.NewWaiters(),
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
		after = fleet.Coalesce
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

// pass is one reconcile of an ExtendedDaemonSet.
type pass struct {
	*Controller
	*daemonset.Judge
	key types.NamespacedName
	now time.Time
	// stored is the object as it was read, or as it was last written.
	stored *edsv1.ExtendedDaemonSet
	done   done
	// slowed is true when a request for a pod was slow to fail.
	slowed atomic.Bool
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	eds := &edsv1.ExtendedDaemonSet{}
	if err := c.client.Get(ctx, key, eds); err != nil && !apierrors.IsNotFound(err) {
		return wake, fmt.Errorf("reading the ExtendedDaemonSet, %w", err)
	}
	if eds.UID == "" || eds.DeletionTimestamp != nil {
		c.forget(key)
		return wake, nil // What it owns is deleted with it.
	}
	p := &pass{Controller: c, key: key, stored: eds, now: c.clock.Now()}
	facts, err := p.gather(ctx)
	if err != nil && !errors.Is(err, errStillNotSeen) {
		return wake, err
	}
	var invalid error
	p.Judge, invalid = daemonset.New(facts, p.now)
	switch {
	case err != nil:
		err = errors.Join(err, p.reportProblem(ctx, "DaemonSetNotSeen", err))
	case invalid != nil:
		err = p.reportProblem(ctx, "InvalidSpec", invalid)
	default:
		err = p.run(ctx)
	}
	return p.Wake, err
}

// run makes the pass of an ExtendedDaemonSet that is valid.
func (p *pass) run(ctx context.Context) error {
	again, err := p.revise(ctx)
	if isRefusal(err) {
		return errors.Join(err, p.reportProblem(ctx, "RevisionRefused", withoutName(err, p.key.Name)))
	}
	if again || err != nil {
		return p.lookAgain(err)
	}
	if err := p.Survey(p.CanaryNodes()); err != nil {
		return err
	}
	if again, err := p.runCanary(ctx); again || err != nil {
		return p.lookAgain(err)
	}
	p.Decide()
	p.queued.Set(p.key, len(p.Decision.Waiting) > 0 || p.Canary != nil)
	return errors.Join(p.apply(ctx), p.report(ctx))
}

// lookAgain begins another pass at once, with what this one has written. What could not be written is retried later.
func (p *pass) lookAgain(err error) error {
	p.Wake = time.Time{}
	if err == nil {
		p.Wake = p.now.Add(time.Millisecond)
	}
	return err
}

// isRefusal reports whether the API server does not want what was written, as against being out of reach for a moment.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// withoutName is an error without the name that the API server has generated for a revision. It differs each time, and the status would be
// written each time.
func withoutName(err error, eds string) error {
	return errors.New(generatedName(eds).ReplaceAllString(err.Error(), `"`+eds+`-…"`))
}

func generatedName(eds string) *regexp.Regexp {
	return regexp.MustCompile(`"` + regexp.QuoteMeta(eds[:min(len(eds), 57)]) + `[^" ]*-?[a-z0-9]{5}"`)
}

// forget drops what is remembered of an ExtendedDaemonSet that is deleted.
func (c *Controller) forget(key types.NamespacedName) {
	c.memory.forget(key)
	c.queued.Set(key, false)
	c.legacy.forget(key)
	metrics.ForgetDaemonSet(key)
}
