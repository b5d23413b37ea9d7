// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/rollout"
)

// evictions counts by node the pods that a drain would evict.
type evictions struct {
	mu    sync.RWMutex
	count map[string]int
}

// newPods returns the watch of the pods of all namespaces that have not ended.
func newPods(g *gates) *watch {
	return &watch{kind: "pods", object: &corev1.Pod{}, list: &corev1.PodList{}, gates: g, matters: func(old, now client.Object) bool {
		before, _ := old.(*corev1.Pod)
		after, _ := now.(*corev1.Pod)
		g.evictions.change(before, after)
		return g.podMatters(before, after)
	}}
}

// podMatters reports whether the change of a pod may change a pods gate.
func (g *gates) podMatters(old, now *corev1.Pod) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.rules {
		for i := range r.pods {
			before := old != nil && r.pods[i].Selects(old, g.namespaceLabels)
			after := now != nil && r.pods[i].Selects(now, g.namespaceLabels)
			if before != after || after && old.Spec.NodeName != now.Spec.NodeName {
				return true
			}
		}
	}
	return false
}

// closedByPods returns the closed pods gates.
func (g *gates) closedByPods(r *rules) (a answer) {
	why := g.pods.unknown()
	if why == "" && r.byNamespace() {
		why = g.namespaces.unknown()
	}
	if why != "" {
		a.close(v1alpha1.ReasonPodsBlock, why)
		return a
	}
	stored := g.pods.store.List()
	pods := make([]*corev1.Pod, 0, len(stored))
	for _, o := range stored {
		if p, ok := o.(*corev1.Pod); ok {
			pods = append(pods, p)
		}
	}
	a.blocks, a.nodes = rollout.PodBlocks(r.pods, pods, g.namespaceLabels)
	return a
}

// newNamespaces returns the watch of the namespaces, for the gates that select by their labels.
func newNamespaces(g *gates) *watch {
	return &watch{kind: "namespaces", object: &corev1.Namespace{}, list: &corev1.NamespaceList{}, gates: g, matters: func(old, now client.Object) bool {
		// The pods of a deleted namespace are already gone.
		return now != nil && (old == nil || !maps.Equal(old.GetLabels(), now.GetLabels()))
	}}
}

func (g *gates) namespaceLabels(name string) (labels.Set, bool) {
	if g.namespaces.unknown() != "" {
		return nil, false
	}
	if n := g.namespaces.get("", name); n != nil {
		return n.GetLabels(), true
	}
	return nil, false
}

// everything is a drain that leaves only pods that no drain evicts. Pods that a more careful drain refuses count too.
var everything = drain.Options{Force: true, IgnoreDaemonSets: true, DeleteEmptyDirData: true}

// nodeOfEvictable returns the node from which a drain would evict the pod, or "".
func nodeOfEvictable(pod *corev1.Pod) string {
	if pod == nil || ended(pod) || drain.Filter([]corev1.Pod{*pod}, drain.Facts{}, everything)[0].Action != drain.Evict {
		return ""
	}
	return pod.Spec.NodeName
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// change counts a pod that has changed. Either pod may be nil.
func (e *evictions) change(old, now *corev1.Pod) {
	before, after := nodeOfEvictable(old), nodeOfEvictable(now)
	if before == after {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count[before]--; e.count[before] <= 0 {
		delete(e.count, before)
	}
	if after != "" {
		e.count[after]++
	}
}

// CountEvictions returns how many pods a drain would evict from each of the nodes: all but mirror pods and pods of DaemonSets. The first
// call starts to read the pods. Until they are read, it returns nothing.
func (f *Fleet) CountEvictions(nodes map[string]*rollout.Node) map[string]int {
	g := f.gates
	g.pods.want()
	if g.pods.unknown() != "" {
		return nil
	}
	g.evictions.mu.RLock()
	defer g.evictions.mu.RUnlock()
	counts := make(map[string]int, len(nodes))
	for name := range nodes {
		counts[name] = g.evictions.count[name]
	}
	return counts
}
