// SPDX-License-Identifier: Apache-2.0

// Package turn is the engine of turns, which all rollouts of nodes share. It reads and wakes rollouts. It claims, cordons, drains and
// releases nodes, and reports. Each controller adds the mechanism that changes a node.
package turn

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodsOfNodes watches the pods of single nodes. drain.Watcher implements it.
type PodsOfNodes interface {
	Watch(node string)
	Stop(node string)
	Pods(node string) ([]corev1.Pod, bool)
}

// Works holds what this process knows about drains in progress: whether a pod has changed since the last pass, and the outcome of that pass. If it
// is lost, the next pass reads the pods again.
type Works struct {
	watch PodsOfNodes

	mu  sync.Mutex
	all map[string]*work // by node
}

// ID names a turn on a node.
type ID struct {
	Rollout types.NamespacedName
	Node    string
	Turn    string
}

// work is what this process knows about one turn. Only the reconcile of the rollout uses it, except stale.
type work struct {
	turn ID
	// stale is set when a pod of the node has changed since the drain's last pass.
	stale atomic.Bool
	// last is the outcome of the last pass. In that pass the rollout had this generation, and dead is whether the node counted as dead.
	last       Outcome
	generation int64
	dead       bool
	// reported is the message in the node's condition, written at reportedAt.
	reported   string
	reportedAt time.Time
}

// NewWorks returns an empty Works.
func NewWorks(watch PodsOfNodes) *Works { return &Works{watch: watch, all: map[string]*work{}} }

// Watch watches the pods of a turn's node: their changes wake the rollout, until StopExcept ends this.
func (k *Works) Watch(t ID) { k.stateOf(t) }

// Begin is Watch at the beginning of a drain: what an earlier drain in the same turn has found does not count.
func (k *Works) Begin(t ID) {
	known := k.stateOf(t)
	known.last = Outcome{}
	known.stale.Store(true)
}

// stateOf returns what is known about a turn. It also watches the node's pods, as Watch does.
func (k *Works) stateOf(t ID) *work {
	k.mu.Lock()
	known := k.all[t.Node]
	if known == nil || known.turn.Turn != t.Turn {
		known = &work{turn: t}
		k.all[t.Node] = known
	}
	k.mu.Unlock()
	k.watch.Watch(t.Node)
	return known
}

// Pods returns the pods of a turn's node, and false until they are known.
func (k *Works) Pods(t ID) ([]corev1.Pod, bool) {
	k.stateOf(t)
	return k.watch.Pods(t.Node)
}

// Known returns what Pods does, and starts no watch.
func (k *Works) Known(t ID) ([]corev1.Pod, bool) { return k.watch.Pods(t.Node) }

// StopExcept drops the rollout's turns, except those on these nodes.
func (k *Works) StopExcept(rollout types.NamespacedName, nodes map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, known := range k.all {
		if known.turn.Rollout == rollout && !nodes[name] {
			k.watch.Stop(name)
			delete(k.all, name)
		}
	}
}

// Changed records that pods of the node have changed, and returns the rollout of the node's turn.
func (k *Works) Changed(node string) (rollout types.NamespacedName, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.all[node]
	if known == nil {
		return rollout, false
	}
	known.stale.Store(true)
	return known.turn.Rollout, true
}
