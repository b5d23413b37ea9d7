// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	turnof "moult.dev/moult/internal/turn"
)

// absent are the Nodes of all NodeRollouts that were deleted before their replacements joined.
func (c *Controller) absent(ctx context.Context) ([]*corev1.Node, error) {
	rollouts, err := replacements(ctx, c.Client, indexTurns)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Node
	for i := range rollouts {
		stored := &rollouts[i]
		holder := node.Holder(turnof.Kind, client.ObjectKeyFromObject(stored))
		all = append(all, machine.AbsentNodes(holder, stored.GetUID(), turnof.StatusOf(stored).Turns)...)
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// recordEvicted copies the evictions from a Node that is deleted to the replacement's Node, where budgets count them.
func (p *pass) recordEvicted(ctx context.Context, from *corev1.Node, replacement *machine.Node) error {
	evicted, err := v1alpha1.ParseEvicted(from.Annotations)
	if err != nil {
		log.FromContext(ctx).Error(err, "a record of evictions is dropped with its node", "node", from.Name)
	}
	if len(evicted) == 0 {
		return nil
	}
	p.Fleet.ExpectRecord(replacement.Name)
	return node.RecordEvicted(ctx, p.Client, replacement.Node, evicted...)
}
