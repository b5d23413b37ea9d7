// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// refusals remember on which nodes the API server has refused a pod, and why, so that these come after the others: what keeps one node
// without a pod is no reason for another to go without. To forget them costs a request.
type refusals struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]refusal
}

// refusal is when a node's pod was last refused, and why.
type refusal struct {
	at  time.Time
	why string
}

// refusedFor is for how long a node that has refused a pod is passed over where there is an old pod that can stay.
const refusedFor = 30 * time.Second

// at is when a node's pod was last refused; zero: it was not.
func (r *refusals) at(key types.NamespacedName, node string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[key][node].at
}

func (r *refusals) refuse(key types.NamespacedName, node, why string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[types.NamespacedName]map[string]refusal{}
	}
	if r.all[key] == nil {
		r.all[key] = map[string]refusal{}
	}
	r.all[key][node] = refusal{now, why}
}

// why says why a pod is refused: of all nodes that lack theirs for that the first by name, so that it is the same whichever is
// tried. It is "" where none is.
func (r *refusals) why(key types.NamespacedName) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := ""
	for node := range r.all[key] {
		if first == "" || node < first {
			first = node
		}
	}
	return r.all[key][first].why
}

// keep forgets the nodes that have their pod by now, or are gone.
func (r *refusals) keep(key types.NamespacedName, lacks func(node string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for node := range r.all[key] {
		if !lacks(node) {
			delete(r.all[key], node)
		}
	}
}

func (r *refusals) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, key)
}

// refusedPause is how long a node whose pod was refused is not tried again, whatever else happens meanwhile.
const refusedPause = 5 * time.Second

// rested are the spots but for those whose pod was refused a moment ago. It notes when these are to be tried again.
func (p *pass) rested(spots []*spot) []*spot {
	var rested []*spot
	for _, s := range spots {
		if again := s.refused.Add(refusedPause); !s.refused.IsZero() && p.now.Before(again) {
			p.at(again)
		} else {
			rested = append(rested, s)
		}
	}
	return rested
}

// inTurn are the spots by name, and after them those whose pod was refused, the one that has waited longest first.
func (p *pass) inTurn() []*spot {
	lacking := make(map[string]bool, len(p.spots))
	turns := make([]*spot, len(p.spots))
	for i := range p.spots {
		s := &p.spots[i]
		turns[i] = s
		lacking[s.node.Name] = s.placement.Create && s.fresh == nil && s.promised.IsZero()
	}
	p.refusals.keep(p.key, func(node string) bool { return lacking[node] })
	for _, s := range turns {
		s.refused = p.refusals.at(p.key, s.node.Name)
	}
	slices.SortStableFunc(turns, func(a, b *spot) int {
		return cmp.Or(a.refused.Compare(b.refused), strings.Compare(a.node.Name, b.node.Name))
	})
	return turns
}
