// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// Drain drains the node of one turn.
type Drain struct {
	*Engine
	Options drain.Options
	// Turn names the turn. Generation is the generation of its rollout.
	Turn       ID
	Generation int64
	// Holder is the rollout's name in claims.
	Holder string
	Now    time.Time
	// Deletes is true if the node's machine, and then its Node, are deleted after the drain. On a dead node no kubelet ends pods. The drain
	// does not wait for them, because they end with the machine.
	Deletes bool
	// Gated is true if a budget has a workloads gate. The gate needs the record of evictions, and the condition Drained.
	Gated bool
}

// A node that is not ready for deadAfter counts as dead. Its drain waits for a pod for at most overdue after the pod's grace period.
const (
	deadAfter = time.Minute
	overdue   = 30 * time.Second
)

// isDead reports whether the node counts as dead. at is when a node that is not ready will count as dead. Without Deletes
// no node does.
func (d *Drain) isDead(n *corev1.Node) (dead bool, at time.Time) {
	if !d.Deletes {
		return false, time.Time{}
	}
	ready, since := nodeturn.Ready(n)
	if ready {
		return false, time.Time{}
	}
	if since.IsZero() {
		since = n.CreationTimestamp.Time
	}
	if at = since.Add(deadAfter); d.Now.Before(at) {
		return false, at
	}
	return true, time.Time{}
}

// Begin previews the drain of a node before its cordon. If Gated, also records whose pods will be evicted; the caller writes it with the cordon. If
// the options refuse a pod, Begin returns a failure, and the node must not be cordoned.
func (d *Drain) Begin(ctx context.Context) (also []node.Also, failure *v1alpha1.ClaimFailure, err error) {
	r, err := d.passWithPods(ctx, func(pods []corev1.Pod) (drain.Result, error) { return d.Drainer.Preview(ctx, pods, d.Options) })
	if err != nil {
		return nil, nil, err
	}
	if len(r.In(drain.Refused)) > 0 {
		return nil, d.failure(v1alpha1.ReasonDrainRefused, "Node "+d.Turn.Node+" can't be drained: "+r.Left()), nil
	}
	d.Works.Begin(d.Turn) // Pods may have arrived since an earlier drain.
	return []node.Also{node.Evicting(d.evictedBy(&r)...)}, nil, nil
}

// evictedBy returns the workloads to record: those whose pods a pass evicted. Only a workloads gate reads the record.
func (d *Drain) evictedBy(r *drain.Result) (all []v1alpha1.Workload) {
	if !d.Gated {
		return nil
	}
	for _, o := range r.In(drain.Evicted) {
		if w, ok := node.WorkloadOf(o.Pod.Namespace, o.Owner); ok {
			all = append(all, w)
		}
	}
	return all
}

// Outcome is the progress of a drain.
type Outcome struct {
	// Done is true once nothing is left to wait for.
	Done bool
	// Failure says why the drain failed.
	Failure *v1alpha1.ClaimFailure
	// Message says what is left. Wake is when the clock alone can change the outcome.
	Message string
	Wake    time.Time
}

// Pass advances a drain that began at since. It looks at the node's pods again after a change of a pod, of isDead, or of the rollout's
// generation, and at the last Wake. Otherwise it returns the last outcome. It looks again at a drain that is done only after a change of a pod.
func (d *Drain) Pass(ctx context.Context, n *corev1.Node, since time.Time) (Outcome, error) {
	k := d.Works.stateOf(d.Turn)
	dead, at := d.isDead(n)
	due := !k.last.Wake.IsZero() && !d.Now.Before(k.last.Wake)
	switch {
	case k.last.Done && !k.stale.Load():
		return k.last, nil
	case k.generation == d.Generation && !k.stale.Load() && !due && k.dead == dead:
		o := k.last
		o.Wake = rollout.Earlier(o.Wake, at)
		return o, nil
	}
	k.stale.Store(false)
	options := d.Options
	if dead && (options.SkipWaitForDelete <= 0 || options.SkipWaitForDelete > overdue) {
		options.SkipWaitForDelete = overdue
	}
	r, err := d.passWithPods(ctx, func(pods []corev1.Pod) (drain.Result, error) {
		return d.Drainer.Pass(ctx, d.Turn.Node, pods, since, options)
	})
	if err != nil {
		k.stale.Store(true)
		return Outcome{Message: err.Error()}, err
	}
	again := k.last.Done
	d.count(&r)
	k.last, k.generation, k.dead = Outcome{Done: r.Done(), Message: r.Left(), Wake: rollout.Earlier(r.Next, at)}, d.Generation, dead
	if dead && r.Next.IsZero() && !r.Done() {
		k.last.Wake = rollout.Earlier(d.Now.Add(overdue), at) // Overdue pods stop blocking then, also after the drain's timeout.
	}
	if evicted := d.evictedBy(&r); len(evicted) > 0 {
		// Begin has not recorded pods that arrived after it.
		if err := node.RecordEvicted(ctx, d.Client, n, evicted...); err != nil {
			log.FromContext(ctx).Error(err, "evictions can't be recorded", "node", n.Name)
		}
	}
	switch {
	case r.Done():
		k.last.Wake = time.Time{}
		if !again {
			metrics.ObserveDrain(d.name(), "drained", d.Now.Sub(since))
		}
		log.FromContext(ctx).Info("node drained", "node", n.Name)
	case r.Stuck():
		k.last.Failure = d.stuck(&r)
		metrics.ObserveDrain(d.name(), "failed", d.Now.Sub(since))
	}
	return k.last, nil
}

// name is the rollout's name in metrics.
func (d *Drain) name() metrics.Rollout {
	return metrics.Rollout{Kind: d.Kind, NamespacedName: d.Turn.Rollout}
}

// count counts the answers to the evictions of a pass.
func (d *Drain) count(r *drain.Result) {
	for _, s := range []drain.State{drain.Evicted, drain.Blocked, drain.Failed} {
		metrics.CountEvictions(d.name(), strings.ToLower(string(s)), len(r.In(s)))
	}
}

// passWithPods runs a pass with the watched pods of the node. A watch may be late, so a pass that finds the drain done or stuck is repeated
// with a list.
func (d *Drain) passWithPods(ctx context.Context, pass func([]corev1.Pod) (drain.Result, error)) (r drain.Result, err error) {
	pods, known := d.Works.Pods(d.Turn)
	if known {
		if r, err = pass(pods); err != nil || !r.Done() && !r.Stuck() {
			return r, err
		}
	}
	if pods, err = d.Drainer.Pods(ctx, d.Turn.Node); err != nil {
		return r, err
	}
	return pass(pods)
}

// Gated reports whether a budget has a workloads gate.
func (p *Pass[T]) Gated() bool {
	return slices.ContainsFunc(p.Seen.Budgets, func(b rollout.Budget) bool { return b.Workloads })
}

// drainOf returns the drain of a turn's node.
func (p *Pass[T]) drainOf(b *nodeturn.Turn) *Drain {
	return &Drain{
		Engine: p.Engine, Options: p.Options, Turn: ID{Rollout: p.Key, Node: b.Node.Name, Turn: b.Claim.Turn},
		Generation: p.Generation, Holder: p.Holder, Now: p.Now, Deletes: p.Deletes, Gated: p.Gated(),
	}
}

// Cordon is TryCordon. A refusal fails the turn.
func (p *Pass[T]) Cordon(ctx context.Context, t T, drains bool, also ...node.Also) error {
	refused, err := p.TryCordon(ctx, t, drains, also...)
	return p.failIf(ctx, t, refused, err)
}

// TryCordon makes the node of a turn unschedulable. If the turn drains, the same write records whose pods will be evicted. If the options refuse
// a pod, the node is not cordoned.
func (p *Pass[T]) TryCordon(ctx context.Context, t T, drains bool, also ...node.Also) (refused *v1alpha1.ClaimFailure, err error) {
	b := t.Base()
	claim := *b.Claim
	claim.Cordoned = &metav1.Time{Time: p.Now}
	if drains {
		recording, refused, err := p.drainOf(b).Begin(ctx)
		if err != nil || refused != nil {
			return refused, err
		}
		also = append(also, recording...)
	}
	if err := p.WriteClaim(ctx, t, claim, node.Edit{Cordon: true, Also: also}); err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("node cordoned", "node", b.Node.Name)
	return nil, nil
}

// DrainNode is TryDrain. A drain that can't be done fails the turn.
func (p *Pass[T]) DrainNode(ctx context.Context, t T, since time.Time) (over bool, err error) {
	over, failure, err := p.TryDrain(ctx, t, since)
	return over, p.failIf(ctx, t, failure, err)
}

// TryDrain advances a drain that began at since, and reports it in the node's conditions. over is true once the drain is done and reported. The
// failure says why the drain can't be done.
func (p *Pass[T]) TryDrain(ctx context.Context, t T, since time.Time) (over bool, failure *v1alpha1.ClaimFailure, err error) {
	b := t.Base()
	d := p.drainOf(b)
	o, err := d.Pass(ctx, b.Node, since)
	b.Message = o.Message
	p.WakeAt(o.Wake)
	if err != nil || o.Failure != nil {
		return false, o.Failure, err
	}
	over, wake, err := d.Report(ctx, b.Node, since, o.Done)
	p.WakeAt(wake)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		log.FromContext(ctx).Error(err, "the conditions of a node are refused", "node", b.Node.Name)
		return o.Done, nil, nil // The drain goes on without them.
	}
	return over, nil, err
}

// failIf fails the turn if there is a failure.
func (p *Pass[T]) failIf(ctx context.Context, t T, failure *v1alpha1.ClaimFailure, err error) error {
	if err != nil || failure == nil {
		return err
	}
	t.Base().FailWith(*failure)
	return p.Fail(ctx, t)
}

func hasCondition(n *corev1.Node, kind corev1.NodeConditionType) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// WatchPods watches the pods of the rollout's nodes that its turns have yet to drain, and of turns for which needs is true. It ends other watches.
func (p *Pass[T]) WatchPods(needs func(T) bool) {
	nodes := map[string]bool{}
	for _, t := range p.Turns {
		b := t.Base()
		c := b.Claim
		if c != nil && (needs(t) || c.Drains && c.Drained == nil && c.Rebooting == nil && c.Changed == nil && c.Soaking == nil && c.Failed == nil) {
			nodes[b.Node.Name] = true
			p.Works.Watch(ID{Rollout: p.Key, Node: b.Node.Name, Turn: c.Turn})
		}
	}
	p.Works.StopExcept(p.Key, nodes)
}

// stuck returns why a drain can't continue.
func (d *Drain) stuck(r *drain.Result) *v1alpha1.ClaimFailure {
	within := func(what string) string {
		return fmt.Sprintf("the drain of Node %s was not done within its timeout, %s; %s%s", d.Turn.Node, d.Options.Timeout, what, r.Left())
	}
	switch r.TimedOut {
	case drain.SkipOnTimeout:
		f := d.failure(v1alpha1.ReasonDrainTimeout, within("the rollout goes on without the node: "))
		f.Skipped = true
		return f
	case drain.HaltOnTimeout:
		return d.failure(v1alpha1.ReasonDrainTimeout, within(""))
	default:
		return d.failure(v1alpha1.ReasonDrainRefused, "Node "+d.Turn.Node+" can't be drained: "+r.Left())
	}
}

func (d *Drain) failure(reason v1alpha1.Reason, message string) *v1alpha1.ClaimFailure {
	return &v1alpha1.ClaimFailure{Reason: reason, Message: nodeturn.Short(message), Time: metav1.Time{Time: d.Now}}
}

// reportEvery bounds how often the message of the node's condition is written. Drains that take less than that are not reported.
const reportEvery = 10 * time.Second

// Report says in the node's conditions what the drain waits for, or that it is done. finished is true if the drain is done, and the conditions say so
// or do not have to. wake is when there may be more to write. A drain that began at since and ends within reportEvery is not reported, unless Gated.
func (d *Drain) Report(ctx context.Context, n *corev1.Node, since time.Time, done bool) (finished bool, wake time.Time, err error) {
	if due := since.Add(reportEvery); !d.Gated && !hasCondition(n, corev1.NodeMaintenanceInProgress) && (done || d.Now.Before(due)) {
		if !done {
			wake = due
		}
		return done, wake, nil
	}
	if done && hasCondition(n, corev1.NodeDrained) {
		return true, wake, nil
	}
	progress, drained, planned := "the drain is over", "the node is drained", "the change may begin"
	if wake = d.Now.Add(fleet.Coalesce); !done { // The next pass reads the changed Node.
		drained, planned = "the node is not drained", "the node is changed when it is drained"
		progress, wake = d.messageToReport()
	}
	err = node.SetConditions(ctx, d.Client, n, d.Holder, d.Now,
		node.Condition{Type: corev1.NodeMaintenancePlanned, True: !done, Message: planned},
		node.Condition{Type: corev1.NodeMaintenanceInProgress, True: true, Message: "the node is in maintenance"},
		node.Condition{Type: corev1.NodeDrainInProgress, True: !done, Message: nodeturn.Short(progress)},
		node.Condition{Type: corev1.NodeDrained, True: done, Message: drained})
	return false, wake, client.IgnoreNotFound(err)
}

// messageToReport returns what to say about the drain: the last message, or the one before it until wake.
func (d *Drain) messageToReport() (message string, wake time.Time) {
	k := d.Works.stateOf(d.Turn)
	switch next := k.reportedAt.Add(reportEvery); {
	case k.last.Message == k.reported:
	case k.reported == "" || !d.Now.Before(next):
		k.reported, k.reportedAt = k.last.Message, d.Now
	default:
		wake = next
	}
	return k.reported, wake
}
