// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodsOfNodes follows the pods of single nodes; drain.Watcher does.
type PodsOfNodes interface {
	Watch(node string)
	Stop(node string)
	Pods(node string) ([]corev1.Pod, bool)
}

// Works is what this process knows of drains under way: whether a pod has changed since a drain's last pass, and how that ended. Without it the next
// pass looks at the node again.
type Works struct {
	watch PodsOfNodes

	mu  sync.Mutex
	all map[string]*work // by node
}

// Of names a turn on a node.
type Of struct {
	Rollout types.NamespacedName
	Node    string
	Turn    string
}

// work is what this process knows of one turn. But for stale it belongs to the one who reconciles the rollout.
type work struct {
	of Of
	// stale is set when a pod of the node has changed since the drain's last pass.
	stale atomic.Bool
	// last is how the last pass ended. It was for this generation of the rollout, and for a node that was taken for dead or not.
	last       Outcome
	generation int64
	dead       bool
	// reported is the message in the node's condition, written at reportedAt.
	reported   string
	reportedAt time.Time
}

// NewWorks knows nothing yet.
func NewWorks(watch PodsOfNodes) *Works { return &Works{watch: watch, all: map[string]*work{}} }

// of is what is known of a turn. The rollout is woken by the node's pods until the turn is over.
func (k *Works) of(t Of) *work {
	k.mu.Lock()
	known := k.all[t.Node]
	if known == nil || known.of.Turn != t.Turn {
		known = &work{of: t}
		k.all[t.Node] = known
	}
	k.mu.Unlock()
	k.watch.Watch(t.Node)
	return known
}

// IsDrained reports whether the turn's drain of the node is done, as far as this process knows.
func (k *Works) IsDrained(t Of) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.all[t.Node]
	return known != nil && known.of.Turn == t.Turn && known.last.Done
}

// Pods are those of the node of a turn, and false while they are not known yet.
func (k *Works) Pods(t Of) ([]corev1.Pod, bool) {
	k.of(t)
	return k.watch.Pods(t.Node)
}

// Keep forgets the rollout's turns, but for those on these nodes.
func (k *Works) Keep(rollout types.NamespacedName, nodes map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, known := range k.all {
		if known.of.Rollout == rollout && !nodes[name] {
			k.watch.Stop(name)
			delete(k.all, name)
		}
	}
}

// Changed notes that pods of the node have changed, and returns the rollout whose turn that is.
func (k *Works) Changed(node string) (rollout types.NamespacedName, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.all[node]
	if known == nil {
		return rollout, false
	}
	known.stale.Store(true)
	return known.of.Rollout, true
}
