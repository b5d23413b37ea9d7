// SPDX-License-Identifier: Apache-2.0

// Package hostupdate carries out NodeRollouts with hostUpdate: it tells the agents of hosts, a few at a time, to update and to reboot.
//
// A reconcile is one pass over what the caches show:
//
//	read      the NodeRollout, one by one decoded, so that a bad one harms no other
//	resolve   its spec                                                      resolve.go
//	gather    the nodes, and what each says of its host                     units.go, memo.go
//	judge     each node's state, and what its turn needs next               units.go, turn.go, verify.go, claim.go
//	settle    do that                                                       package turn, mechanism.go, words.go, drain.go
//	start     decide who goes next, and claim those nodes                   package turn, mechanism.go
//	ask again hosts that are not started, for what other hosts offer        controller.go
//	report    one status write, then Events                                 status.go
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
	*turn.Engine
	drainer *drain.Drainer
	pods    podWatcher
	options Options
	memos   *memos
	works   *turn.Works
	asked   *backoffs
	woken   *turn.Bell
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
		Engine: turn.NewEngine(kind, clk, c, f, recorder), drainer: drain.New(clk, live), options: o,
		memos: newMemos(), asked: newBackoffs(), woken: &turn.Bell{},
	}
	r.pods = drain.NewWatcher(pods, r.podsChanged)
	r.works = turn.NewWorks(r.pods)
	return r
}

// Reconcile brings one NodeRollout a step further.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return c.Engine.Reconcile(ctx, request, c.reconcile)
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	r, stored, malformed, err := c.read(ctx, key)
	if err != nil {
		return wake, err
	}
	if r != nil && turn.Replaces(stored) {
		return c.leaveOut(ctx, key, r.UID)
	}
	// From here on a change may not be in the snapshot. It wakes the rollout until the rollout is known to wait for nothing.
	c.Waiting.Set(key, true)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	if r == nil {
		c.Forget(key)
		c.memos.forget(key)
		c.works.Keep(key, nil)
		metrics.ForgetNodeRollout(key)
		return c.clear(ctx, key, "", s)
	}
	w, problem := c.resolve(r, malformed)
	w.fleet, w.memo, w.now = s.Fleet, c.memos.of(key), c.Clock.Now()
	p := c.newPass(w, problem, s)
	left, err := c.clear(ctx, key, r.UID, s)
	p.WakeAt(left)
	errs := []error{err, labelNodes(ctx, c.Client, w, s.Objects), p.Settle(ctx, func(t *unit) bool { return !t.again })}
	if problem == nil {
		_, err := p.Start(ctx)
		r.Status.Wave = p.Waves.Keep(key, r.UID, p.Decision.Wave)
		errs = append(errs, err)
	} else {
		c.Waiting.Done(key)
	}
	c.works.Keep(key, p.working())
	errs = append(errs,
		p.Settle(ctx, isAskedAgain),
		p.report(ctx, stored))
	return p.Wake, turn.First(errs)
}

// isAskedAgain reports whether the host is only asked for what others offer, and was not started with what it has.
func isAskedAgain(t *unit) bool { return t.again && (t.Claim == nil || t.Claim.Failed != nil) }

// newPass judges the turns of a rollout.
func (c *Controller) newPass(w *world, problem error, s fleet.Snapshot) *pass {
	p := &pass{world: w, controller: c, problem: problem}
	p.Pass = &turn.Pass[*unit]{
		Engine: c.Engine, Mechanism: hosts{p}, Key: client.ObjectKeyFromObject(w.rollout), UID: w.rollout.UID, Holder: w.holder, Taint: w.taint,
		Spec: w.rollout.Spec.Strategy, Turns: units(w, s), Seen: s, Now: w.now,
	}
	return p
}

// leaveOut gives back what a NodeRollout had that was of the same name as one with a replacement, which is for another controller. Of that, no change of
// other nodes comes here: it says itself when it is to be looked at again.
func (c *Controller) leaveOut(ctx context.Context, key types.NamespacedName, live types.UID) (wake time.Time, err error) {
	c.Waiting.Done(key)
	c.works.Keep(key, nil)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	return c.clear(ctx, key, live, s)
}

// read gets a NodeRollout. One that is being deleted is gone; one with a replacement is for another controller.
func (c *Controller) read(ctx context.Context, key types.NamespacedName) (r *v1alpha1.NodeRollout, stored *unstructured.Unstructured, malformed, err error) {
	stored, err = turn.Get(ctx, c.Client, key)
	if err != nil || stored == nil {
		return nil, nil, nil, err
	}
	if stored.GetDeletionTimestamp() != nil && !turn.Replaces(stored) {
		return nil, nil, nil, nil
	}
	r, malformed, err = turn.Decode(stored)
	return r, stored, malformed, err
}

// working are the nodes that this process remembers something of: those of turns that go on, or that failed and whose nodes are to become well.
func (p *pass) working() map[string]bool {
	nodes := map[string]bool{}
	for _, t := range p.Turns {
		if t.Claim != nil && (t.Claim.Failed == nil || t.Claim.Changed != nil) {
			nodes[t.Node.Name] = true
		}
	}
	return nodes
}

func holder(r *v1alpha1.NodeRollout) string { return node.Holder(kind, client.ObjectKeyFromObject(r)) }
