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

// gates computes which gates of each budget are closed. It reads only memory. Watches and pollers fill it; they start when
// a budget first needs them. Until their first result a gate is closed.
type gates struct {
	clock      clock.PassiveClock
	client     client.Client
	namespaces *watch
	pods       *watch
	workloads  map[string]*watch
	watches    []*watch // all of them
	evictions  evictions
	alerts     *alerts
	absent     func(context.Context) ([]*corev1.Node, error)

	// changed wakes all rollouts that wait for a budget; noticed wakes the listeners that compute the answers again.
	changed func()
	noticed changes
	// version counts changes: an answer is valid until the next change.
	version atomic.Uint64
	// started receives a token when there are watches or pollers to start.
	started chan struct{}

	mu    sync.Mutex
	rules map[string]*rules
}

func newGates(clk clock.PassiveClock, c client.Client, pods client.Reader) *gates {
	g := &gates{
		clock: clk, client: c, changed: func() {}, started: make(chan struct{}, 1), rules: map[string]*rules{}, evictions: evictions{count: map[string]int{}},
	}
	g.version.Store(1)
	g.namespaces, g.pods, g.workloads, g.alerts = newNamespaces(g), newPods(g), newWorkloads(g), newAlerts(g)
	g.watches = append(slices.Collect(maps.Values(g.workloads)), g.namespaces, g.pods)
	if from, ok := pods.(cache.Informers); ok {
		g.pods.from = from
	}
	return g
}

// OnGates calls notice after every change that may open or close a gate. notice must return at once and have the budgets
// computed soon. The first computation with another answer wakes all waiting rollouts.
func (f *Fleet) OnGates(notice func()) { f.gates.noticed.OnChange(notice) }

// notice is called after a change that may open or close a gate.
func (g *gates) notice() {
	g.version.Add(1)
	g.noticed.Changed()
}

// Forget drops the state of a deleted budget, and stops its poller.
func (f *Fleet) Forget(budget string) {
	g := f.gates
	g.alerts.stop(budget)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.rules, budget)
}

// answer is the closed gates of a budget. It is replaced, never changed.
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

// look adds the gates that are closed now to a budget.
func (g *gates) look(ctx context.Context, from *v1alpha1.NodeDisruptionBudget, b *rollout.Budget) {
	r := g.read(from)
	if r.problem != "" {
		// An invalid budget blocks all its nodes.
		if b.Error == "" {
			b.Error = r.problem
		}
		return
	}
	var a answer
	found := r.found(g)
	if r.workloads != nil {
		g.closedByWorkloads(ctx, r.workloads, found.missing, b.Selector, &a)
	}
	a.blocks, a.nodes = append(a.blocks, found.pods.blocks...), found.pods.nodes
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
	// problem says what is invalid; nothing else is set then.
	problem   string
	workloads *workloadsRule
	pods      []rollout.PodsGate
	alerts    *alertsRule

	mu     sync.Mutex
	last   *answer
	latest found
}

// found is the result of the pod and workload gates, at one version.
type found struct {
	version uint64
	missing []string // workloads
	pods    answer
}

// found checks all pods and workloads again after a relevant change.
func (r *rules) found(g *gates) found {
	version := g.version.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest.version == version {
		return r.latest
	}
	r.latest = found{version: version}
	if r.workloads != nil && g.unknownWorkloads(r.workloads) == "" {
		r.latest.missing = g.missingSelected(r.workloads)
	}
	if len(r.pods) > 0 {
		r.latest.pods = g.closedByPods(r)
	}
	return r.latest
}

// byNamespace reports whether a gate selects by the labels of namespaces.
func (r *rules) byNamespace() bool {
	return r.workloads != nil && r.workloads.namespaces != nil ||
		slices.ContainsFunc(r.pods, func(g rollout.PodsGate) bool { return g.Namespaces != nil })
}

// differs stores an answer, and reports whether it differs from the last one.
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

// need starts the watches that these gates need.
func (g *gates) need(r *rules) {
	if r.workloads != nil {
		for _, w := range g.workloads {
			w.want()
		}
	}
	if len(r.pods) > 0 {
		g.pods.want()
	}
	if r.byNamespace() {
		g.namespaces.want()
	}
}
