// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// gates knows which gates of which budget are closed. All that it looks at is in memory: watches and pollers, which are
// started when a budget first needs them, write it there, and until they have, a gate is closed.
type gates struct {
	clock      clock.PassiveClock
	client     client.Client
	namespaces *namespaces
	workloads  *workloads
	pods       *pods
	alerts     *alerts
	records    records
	absent     func(context.Context) ([]*corev1.Node, error)

	// changed tells all who wait for a budget; noticed tells who looks for them whether an answer differs.
	changed func()
	noticed changes
	// version counts what was noticed: an answer that nothing newer can change is given again.
	version atomic.Uint64
	// started is given a token when there are watches or pollers to start.
	started chan struct{}

	mu    sync.Mutex
	rules map[string]*rules
}

func newGates(clk clock.PassiveClock, c client.Client, pods client.Reader) *gates {
	g := &gates{clock: clk, client: c, changed: func() {}, started: make(chan struct{}, 1), rules: map[string]*rules{}}
	g.version.Store(1)
	g.namespaces = newNamespaces(g)
	g.workloads = newWorkloads(g)
	g.pods = newPods(g)
	g.alerts = newAlerts(g)
	if from, ok := pods.(cache.Informers); ok {
		g.pods.watch.from = from
	}
	return g
}

// OnGates calls f, from then on, whenever something was noticed that may open or close a gate. It must return at once, and
// see to it that the budgets are looked at soon: whoever looks first finds out whether an answer differs, and tells all.
func (f *Fleet) OnGates(notice func()) { f.gates.noticed.OnChange(notice) }

// notice is called after something was noticed.
func (g *gates) notice() {
	g.version.Add(1)
	g.noticed.Changed()
}

// Forget drops what is remembered of a budget that is gone, and no longer asks Prometheus for it.
func (f *Fleet) Forget(budget string) {
	g := f.gates
	g.alerts.stop(budget)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(budget)
}

func (g *gates) drop(budget string) {
	if r := g.rules[budget]; r != nil {
		g.pods.forget(r.pods)
		delete(g.rules, budget)
	}
}

// answer is which gates of a budget are closed. It is replaced, never changed.
type answer struct {
	blocks []rollout.Block
	nodes  map[string]rollout.Block
}

func (a *answer) close(gate v1alpha1.Reason, why string) {
	a.blocks = append(a.blocks, rollout.Block{Gate: gate, Message: why})
}

func (a *answer) equal(b *answer) bool {
	return slices.Equal(a.blocks, b.blocks) && maps.Equal(a.nodes, b.nodes)
}

// look adds to a budget which of its gates are closed now.
func (g *gates) look(ctx context.Context, from *v1alpha1.NodeDisruptionBudget, b *rollout.Budget) {
	r := g.read(from)
	if r.problem != "" {
		// All of its nodes are blocked by that.
		if b.Error == "" {
			b.Error = r.problem
		}
		return
	}
	var a answer
	if r.workloads != nil {
		g.workloads.look(ctx, r.workloads, b.Selector, &a)
	}
	if len(r.pods) > 0 {
		g.pods.look(r, &a)
	}
	if r.alerts != nil {
		g.alerts.look(from.Name, r.alerts, &a)
	}
	b.Blocks, b.NodeBlocks = slices.Clip(a.blocks), a.nodes
	if r.differs(a) {
		g.changed()
	}
}

// rules are the gates of one budget, read once for each generation of it.
type rules struct {
	uid        types.UID
	generation int64
	// problem says what can't be understood; nothing else is set then.
	problem   string
	workloads *workloadsRule
	pods      []*podsRule
	alerts    *alertsRule

	mu   sync.Mutex
	last *answer
	// podsSeen is the version that podsLast was made of.
	podsSeen uint64
	podsLast *answer
}

// differs notes an answer, and reports whether it is another than the last one.
func (r *rules) differs(a answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last
	r.last = &a
	return last != nil && !last.equal(&a)
}

// read returns a budget's gates.
func (g *gates) read(from *v1alpha1.NodeDisruptionBudget) *rules {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.rules[from.Name]; r != nil && r.uid == from.UID && r.generation == from.Generation {
		return r
	}
	g.drop(from.Name)
	r := &rules{uid: from.UID, generation: from.Generation}
	if gates := from.Spec.Gates; gates != nil {
		if err := r.parse(gates); err != nil {
			r = &rules{uid: from.UID, generation: from.Generation, problem: "spec.gates." + err.Error()}
		}
	}
	g.need(r)
	g.rules[from.Name] = r
	return r
}

// need starts what these gates look at.
func (g *gates) need(r *rules) {
	byNamespace := r.workloads != nil && r.workloads.namespaces != nil
	if r.workloads != nil {
		for _, w := range g.workloads.watches {
			w.want()
		}
	}
	for _, rule := range r.pods {
		byNamespace = byNamespace || rule.namespaces != nil
		g.pods.watch.want()
		g.pods.add(rule)
	}
	if byNamespace {
		g.namespaces.watch.want()
	}
}
