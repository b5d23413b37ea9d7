// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/fleet"
)

// memos keep for each ExtendedDaemonSet what one look at it can take over from the last. To forget them costs time only.
type memos struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memo
}

// memo is used by one reconcile at a time: an ExtendedDaemonSet has no two.
type memo struct {
	version uint64
	nodes   []*corev1.Node

	// basis is what the places were found out by.
	basis  basis
	places map[*corev1.Node]map[types.UID]placed
}

// placed is what a node is to a revision.
type placed struct {
	placement daemon.Placement
	overrides daemon.Overrides
	problem   string
}

// basis is what of the ExtendedDaemonSet and its settings decides on places.
type basis struct {
	generation int64
	settings   string
}

func newMemos() *memos { return &memos{all: map[types.NamespacedName]*memo{}} }

func (m *memos) of(key types.NamespacedName) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[key] == nil {
		m.all[key] = &memo{}
	}
	return m.all[key]
}

func (m *memos) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// sorted are the nodes by name.
func (m *memo) sorted(s fleet.Snapshot) []*corev1.Node {
	if m.version != s.Version || len(m.nodes) != len(s.Objects) {
		m.version, m.nodes = s.Version, slices.SortedFunc(slices.Values(s.Objects), func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	return m.nodes
}

// begin drops what is known of places when what decides on them has changed.
func (m *memo) begin(eds *edsv1.ExtendedDaemonSet, settings []*edsv1.ExtendedDaemonsetSetting) {
	var versions strings.Builder
	for _, s := range settings {
		versions.WriteString(string(s.UID) + "/" + s.ResourceVersion + " ")
	}
	now := basis{eds.Generation, versions.String()}
	if m.basis != now || m.places == nil || len(m.places) > 2*len(m.nodes)+100 {
		m.basis, m.places = now, make(map[*corev1.Node]map[types.UID]placed, len(m.nodes))
	}
}

// look is what a node is to a revision, found out once for each Node as the cache has it.
func (m *memo) look(n *corev1.Node, at *site, find func() placed) placed {
	of := m.places[n]
	if found, ok := of[at.set.UID]; ok {
		return found
	}
	if of == nil {
		of = make(map[types.UID]placed, 1)
		m.places[n] = of
	}
	found := find()
	of[at.set.UID] = found
	return found
}
