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
// clock calls for it, or when the rollout is another.
func (d *Drain) Pass(ctx context.Context, n *corev1.Node, since time.Time) (Outcome, error) {
	k := d.Works.Of(d.Of)
	d.Works.Follow(d.Of)
	switch {
	case k.Drained:
		return Outcome{Done: true, Message: k.Left}, nil
	case k.failure != nil && k.passed == d.Generation && !k.stale.Load():
		return Outcome{Failure: k.failure, Message: k.Left}, nil
	case k.passed == d.Generation && !k.stale.Load() && (k.next.IsZero() || d.Now.Before(k.next)):
		return Outcome{Message: k.Left, Wake: k.next}, nil
	}
	k.stale.Store(false)
	r, err := d.Drainer.Pass(ctx, d.Of.Node, since, d.Options)
	if err != nil {
		k.stale.Store(true)
		return Outcome{Message: err.Error()}, err
	}
	k.passed, k.next, k.Left, k.failure = d.Generation, r.Next, r.Left(), nil
	o := Outcome{Message: k.Left, Wake: r.Next}
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
	return &v1alpha1.ClaimFailure{Reason: reason, Message: Short(message), Time: metav1.Time{Time: d.Now}}
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
