// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Cluster is what the user may read of a cluster, at one moment.
type Cluster struct {
	plans   []upgradev1.Plan
	daemons Daemons
	// nodeRollouts are all NodeRollouts.
	nodeRollouts []v1alpha1.NodeRollout
	facts        []fact
	named        map[string]*fact
	byName       []*fact        // by the names of the nodes
	hosts        map[string]int // how many nodes have the same hostname label
	budgets      []v1alpha1.NodeDisruptionBudget
	fleet        rollout.Fleet
	ownNode      string // the node that the operator runs on; empty if unknown
	now          time.Time
}

// See makes a Cluster of the objects. Nodes are nil if they may not be read: then only the statuses are shown.
// Budgets are empty if they may not be read, or if the kind does not exist.
func See(plans []upgradev1.Plan, nodes []corev1.Node, budgets []v1alpha1.NodeDisruptionBudget, now time.Time) *Cluster {
	c := &Cluster{plans: plans, facts: read(nodes), budgets: budgets, now: now, hosts: map[string]int{}, named: map[string]*fact{}}
	if nodes == nil {
		return c
	}
	c.fleet.Nodes = make(map[string]*rollout.Node, len(nodes))
	for i := range c.facts {
		f := &c.facts[i]
		c.fleet.Nodes[f.node.Name] = rollout.NewNode(f.node)
		c.named[f.node.Name] = f
		if hostname, ok := f.node.Labels[corev1.LabelHostname]; ok {
			c.hosts[hostname]++
		}
		c.byName = append(c.byName, f)
	}
	slices.SortFunc(c.byName, func(a, b *fact) int { return cmp.Compare(a.node.Name, b.node.Name) })
	for i := range budgets {
		if budgets[i].DeletionTimestamp == nil {
			c.fleet.Budgets = append(c.fleet.Budgets, engineBudget(&budgets[i]))
		}
	}
	return c
}

// objects returns all Nodes.
func (c *Cluster) objects() []*corev1.Node {
	nodes := make([]*corev1.Node, len(c.facts))
	for i := range c.facts {
		nodes[i] = c.facts[i].node
	}
	return nodes
}

// OwnNode sets the node that the operator runs on. Its turn comes last.
func (c *Cluster) OwnNode(name string) { c.ownNode = name }

// Evictions sets how many pods a drain would evict, by node name. Strategies may order nodes by this number.
func (c *Cluster) Evictions(count map[string]int) {
	c.fleet.Evictions = map[string]int{}
	for name := range c.fleet.Nodes {
		c.fleet.Evictions[name] = count[name]
	}
}

// fact is the state of one node.
type fact struct {
	node   *corev1.Node
	claims []v1alpha1.Claim
	err    error // why the claims can't be read
	ready  bool
}

// read returns the state of each node. It returns nil for nil, which means that Nodes may not be read.
func read(nodes []corev1.Node) []fact {
	if nodes == nil {
		return nil
	}
	facts := make([]fact, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		f := fact{node: n}
		f.claims, f.err = v1alpha1.ParseClaims(n.Annotations)
		for _, c := range n.Status.Conditions {
			f.ready = f.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		facts = append(facts, f)
	}
	return facts
}
