// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"fmt"
	"slices"
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
	"moult.dev/moult/internal/node"
)

// Drain drains the node of one turn.
type Drain struct {
	Client  client.Client
	Drainer *drain.Drainer
	Works   *Works
	Options drain.Options
	// Of is the turn, and Generation that of its rollout.
	Of         Of
	Generation int64
	// Holder is the rollout's name in claims.
	Holder string
	Now    time.Time
	// Deletes is true where the node's machine is deleted once it is drained, and then its Node. On one whose kubelet is dead nobody ends pods: they
	// are not waited for then, because they end with the machine.
	Deletes bool
}

// A node that has not been ready for so long is taken for dead, and its pods are then waited for until so long after their grace periods.
const (
	deadAfter = time.Minute
	overdue   = 30 * time.Second
)

// dead reports whether nobody ends the pods of a node whose machine is deleted afterwards. If that is to be seen by the clock alone, it says when.
func (d *Drain) dead(n *corev1.Node) (dead bool, at time.Time) {
	if !d.Deletes {
		return false, time.Time{}
	}
	since := n.CreationTimestamp.Time
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return false, time.Time{}
		}
		since = c.LastTransitionTime.Time
	}
	if at = since.Add(deadAfter); d.Now.Before(at) {
		return false, at
	}
	return true, time.Time{}
}

// Begin previews the drain of a node that is about to be cordoned: what is to be written with the cordon, so that it is known afterwards whose
// pods were evicted, and what is to be called once that is written. One that would be refused is not begun: the failure says why.
func (d *Drain) Begin(ctx context.Context) (also []node.Also, written func(), failure *v1alpha1.ClaimFailure, err error) {
	r, err := d.Drainer.Preview(ctx, d.Of.Node, d.Options)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(r.In(drain.Refused)) > 0 {
		return nil, nil, d.failure(v1alpha1.ReasonDrainRefused, "Node "+d.Of.Node+" can't be drained: "+r.Left()), nil
	}
	k := d.Works.Of(d.Of)
	k.Left, k.Drained, k.announced, k.failure = r.Left(), false, false, nil
	k.stale.Store(true) // A drain that was over knows nothing of what has come since.
	evicting := k.fresh(&r)
	d.Works.Follow(d.Of)
	return []node.Also{node.Evicting(evicting...)}, func() { k.record(evicting) }, nil, nil
}

// Outcome is how far a drain has come.
type Outcome struct {
	// Done is true once nothing is left to wait for.
	Done bool
	// Failure says why it can't be done.
	Failure *v1alpha1.ClaimFailure
	// Message says what is left, and Wake when the clock alone can change that.
	Message string
	Wake    time.Time
}

// Pass takes a drain that began at this time as far as it goes now. It passes over the node's pods again when one of them has changed, when the
// clock calls for it, when the node has died or come back, or when the rollout is another.
func (d *Drain) Pass(ctx context.Context, n *corev1.Node, since time.Time) (Outcome, error) {
	k := d.Works.Of(d.Of)
	d.Works.Follow(d.Of)
	dead, at := d.dead(n)
	due := !k.next.IsZero() && !d.Now.Before(k.next)
	switch {
	case k.Drained:
		return Outcome{Done: true, Message: k.Left}, nil
	case k.passed == d.Generation && !k.stale.Load() && !due && k.dead == dead:
		return Outcome{Failure: k.failure, Message: k.Left, Wake: soonest(k.next, at)}, nil
	}
	k.stale.Store(false)
	options := d.Options
	if dead && (options.SkipWaitForDelete <= 0 || options.SkipWaitForDelete > overdue) {
		options.SkipWaitForDelete = overdue
	}
	r, err := d.Drainer.Pass(ctx, d.Of.Node, since, options)
	if err != nil {
		k.stale.Store(true)
		return Outcome{Message: err.Error()}, err
	}
	k.passed, k.next, k.dead, k.Left, k.failure = d.Generation, r.Next, dead, r.Left(), nil
	if dead && k.next.IsZero() && !r.Done() {
		k.next = d.Now.Add(overdue) // Also where the time is over, pods are given up that do not end.
	}
	o := Outcome{Message: k.Left, Wake: soonest(k.next, at)}
	if evicted := k.fresh(&r); len(evicted) > 0 {
		// What came to the node after it was cordoned.
		if err := node.RecordEvicted(ctx, d.Client, n, evicted...); err != nil {
			log.FromContext(ctx).Error(err, "evictions can't be recorded", "node", n.Name)
		} else {
			k.record(evicted)
		}
	}
	switch {
	case r.Done():
		k.Drained, o.Done = true, true
		log.FromContext(ctx).Info("node drained", "node", n.Name)
	case r.Stuck():
		k.failure = d.stuck(&r)
		o.Failure = k.failure
	}
	return o, nil
}

// Cordon makes the node of a turn unschedulable, and in the same write records whose pods its drain, if it has one, is about to evict. A drain that
// would be refused is not begun: the turn fails.
func (p *Pass[T]) Cordon(ctx context.Context, t T, d *Drain, also ...node.Also) error {
	b := t.Base()
	claim := *b.Claim
	claim.Cordoned = &metav1.Time{Time: p.Now}
	written := func() {}
	if d != nil {
		recording, recorded, failure, err := d.Begin(ctx)
		if err != nil {
			return err
		}
		if failure != nil {
			b.FailWith(*failure)
			return p.Fail(ctx, t)
		}
		also, written = append(also, recording...), recorded
	}
	if err := p.Hold(ctx, t, claim, node.Step{Cordon: true, Also: also}); err != nil {
		return err
	}
	written()
	log.FromContext(ctx).Info("node cordoned", "node", b.Node.Name)
	return nil
}

// DrainNode takes a drain that began at this time as far as it goes now, and says in the node's conditions how it stands. It is true once the
// drain is over and the node says so. A drain that can't be done fails the turn.
func (p *Pass[T]) DrainNode(ctx context.Context, t T, d *Drain, since time.Time) (over bool, err error) {
	b := t.Base()
	o, err := d.Pass(ctx, b.Node, since)
	b.Message = o.Message
	p.WakeAt(o.Wake)
	stage := Draining
	switch {
	case err != nil:
		return false, err
	case o.Failure != nil:
		b.FailWith(*o.Failure)
		return false, p.Fail(ctx, t)
	case o.Done && d.Announced(b.Node):
		return true, nil
	case o.Done:
		stage = Drained
		p.WakeAt(p.Now.Add(fleet.Coalesce)) // The node is another one then.
	}
	wake, err := d.Tell(ctx, b.Node, stage)
	p.WakeAt(wake)
	return false, err
}

// soonest is the earlier of two instants, of which zero is none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Announced reports whether it is said on a drained node that it is; if not, it is to be said now.
func (d *Drain) Announced(n *corev1.Node) bool {
	k := d.Works.Of(d.Of)
	said := k.announced || slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeDrained && c.Status == corev1.ConditionTrue
	})
	k.announced = true
	return said
}

// stuck is why a drain goes no further.
func (d *Drain) stuck(r *drain.Result) *v1alpha1.ClaimFailure {
	within := func(what string) string {
		return fmt.Sprintf("the drain of Node %s was not done within its timeout, %s; %s%s", d.Of.Node, d.Options.Timeout, what, r.Left())
	}
	switch r.TimedOut {
	case drain.SkipOnTimeout:
		f := d.failure(v1alpha1.ReasonDrainTimeout, within("the rollout goes on without the node: "))
		f.Skipped = true
		return f
	case drain.HaltOnTimeout:
		return d.failure(v1alpha1.ReasonDrainTimeout, within(""))
	default:
		return d.failure(v1alpha1.ReasonDrainRefused, "Node "+d.Of.Node+" can't be drained: "+r.Left())
	}
}

func (d *Drain) failure(reason v1alpha1.Reason, message string) *v1alpha1.ClaimFailure {
	return &v1alpha1.ClaimFailure{Reason: reason, Message: nodeturn.Short(message), Time: metav1.Time{Time: d.Now}}
}

// tellEvery bounds how often the node's condition says anew what holds its drain.
const tellEvery = 10 * time.Second

// The states of a node in maintenance, as its conditions tell them.
type Stage int

// Maintained: nothing is drained, or not yet. Draining: the drain goes on. Drained: it is over.
const (
	Maintained Stage = iota
	Draining
	Drained
)

// Tell says in the node's conditions how its turn stands; wake is when there is more to say. What can't be said keeps no turn back.
func (d *Drain) Tell(ctx context.Context, n *corev1.Node, stage Stage) (wake time.Time, err error) {
	conditions := []node.Condition{{Type: corev1.NodeMaintenanceInProgress, True: true, Message: "the node is in maintenance"}}
	switch stage {
	case Maintained:
		// These are True where it was drained before somebody lifted the cordon.
		conditions = append(conditions,
			node.Condition{Type: corev1.NodeDrainInProgress, Message: "nothing is being drained"},
			node.Condition{Type: corev1.NodeDrained, Message: "the node is not drained"})
	case Draining:
		k := d.Works.Of(d.Of)
		if k.told == "" || k.Left != k.told && d.Now.Sub(k.toldAt) >= tellEvery {
			k.told, k.toldAt = k.Left, d.Now
		} else if k.Left != k.told {
			wake = k.toldAt.Add(tellEvery)
		}
		conditions = append(conditions,
			node.Condition{Type: corev1.NodeDrainInProgress, True: true, Message: k.told},
			node.Condition{Type: corev1.NodeDrained, Message: "the drain goes on"})
	case Drained:
		conditions = append(conditions,
			node.Condition{Type: corev1.NodeDrainInProgress, Message: "the drain is over"},
			node.Condition{Type: corev1.NodeDrained, True: true, Message: "the node is drained"})
	}
	err = node.SetConditions(ctx, d.Client, n, d.Holder, d.Now, conditions...)
	if err != nil && !apierrors.IsConflict(err) {
		log.FromContext(ctx).Error(err, "the node's conditions can't be set", "node", n.Name)
		err = nil
	}
	return wake, err
}
