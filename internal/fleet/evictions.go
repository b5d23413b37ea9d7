// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/rollout"
)

// everything is a drain that leaves on a node only what no drain takes. What a more careful one refuses has to go as well.
var everything = drain.Options{Force: true, IgnoreDaemonSets: true, DeleteEmptyDirData: true}

func evictable(pod *corev1.Pod) bool {
	return drain.Filter([]corev1.Pod{*pod}, drain.Facts{}, everything)[0].Action == drain.Evict
}

// count keeps by node how many pods a drain would evict. Either pod may be nil.
func (p *pods) count(before, now *corev1.Pod) {
	if before != nil && now != nil && before.UID == now.UID && before.Spec.NodeName == now.Spec.NodeName {
		return // What the answer depends on besides never changes, or only at a pod's end.
	}
	if before != nil && before.Spec.NodeName != "" && evictable(before) {
		if p.evictions[before.Spec.NodeName]--; p.evictions[before.Spec.NodeName] == 0 {
			delete(p.evictions, before.Spec.NodeName)
		}
	}
	if now != nil && now.Spec.NodeName != "" && evictable(now) {
		p.evictions[now.Spec.NodeName]++
	}
}

// counted is what CountEvictions returned last, and of what it was made.
type counted struct {
	mu       sync.Mutex
	from, to map[string]*rollout.Node
}

// CountEvictions returns the nodes with how many pods of each a drain would evict: all but those that mirror static pods or
// belong to DaemonSets. While the pods are not known, which the first call asks for, it returns the nodes as they are.
func (f *Fleet) CountEvictions(nodes map[string]*rollout.Node) map[string]*rollout.Node {
	return f.gates.pods.countOn(nodes)
}

func (p *pods) countOn(nodes map[string]*rollout.Node) map[string]*rollout.Node {
	p.watch.want()
	if p.watch.unknown() != "" {
		return nodes
	}
	c := &p.counted
	c.mu.Lock()
	defer c.mu.Unlock()
	p.mu.RLock()
	defer p.mu.RUnlock()
	next := make(map[string]*rollout.Node, len(nodes))
	for name, n := range nodes {
		if last := c.to[name]; last != nil && c.from[name] == n && last.Evictions == p.evictions[name] {
			next[name] = last
			continue
		}
		changed := *n
		changed.Evictions = p.evictions[name]
		next[name] = &changed
	}
	c.from, c.to = nodes, next
	return next
}
