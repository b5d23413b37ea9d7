// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/rollout"
)

// Cluster is what the user may read of a cluster, at one moment.
type Cluster struct {
	plans        []upgradev1.Plan
	daemons      Daemons
	nodeRollouts []v1alpha1.NodeRollout
	nodes        []*corev1.Node // in the order of their names; nil if they may not be read
	nodeByName   map[string]*corev1.Node
	budgets      []v1alpha1.NodeDisruptionBudget // by name, without those that are being deleted
	fleet        rollout.Fleet                   // the nodes and budgets, as the engine sees them
	ownNode      string                          // the node that the operator runs on; empty if unknown
	now          time.Time
}

// See makes a Cluster of the objects. Nodes are nil if they may not be read: then only the statuses are shown.
// Budgets are empty if they may not be read, or if the kind does not exist.
func See(plans []upgradev1.Plan, nodes []corev1.Node, budgets []v1alpha1.NodeDisruptionBudget, now time.Time) *Cluster {
	c := &Cluster{plans: plans, now: now}
	c.budgets = slices.DeleteFunc(slices.Clone(budgets), func(b v1alpha1.NodeDisruptionBudget) bool { return b.DeletionTimestamp != nil })
	slices.SortFunc(c.budgets, func(a, b v1alpha1.NodeDisruptionBudget) int { return cmp.Compare(a.Name, b.Name) })
	if nodes == nil {
		return c
	}
	c.nodes, c.nodeByName = make([]*corev1.Node, len(nodes)), make(map[string]*corev1.Node, len(nodes))
	c.fleet.Nodes = make(map[string]*rollout.Node, len(nodes))
	for i := range nodes {
		c.nodes[i], c.nodeByName[nodes[i].Name] = &nodes[i], &nodes[i]
		c.fleet.Nodes[nodes[i].Name] = rollout.NewNode(&nodes[i])
	}
	slices.SortFunc(c.nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range c.budgets {
		c.fleet.Budgets = append(c.fleet.Budgets, engineBudget(&c.budgets[i]))
	}
	return c
}

// NodeRollouts adds NodeRollouts to the cluster. Others may be the same ones or more. They are not shown, but the Nodes that they deleted count
// until replacements join.
func (c *Cluster) NodeRollouts(shown []v1alpha1.NodeRollout, others ...v1alpha1.NodeRollout) *Cluster {
	c.nodeRollouts = shown
	if c.nodes == nil {
		return c
	}
	for _, nr := range slices.Concat(shown, others) {
		for _, n := range replacement.AbsentNodes(KindNodeRollout+"/"+nr.Name, nr.UID, nr.Status.Turns) {
			if c.fleet.Nodes[n.Name] == nil {
				c.fleet.Nodes[n.Name] = rollout.NewNode(n)
			}
		}
	}
	return c
}

// Nodes returns the nodes by name; nil if they may not be read.
func (c *Cluster) Nodes() []*corev1.Node { return c.nodes }

// OwnNode sets the node that the operator runs on. Its turn comes last.
func (c *Cluster) OwnNode(name string) { c.ownNode = name }

// Evictions sets how many pods a drain would evict, by node name. Strategies may order nodes by this number.
func (c *Cluster) Evictions(count map[string]int) {
	c.fleet.Evictions = map[string]int{}
	for name := range c.fleet.Nodes {
		c.fleet.Evictions[name] = count[name]
	}
}

// claimOn returns the claim of the rollout with this uid on a node, or nil.
func (c *Cluster) claimOn(node string, uid types.UID) *v1alpha1.Claim {
	var t nodeturn.Turn
	t.ReadClaims(c.fleet.Nodes[node], uid)
	return t.Claim
}

// addNodeState adds the Node's own state to its line.
func (c *Cluster) addNodeState(line *Node) {
	if n := c.nodeByName[line.Node]; n != nil {
		line.NotReady, line.Cordoned = !IsNodeReady(n), n.Spec.Unschedulable
	}
}

// IsNodeReady reports whether the Node's condition Ready is True.
func IsNodeReady(n *corev1.Node) bool {
	ready, _ := nodeturn.Ready(n)
	return ready
}

// timeOrNil returns a time for the API; nil if it is zero.
func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
