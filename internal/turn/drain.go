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

// A node that is not ready for deadAfter counts as dead. Its drain waits for a pod for at most overdue after the pod's grace period.
const (
	deadAfter = time.Minute
	overdue   = 30 * time.Second
)

// drainID names the drain of a turn's node.
func (p *Pass[T]) drainID(b *nodeturn.Turn) ID {
	return ID{Rollout: p.Key, Node: b.Node.Name, Turn: b.Claim.Turn}
}

// isDead reports whether the node counts as dead. at is when a node that is not ready will count as dead. On a dead node no kubelet ends pods. If
// the machine is deleted after it, the drain does not wait for them: they end with the machine. Otherwise no node counts as dead.
func (p *Pass[T]) isDead(n *corev1.Node) (dead bool, at time.Time) {
	ready, since := nodeturn.Ready(n)
	if ready || !p.Deletes {
		return false, time.Time{}
	}
	if since.IsZero() {
		since = n.CreationTimestamp.Time
	}
	if at = since.Add(deadAfter); p.Now.Before(at) {
		return false, at
	}
	return true, time.Time{}
}

// beginDrain previews the drain of a node before its cordon. If Gated, it also returns a record of whose pods will be evicted; the caller
// writes it with the cordon. If the options refuse a pod, beginDrain returns a failure, and the node must not be cordoned.
func (p *Pass[T]) beginDrain(ctx context.Context, b *nodeturn.Turn) (also []node.Also, failure *v1alpha1.ClaimFailure, err error) {
	r, err := p.passWithPods(ctx, b, func(pods []corev1.Pod) (drain.Result, error) { return p.Drainer.Preview(ctx, pods, p.Options) })
	if err != nil {
		return nil, nil, err
	}
	if len(r.In(drain.Refused)) > 0 {
		return nil, p.failure(v1alpha1.ReasonDrainRefused, "Node "+b.Node.Name+" can't be drained: "+r.Left()), nil
	}
	p.Works.Begin(p.drainID(b)) // Pods may have arrived since an earlier drain.
	return []node.Also{node.Evicting(p.evictedBy(&r)...)}, nil, nil
}

// evictedBy returns the workloads to record: those whose pods a pass evicted. Only a workloads gate reads the record.
func (p *Pass[T]) evictedBy(r *drain.Result) (all []v1alpha1.Workload) {
	if !p.Gated() {
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

// passDrain advances a drain that began at since. It looks at the node's pods again after a change of a pod, of isDead, or of the rollout's
// generation, and at the last Wake. Otherwise it returns the last outcome. It looks again at a drain that is done only after a change of a pod.
func (p *Pass[T]) passDrain(ctx context.Context, b *nodeturn.Turn, since time.Time) (Outcome, error) {
	k := p.Works.stateOf(p.drainID(b))
	dead, at := p.isDead(b.Node)
	due := !k.last.Wake.IsZero() && !p.Now.Before(k.last.Wake)
	switch {
	case k.last.Done && !k.stale.Load():
		return k.last, nil
	case k.generation == p.Generation && !k.stale.Load() && !due && k.dead == dead:
		o := k.last
		o.Wake = rollout.Earlier(o.Wake, at)
		return o, nil
	}
	k.stale.Store(false)
	options := p.Options
	if dead && (options.SkipWaitForDelete <= 0 || options.SkipWaitForDelete > overdue) {
		options.SkipWaitForDelete = overdue
	}
	r, err := p.passWithPods(ctx, b, func(pods []corev1.Pod) (drain.Result, error) {
		return p.Drainer.Pass(ctx, b.Node.Name, pods, since, options)
	})
	if err != nil {
		k.stale.Store(true)
		return Outcome{Message: err.Error()}, err
	}
	again := k.last.Done
	for _, s := range []drain.State{drain.Evicted, drain.Blocked, drain.Failed} {
		metrics.CountEvictions(p.Name(), strings.ToLower(string(s)), len(r.In(s)))
	}
	k.last, k.generation, k.dead = Outcome{Done: r.Done(), Message: r.Left(), Wake: rollout.Earlier(r.Next, at)}, p.Generation, dead
	if dead && r.Next.IsZero() && !r.Done() {
		k.last.Wake = rollout.Earlier(p.Now.Add(overdue), at) // Overdue pods stop blocking then, also after the drain's timeout.
	}
	if evicted := p.evictedBy(&r); len(evicted) > 0 {
		// beginDrain has not recorded pods that arrived after it.
		if err := node.RecordEvicted(ctx, p.Client, b.Node, evicted...); err != nil {
			log.FromContext(ctx).Error(err, "evictions can't be recorded", "node", b.Node.Name)
		}
	}
	switch {
	case r.Done():
		k.last.Wake = time.Time{}
		if !again {
			metrics.ObserveDrain(p.Name(), "drained", p.Now.Sub(since))
		}
		log.FromContext(ctx).Info("node drained", "node", b.Node.Name)
	case r.Stuck():
		k.last.Failure = p.stuck(b, &r)
		metrics.ObserveDrain(p.Name(), "failed", p.Now.Sub(since))
	}
	return k.last, nil
}

// passWithPods runs a pass with the watched pods of the node. A watch may be late, so a pass that finds the drain done or stuck is repeated
// with a list.
func (p *Pass[T]) passWithPods(ctx context.Context, b *nodeturn.Turn, pass func([]corev1.Pod) (drain.Result, error)) (r drain.Result, err error) {
	pods, known := p.Works.Pods(p.drainID(b))
	if known {
		if r, err = pass(pods); err != nil || !r.Done() && !r.Stuck() {
			return r, err
		}
	}
	if pods, err = p.Drainer.Pods(ctx, b.Node.Name); err != nil {
		return r, err
	}
	return pass(pods)
}

// Gated reports whether a budget has a workloads gate. The gate needs the record of evictions, and the condition Drained.
func (p *Pass[T]) Gated() bool {
	return slices.ContainsFunc(p.Seen.Budgets, func(b rollout.Budget) bool { return b.Workloads })
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
		recording, refused, err := p.beginDrain(ctx, b)
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
	o, err := p.passDrain(ctx, b, since)
	b.Message = o.Message
	p.WakeAt(o.Wake)
	if err != nil || o.Failure != nil {
		return false, o.Failure, err
	}
	over, wake, err := p.reportDrain(ctx, b, since, o.Done)
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
			p.Works.Watch(p.drainID(b))
		}
	}
	p.Works.StopExcept(p.Key, nodes)
}

// stuck returns why a drain can't continue.
func (p *Pass[T]) stuck(b *nodeturn.Turn, r *drain.Result) *v1alpha1.ClaimFailure {
	within := func(what string) string {
		return fmt.Sprintf("the drain of Node %s was not done within its timeout, %s; %s%s", b.Node.Name, p.Options.Timeout, what, r.Left())
	}
	switch r.TimedOut {
	case drain.SkipOnTimeout:
		f := p.failure(v1alpha1.ReasonDrainTimeout, within("the rollout goes on without the node: "))
		f.Skipped = true
		return f
	case drain.HaltOnTimeout:
		return p.failure(v1alpha1.ReasonDrainTimeout, within(""))
	default:
		return p.failure(v1alpha1.ReasonDrainRefused, "Node "+b.Node.Name+" can't be drained: "+r.Left())
	}
}

func (p *Pass[T]) failure(reason v1alpha1.Reason, message string) *v1alpha1.ClaimFailure {
	return &v1alpha1.ClaimFailure{Reason: reason, Message: nodeturn.Short(message), Time: metav1.Time{Time: p.Now}}
}

// reportEvery bounds how often the message of the node's condition is written. Drains that take less than that are not reported.
const reportEvery = 10 * time.Second

// reportDrain says in the node's conditions what the drain waits for, or that it is done. finished is true if the drain is done, and the conditions say so
// or do not have to. wake is when there may be more to write. A drain that began at since and ends within reportEvery is not reported, unless Gated.
func (p *Pass[T]) reportDrain(ctx context.Context, b *nodeturn.Turn, since time.Time, done bool) (finished bool, wake time.Time, err error) {
	if due := since.Add(reportEvery); !p.Gated() && !hasCondition(b.Node, corev1.NodeMaintenanceInProgress) && (done || p.Now.Before(due)) {
		if !done {
			wake = due
		}
		return done, wake, nil
	}
	if done && hasCondition(b.Node, corev1.NodeDrained) {
		return true, wake, nil
	}
	progress, drained, planned := "the drain is over", "the node is drained", "the change may begin"
	if wake = p.Now.Add(fleet.Coalesce); !done { // The next pass reads the changed Node.
		drained, planned = "the node is not drained", "the node is changed when it is drained"
		progress, wake = p.messageToReport(b)
	}
	err = node.SetConditions(ctx, p.Client, b.Node, p.Holder, p.Now,
		node.Condition{Type: corev1.NodeMaintenancePlanned, True: !done, Message: planned},
		node.Condition{Type: corev1.NodeMaintenanceInProgress, True: true, Message: "the node is in maintenance"},
		node.Condition{Type: corev1.NodeDrainInProgress, True: !done, Message: nodeturn.Short(progress)},
		node.Condition{Type: corev1.NodeDrained, True: done, Message: drained})
	return false, wake, client.IgnoreNotFound(err)
}

// messageToReport returns what to say about the drain: the last message, or the one before it until wake.
func (p *Pass[T]) messageToReport(b *nodeturn.Turn) (message string, wake time.Time) {
	k := p.Works.stateOf(p.drainID(b))
	switch next := k.reportedAt.Add(reportEvery); {
	case k.last.Message == k.reported:
	case k.reported == "" || !p.Now.Before(next):
		k.reported, k.reportedAt = k.last.Message, p.Now
	default:
		wake = next
	}
	return k.reported, wake
}
