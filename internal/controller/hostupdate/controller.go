// SPDX-License-Identifier: Apache-2.0

// Package hostupdate carries out NodeRollouts with hostUpdate: it orders the agents of hosts, a few at a time, to update and to reboot.
//
// A reconcile is one pass over what the caches show:
//
//	gather    the NodeRollout, decoded by itself, so that an invalid one harms no other; its spec; the nodes
//	judge     each node's state, and what its turn needs next               package kind/hostupdate
//	settle    take that step of each turn                                   package turn, mechanism.go, orders.go
//	start     choose the next nodes, and claim them                         package turn
//	report    one status write, then Events                                 status.go
//
// A turn on one Node. Each line is one write of the operator:
//
//	claim, prepare-update     the host fetches the update
//	perform-update            and boots into it next
//	label before-reboot       if the rollout has hooks
//	cordon                    pods are evicted after this, in the same pass
//	rollback-update           in place of the first two orders, where the rollout goes back: the host boots its other partitions next
//	reboot-update             with the boot id that the node has
//	changed, after-reboot     if the node is not healthy at once, or the rollout has hooks
//	soak                      uncordoned, if the rollout has a soak
//	release, stabilize        uncordoned; the host looks for updates again, unless it found none after the reboot
//
// All state is in the API: the turn in the claim on the Node, orders and answers in the Node's annotations. The process also caches the
// pods and drains of turns (turn.Works). A new process reads them again.
package hostupdate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts,verbs=list;watch
// +kubebuilder:rbac:groups=moult.dev,resources=noderollouts/status,verbs=patch
// +kubebuilder:rbac:groups=moult.dev,resources=nodedisruptionbudgets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=volumeattachments,verbs=list
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Options are the controller's settings.
type Options struct {
	// NodeName is the node that the controller runs on. It is updated last. Empty when the controller runs outside of the cluster.
	NodeName string
	// Threads is how many NodeRollouts are reconciled at once. Default 1.
	Threads int
	// RequirePolicy reports in the status if the policy of the agents is missing.
	RequirePolicy bool
}

// Controller reconciles NodeRollouts.
type Controller struct {
	*turn.Engine
	options Options
	policy  policyLook
}

// NewController returns a controller of NodeRollouts; SetupWithManager makes it run. See turn.NewEngine for the clients.
func NewController(clk clock.PassiveClock, c client.Client, live drain.Client, pods typedcorev1.CoreV1Interface, f *fleet.Fleet, recorder *events.Recorder, o Options) *Controller {
	h := &Controller{Engine: turn.NewEngine(turn.Kind, clk, c, live, pods, f, recorder), options: o}
	if o.RequirePolicy {
		h.policy.reader = live
	}
	return h
}

// Reconcile brings one NodeRollout a step further.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return c.Engine.Reconcile(ctx, request, c.reconcile)
}

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (wake time.Time, err error) {
	stored, err := turn.Get(ctx, c.Client, key, turn.Object())
	if err != nil {
		return wake, err
	}
	if stored == nil || stored.GetDeletionTimestamp() != nil || turn.Replaces(stored) {
		return c.releaseAll(ctx, key, stored)
	}
	if refused, err := c.Refuses(ctx, key, stored); refused {
		return wake, err
	}
	r, malformed, err := turn.Decode(stored)
	if err != nil {
		return wake, err
	}
	before := r.Status.DeepCopy()
	// A change after this line may be missing in the snapshot. So every change wakes the rollout until it is known to wait for nothing.
	c.Waiting.Set(key, true)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	p := c.newPass(r, malformed, s)
	left, err := c.clear(ctx, key, r.UID, s)
	p.WakeAt(left)
	errs := []error{err, p.labelNodes(ctx, s.Objects), p.Settle(ctx)}
	if p.problem == nil {
		_, err := p.Start(ctx)
		r.Status.Wave = p.Decision.Wave
		p.rollBack()
		errs = append(errs, err)
	} else {
		c.Waiting.Set(key, false)
	}
	p.WatchPods(p.needsPods)
	c.reportPolicy(ctx, r, p.Now)
	errs = append(errs, p.report(ctx, stored, before))
	return p.Wake, turn.First(errs)
}

// newPass judges the turns of a rollout.
func (c *Controller) newPass(r *v1alpha1.NodeRollout, malformed error, s fleet.Snapshot) *pass {
	key := client.ObjectKeyFromObject(r)
	w, problem := hostupdate.NewWorld(r, malformed)
	w.Fleet, w.OwnNode, w.Now = s.Fleet, c.options.NodeName, c.Clock.Now()
	w.Pods = func(t *hostupdate.Unit) ([]corev1.Pod, bool) {
		return c.Works.Pods(turn.ID{Rollout: key, Node: t.Node.Name, Turn: t.Claim.Turn})
	}
	options, _ := drain.OptionsOf(r.Spec.Drain) // NewWorld has refused a selector that can't be read.
	p := &pass{w: w, problem: problem}
	p.Pass = &turn.Pass[*hostupdate.Unit]{
		Engine: c.Engine, Mechanism: hosts{p}, Key: key, UID: r.UID, Holder: w.Holder, Taint: w.Taint,
		Object: r, Generation: r.Generation, Options: options, Spec: r.Spec.Strategy, Turns: w.Units(s.Objects), Seen: s, Now: w.Now,
	}
	return p
}

// needsPods reports whether the turn's node must have healthy pods, as spec.health asks, before the turn ends.
func (p *pass) needsPods(t *hostupdate.Unit) bool {
	h := p.w.Rollout.Spec.Health
	return h != nil && len(h.Pods) > 0 && (t.Claim.Failed == nil || t.Claim.Changed != nil)
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	own := func(r *unstructured.Unstructured) bool { return !turn.Replaces(r) }
	b, err := c.NewController(m, "noderollout.hostupdate", c.options.Threads, turn.Object(),
		20*time.Millisecond, turn.RolloutsOfNode(c.Client, turn.GroupVersionKind, "", own)) // Turns have many short steps.
	if err != nil {
		return err
	}
	return b.Complete(c)
}

// releaseAll releases the nodes of a NodeRollout that is deleted, or that now uses replacement. Changes of nodes do not wake the latter.
func (c *Controller) releaseAll(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) (wake time.Time, err error) {
	live := types.UID("")
	if stored != nil && turn.Replaces(stored) {
		live = stored.GetUID()
		c.Waiting.Set(key, false)
	} else {
		c.Forget(key)
		metrics.ForgetNodeRollout(key)
	}
	c.Works.StopExcept(key, nil)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	return c.clear(ctx, key, live, s)
}

// clear releases the nodes of an earlier NodeRollout of this name. live is the uid of the present one. While hosts still reboot, wake is when
// the wait for the first of them ends.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) (wake time.Time, err error) {
	errs := c.Clear(ctx, hostupdate.HolderOf(key.Name), v1alpha1.TaintOutdated("noderollout", key.Name), live, &s, func(n *corev1.Node, claim v1alpha1.Claim) error {
		at, err := c.releaseWhenBack(ctx, n, claim)
		wake = rollout.Earlier(wake, at)
		return err
	})
	return wake, turn.First(errs)
}

// releaseWhenBack releases a node whose rollout is gone. While its host reboots, it instead returns when the wait for the host ends.
func (c *Controller) releaseWhenBack(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim) (wake time.Time, err error) {
	if phase, since := hostupdate.PhaseOf(&claim); phase == v1alpha1.PhaseChanging && claim.Failed == nil && !hostupdate.IsBack(n, &claim) {
		if deadline := since.Add(hostupdate.DefaultRebootTimeout); c.Clock.Now().Before(deadline) {
			return deadline, nil
		}
	}
	if err := turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), endOrders(n, claim.UID, v1alpha1.RebootHooks{})); err != nil {
		return wake, err
	}
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return wake, nil
}
