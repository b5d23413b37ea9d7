// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/rollout"
)

// newPods returns the watch of the pods of all namespaces that have not ended.
func newPods(g *gates) *watch {
	return newWatch(g, "pods", &corev1.Pod{}, &corev1.PodList{}, func(old, now client.Object) bool {
		before, _ := old.(*corev1.Pod)
		after, _ := now.(*corev1.Pod)
		return g.podMatters(before, after)
	})
}

// newNamespaces returns the watch of the namespaces, for the gates that select by their labels.
func newNamespaces(g *gates) *watch {
	return newWatch(g, "namespaces", &corev1.Namespace{}, &corev1.NamespaceList{}, func(old, now client.Object) bool {
		// The pods of a deleted namespace are already gone.
		return now != nil && (old == nil || !maps.Equal(old.GetLabels(), now.GetLabels()))
	})
}

func (g *gates) namespaceLabels(name string) (labels.Set, bool) {
	if g.namespaces.whyUnknown() != "" {
		return nil, false
	}
	if n := g.namespaces.get("", name); n != nil {
		return n.GetLabels(), true
	}
	return nil, false
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

// podBlocks is what the pods gates of a budget close: for all nodes, and for single nodes by name. It is replaced, never
// changed.
type podBlocks struct {
	version uint64
	all     []rollout.Block
	byNode  map[string]rollout.Block
}

// closedByPods returns the closed pods gates. It searches all pods again only after a relevant change.
func (g *gates) closedByPods(r *rules) podBlocks {
	why := g.pods.whyUnknown()
	if why == "" && r.byNamespace() {
		why = g.namespaces.whyUnknown()
	}
	if why != "" {
		return podBlocks{all: []rollout.Block{{Gate: v1alpha1.ReasonPodsBlock, Message: why}}}
	}
	version := g.version.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found.version != version {
		r.found = podBlocks{version: version}
		r.found.all, r.found.byNode = rollout.PodBlocks(r.pods, objectsOf[*corev1.Pod](g.pods.store), g.namespaceLabels)
	}
	return r.found
}

// ReadsPods reports whether the pods are being read, so that CountEvictions will know them in a moment.
func (f *Fleet) ReadsPods() bool { return f.gates.pods.whyUnknown() == f.gates.pods.reading() }

// CountEvictions returns how many pods a drain would evict from each of the nodes: all but mirror pods and pods of
// DaemonSets. The first call starts to read the pods. Until they are read, it returns nothing.
func (f *Fleet) CountEvictions(nodes map[string]*rollout.Node) map[string]int {
	g := f.gates
	g.mu.Lock()
	g.pods.want()
	g.mu.Unlock()
	if g.pods.whyUnknown() != "" {
		return nil
	}
	counts := make(map[string]int, len(nodes))
	for name := range nodes {
		counts[name] = 0
	}
	for _, pod := range objectsOf[*corev1.Pod](g.pods.store) {
		if n, ok := counts[pod.Spec.NodeName]; ok && drain.MayEvict(pod) {
			counts[pod.Spec.NodeName] = n + 1
		}
	}
	return counts
}
