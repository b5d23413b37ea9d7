// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

const kindDaemonSet = "ExtendedDaemonSet"

// replaced is on which nodes ExtendedDaemonSets replace their pods. An ExtendedDaemonSet finds these by its pods in each pass, so that nothing
// is lost with the process. It adds the nodes that it begins with under the lock of Admit. So this needs no write to the Node, as a claim would.
type replaced struct {
	mu sync.Mutex
	// by has since when, by ExtendedDaemonSet and node.
	by map[types.NamespacedName]map[string]time.Time
	// all is the same by node. It is replaced, never changed.
	all map[string][]rollout.Replacement
	// carriedOut returns the ExtendedDaemonSets that this process carries out; nil if it carries out none.
	carriedOut func(context.Context) ([]reconcile.Request, error)
	// known is true once each of them has found where it replaces its pods.
	known atomic.Bool
}

// DaemonSets tells the fleet how to find the ExtendedDaemonSets that this process carries out, and that workloads gates watch those of all
// namespaces, as other workloads. It is called once, before the manager starts.
func (f *Fleet) DaemonSets(carriedOut func(context.Context) ([]reconcile.Request, error)) {
	f.replaced.carriedOut = carriedOut
	w := newWatch(f.gates, "extendeddaemonsets", &edsv1.ExtendedDaemonSet{}, &edsv1.ExtendedDaemonSetList{}, shortageChanged)
	w.from, f.gates.workloads[kindDaemonSet] = f.gates.pods.from, w
}

// SetReplaced sets on which nodes an ExtendedDaemonSet replaces its pod, and since when. A node that has been there keeps its time.
func (f *Fleet) SetReplaced(daemon types.NamespacedName, nodes map[string]time.Time) {
	if f.replaced.set(daemon, nodes) {
		f.Changed()
	}
}

// KnowsReplaced reports whether each ExtendedDaemonSet has found on which nodes it replaces its pod, since this process began. Until then no
// node may be claimed. One that is created later replaces nothing before its first pass, so that no claim waits for it.
func (f *Fleet) KnowsReplaced(ctx context.Context) bool {
	r := &f.replaced
	if r.carriedOut == nil || r.known.Load() {
		return true
	}
	all, err := r.carriedOut(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || slices.ContainsFunc(all, func(of reconcile.Request) bool { return r.by[of.NamespacedName] == nil }) {
		return false
	}
	r.known.Store(true)
	return true
}

// AddReplaced adds nodes to those of SetReplaced. It is called without nodes when a pass of an ExtendedDaemonSet has failed, or it is invalid. If no
// pass has succeeded yet, it counts as one that replaces nothing, so that it does not keep all rollouts from starting.
func (f *Fleet) AddReplaced(daemon types.NamespacedName, nodes map[string]time.Time) {
	all := map[string]time.Time{}
	maps.Copy(all, nodes)
	f.replaced.mu.Lock()
	maps.Copy(all, f.replaced.by[daemon])
	f.replaced.mu.Unlock()
	f.SetReplaced(daemon, all)
}

// set reports whether nodes have come or gone.
func (r *replaced) set(daemon types.NamespacedName, nodes map[string]time.Time) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, before := make(map[string]time.Time, len(nodes)), r.by[daemon]
	for node, since := range nodes {
		if was, ok := before[node]; ok {
			since = was
		}
		next[node] = since
	}
	if r.by == nil {
		r.by = map[types.NamespacedName]map[string]time.Time{}
	}
	r.by[daemon] = next
	if maps.Equal(before, next) {
		return false
	}
	r.all = map[string][]rollout.Replacement{}
	for of, nodes := range r.by {
		for node, since := range nodes {
			r.all[node] = append(r.all[node], rollout.Replacement{By: kindDaemonSet + "/" + of.String(), Since: since})
		}
	}
	for _, on := range r.all {
		slices.SortFunc(on, func(a, b rollout.Replacement) int {
			return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.By, b.By))
		})
	}
	return true
}

func (r *replaced) byNode() map[string][]rollout.Replacement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}
