// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// last is the number of nodes that a criterion puts after all others.
const last = math.MaxInt64

// place is what a candidate is sorted by: small, and all of them beside each other.
type place struct {
	// turn is lower for what goes before all others, and higher for what goes after.
	turn int
	rank uint64
	// keys are what the strategy's order compares.
	keys []int64
	*candidate
}

// sort gives the candidates in the order in which they would go: those that the rollout has claimed already, then by the
// strategy's criteria, then by rank; and the operator's own node after all others.
func (p *pass) sort(candidates []candidate) []*candidate {
	places := make([]place, len(candidates))
	criteria := p.strategy.Order
	keys := make([]int64, len(candidates)*len(criteria))
	for i := range candidates {
		c := &candidates[i]
		places[i] = place{rank: c.Rank, candidate: c, keys: keys[i*len(criteria) : (i+1)*len(criteria)]}
		if c.Claimed {
			places[i].turn -= 2
		}
		if c.Unit.Node == p.strategy.OwnNode {
			places[i].turn++
		}
	}
	for j := range criteria {
		compareBy(&criteria[j], places, j)
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.turn != b.turn {
			return before(a.turn < b.turn)
		}
		for i := range a.keys {
			if a.keys[i] != b.keys[i] {
				return before(a.keys[i] < b.keys[i])
			}
		}
		if a.rank != b.rank {
			return before(a.rank < b.rank)
		}
		return cmp.Compare(a.Unit.Node, b.Unit.Node)
	})
	order := make([]*candidate, len(places))
	for i := range places {
		order[i] = places[i].candidate
	}
	return order
}

func before(first bool) int {
	if first {
		return -1
	}
	return 1
}

// compareBy sets the so-manieth key of all places to what a criterion compares.
func compareBy(o *v1alpha1.Order, places []place, j int) {
	switch o.By {
	case v1alpha1.OrderZone:
		byValue(corev1.LabelTopologyZone, places, j)
	case v1alpha1.OrderLabel:
		if len(o.Values) == 0 {
			byValue(o.Key, places, j)
			return
		}
		for i := range places {
			places[i].keys[j] = last
			if value, ok := places[i].node.Labels[o.Key]; ok {
				if at := slices.Index(o.Values, value); at >= 0 {
					places[i].keys[j] = int64(at)
				}
			}
		}
	default:
		for i := range places {
			places[i].keys[j] = keyOf(o.By, places[i].node)
		}
	}
}

// byValue is by a label's values; nodes without it come last.
func byValue(label string, places []place, j int) {
	numbers := map[string]int64{}
	for i := range places {
		if value, ok := places[i].node.Labels[label]; ok {
			numbers[value] = 0
		}
	}
	for i, value := range slices.Sorted(maps.Keys(numbers)) {
		numbers[value] = int64(i)
	}
	for i := range places {
		places[i].keys[j] = last
		if value, ok := places[i].node.Labels[label]; ok {
			places[i].keys[j] = numbers[value]
		}
	}
}

// keyOf is what a criterion compares that is no label.
func keyOf(by v1alpha1.OrderBy, n *Node) int64 {
	switch by {
	case v1alpha1.OrderOldestFirst:
		return n.Created.Unix()
	case v1alpha1.OrderNewestFirst:
		return -n.Created.Unix()
	case v1alpha1.OrderControlPlaneFirst:
		return int64(before(controlPlane(n)))
	case v1alpha1.OrderControlPlaneLast:
		return int64(-before(controlPlane(n)))
	case v1alpha1.OrderFewestEvictionsFirst:
		if n.Evictions >= 0 {
			return int64(n.Evictions)
		}
	case v1alpha1.OrderZone, v1alpha1.OrderLabel:
	}
	return last
}

func controlPlane(n *Node) bool {
	_, is := n.Labels["node-role.kubernetes.io/control-plane"]
	_, was := n.Labels["node-role.kubernetes.io/master"]
	return is || was
}
