// SPDX-License-Identifier: Apache-2.0

// Package replacement carries out NodeRollouts with replacement: it adds machines to scale sets, drains the nodes of others, and deletes these.
//
// A reconcile is one pass over what the caches show and what the clouds have said lately:
//
//	read      the NodeRollout, as it was written last                       controller.go, memory.go
//	resolve   what its spec comes to                                        resolve.go
//	look      the scale sets, and how operations stand                      look.go, sets.go
//	judge     what each turn needs next (package internal/replacement)      units.go, adopt.go
//	decide    who goes next (package rollout), and claim those              decide.go
//	order     what clouds are asked for: prepared, and written down         operations.go
//	settle    do all that: send, cordon, drain, leave, delete, release      apply.go, operations.go
//	report    one status write, then Events                                 status.go
//
// # A NodeRollout that is being deleted takes back what it has begun            leave.go
//
// All memory is in the API: turns and operations in the status, which is written with a lock before anything is sent, and the claim on the Node.
// What this process remembers besides costs another look to find out again.
package replacement

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
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts/status,verbs=patch
// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts/finalizers,verbs=update
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,namespace=kube-system,resourceNames=kubeadm-config,verbs=get;patch
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Plane is a control plane that nodes leave; controlplane.Plane is one.
type Plane interface {
	Leavable(ctx context.Context, leaving []string) (n int, why string, err error)
	MayLeave(ctx context.Context, node string, o controlplane.Options) (why string, err error)
	Leave(ctx context.Context, node string, o controlplane.Options) (done bool, message string, err error)
	Joined(ctx context.Context, node string) (why string, err error)
	SetVersion(ctx context.Context, version string, older bool) error
}

// Options are the controller's settings.
type Options struct {
	// NodeName is the node that the controller runs on, which goes last; empty when it runs outside of the cluster.
	NodeName string
	// Threads is how many NodeRollouts are reconciled at once. Default 1.
	Threads int
	// Clouds gives the cloud that a NodeRollout is for. It is called often, and gives the same one for the same provider.
	Clouds func(ctx context.Context, provider *v1alpha1.CloudProvider) (cloud.Cloud, error)
	// Plane is the control plane of the cluster. Without one, no node of it is replaced.
	Plane Plane
}

// Controller reconciles NodeRollouts with replacement.
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
	works   *turnof.Works
	woken   *turnof.Bell
	retries *turnof.Retries
	memory  *memory
}

// podWatcher follows the pods of the nodes that are worked on; drain.Watcher does.
type podWatcher interface {
	Run(ctx context.Context) error
	turnof.PodsOfNodes
}

// NewController returns a controller of NodeRollouts with replacement; SetupWithManager makes it run. It drains by a client that reads past the cache,
// made from a config that drain.NeverWait has passed, and follows the pods of the nodes that it drains by the other.
func NewController(clk clock.PassiveClock, c client.Client, live drain.Client, pods typedcorev1.PodsGetter, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	r := &Controller{
		clock: clk, client: c, drainer: drain.New(clk, live), fleet: f, events: recorder, options: o,
		reports: fleet.NewReports(), waves: fleet.NewWaves(), queued: fleet.NewWaiters(), woken: &turnof.Bell{}, retries: turnof.NewRetries(clk, turnof.Kind),
		memory: newMemory(),
	}
	f.AlsoCounts(r.absent)
	r.pods = drain.NewWatcher(pods, r.podsChanged)
	r.works = turnof.NewWorks(r.pods)
	return r
}

// podsChanged wakes the rollout whose turn the node is in.
func (c *Controller) podsChanged(node string) {
	if rollout, ok := c.works.Changed(node); ok {
		c.woken.Ring(rollout)
	}
}

// Reconcile brings one NodeRollout a step further. It comes back by itself when the clock alone calls for it, and after an error no
// later than that: what fails on one node or in one scale set keeps no other waiting.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	key := request.NamespacedName
	wake, err := c.reconcile(ctx, key)
	return c.retries.Result(ctx, key, wake, err), nil
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	stored, err := turnof.Get(ctx, c.client, key)
	if err != nil {
		return wake, err
	}
	if stored == nil || !turnof.Replaces(stored) {
		return wake, c.forget(ctx, key, stored)
	}
	m := c.memory.of(key, stored.GetUID())
	stored = c.memory.newest(key, stored).DeepCopy()
	r, malformed, err := turnof.Decode(stored)
	if err != nil {
		return wake, err
	}
	now := c.clock.Now()
	// What changes from here on is not in the snapshot, so the rollout must be told of it until it is known to wait for nothing.
	c.queued.Set(key, true)
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	p := &pass{Controller: c, memo: m, prepared: map[string]bool{}, stored: stored, before: turnof.StatusOf(stored), now: now, key: key, snapshot: s}
	p.world, p.problem = c.resolve(r, malformed)
	errs := []error{c.clear(ctx, key, r.UID, s)}
	if p.ready {
		errs = append(errs, p.carryOut(ctx))
	} else {
		c.queued.Done(key)
	}
	c.works.Keep(key, p.working())
	errs = append(errs, p.report(ctx))
	if p.gone {
		return p.wake, turnof.First(errs)
	}
	return p.wake, turnof.First(append(errs, p.leave(ctx)))
}

// pass is one reconcile of a NodeRollout.
type pass struct {
	*Controller
	*world
	memo     *memo
	stored   *unstructured.Unstructured
	before   v1alpha1.NodeRolloutStatus
	snapshot fleet.Snapshot
	key      types.NamespacedName
	now      time.Time
	problem  error // why the spec can't be carried out
	view     *machine.World
	api      cloud.Cloud // nil where it can't be had
	turns    []*machine.Turn
	nodes    []machine.NodeState
	orders   []order
	prepared map[string]bool // operations that are written down in this pass
	decision rollout.Decision
	// alone counts the nodes that are selected and of no scale set, and blind says why not all is known.
	alone        int
	blind        v1alpha1.Reason
	blindMessage string
	gone         bool              // the NodeRollout is
	leaving      map[string]string // the nodes that are on their way out of the control plane, by turn
	happened     []events.Event
	// restored is told of images that have been put back, once that is written down.
	restored []events.Event
	mu       sync.Mutex // guards what is written for several turns at once: happened, decision, wake, and the status
	wake     time.Time
}

// carryOut takes everything as far as it gets now.
func (p *pass) carryOut(ctx context.Context) error {
	errs := []error{p.look(ctx)}
	p.gather()
	if err := p.refuseAmbiguity(ctx); err != nil {
		return turnof.First(append(errs, err)) // Whether another NodeRollout is for the same scale sets is not known.
	}
	errs = append(errs, p.adopt(ctx))
	p.ask(ctx)
	p.judge()
	p.putBack(ctx)
	if p.problem == nil {
		errs = append(errs, p.start(ctx))
		p.rollBack()
	} else {
		p.queued.Done(p.key) // What is in a turn goes on without a strategy; nothing is claimed or begun.
	}
	p.order(ctx)
	if err := p.write(ctx); err != nil {
		// Nothing of what was decided is known to anybody: it is decided again.
		return turnof.First(append(errs, err))
	}
	p.memo.keep(p.turns)
	p.suspend(ctx)
	return turnof.First(append(errs, p.settle(ctx), p.send(ctx)))
}

// atLeast is how long a pass waits whose instant to come back at is past already.
const atLeast = time.Second

// at notes an instant to come back at. One that is past comes soon, and not at once: what waits for it would be looked at again and again.
func (p *pass) at(when time.Time) {
	if !when.IsZero() && !when.After(p.now) {
		when = p.now.Add(atLeast)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !when.IsZero() && (p.wake.IsZero() || when.Before(p.wake)) {
		p.wake = when
	}
}

// soon comes back at once: what was done has changed what is to be done.
func (p *pass) soon() { p.at(p.now.Add(fleet.Coalesce)) }

// happens notes an Event, to be written after the status.
func (p *pass) happens(e events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.happened = append(p.happened, e)
}

// working are the nodes that this process remembers something of: those of turns that go on.
func (p *pass) working() map[string]bool {
	nodes := map[string]bool{}
	for _, t := range p.turns {
		if !t.Over {
			nodes[t.Node], nodes[t.ReplacementNode] = true, true
		}
	}
	return nodes
}

func (p *pass) name() metrics.Rollout {
	return metrics.Rollout{Kind: turnof.Kind, NamespacedName: p.key}
}

func holder(r *v1alpha1.NodeRollout) string {
	return node.Holder(turnof.Kind, client.ObjectKeyFromObject(r))
}
