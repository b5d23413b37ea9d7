// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// A record counts in a turn and for an hour after it. What a kubelet writes without a turn does not.
func TestRecordsThatCount(t *testing.T) {
	const ours, theirs = `["ReplicaSet/shop/cart"]`, `["ReplicaSet/shop/broken"]`
	type step struct {
		after          time.Duration
		record, claims string
		inTurn         bool // or the record of a replacement is about to be written
		want           bool
	}
	for name, steps := range map[string][]step{
		"before the start": {{want: true, record: theirs}, {after: RecordFor - 1, record: theirs, want: true}, {after: 1, record: theirs}},
		"no turn":          {{}, {record: theirs}, {after: time.Minute, record: theirs}},
		"a turn": {
			{}, {record: ours, inTurn: true, want: true}, {after: 3 * RecordFor, record: ours, inTurn: true, want: true},
			{after: RecordFor - 1, record: ours, want: true}, {after: 1, record: ours}, {after: 1, record: ours},
		},
		"the last write of a turn": {{}, {record: ours, inTurn: true, want: true}, {after: time.Second, record: theirs, want: true}},
		"another after a turn": {
			{}, {record: ours, inTurn: true, want: true}, {after: settled, record: ours, want: true}, {after: 1, record: theirs}, {after: 1, record: ours, want: true},
		},
		"claims of the kubelet":        {{}, {record: theirs, claims: `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":null}]`}},
		"of the Node that it replaces": {{}, {inTurn: true, record: ours, want: true}, {after: RecordFor, record: ours}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for i, s := range steps {
				b.clock.SetTime(b.clock.Now().Add(s.after))
				if s.inTurn {
					b.ExpectRecord("n1")
				}
				n := evictedFrom("n1", s.record)
				n.UID = "u"
				n.Annotations[v1alpha1.AnnotationClaims] = s.claims
				var nodes []*corev1.Node
				if s.record != "" {
					nodes = append(nodes, n)
				}
				got, end := b.records.counting(nodes, b.clock.Now())
				if (len(got) == 1) != s.want || s.want != end.After(b.clock.Now()) {
					t.Errorf("step %d: %d count, until %s", i, len(got), end)
				}
			}
		})
	}
}
