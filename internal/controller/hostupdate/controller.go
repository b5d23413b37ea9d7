// SPDX-License-Identifier: Apache-2.0

// Package hostupdate carries out NodeRollouts with hostUpdate: it tells the agents of hosts, a few at a time, to update and to reboot.
//
// A reconcile is one pass over what the caches show:
//
//	read      the NodeRollout, one by one decoded, so that a bad one harms no other
//	resolve   what its spec comes to                                        resolve.go
//	gather    the nodes, and what each tells of its host                    units.go, memo.go
//	judge     each node's state, and what its turn needs next               units.go, turn.go, verify.go, claim.go
//	settle    do that: ask, perform, cordon, drain, reboot, finish          apply.go, words.go, drain.go
//	decide    who goes next (package rollout)                               decide.go
//	admit     decide again under the fleet's lock, and claim those nodes    decide.go
//	ask again hosts that are not started, for what others have to offer    apply.go
//	report    one status write, then Events                                 status.go, transitions.go
//
// A turn on one Node, each line one write of the operator's:
//
//	claim, prepare-update     the host fetches the update
//	perform-update            and makes it what it boots next
//	label before-reboot       where hooks are to be waited for
//	cordon                    then pods are evicted, pass by pass
//	reboot-update             with the boot id that the node has
//	changed, after-reboot     where the node is not healthy at once, or hooks are to be waited for
//	soak                      uncordoned
//	release, stabilize        the host is asked again what it has to offer
//
// All memory is in the API: the turn in the claim on the Node, what operator and agent said in the Node's annotations. What this
// process remembers besides (work.go) costs another look to find out again.
package hostupdate

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

const kind = turn.Kind

// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts,verbs=get;list;watch
// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts/status,verbs=patch
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Options are the controller's settings.
type Options struct {
	// NodeName is the node that the controller runs on, which goes last; empty when it runs outside of the cluster.
	NodeName string
	// Threads is how many NodeRollouts are reconciled at once. Default 1.
	Threads int
}

// Controller reconciles NodeRollouts.
type Controller struct {
	clock   clock.PassiveClock
	client  client.Client
	drainer *drain.Drainer
	pods    podWatcher
	fleet   *fleet.Fleet
	events  *events.Recorder
	options Options
	reports *fleet.Reports
	waves   *fleet.Waves
	queued  *fleet.Waiters
	pace    fleet.Pace
	memos   *memos
	works   *turn.Works
	asked   *backoffs
	woken   *turn.Bell
	retries *turn.Retries
}

// podWatcher follows the pods of the nodes that are worked on; drain.Watcher does.
type podWatcher interface {
	Run(ctx context.Context) error
	turn.PodsOfNodes
}

// NewController returns a controller of NodeRollouts; SetupWithManager makes it run. It drains by a client that reads past the cache, made from
// a config that drain.NeverWait has passed, and follows the pods of the nodes that it drains by the other.
func NewController(clk clock.PassiveClock, c client.Client, live drain.Client, pods typedcorev1.PodsGetter, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	r := &Controller{
		clock: clk, client: c, drainer: drain.New(clk, live), fleet: f, events: recorder, options: o,
		reports: fleet.NewReports(), waves: fleet.NewWaves(), queued: fleet.NewWaiters(), memos: newMemos(), asked: newBackoffs(), woken: &turn.Bell{},
		retries: turn.NewRetries(clk, kind),
	}
	r.pods = drain.NewWatcher(pods, r.podsChanged)
	r.works = turn.NewWorks(r.pods)
	return r
}

// Reconcile brings one NodeRollout a step further. It comes back by itself when the clock alone calls for it, and after an error no
// later than that: what fails on one node keeps no other waiting.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	key := request.NamespacedName
	wake, err := c.reconcile(ctx, key)
	return c.retries.Result(ctx, key, wake, err), nil
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	r, stored, malformed, err := c.read(ctx, key)
	if err != nil {
		return wake, err
	}
	if r != nil && turn.Replaces(stored) {
		return c.leaveOut(ctx, key, r.UID)
	}
	now := c.clock.Now()
	// What changes from here on is not in the snapshot, so the rollout must be told of it until it is known to wait for nothing.
	c.queued.Set(key, true)
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	if r == nil {
		c.queued.Done(key)
		c.waves.Forget(key)
		c.memos.forget(key)
		c.works.Keep(key, nil)
		metrics.ForgetNodeRollout(key)
		return c.clear(ctx, key, "", s)
	}
	w, problem := c.resolve(r, malformed)
	w.fleet, w.nodesVersion, w.memo, w.now = s.Fleet, s.Version, c.memos.of(key), now
	p := &pass{Controller: c, world: w, problem: problem}
	p.turns = turns(w, s)
	p.cost = c.clock.Since(now)
	defer func() { c.pace.Took(p.cost, c.clock.Now()) }()
	left, err := c.clear(ctx, key, r.UID, s)
	p.at(left)
	errs := []error{err, p.settle(ctx)}
	if problem == nil {
		errs = append(errs, p.start(ctx))
	} else {
		c.queued.Done(key)
	}
	c.works.Keep(key, p.working())
	errs = append(errs, p.askAgain(ctx), p.report(ctx, stored))
	return p.wake, turn.First(errs)
}

// leaveOut gives back what a NodeRollout had that was of the same name as one with a replacement, which is for another controller. Of that, no change of
// other nodes comes here: it says itself when it is to be looked at again.
func (c *Controller) leaveOut(ctx context.Context, key types.NamespacedName, live types.UID) (wake time.Time, err error) {
	c.queued.Done(key)
	c.works.Keep(key, nil)
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	return c.clear(ctx, key, live, s)
}

// read gets a NodeRollout. One that is being deleted is gone; one with a replacement is for another controller.
func (c *Controller) read(ctx context.Context, key types.NamespacedName) (r *v1alpha1.NodeRollout, stored *unstructured.Unstructured, malformed, err error) {
	stored, err = turn.Get(ctx, c.client, key)
	if err != nil || stored == nil {
		return nil, nil, nil, err
	}
	if stored.GetDeletionTimestamp() != nil && !turn.Replaces(stored) {
		return nil, nil, nil, nil
	}
	r, malformed, err = turn.Decode(stored)
	return r, stored, malformed, err
}

// pass is one reconcile of a live NodeRollout.
type pass struct {
	*Controller
	*world
	turns    []unit
	problem  error         // why the spec can't be carried out
	cost     time.Duration // of looking and deciding, without what is written
	decision rollout.Decision
	happened []events.Event
	mu       sync.Mutex // guards what is written for several turns at once: happened, decision, wake, and the status
	wake     time.Time
}

// at notes an instant to come back at.
func (p *pass) at(when time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !when.IsZero() && (p.wake.IsZero() || when.Before(p.wake)) {
		p.wake = when
	}
}

// happens notes an Event, to be written after the status.
func (p *pass) happens(e events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.happened = append(p.happened, e)
}

// working are the nodes that this process remembers something of: those of turns that go on, or that failed and whose nodes are to become well.
func (p *pass) working() map[string]bool {
	nodes := map[string]bool{}
	for i := range p.turns {
		if t := &p.turns[i]; t.Claim != nil && (t.Claim.Failed == nil || t.Claim.Changed != nil) {
			nodes[t.Node.Name] = true
		}
	}
	return nodes
}

func (p *pass) key() types.NamespacedName { return client.ObjectKeyFromObject(p.rollout) }

func (p *pass) name() metrics.Rollout { return named(p.key()) }

func named(key types.NamespacedName) metrics.Rollout {
	return metrics.Rollout{Kind: kind, NamespacedName: key}
}

func holder(r *v1alpha1.NodeRollout) string { return node.Holder(kind, client.ObjectKeyFromObject(r)) }
