// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

func TestOrder(t *testing.T) {
	node := func(zone, pool string, age int, labels ...string) *Node {
		n := &Node{Labels: map[string]string{}, Created: noon.Add(-time.Duration(age) * time.Hour)}
		if zone != "" {
			n.Labels["topology.kubernetes.io/zone"] = zone
		}
		if pool != "" {
			n.Labels["pool"] = pool
		}
		for _, l := range labels {
			n.Labels[l] = ""
		}
		return n
	}
	fleet := nodesOf(map[string]*Node{
		"a": node("west", "web", 5),
		"b": node("east", "db", 3, "node-role.kubernetes.io/control-plane"),
		"c": node("", "", 4, "node-role.kubernetes.io/master"),
		"d": node("east", "web", 1),
	})
	fleet.Evictions = map[string]int{"a": 9, "c": 0, "d": 2}
	// By rank alone: d, c, b, a. Of node e nothing is known.
	units := []Unit{outdated("a", ranked(4)), outdated("b", ranked(3)), outdated("c", ranked(2)), outdated("d", ranked(1)), outdated("e", ranked(5))}
	by := func(all ...v1alpha1.OrderBy) []v1alpha1.Order {
		var order []v1alpha1.Order
		for _, b := range all {
			order = append(order, v1alpha1.Order{By: b})
		}
		return order
	}
	for name, tc := range map[string]struct {
		order []v1alpha1.Order
		own   string
		edit  func([]Unit)
		want  string
	}{
		"by rank":                     {want: "dcbae"},
		"zones":                       {order: by(v1alpha1.OrderZone), want: "dbace"},
		"a label":                     {order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "pool"}}, want: "bdace"},
		"a label's values":            {order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "pool", Values: []string{"web", "db"}}}, want: "dabce"},
		"some values":                 {order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "pool", Values: []string{"db", "nothing"}}}, want: "bdcae"},
		"oldest first":                {order: by(v1alpha1.OrderOldestFirst), want: "eacbd"},
		"newest first":                {order: by(v1alpha1.OrderNewestFirst), want: "dbcae"},
		"control plane first":         {order: by(v1alpha1.OrderControlPlaneFirst), want: "cbdae"},
		"control plane last":          {order: by(v1alpha1.OrderControlPlaneLast), want: "daecb"},
		"fewest evictions":            {order: by(v1alpha1.OrderFewestEvictionsFirst), want: "cdabe"},
		"zones, oldest":               {order: by(v1alpha1.OrderZone, v1alpha1.OrderOldestFirst), want: "bdaec"},
		"the operator's own":          {own: "d", want: "cbaed"},
		"own, zones":                  {order: by(v1alpha1.OrderZone), own: "d", want: "baced"},
		"claimed before others":       {own: "d", edit: func(u []Unit) { u[0].Claimed = true; u[3].Claimed = true }, want: "adcbe"},
		"down before others, by rank": {edit: func(u []Unit) { u[0].Down, u[2].Down = true, true }, want: "cadbe"},
		"down before others, also where the order says otherwise": {order: by(v1alpha1.OrderZone), edit: func(u []Unit) { u[2].Down = true }, want: "cdbae"},
		"claimed before what is down":                             {edit: func(u []Unit) { u[0].Claimed, u[2].Down, u[3].Down, u[3].Claimed = true, true, true, true }, want: "dacbe"},
		"the operator's own among those that are down":            {own: "d", edit: func(u []Unit) { u[0].Down, u[3].Down = true, true }, want: "adcbe"},
		"same rank, by name": {edit: func(u []Unit) {
			for i := range u {
				u[i].Rank = 7
			}
		}, want: "abcde"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := slices.Clone(units)
			if tc.edit != nil {
				tc.edit(asked)
			}
			slices.Reverse(asked)
			got := ""
			for _, node := range Decide(Strategy{UID: own, MaxConcurrent: 9, Order: tc.order, OwnNode: tc.own}, asked, fleet, noon).Start {
				got += node
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
