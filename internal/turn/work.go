// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

// PodsOfNodes follows the pods of single nodes; drain.Watcher does.
type PodsOfNodes interface {
	Watch(node string)
	Stop(node string)
	Pods(node string) ([]corev1.Pod, bool)
}

// Works is what this process remembers of turns under way. To forget it costs another look.
type Works struct {
	watch PodsOfNodes

	mu  sync.Mutex
	all map[string]*Work // by node
}

// Of names a turn on a node.
type Of struct {
	Rollout types.NamespacedName
	Node    string
	Turn    string
}

// Work is what this process remembers of one turn. But for stale it belongs to the one who reconciles the rollout.
type Work struct {
	rollout types.NamespacedName
	turn    string
	// watched is true once the node's pods are followed.
	watched bool
	// stale is set when a pod of the node has changed since the drain's last pass.
	stale atomic.Bool
	// passed is for which generation of the rollout the drain has passed, and next when it passes though no pod has changed.
	passed int64
	next   time.Time
	// dead is whether the node was taken for dead then.
	dead bool
	// Drained is set when nothing is left to wait for, and announced when that was said.
	Drained, announced bool
	// failure is set when the drain can't be done.
	failure *v1alpha1.ClaimFailure
	// Left says what was left after the last pass; told what was last said of it, and at when.
	Left   string
	told   string
	toldAt time.Time
	// recorded are the workloads in the node's record of evictions.
	recorded map[node.Workload]bool
}

// fresh are the workloads whose pods go, and that are not recorded yet.
func (k *Work) fresh(r *drain.Result) []node.Workload {
	var fresh []node.Workload
	seen := map[node.Workload]bool{}
	for _, o := range r.In(drain.Evicted) {
		w, ok := node.WorkloadOf(o.Pod.Namespace, o.Owner)
		if ok && !k.recorded[w] && !seen[w] {
			seen[w] = true
			fresh = append(fresh, w)
		}
	}
	return fresh
}

// record notes that workloads are recorded.
func (k *Work) record(workloads []node.Workload) {
	for _, w := range workloads {
		k.recorded[w] = true
	}
}

// NewWorks remembers nothing yet.
func NewWorks(watch PodsOfNodes) *Works { return &Works{watch: watch, all: map[string]*Work{}} }

// Of is what is remembered of a turn that goes on.
func (k *Works) Of(t Of) *Work {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.all[t.Node]
	if known == nil || known.turn != t.Turn {
		next := &Work{rollout: t.Rollout, turn: t.Turn, recorded: map[node.Workload]bool{}}
		next.watched = known != nil && known.watched
		k.all[t.Node], known = next, next
	}
	return known
}

// IsDrained reports whether the turn's drain of the node is done, as far as this process knows.
func (k *Works) IsDrained(t Of) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.all[t.Node]
	return known != nil && known.turn == t.Turn && known.Drained
}

// Pods are those of the node of a turn that is known already, once they are to be seen.
func (k *Works) Pods(t Of) ([]corev1.Pod, bool) {
	k.Follow(t)
	return k.watch.Pods(t.Node)
}

// Follow makes the rollout be woken by the node's pods, until the turn is over.
func (k *Works) Follow(t Of) {
	k.Of(t).watched = true
	k.watch.Watch(t.Node)
}

// Keep forgets what is remembered of the rollout's turns, but for those on these nodes.
func (k *Works) Keep(rollout types.NamespacedName, nodes map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, known := range k.all {
		if known.rollout != rollout || nodes[name] {
			continue
		}
		if known.watched {
			k.watch.Stop(name)
		}
		delete(k.all, name)
	}
}

// Rest lets the node's pods be: nothing of the turn depends on them any more.
func (k *Works) Rest(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.all[node]; known != nil && known.watched {
		known.watched = false
		k.watch.Stop(node)
	}
}

// Changed notes that pods of the node have changed, and says whose turn that is.
func (k *Works) Changed(node string) (rollout types.NamespacedName, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.all[node]
	if known == nil {
		return rollout, false
	}
	known.stale.Store(true)
	return known.rollout, true
}
