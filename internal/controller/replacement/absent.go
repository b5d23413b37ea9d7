// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	turnof "moult.dev/moult/internal/turn"
)

// missing are the Nodes that went before others came, as this process has last written them down, by NodeRollout.
type missing struct {
	mu sync.Mutex
	of map[types.NamespacedName][]*corev1.Node
}

// keep notes the Nodes that are absent in these turns, and calls changed where these are others.
func (m *missing) keep(key types.NamespacedName, uid types.UID, turns []v1alpha1.MachineTurn, changed func()) {
	now := absentees(node.Holder(turnof.Kind, key), uid, turns)
	m.mu.Lock()
	same := slices.EqualFunc(m.of[key], now, func(a, b *corev1.Node) bool { return a.Name == b.Name && a.ResourceVersion == b.ResourceVersion })
	m.of[key] = now
	m.mu.Unlock()
	if !same {
		changed()
	}
}

// absent are the Nodes that went before others came, of all NodeRollouts. Of one that this process has not looked at yet the status tells.
func (c *Controller) absent(ctx context.Context) ([]*corev1.Node, error) {
	rollouts, err := c.stores(ctx)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Node
	for i := range rollouts {
		stored := &rollouts[i]
		key := client.ObjectKeyFromObject(stored)
		c.missing.mu.Lock()
		known, seen := c.missing.of[key]
		c.missing.mu.Unlock()
		if !seen && turnof.Replaces(stored) {
			known = absentees(node.Holder(turnof.Kind, key), stored.GetUID(), turnof.StatusOf(stored).Turns)
		}
		all = append(all, known...)
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// absentees are the absent Nodes of turns, claimed by their rollout.
func absentees(holder string, uid types.UID, turns []v1alpha1.MachineTurn) (all []*corev1.Node) {
	for i := range turns {
		t := &turns[i]
		if t.Absent == nil {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.Absent.Name, Labels: t.Absent.Labels, Annotations: map[string]string{}}}
		n.Spec.Unschedulable = true
		// Neither can fail: both are made of what was read from JSON.
		claims, _ := json.Marshal([]v1alpha1.Claim{{Rollout: holder, UID: uid, Revision: t.Revision, Turn: t.Turn, Since: t.Since}})
		n.Annotations[v1alpha1.AnnotationClaims] = string(claims)
		if len(t.Absent.Evicted) > 0 {
			n.Annotations[v1alpha1.AnnotationEvicted] = record(t.Absent.Evicted)
		}
		// One that differs is another version of it.
		labels, _ := json.Marshal(t.Absent.Labels)
		n.ResourceVersion = t.Turn + string(labels) + n.Annotations[v1alpha1.AnnotationEvicted]
		all = append(all, n)
	}
	return all
}

// record is what the annotation of a Node says of evictions.
func record(evicted []string) string {
	text, _ := json.Marshal(evicted) // Strings always marshal.
	return string(text)
}

// inherit records on a replacement's Node what was evicted from the one that went before it came.
func (p *pass) inherit(ctx context.Context, t *machine.Turn, heir *machine.Node) error {
	evicted, err := node.ParseEvicted(map[string]string{v1alpha1.AnnotationEvicted: record(t.Absent.Evicted)})
	if err != nil {
		return err
	}
	if err := node.RecordEvicted(ctx, p.client, heir.Node, evicted...); err != nil {
		return err
	}
	p.mark(p.memo.inherited, t.Turn)
	return nil
}
