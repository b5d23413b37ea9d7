// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// last is the key of nodes that a criterion puts after all others.
const last = math.MaxInt64

// place is what a candidate is sorted by, besides its keys. It is small and has no pointers, because the sort moves it
// often.
type place struct {
	rank uint64
	// index is that of the candidate.
	index int32
	// turn sorts before all criteria; lower is first.
	turn int32
}

// sort returns the candidates in order: claimed ones, then those that are down, then the others. The operator's own node is
// last of its group. Within a group the strategy's criteria decide, then the rank.
func (p *pass) sort(candidates []candidate) []*candidate {
	criteria := p.strategy.Order
	keys := make([][]int64, len(criteria))
	for i := range criteria {
		keys[i] = p.keysOf(&criteria[i], candidates)
	}
	places := make([]place, len(candidates))
	for i := range candidates {
		c := &candidates[i]
		places[i] = place{rank: c.Rank, index: int32(i)}
		switch {
		case c.begun():
		case c.Down:
			places[i].turn = 2
		default:
			places[i].turn = 4
		}
		if c.Unit.Node == p.strategy.OwnNode {
			places[i].turn++
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.turn != b.turn {
			return cmp.Compare(a.turn, b.turn)
		}
		for _, k := range keys {
			if k[a.index] != k[b.index] {
				return cmp.Compare(k[a.index], k[b.index])
			}
		}
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		return cmp.Compare(candidates[a.index].Unit.Node, candidates[b.index].Unit.Node)
	})
	order := make([]*candidate, len(places))
	for i := range places {
		order[i] = &candidates[places[i].index]
	}
	return order
}

// keysOf returns the sort key of every candidate for a criterion.
func (p *pass) keysOf(o *v1alpha1.Order, candidates []candidate) []int64 {
	key := func(*candidate) int64 { return last }
	switch o.By {
	case v1alpha1.OrderZone:
		key = byValue(corev1.LabelTopologyZone, nil, candidates)
	case v1alpha1.OrderLabel:
		key = byValue(o.Key, o.Values, candidates)
	case v1alpha1.OrderFewestEvictionsFirst:
		key = func(c *candidate) int64 {
			if n, known := p.fleet.Evictions[c.Unit.Node]; known {
				return int64(n)
			}
			return last
		}
	case v1alpha1.OrderOldestFirst:
		key = func(c *candidate) int64 { return c.node.Created.Unix() }
	case v1alpha1.OrderNewestFirst:
		key = func(c *candidate) int64 { return -c.node.Created.Unix() }
	case v1alpha1.OrderControlPlaneFirst:
		key = func(c *candidate) int64 { return -controlPlane(c.node) }
	case v1alpha1.OrderControlPlaneLast:
		key = func(c *candidate) int64 { return controlPlane(c.node) }
	}
	keys := make([]int64, len(candidates))
	for i := range candidates {
		keys[i] = key(&candidates[i])
	}
	return keys
}

// byValue returns a key: the place of a label's value among these values, or in the alphabet. Nodes with another value or without the label
// are last.
func byValue(label string, values []string, candidates []candidate) func(*candidate) int64 {
	if len(values) == 0 {
		seen := map[string]bool{}
		for i := range candidates {
			if value, ok := candidates[i].node.Labels[label]; ok {
				seen[value] = true
			}
		}
		values = slices.Sorted(maps.Keys(seen))
	}
	places := make(map[string]int64, len(values))
	for i, value := range slices.Backward(values) {
		places[value] = int64(i)
	}
	return func(c *candidate) int64 {
		if value, ok := c.node.Labels[label]; ok {
			if place, ok := places[value]; ok {
				return place
			}
		}
		return last
	}
}

// controlPlane returns 1 for a node of the control plane, and 0 for another.
func controlPlane(n *Node) int64 {
	_, is := n.Labels["node-role.kubernetes.io/control-plane"]
	_, was := n.Labels["node-role.kubernetes.io/master"]
	if is || was {
		return 1
	}
	return 0
}

// Rank shuffles nodes, in the same way each time for one rollout and revision, so that no node is always first. It is the
// order of system-upgrade-controller: by sha256 of node uid, rollout uid and revision.
func Rank(node, rollout types.UID, revision string) uint64 {
	buffer := append(make([]byte, 0, 160), node...)
	buffer = append(buffer, rollout...)
	sum := sha256.Sum256(append(buffer, revision...))
	return binary.BigEndian.Uint64(sum[:8])
}

// Spread changes the ranks of nodes so that the place with the most remaining nodes is next. Within a place the order of
// the ranks stays. Each rank belongs to the node with the same index. A place is, for example, a zone of a scale set.
// Clouds add machines in the zone with the fewest machines, so zones that finish early would unbalance the scale set. Nodes
// in a turn are excluded: they still count for their place until the turn ends, so all further starts would go there.
func Spread(places []string, ranks []*uint64) {
	rows := map[string][]int{}
	for i, place := range places {
		rows[place] = append(rows[place], i)
	}
	for _, row := range rows {
		slices.SortFunc(row, func(a, b int) int { return cmp.Compare(*ranks[b], *ranks[a]) })
		for left, i := range row {
			// The more nodes of its place remain after it, the earlier it starts.
			*ranks[i] = uint64(len(ranks)-left)<<40 | *ranks[i]>>24
		}
	}
}
