// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// Engine runs the turns of all rollouts of one kind. Its memory may be lost at any time. That costs one more read or write.
type Engine struct {
	Kind     string
	Clock    clock.PassiveClock
	Client   client.Client
	Fleet    *fleet.Fleet
	Events   *events.Recorder
	Reports  *fleet.Reports
	mentions mentions
	// Waiting holds the rollouts that may continue after a change of a budget or a node. It also wakes a rollout when pods of its nodes change.
	Waiting *fleet.Waiters
	Retries *Retries

	// Drainer drains nodes, and Works holds the state of these drains.
	Drainer    *drain.Drainer
	Works      *Works
	followPods func(context.Context) error
	live       client.Reader // of the API server, not of the cache
	// admitted holds the spec with which each rollout was admitted last, by its name: see cacheShowsBudgets.
	admitted sync.Map
	// ended holds, by the name of the rollout, how long turns took that no written status counts.
	ended sync.Map
}

// NewEngine returns the engine of one kind of rollouts. It drains nodes with live, which reads past the cache and whose config comes from
// drain.NeverWait. It watches the pods of nodes in turns with pods.
func NewEngine(
	kind string, clk clock.PassiveClock, c client.Client, live drain.Client, pods typedcorev1.CoreV1Interface, f *fleet.Fleet, recorder *events.Recorder,
) *Engine {
	e := &Engine{
		Kind: kind, Clock: clk, Client: c, Fleet: f, Events: recorder,
		Reports: fleet.NewReports(fleet.StatusDelay), Waiting: &fleet.Waiters{}, Retries: NewRetries(clk, kind),
		Drainer: drain.New(clk, live), live: live,
	}
	watcher := drain.NewWatcher(pods, e.PodsChanged, e.podEnded)
	e.Works, e.followPods = NewWorks(watcher), watcher.Run
	return e
}

// PodsChanged wakes the rollout whose turn the node is in.
func (e *Engine) PodsChanged(node string) {
	if rollout, ok := e.Works.Changed(node); ok {
		e.Waiting.Wake(rollout)
	}
}

// podEnded records how long the pod took to end after the request to delete it.
func (e *Engine) podEnded(pod *corev1.Pod) {
	if end := pod.DeletionTimestamp; end != nil {
		began := end.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
		metrics.ObservePodEnd(e.Kind, max(0, e.Clock.Since(began)))
	}
}

// NewController returns the builder of a controller of this kind. Changes of rollouts, Nodes, drained pods and budgets wake rollouts; those of
// Nodes after a delay, to the rollouts that ofNode returns. The caller adds further watches, and completes the builder.
func (e *Engine) NewController(m ctrl.Manager, name string, threads int, rollouts client.Object, after time.Duration, ofNode MapFunc) (*builder.Builder, error) {
	if err := m.Add(manager.RunnableFunc(e.followPods)); err != nil {
		return nil, fmt.Errorf("following pods, %w", err)
	}
	return ctrl.NewControllerManagedBy(m).
		Named(name).
		For(rollouts, builder.WithPredicates(RolloutChanged)).
		Watches(rollouts, Created(e.Waiting)).
		Watches(&corev1.Node{}, Wake(e.Waiting, after, ofNode), builder.WithPredicates(NodeChanged)).
		WatchesRawSource(e.Waiting.Source(e.Fleet)).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(1, threads)}), nil
}

// Reconcile runs one pass of a rollout. It requeues the rollout for the time that the pass returns, or earlier after an error.
func (e *Engine) Reconcile(ctx context.Context, request ctrl.Request, pass func(context.Context, types.NamespacedName) (time.Time, error)) (ctrl.Result, error) {
	wake, err := pass(ctx, request.NamespacedName)
	result := e.Retries.Result(ctx, request.NamespacedName, wake, err)
	return e.Waiting.Prioritize(request.NamespacedName, result, err != nil && !apierrors.IsConflict(err)), nil
}

// Forget drops the metrics and the Events of a rollout that is gone, and that it waits, was admitted, and was in a wave.
func (e *Engine) Forget(key types.NamespacedName) {
	e.mentions.forget(key)
	e.Waiting.Set(key, false)
	e.Waiting.SetBusy(key, false)
	e.admitted.Delete(key)
	e.ended.Delete(key)
	metrics.Forget(metrics.Rollout{Kind: e.Kind, NamespacedName: key})
}

// Mechanism is how one kind of rollouts changes a node. The engine does the rest: claims, failures, soak, release, and the order.
type Mechanism[T nodeturn.Any] interface {
	// Strategy returns the rollout's strategy for this number of nodes. It is called before each decision.
	Strategy(total int) rollout.Strategy
	// Start returns the write that claims a node for its turn, also in StepAdopt. It is nil if the turn already has its claim.
	Start(T) *Write
	// Take performs a step that only this mechanism has.
	Take(context.Context, T) error
	// Soak, Finish, Fail and Release return what to write when a turn soaks, is done, has failed, or is no longer wanted. The engine
	// adds the claim, and uncordons a node that the turn cordoned; in Fail only with Restore.
	Soak(T) Write
	Finish(T) Write
	Fail(T) Write
	Release(T) Write
}

// Write is what a mechanism adds to a write to a turn's node.
type Write struct {
	// Claim and Cordon are only for Start. Without Cordon a later write cordons the node.
	Claim  v1alpha1.Claim
	Cordon bool
	// Restore is only for Fail.
	Restore bool
	Also    []node.Also
	// Version is what Finish brings the node to, for its Event; it may be empty. Unproven: the node may not run it, so that it gets no Event.
	Version  string
	Unproven bool
	// Then is called after the write. It may be nil.
	Then func()
}

func (w *Write) written() {
	if w.Then != nil {
		w.Then()
	}
}

// Pass is one reconcile of a rollout that exists.
type Pass[T nodeturn.Any] struct {
	*Engine
	Mechanism Mechanism[T]
	// Object is the rollout, for Events.
	Object client.Object
	Key    types.NamespacedName
	UID    types.UID
	// Holder is the rollout's name in claims.
	Holder string
	// Taint is the key of the taint of outdated nodes.
	Taint string
	// Generation is the rollout's generation. Options are the options of its drains.
	Generation int64
	Options    drain.Options
	// Deletes is true if the rollout deletes the machines of drained nodes.
	Deletes bool
	// Spec is the rollout's strategy, or nil.
	Spec  *v1alpha1.Strategy
	Turns []T
	Seen  fleet.Snapshot
	Now   time.Time
	// Decision is the result of rollout.Decide, after Start or Decide.
	Decision rollout.Decision
	// Wake is when to reconcile again, or zero.
	Wake time.Time
	// WaveUnstored is true if nodes wait until the status has their wave. Then it is written without a delay, and they start in the next pass.
	WaveUnstored bool

	// Pending are the Events to emit with the status.
	Pending []events.Event

	storedWave *v1alpha1.WaveStatus // as the status was read
	settled    bool                 // Steps were performed, so Seen is out of date.
	counts     bool                 // The order depends on the pods that a drain would evict.
	counted    int                  // How many of Engine.ended the status counts.
	mu         sync.Mutex           // guards Decision, Wake, Pending and Engine.ended while several nodes are written at once
}

// WakeAt requests a reconcile at this time. A zero time requests nothing.
func (p *Pass[T]) WakeAt(when time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Wake = rollout.Earlier(p.Wake, when)
}

// Happened adds an Event, which Report emits.
func (p *Pass[T]) Happened(e events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Pending = append(p.Pending, e)
}

// Settle performs the next step of each turn.
func (p *Pass[T]) Settle(ctx context.Context) error {
	var due []T
	for _, t := range p.Turns {
		b := t.Base()
		p.WakeAt(b.Wake)
		p.ExpectRecord(b.Node, b.Claim)
		if b.Step != nodeturn.StepNone {
			due = append(due, t)
		}
	}
	p.settled = p.settled || len(due) > 0
	return Each(due, func(t T) error {
		err := p.take(ctx, t)
		if err != nil && !apierrors.IsConflict(err) && apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Base().Trouble = "; " + nodeturn.Short(err.Error())
		}
		return err
	})
}

// ExpectRecord makes the record of evictions of a node count that the rollout holds by this claim, if a gate reads it.
func (p *Pass[T]) ExpectRecord(n *corev1.Node, claim *v1alpha1.Claim) {
	if claim != nil && !claim.RecordsResult() && p.Gated() {
		p.Fleet.ExpectRecord(n.Name)
	}
}

func (p *Pass[T]) take(ctx context.Context, t T) error {
	b := t.Base()
	switch b.Step {
	case nodeturn.StepFail:
		return p.Fail(ctx, t)
	case nodeturn.StepSoak:
		return p.soak(ctx, t)
	case nodeturn.StepFinish:
		return p.finish(ctx, t)
	case nodeturn.StepRelease:
		return p.Release(ctx, t)
	case nodeturn.StepAdopt:
		return p.claimNode(ctx, t)
	case nodeturn.StepUnmark:
		return p.Hold(ctx, t, *b.Claim) // Every write removes the mark of a cordon that is gone.
	case nodeturn.StepTaint:
		return node.Taint(ctx, p.Client, b.Node, p.Taint, true)
	case nodeturn.StepUntaint:
		return node.Taint(ctx, p.Client, b.Node, p.Taint, false)
	default:
		return p.Mechanism.Take(ctx, t)
	}
}

// Hold writes the claim, and further changes of the node.
func (p *Pass[T]) Hold(ctx context.Context, t T, claim v1alpha1.Claim, also ...node.Also) error {
	return p.WriteClaim(ctx, t, claim, node.Edit{Also: also})
}

// WriteClaim writes the claim with an edit. An edit that restores or cordons the node first clears the conditions of an earlier drain.
func (p *Pass[T]) WriteClaim(ctx context.Context, t T, claim v1alpha1.Claim, e node.Edit) error {
	b := t.Base()
	if e.Restore || e.Cordon {
		n, err := node.ClearConditions(ctx, p.Client, b.Node, p.Holder, p.Now)
		if err != nil {
			return err
		}
		b.Node = n
	}
	e.Claim = claim
	if err := node.Write(ctx, p.Client, b.Node, e); err != nil {
		return err
	}
	b.Claim = &claim
	b.Unit.Claimed = !claim.RecordsResult()
	return nil
}

// Fail records in the claim why the turn failed.
func (p *Pass[T]) Fail(ctx context.Context, t T) error {
	b := t.Base()
	claim, failure := *b.Claim, b.Failure
	claim.Failed = &failure
	claim.Failures++
	write := p.Mechanism.Fail(t)
	if err := p.WriteClaim(ctx, t, claim, node.Edit{Restore: write.Restore, Also: write.Also}); err != nil {
		// The failure is not recorded, so the node is shown as still updating. The next pass tries again.
		b.Unit.State, b.Unit.Since, b.Unit.Reason, b.Unit.Message, b.Unit.Skipped = v1alpha1.UnitUpdating, claim.Since.Time, "", "", false
		b.Message = failure.Message
		return err
	}
	b.Unit.RetryAt = nodeturn.RetryAt(p.Spec, b.Claim)
	log.FromContext(ctx).Info("node failed", "node", b.Node.Name, "reason", failure.Reason, "message", failure.Message)
	metrics.ObserveFailure(p.Name(), failure.Reason, failure.Time.Sub(claim.Since.Time))
	p.Happened(events.NodeUpdateFailed(b.Node.Name, p.Object, p.Holder, &failure))
	write.written()
	return nil
}

func (p *Pass[T]) soak(ctx context.Context, t T) error {
	b := t.Base()
	claim := *b.Claim
	claim.Soaking = &metav1.Time{Time: b.Unit.Since}
	write := p.Mechanism.Soak(t)
	if err := p.WriteClaim(ctx, t, claim, node.Edit{Restore: true, Also: write.Also}); err != nil {
		return err
	}
	write.written()
	return nil
}

func (p *Pass[T]) finish(ctx context.Context, t T) error {
	b := t.Base()
	claim := *b.Claim
	write := p.Mechanism.Finish(t)
	if err := p.release(ctx, b, write.Also); err != nil {
		return err
	}
	took := p.Now.Sub(claim.Since.Time)
	if claim.Failed == nil {
		p.turnEnded(took)
	}
	log.FromContext(ctx).Info("node updated", "node", b.Node.Name, "revision", claim.Revision, "took", took.String())
	b.Unit.State = v1alpha1.UnitUpdated
	if !write.Unproven {
		p.Happened(events.NodeUpdated(b.Node.Name, p.Object, p.Holder, write.Version, took))
	}
	write.written()
	return nil
}

// Release releases a node that the rollout no longer wants to change.
func (p *Pass[T]) Release(ctx context.Context, t T) error {
	b := t.Base()
	write := p.Mechanism.Release(t)
	if err := p.release(ctx, b, write.Also); err != nil {
		return err
	}
	log.FromContext(ctx).Info("node released", "node", b.Node.Name)
	b.Unit.State, b.Unit.InTurn = v1alpha1.UnitOutdated, false
	write.written()
	return nil
}

func (p *Pass[T]) release(ctx context.Context, b *nodeturn.Turn, also []node.Also) error {
	if err := Release(ctx, p.Client, b.Node, *b.Claim, p.Now, also); err != nil {
		return err
	}
	b.Claim, b.Message = nil, ""
	b.Unit.Claimed, b.Unit.Skipped, b.Unit.Reason, b.Unit.Message, b.Unit.RetryAt = false, false, "", "", time.Time{}
	return nil
}

// Start decides which nodes start, and claims them under the fleet's lock with a new snapshot. It returns the chosen turns, even if a claim failed.
func (p *Pass[T]) Start(ctx context.Context) ([]T, error) {
	p.Decide(p.Seen.Fleet)
	var err error
	if p.settled || slices.ContainsFunc(p.chosen(), func(t T) bool { return p.Mechanism.Start(t) != nil }) {
		if shown, err := p.cacheShowsBudgets(ctx); !shown {
			next := slices.DeleteFunc(p.chosen(), func(t T) bool { return p.Mechanism.Start(t) != nil })
			p.Decision.Start = nil
			if err == nil {
				p.WakeAt(p.Now.Add(fleet.Coalesce))
			}
			return next, err // Turns with a claim go on.
		}
		err = p.Fleet.Admit(ctx, func(now fleet.Snapshot) error {
			p.Now = p.Clock.Now() // The wait for the lock may be long.
			p.Decide(now.Fleet)
			if p.WaveUnstored = !p.waveIsStored(); p.WaveUnstored {
				return nil
			}
			return Each(p.chosen(), func(t T) error { return p.claimNode(ctx, t) })
		})
	}
	log.FromContext(ctx).V(1).Info("decided", "start", p.Decision.Start, "waiting", len(p.Decision.Waiting), "next", p.Decision.Next)
	p.WakeAt(p.Decision.Next)
	// After the decision: it may not include a change during the pass, and such a change must wake the rollout.
	p.Waiting.Set(p.Key, slices.ContainsFunc(p.Decision.Waiting, fleet.ForBudget))
	return p.chosen(), err
}

// waveIsStored reports whether the status that was read has the wave of the decision. A later wave is stored before its nodes start. Otherwise the next
// pass could take them for nodes of the wave before.
func (p *Pass[T]) waveIsStored() bool {
	w, stored := p.Decision.Wave, p.storedWave
	return w == nil || w.Number == 1 || stored != nil && stored.Number == w.Number && stored.Revision == w.Revision
}

// cacheShowsBudgets reports whether the cache shows each budget as it was when the rollout got its present spec. Otherwise a rollout that is
// applied together with its budget could claim nodes before the cache shows that budget. The API server is asked once for each spec. After a
// start of the process each ExtendedDaemonSet must also have found where it replaces pods, and pods that give the order must have been read.
func (p *Pass[T]) cacheShowsBudgets(ctx context.Context) (bool, error) {
	if p.counts && p.Fleet.ReadsPods() {
		log.FromContext(ctx).V(1).Info("the pods that a drain would evict are not counted yet")
		return false, nil
	}
	if !p.Fleet.KnowsReplaced(ctx) {
		log.FromContext(ctx).V(1).Info("it is not known yet where daemon pods are being replaced")
		return false, nil
	}
	spec := fmt.Sprintf("%s/%d", p.UID, p.Generation)
	if last, ok := p.admitted.Load(p.Key); ok && last == spec || p.Fleet.NoBudgets {
		return true, nil
	}
	var live metav1.PartialObjectMetadataList // There may be thousands.
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeDisruptionBudgetList"))
	if err := p.live.List(ctx, &live); err != nil {
		return false, fmt.Errorf("listing budgets, %w", err)
	}
	for i := range live.Items {
		if b := &live.Items[i]; p.Seen.Generations[b.UID] < b.Generation {
			log.FromContext(ctx).V(1).Info("the cache does not show a budget yet", "budget", b.Name)
			return false, nil
		}
	}
	p.admitted.Store(p.Key, spec)
	return true, nil
}

// Decide decides which nodes start in this fleet.
func (p *Pass[T]) Decide(f rollout.Fleet) {
	units, total := nodeturn.Units(p.Turns)
	s := p.Mechanism.Strategy(total)
	p.storedWave = s.Wave
	p.counts = slices.ContainsFunc(s.Order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst })
	if p.counts {
		f.Evictions = p.Fleet.CountEvictions(f.Nodes)
	}
	p.Decision = rollout.Decide(s, units, f, p.Now)
}

// chosen returns the turns that the decision starts.
func (p *Pass[T]) chosen() []T {
	if len(p.Decision.Start) == 0 {
		return nil
	}
	names := make(map[string]bool, len(p.Decision.Start))
	for _, name := range p.Decision.Start {
		names[name] = true
	}
	chosen := make([]T, 0, len(names))
	for _, t := range p.Turns {
		if b := t.Base(); b.Unit.State != v1alpha1.UnitUpdated && names[b.Unit.Node] {
			chosen = append(chosen, t)
		}
	}
	return chosen
}

// claimNode claims the node of a turn, unless the turn already has its claim.
func (p *Pass[T]) claimNode(ctx context.Context, t T) error {
	b, write := t.Base(), p.Mechanism.Start(t)
	if write == nil {
		return nil
	}
	if err := p.WriteClaim(ctx, t, write.Claim, node.Edit{Cordon: write.Cordon, Also: write.Also}); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		lost := rollout.Wait{Node: b.Unit.Node, Reason: v1alpha1.ReasonClaimLost, Message: err.Error()}
		p.Decision.Waiting = slices.Insert(p.Decision.Waiting, 0, lost)
		return err
	}
	b.Unit.State, b.Unit.Since, b.Unit.Reason, b.Unit.Message = v1alpha1.UnitUpdating, write.Claim.Since.Time, "", ""
	b.Unit.InTurn, b.Unit.Skipped, b.Message = false, false, ""
	log.FromContext(ctx).Info("node claimed", "node", b.Node.Name, "revision", write.Claim.Revision, "cordoned", write.Cordon)
	write.written()
	return nil
}

// Name is the rollout's name in metrics.
func (p *Pass[T]) Name() metrics.Rollout { return metrics.Rollout{Kind: p.Kind, NamespacedName: p.Key} }

// Release removes the claim from the node, and uncordons the node if the turn cordoned it. It clears the maintenance conditions first,
// because nothing clears them once the claim is gone.
func Release(ctx context.Context, c client.Client, n *corev1.Node, claim v1alpha1.Claim, now time.Time, also []node.Also) error {
	n, err := node.ClearConditions(ctx, c, n, claim.Rollout, now)
	if err == nil {
		err = node.Write(ctx, c, n, node.Edit{Claim: claim, Release: true, Restore: true, Also: also})
	}
	return client.IgnoreNotFound(err)
}

// Clear removes from all Nodes the claims of a deleted rollout, or of an earlier one with the same name. current is the UID of the current rollout.
// If it is empty, Clear also removes the taint, and marks without a claim. Claims that name a machine belong to replacements, and stay.
func (e *Engine) Clear(
	ctx context.Context, holder, taint string, current types.UID, s *fleet.Snapshot, release func(*corev1.Node, v1alpha1.Claim) error,
) []error {
	var errs []error
	for _, n := range s.Objects {
		known := s.Nodes[n.Name]
		left := slices.IndexFunc(known.Claims, func(c v1alpha1.Claim) bool { return c.Rollout == holder && c.UID != current && c.Machine == "" })
		marked := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case current == "" && nodeturn.Tainted(n, taint):
			errs = append(errs, node.Taint(ctx, e.Client, n, taint, false)) // This write wakes the rollout. Its next pass releases the claim.
		case left >= 0:
			errs = append(errs, release(n, known.Claims[left]))
		case current == "" && marked && known.ClaimError == "":
			errs = append(errs, release(n, v1alpha1.Claim{Rollout: holder}))
		}
	}
	return errs
}
