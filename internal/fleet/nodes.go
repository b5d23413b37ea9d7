// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// nodes caches each Node in the engine's form until it changes.
type nodes struct {
	mu sync.Mutex
	// last is the last result; it is replaced, never changed.
	last Snapshot
	// made holds the engine's form of each object. The cache replaces an object that changes.
	made map[*corev1.Node]*rollout.Node
}

// read returns a snapshot of these Nodes, without budgets, and sorts the list.
func (n *nodes) read(objects []*corev1.Node) Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	isNew := func(o *corev1.Node) bool { return n.made[o] == nil }
	if n.made != nil && len(n.made) == len(objects) && !slices.ContainsFunc(objects, isNew) {
		return n.last
	}
	slices.SortFunc(objects, byName)
	s := Snapshot{
		Fleet: rollout.Fleet{Nodes: make(map[string]*rollout.Node, len(objects))}, Objects: objects, SharedHostnames: rollout.SharedHostnames(objects),
	}
	made := make(map[*corev1.Node]*rollout.Node, len(objects))
	for _, o := range objects {
		now := n.made[o]
		if now == nil {
			now = rollout.NewNode(o)
		}
		made[o], s.Nodes[o.Name] = now, now
		if len(now.Claims) > 0 {
			s.Claimed = append(s.Claimed, o.Name)
		}
		if hasRecord(o) {
			s.Evicted = append(s.Evicted, o)
		}
	}
	n.last, n.made = s, made
	return s
}

func byName(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }

// hasRecord reports whether a Node has a record of evictions.
func hasRecord(n *corev1.Node) bool { return n.Annotations[v1alpha1.AnnotationEvicted] != "" }

// NodeChanged reports whether the fields of a trimmed Node that decisions need differ. A Node may be nil.
func NodeChanged(old, now client.Object) bool {
	a, okA := old.(*corev1.Node)
	b, okB := now.(*corev1.Node)
	return !okA || !okB || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || !maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!equality.Semantic.DeepEqual(a.Spec, b.Spec) || !equality.Semantic.DeepEqual(a.Status, b.Status)
}

// SpecChanged reports whether an object has another spec, or is another object of the same name. A deletion counts too: the
// API server then raises the generation. An object may be nil.
func SpecChanged(old, now client.Object) bool {
	return old == nil || now == nil || old.GetUID() != now.GetUID() || old.GetGeneration() != now.GetGeneration()
}

// RecordFor is how long a record of evictions counts after the last turn on its node. A record that appears on a node without a turn does not
// count: the node's kubelet may write it too, and claims of rollouts that do not exist. settled is how long after a turn its last write may be seen.
const RecordFor, settled = time.Hour, time.Minute

// records remembers which records of evictions count, by node. After a start all that are there count anew.
type records struct {
	mu   sync.Mutex
	seen map[string]record
}

// record is the annotation's value, and when the node was last in a turn.
type record struct {
	value string
	at    time.Time
}

// ExpectRecord makes the record of a node count: the node is in a turn now, or replaces another.
func (f *Fleet) ExpectRecord(node string) {
	f.records.mu.Lock()
	defer f.records.mu.Unlock()
	if f.records.seen != nil {
		f.records.seen[node] = record{f.records.seen[node].value, f.gates.clock.Now()}
	}
}

// counting returns the nodes whose records count, and when the first of them ends; zero if none does. The record of a deleted node, which has no UID,
// counts: its rollout has it in its status.
func (r *records) counting(nodes []*corev1.Node, now time.Time) (counting []*corev1.Node, end time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	start := r.seen == nil
	if start {
		r.seen = map[string]record{}
	}
	for _, n := range nodes {
		of, value := r.seen[n.Name], n.Annotations[v1alpha1.AnnotationEvicted]
		switch {
		case start || n.UID == "":
			of = record{value, now}
		case now.Before(of.at.Add(settled)):
			of.value = value
		}
		ends := of.at.Add(RecordFor)
		if of.value != value || !now.Before(ends) {
			continue
		}
		r.seen[n.Name] = of
		counting = append(counting, n)
		end = rollout.Earlier(end, ends)
	}
	maps.DeleteFunc(r.seen, func(_ string, of record) bool { return !now.Before(of.at.Add(RecordFor)) })
	return counting, end
}
