// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

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
