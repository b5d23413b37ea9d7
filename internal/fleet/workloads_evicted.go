// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
)

// IndexEvicted is the index of Nodes that have a record of evictions; Evicted makes its values.
const IndexEvicted = v1alpha1.AnnotationEvicted

// hasRecord is the only value of that index.
const hasRecord = "true"

// Evicted is the index value of a Node.
func Evicted(o client.Object) []string {
	if o.GetAnnotations()[v1alpha1.AnnotationEvicted] == "" {
		return nil
	}
	return []string{hasRecord}
}

// records are the Nodes' records of evictions, each read once.
type records struct {
	mu   sync.Mutex
	read map[string]record
}

type record struct {
	version   string
	workloads []node.Workload
	err       error
}

// of returns the records of these nodes, and forgets all others.
func (r *records) of(nodes []corev1.Node) map[string]record {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[string]record, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		last, ok := r.read[n.Name]
		if !ok || last.version != n.ResourceVersion {
			last = record{version: n.ResourceVersion}
			last.workloads, last.err = node.ParseEvicted(n.Annotations)
		}
		next[n.Name] = last
	}
	r.read = next
	return next
}

// recorded lists the nodes that have a record, by name, also those that are not there any more.
func (g *gates) recorded(ctx context.Context) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := g.client.List(ctx, &nodes, client.MatchingFields{IndexEvicted: hasRecord}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes with evictions, %w", err)
	}
	if g.absent != nil {
		absent, err := g.absent(ctx)
		if err != nil {
			return nil, err
		}
		for _, n := range absent {
			if n.Annotations[v1alpha1.AnnotationEvicted] != "" {
				nodes.Items = append(nodes.Items, *n)
			}
		}
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes.Items, nil
}

// evicted says what was evicted from these nodes and is not available again.
func (w *workloads) evicted(ctx context.Context, from labels.Selector) ([]string, error) {
	nodes, err := w.gates.recorded(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	records := w.gates.records.of(nodes)
	for i := range nodes {
		n := &nodes[i]
		if !selects(from, n.Labels) {
			continue
		}
		r := records[n.Name]
		if r.err != nil {
			missing = append(missing, "node "+n.Name+": "+r.err.Error())
		}
		for _, of := range r.workloads {
			if s, short := w.lacks(of); short {
				missing = append(missing, "evicted from "+n.Name+": "+describe(of, s))
			}
		}
	}
	return missing, nil
}

// Recovered reports whether nobody needs to remember that these workloads were evicted: all of them are available again, or
// gone, or there is no budget with a workloads gate.
func (f *Fleet) Recovered(ctx context.Context, evicted []node.Workload) (bool, error) {
	var budgets v1alpha1.NodeDisruptionBudgetList
	if err := f.client.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing budgets, %w", err)
	}
	asks := func(b v1alpha1.NodeDisruptionBudget) bool {
		return b.DeletionTimestamp == nil && b.Spec.Gates != nil && b.Spec.Gates.Workloads != nil
	}
	if !slices.ContainsFunc(budgets.Items, asks) {
		return true, nil
	}
	w := f.gates.workloads
	if w.unknown() != "" {
		return false, nil
	}
	return !slices.ContainsFunc(evicted, func(of node.Workload) bool { _, short := w.lacks(of); return short }), nil
}
