// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/node"
)

// tellEvery bounds how often the node's condition says anew what holds its drain.
const tellEvery = 10 * time.Second

// teller says in the conditions of one node how its drain goes. What can't be said keeps no drain back.
type teller struct {
	*draining
	name string
	// last is what was said last, and at when; zero while only the beginning was told.
	last string
	at   time.Time
}

// begin says that the drain begins.
func (d *draining) begin(ctx context.Context, name string) *teller {
	t := &teller{draining: d, name: name, last: d.nodes[name].left}
	t.set(ctx,
		node.Condition{Type: corev1.NodeMaintenanceInProgress, True: true, Message: "the node is in maintenance"},
		node.Condition{Type: corev1.NodeDrainInProgress, True: true, Message: t.last},
		node.Condition{Type: corev1.NodeDrained, Message: "the drain goes on"},
	)
	return t
}

// left says what is left, if that is new, and not too often.
func (t *teller) left(ctx context.Context, left string) {
	now := t.clock.Now()
	if left == t.last || !t.at.IsZero() && now.Sub(t.at) < tellEvery {
		return
	}
	t.last, t.at = left, now
	t.set(ctx, node.Condition{Type: corev1.NodeDrainInProgress, True: true, Message: left})
}

// drained says that the drain is done.
func (t *teller) drained(ctx context.Context) {
	t.set(ctx,
		node.Condition{Type: corev1.NodeDrainInProgress, Message: "the drain is over"},
		node.Condition{Type: corev1.NodeDrained, True: true, Message: "the node is drained"},
	)
}

func (t *teller) set(ctx context.Context, conditions ...node.Condition) {
	if t.mute || t.dryRun != dryRunNone {
		return
	}
	var n corev1.Node
	err := t.api.Get(ctx, client.ObjectKey{Name: t.name}, &n)
	if err == nil {
		err = node.SetConditions(ctx, t.api, &n, t.by, t.clock.Now(), conditions...)
	}
	if ctx.Err() == nil {
		t.warn(err)
	}
}

// warn says why conditions can't be written; once, if it is for want of the right to.
func (d *draining) warn(err error) {
	if err == nil || d.mute || apierrors.IsNotFound(err) {
		return
	}
	d.mute = apierrors.IsForbidden(err)
	fmt.Fprintf(d.ErrOut, "Warning: %v\n", err)
}
