// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

const (
	// giveBackTimeout bounds how long a node is tried to be given back: a pod that is told to end has 30 seconds.
	giveBackTimeout = 10 * time.Second
	// giveBackAttempts bounds how often.
	giveBackAttempts = 5
)

// giveBack undoes what was done to a node that is not drained, also when the command is stopped.
func (d *draining) giveBack(ctx context.Context, name string) error {
	if d.dryRun != dryRunNone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := d.undo(ctx, name)
		if err == nil || !drain.IsTransient(err) || attempt == giveBackAttempts || d.wait(ctx, poll) != nil {
			return err
		}
	}
}

func (d *draining) undo(ctx context.Context, name string) error {
	var n corev1.Node
	if err := d.api.Get(ctx, client.ObjectKey{Name: name}, &n); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("giving back node %s, %w", name, err)
	}
	uncordoned, err := node.GiveBack(ctx, d.api, &n, d.by, d.nodes[name].Done)
	if err != nil {
		return err
	}
	if uncordoned {
		fmt.Fprintf(d.Out, "node/%s uncordoned\n", name)
	}
	_, err = node.ClearConditions(ctx, d.api, &n, d.holder(), d.clock.Now())
	d.warn(err)
	return nil
}

// holder is who the conditions of the node name.
func (d *draining) holder() string {
	if d.by == "" {
		return node.ByHand
	}
	return d.by
}
