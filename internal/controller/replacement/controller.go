// SPDX-License-Identifier: Apache-2.0

// Package replacement carries out NodeRollouts with replacement: it adds machines to scale sets, drains the nodes of old machines, and deletes these.
//
// A reconcile is one pass over the caches and the latest answers of the clouds:
//
//	read      the NodeRollout                                               controller.go
//	resolve   its spec                                                      resolve.go
//	look      at the scale sets, and at operations                   look.go, sets.go
//	judge     what each turn needs next (package kind/replacement), and     units.go, controlplane.go
//	          drain nodes and delete Nodes, so that their turns go on
//	decide    who is next (package rollout), and claim them                 decide.go
//	order     prepare operations for the clouds                             operations.go
//	write     turns and operations into the status                          status.go
//	settle    act: send, cordon, leave, release                             apply.go, operations.go
//	report    pending Events, one status write, its Events                  status.go
//
// A NodeRollout that is being deleted ends its turns first (leave.go).
//
// All state is in the API: claims on Nodes, and turns and operations in the status. The status is written with optimistic locking before anything is
// sent. Other state of this process is read again after a restart.
package replacement

import (
	"cmp"
	"context"
	"errors"
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
	"moult.dev/moult/internal/node"
	turnof "moult.dev/moult/internal/turn"
)

// These are the rights that only replacement needs. It shares the others with package hostupdate.
// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;delete

// Plane is a control plane that nodes leave; controlplane.Plane is one.
type Plane interface {
	Leavable(ctx context.Context) (why string, err error)
	MayLeave(ctx context.Context, node string, o controlplane.Options) (why string, err error)
	Leave(ctx context.Context, node string, o controlplane.Options) (done bool, message string, err error)
	Joined(ctx context.Context, node string) (why string, err error)
	SetVersion(ctx context.Context, version string, older bool) error
}

// Options are the controller's settings.
type Options struct {
	// NodeName is the node that the controller runs on, which is replaced last; empty if it runs outside of the cluster.
	NodeName string
	// Threads is how many NodeRollouts are reconciled at once. Default 1.
	Threads int
	// Clouds returns the cloud of a NodeRollout. It is called often, and returns the same one for the same provider.
	Clouds func(ctx context.Context, provider *v1alpha1.CloudProvider) (cloud.Cloud, error)
	// Plane is the control plane of the cluster.
	Plane Plane
}

// Controller reconciles NodeRollouts with replacement.
type Controller struct {
	*turnof.Engine
	options Options
	// memos are what this process remembers of NodeRollouts, by their names.
	memos sync.Map
}

// NewController returns a controller of NodeRollouts with replacement; SetupWithManager makes it run. See turn.NewEngine for the clients.
func NewController(clk clock.PassiveClock, c client.Client, live drain.Client, pods typedcorev1.CoreV1Interface, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	r := &Controller{Engine: turnof.NewEngine(turnof.Kind, clk, c, live, pods, f, recorder), options: o}
	f.AlsoCounts(r.absent)
	return r
}

// Reconcile advances one NodeRollout. A failure on one node or in one scale set delays no other.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return c.Engine.Reconcile(ctx, request, c.reconcile)
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	stored, err := turnof.Get(ctx, c.Client, key, turnof.Object())
	if err != nil {
		return wake, err
	}
	if stored == nil || !turnof.Replaces(stored) {
		return wake, c.forget(ctx, key, stored)
	}
	if refused, err := c.Refuses(ctx, key, stored); refused {
		return wake, err
	}
	if now := c.Clock.Now(); c.Reports.IsStale(stored.GetUID(), stored.GetResourceVersion(), now) {
		// It may list operations that were withdrawn, and they must not be sent. Budgets read absent Nodes from it.
		return now.Add(fleet.Coalesce / 5), nil
	}
	// Later changes may be missing from the snapshot. They wake the rollout until it is known to wait for nothing.
	c.Waiting.Set(key, true)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	p, err := c.newPass(key, stored, s)
	if err != nil {
		return wake, err
	}
	errs := []error{c.releaseStaleClaims(ctx, key, p.UID, s)}
	if p.ready {
		errs = append(errs, p.carryOut(ctx))
	} else {
		c.Waiting.Set(key, false)
	}
	c.Works.StopExcept(key, p.watchedNodes())
	errs = append(errs, p.report(ctx))
	if !p.unwritten {
		errs = append(errs, p.removeFinalizer(ctx))
	}
	return p.Wake, turnof.First(errs)
}

// pass is one reconcile of a NodeRollout.
type pass struct {
	*turnof.Pass[*unit]
	*settings
	options      Options
	memo         *memo
	stored       *unstructured.Unstructured
	before       v1alpha1.NodeRolloutStatus // the status that this pass began with
	written      v1alpha1.NodeRolloutStatus // the status of stored
	problem      error                      // why the spec can't be carried out
	world        *machine.World
	api          cloud.Cloud // nil where there is none
	machineTurns []*machine.Turn
	nodes        []*machine.NodeState
	orders       []machine.Batch
	prepared     map[string]bool         // operations that were ordered in this pass
	others       []*v1alpha1.NodeRollout // that may be for the same machines
	// unmatched counts the selected nodes that are in no scale set. unreadable says why some scale sets are not known.
	unmatched         int
	unreadable        v1alpha1.Reason
	unreadableMessage string
	unwritten         bool       // the status could not be written
	mu                sync.Mutex // guards the memory while several nodes and scale sets are written at once
}

func (c *Controller) newPass(key types.NamespacedName, stored *unstructured.Unstructured, s fleet.Snapshot) (*pass, error) {
	r, malformed, err := turnof.Decode(stored)
	if err != nil {
		return nil, err
	}
	p := &pass{options: c.options, memo: c.memo(key, stored.GetUID()), stored: stored, before: *r.Status.DeepCopy(), prepared: map[string]bool{}}
	p.written = p.before
	p.settings, p.problem = resolve(r, malformed)
	p.Pass = &turnof.Pass[*unit]{
		Engine: c.Engine, Mechanism: mechanism{pass: p}, Key: key, UID: r.UID, Holder: node.Holder(turnof.Kind, key), Taint: v1alpha1.TaintOutdated("noderollout", r.Name), Spec: r.Spec.Strategy, Seen: s, Now: c.Clock.Now(),
		Object: r, Generation: r.Generation, Options: p.drain, Deletes: true,
	}
	return p, nil
}

// carryOut advances everything as far as possible now.
func (p *pass) carryOut(ctx context.Context) error {
	p.look(ctx)
	p.gather()
	if err := p.readOthers(ctx); err != nil {
		p.unwritten = true // Nothing is judged: another NodeRollout may be for the same scale sets.
		return err
	}
	p.problem = cmp.Or(p.problem, p.ambiguity())
	errs := []error{p.adopt(ctx)}
	p.askPlane(ctx)
	errs = append(errs, p.judge(ctx))
	p.recordRollbacks(ctx)
	if p.problem == nil {
		errs = append(errs, p.start(ctx))
		p.rollBack()
	} else {
		p.Waiting.Set(p.Key, false) // Turns go on without a strategy. None begins, and no old node is newly claimed.
	}
	p.order(ctx)
	if err := p.write(ctx); err != nil {
		return turnof.First(append(errs, err)) // The next pass decides anew.
	}
	if len(p.machineTurns) == 0 {
		clear(p.memo.left)
	}
	p.suspend(ctx)
	p.send(ctx)
	p.Turns = p.units()
	errs = append(errs, p.Settle(ctx))
	return turnof.First(errs)
}

// atLeast is the delay of a next pass whose time is already past.
const atLeast = time.Second

// at schedules the next pass at this time. A time that is past becomes atLeast from now: otherwise passes would repeat without end.
func (p *pass) at(when time.Time) {
	if !when.IsZero() && !when.After(p.Now) {
		when = p.Now.Add(atLeast)
	}
	p.WakeAt(when)
}

// soon schedules the next pass at once: this pass has changed what comes next.
func (p *pass) soon() { p.WakeAt(p.Now.Add(fleet.Coalesce)) }

// watchedNodes are the nodes of turns that are not over, except old ones that wait for their claim: that may take days.
func (p *pass) watchedNodes() map[string]bool {
	nodes := map[string]bool{}
	for _, t := range p.machineTurns {
		if !t.Over {
			nodes[t.Node] = nodes[t.Node] || t.Phase != v1alpha1.MachineClaiming
			nodes[t.ReplacementNode] = true
		}
	}
	return nodes
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	// Most reconciles wait for a cloud.
	b, err := c.NewController(m, "noderollout.replacement", 4*c.options.Threads, turnof.Object(),
		fleet.Coalesce, turnof.RolloutsOfNode(c.Client, turnof.GroupVersionKind, "", turnof.Replaces))
	if err != nil {
		return err
	}
	return errors.Join(m.GetFieldIndexer().IndexField(ctx, turnof.Object(), indexMachines, indexedByMachines), b.Complete(c))
}

// memo is what this process remembers of a NodeRollout. A NodeRollout has only one reconcile at a time.
type memo struct {
	uid types.UID
	// places are the scale sets of machines, by provider id, or "" for a machine of none. found is when the cloud was last asked for them.
	places map[string]string
	found  time.Time
	sets   map[string]*set
	// trouble delays the next attempt to find scale sets.
	trouble trouble
	// left are the nodes of turns that have left the control plane.
	left map[string]bool
}

// memo returns a NodeRollout's memo.
func (c *Controller) memo(key types.NamespacedName, uid types.UID) *memo {
	known, _ := c.memos.Load(key)
	if m, ok := known.(*memo); ok && m.uid == uid {
		return m
	}
	m := &memo{uid: uid, places: map[string]string{}, sets: map[string]*set{}, left: map[string]bool{}}
	c.memos.Store(key, m)
	return m
}
