// SPDX-License-Identifier: Apache-2.0

// Package daemonset carries out ExtendedDaemonSets: a pod on each node. A new template comes first to a canary, and then to the
// other nodes, a limited number at a time.
//
// A reconcile is one pass over what the caches show. package kind/daemonset decides, and this package reads and writes:
//
//	gather     its revisions, pods, settings and nodes                       gather.go, legacy.go
//	revise     which revision is wanted, and which is active                 revisions.go
//	explain    which pod does not start, and why                             gather.go
//	canary     its nodes, its failure, its promotion                         canary.go
//	apply      create and delete pods                                        apply.go
//	report     the status of the revisions and of the ExtendedDaemonSet      report.go
//
// Apart from the passes, podtemplate.go keeps a PodTemplate for the cluster autoscaler.
//
// The nodes of a canary, its failure and its promotion are written before the controller acts on them: each write ends a pass. Reads wait
// until the caches show this process's own writes, so no more pods are replaced at once than allowed.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets/status,verbs=update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets/finalizers,verbs=update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetreplicasets,verbs=list;watch;create;delete;patch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetreplicasets/status,verbs=update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetreplicasets/finalizers,verbs=update
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetsettings,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;create;delete;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch

const edsKind = "ExtendedDaemonSet"

// Options of the controller.
type Options struct {
	// Namespaces that are watched. Nil means all.
	Namespaces map[string]cache.Config
	// ValidationMode is the default for canaries.
	ValidationMode edsv1.ValidationMode
	// NodeName binds pods by spec.nodeName in place of a node affinity.
	NodeName bool
	// Threads is how many ExtendedDaemonSets are reconciled at once.
	Threads int
}

// Controller reconciles ExtendedDaemonSets.
type Controller struct {
	Caches
	clock   clock.PassiveClock
	client  client.Client
	live    client.Reader
	legacy  *legacy
	fleet   *fleet.Fleet
	events  *events.Recorder
	options Options
	reports *fleet.Reports
	queued  *fleet.Waiters
	retries *turn.Retries

	memory sync.Map // of daemonset.Memory, by the name of the ExtendedDaemonSet
}

// NewController returns a controller of ExtendedDaemonSets; SetupWithManager makes it run. live reads past the caches.
func NewController(clk clock.PassiveClock, c client.Client, live client.Reader, caches Caches, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	return &Controller{
		Caches: caches, clock: clk, client: c, live: live, legacy: &legacy{namespaces: map[string]*legacyCache{}}, fleet: f, events: recorder, options: o,
		reports: fleet.NewReports(fleet.StatusDelay), queued: &fleet.Waiters{}, retries: turn.NewRetries(clk, edsKind),
	}
}

// Reconcile brings one ExtendedDaemonSet a step further. It requeues itself if the clock alone can change the decision.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	key := request.NamespacedName
	wake, err := c.reconcile(ctx, key)
	return c.queued.Prioritize(key, c.retries.Result(ctx, key, wake, err), err != nil && !apierrors.IsConflict(err)), nil
}

// pass is one reconcile of an ExtendedDaemonSet.
type pass struct {
	*Controller
	*daemonset.Judge
	key types.NamespacedName
	now time.Time
	// stored is the object as it was read, or as it was last written.
	stored *edsv1.ExtendedDaemonSet
	// pods reads and writes pods.
	pods client.Client
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	defer func() {
		if err != nil && !errors.Is(err, errNotSeen) || errors.Is(err, errStillNotSeen) {
			c.fleet.AddReplaced(key, nil)
		}
	}()
	eds := &edsv1.ExtendedDaemonSet{}
	if err := c.client.Get(ctx, key, eds); err != nil && !apierrors.IsNotFound(err) {
		return wake, fmt.Errorf("reading the ExtendedDaemonSet, %w", err)
	}
	if eds.UID == "" || eds.DeletionTimestamp != nil {
		_, known := c.memory.LoadAndDelete(key)
		c.queued.Set(key, false)
		c.queued.SetBusy(key, false)
		if known || eds.UID != "" { // Settings may name thousands that do not exist.
			c.fleet.SetReplaced(key, nil)
			metrics.ForgetDaemonSet(key)
		}
		return wake, nil // Its objects are deleted with it.
	}
	p := &pass{Controller: c, key: key, stored: eds, now: c.clock.Now(), pods: c.daemonPods}
	if refused := c.fleet.Refused(edsKind); refused != nil {
		c.fleet.AddReplaced(key, nil)
		return p.refuse(ctx, refused)
	}
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
		c.fleet.AddReplaced(key, nil)
		err = p.reportProblem(ctx, edsv1.ReasonInvalidSpec, invalid)
	default:
		err = p.run(ctx)
	}
	return p.Wake, err
}

// run reconciles an ExtendedDaemonSet that is valid.
func (p *pass) run(ctx context.Context) error {
	again, err := p.revise(ctx)
	if isRefusal(err) {
		return errors.Join(err, p.reportProblem(ctx, "RevisionRefused", err))
	}
	if again || err != nil {
		return p.passAgain(err)
	}
	if err := p.Survey(p.CanaryNodes()); err != nil {
		return errors.Join(err, p.reportProblem(ctx, edsv1.ReasonInvalidSpec, err))
	}
	p.explainStart(ctx)
	if again, err := p.runCanary(ctx); again || err != nil {
		return p.passAgain(err)
	}
	if p.fleet.AddReplaced(p.key, p.Replaced()); p.MayReplace() && !p.fleet.KnowsReplaced(ctx) {
		p.WakeAt(p.now.Add(fleet.Coalesce)) // Other ExtendedDaemonSets may have used up a budget before this process began.
		return nil
	}
	p.queued.Set(p.key, true) // A change during the decision, which may not show it, must wake the ExtendedDaemonSet.
	if err := p.decide(ctx); err != nil {
		return err
	}
	isUpdating := func(u rollout.Unit) bool {
		return u.State == v1alpha1.UnitUpdating && p.State(u.Node).Refused.At.IsZero()
	}
	p.queued.SetBusy(p.key, p.Canary != nil || len(p.Decision.Start) > 0 || slices.ContainsFunc(p.Units, isUpdating))
	p.queued.Set(p.key, slices.ContainsFunc(p.Decision.Waiting, fleet.ForBudget) || p.Canary != nil)
	return errors.Join(p.apply(ctx), p.report(ctx))
}

// decide decides what is done, and tells the fleet where pods are being replaced. If pods may be replaced, it decides as a rollout does that
// claims nodes: alone, with a snapshot that shows all claims. So no turn claims a node whose pod is about to be replaced, and no pod is replaced
// on a node that was claimed a moment ago. A lock of this process is enough, because only the leader decides.
func (p *pass) decide(ctx context.Context) error {
	if !p.MayReplace() {
		p.Decide()
		p.fleet.SetReplaced(p.key, p.Replaced())
		return nil
	}
	return p.fleet.AdmitFor(ctx, p.workload(), func(now fleet.Snapshot) error {
		p.Fleet = now.Fleet
		if p.Canary != nil {
			p.DecideCanary()
		}
		p.Decide()
		p.fleet.SetReplaced(p.key, p.Replaced())
		return nil
	})
}

// passAgain starts another pass at once after a successful write. After an error the pass is retried later.
func (p *pass) passAgain(err error) error {
	p.Wake = time.Time{}
	if err == nil {
		p.Wake = p.now.Add(time.Millisecond)
	}
	return err
}

// isRefusal reports whether the API server has refused a write. A temporary failure is not a refusal.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err)
}
