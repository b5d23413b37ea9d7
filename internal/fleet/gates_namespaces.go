// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaces knows the labels of all namespaces.
type namespaces struct {
	watch *watch

	mu     sync.RWMutex
	labels map[string]map[string]string
}

func newNamespaces(g *gates) *namespaces {
	n := &namespaces{labels: map[string]map[string]string{}}
	n.watch = &watch{
		what: "namespaces", object: &corev1.Namespace{}, list: &corev1.NamespaceList{}, seen: n.seen, gone: n.gone, gates: g,
	}
	return n
}

func (n *namespaces) seen(o client.Object) bool {
	n.mu.Lock()
	last, known := n.labels[o.GetName()]
	n.labels[o.GetName()] = o.GetLabels()
	n.mu.Unlock()
	if known && maps.Equal(last, o.GetLabels()) {
		return false
	}
	if n.watch.unknown() == "" {
		n.watch.opened()
	}
	return true
}

func (n *namespaces) gone(o client.Object) bool {
	n.mu.Lock()
	delete(n.labels, o.GetName())
	n.mu.Unlock()
	return false // What is in it has gone before.
}

// selected reports whether a selector, which may be nil, selects a namespace. One that is not known yet might be selected.
func (n *namespaces) selected(by labels.Selector, name string) bool {
	if by == nil {
		return true
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	set, known := n.labels[name]
	return !known || by.Matches(labels.Set(set))
}
