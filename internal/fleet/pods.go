// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// pods knows the pods of all namespaces that have not ended: which of them gates select, and how many a drain would evict.
type pods struct {
	gates *gates
	watch *watch

	mu        sync.RWMutex
	all       map[types.NamespacedName]*corev1.Pod
	evictions map[string]int
	// selected are, by rule, the nodes of the pods that it selects; that of a pod that waits for one is "".
	selected map[*podsRule]map[types.NamespacedName]string

	counted counted
}

// podsRule is a pods gate.
type podsRule struct {
	selector, namespaces labels.Selector
	// cluster is true when a pod blocks all nodes.
	cluster bool
}

func newPods(g *gates) *pods {
	p := &pods{
		gates: g, all: map[types.NamespacedName]*corev1.Pod{}, evictions: map[string]int{},
		selected: map[*podsRule]map[types.NamespacedName]string{},
	}
	p.watch = &watch{what: "pods", object: &corev1.Pod{}, list: &corev1.PodList{}, seen: p.seen, gone: p.gone, gates: g}
	g.namespaces.watch.opened = p.selectAgain
	return p
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func (p *pods) seen(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	if !ok || ended(pod) {
		return p.gone(o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	p.count(p.all[key], pod)
	p.all[key] = pod
	matters := false
	for rule, found := range p.selected {
		node, was := found[key]
		switch is := p.selects(rule, pod); {
		case is && (!was || node != pod.Spec.NodeName):
			found[key], matters = pod.Spec.NodeName, true
		case was && !is:
			delete(found, key)
			matters = true
		}
	}
	return matters
}

func (p *pods) gone(o client.Object) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	p.count(p.all[key], nil)
	delete(p.all, key)
	matters := false
	for _, found := range p.selected {
		if _, was := found[key]; was {
			delete(found, key)
			matters = true
		}
	}
	return matters
}

func (p *pods) selects(rule *podsRule, pod *corev1.Pod) bool {
	return selects(rule.selector, pod.Labels) && p.gates.namespaces.selected(rule.namespaces, pod.Namespace)
}

// add finds the pods that a rule selects, from then on.
func (p *pods) add(rule *podsRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.find(rule)
}

func (p *pods) find(rule *podsRule) {
	found := map[types.NamespacedName]string{}
	for key, pod := range p.all {
		if p.selects(rule, pod) {
			found[key] = pod.Spec.NodeName
		}
	}
	p.selected[rule] = found
}

// selectAgain finds the pods anew of all rules that go by namespaces.
func (p *pods) selectAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rule := range p.selected {
		if rule.namespaces != nil {
			p.find(rule)
		}
	}
}

func (p *pods) forget(all []*podsRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rule := range all {
		delete(p.selected, rule)
	}
}

// look says which nodes have pods that block, or why all are blocked.
func (p *pods) look(r *rules, a *answer) {
	why := p.watch.unknown()
	if why == "" && slices.ContainsFunc(r.pods, func(rule *podsRule) bool { return rule.namespaces != nil }) {
		why = p.gates.namespaces.watch.unknown()
	}
	if why != "" {
		a.close(v1alpha1.ReasonPodsBlock, why)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if version := p.gates.version.Load(); r.podsLast == nil || r.podsSeen != version {
		found := p.answer(r.pods)
		r.podsSeen, r.podsLast = version, &found
	}
	a.blocks = append(a.blocks, r.podsLast.blocks...)
	a.nodes = r.podsLast.nodes
}

func (p *pods) answer(all []*podsRule) answer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var a answer
	on := map[string][]string{}
	for _, rule := range all {
		var names []string
		for key, node := range p.selected[rule] {
			switch {
			case rule.cluster:
				names = append(names, key.String())
			case node != "":
				on[node] = append(on[node], key.String())
			}
		}
		if len(names) > 0 {
			a.close(v1alpha1.ReasonPodsBlock, sentence("pod", names, "there"))
		}
	}
	if len(on) > 0 {
		a.nodes = make(map[string]rollout.Block, len(on))
	}
	for node, names := range on {
		a.nodes[node] = rollout.Block{Gate: v1alpha1.ReasonPodsBlock, Message: sentence("pod", names, "on it")}
	}
	return a
}
