// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
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
		all = append(all, absentNodes(holder, stored.GetUID(), turnof.StatusOf(stored).Turns)...)
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// absentNodes are the absent Nodes of turns, claimed by their rollout.
func absentNodes(holder string, uid types.UID, turns []v1alpha1.MachineTurn) (all []*corev1.Node) {
	for _, t := range turns {
		if t.Absent == nil {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.Absent.Name, Labels: t.Absent.Labels, Annotations: map[string]string{}}}
		n.ResourceVersion = nodeturn.Digest(t.Turn, t.Absent) // Different content needs a different version.
		n.Spec.Unschedulable = true
		// Formatting never fails here: the values were read from JSON.
		n.Annotations[v1alpha1.AnnotationClaims], _ = v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: holder, UID: uid, Revision: t.Revision, Turn: t.Turn, Since: t.Since}})
		if len(t.Absent.Evicted) > 0 {
			evicted, _ := json.Marshal(t.Absent.Evicted) // Strings always marshal.
			n.Annotations[v1alpha1.AnnotationEvicted] = string(evicted)
		}
		all = append(all, n)
	}
	return all
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
