// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/outbound"
	"moult.dev/moult/internal/rollout"
)

// gates computes which gates of each budget are closed. It reads only memory. Watches and pollers fill it; they start when
// a budget first needs them. Until their first result a gate is closed.
type gates struct {
	clock      clock.PassiveClock
	api        client.Reader
	namespaces *watch
	pods       *watch
	workloads  map[string]*watch
	watches    []*watch // all of these
	// kinds are the watches of the kinds that workloads gates name.
	kinds map[v1alpha1.WorkloadKind]*watch

	// transport is for queries of Prometheus, and namespace that of the Secrets with credentials for them.
	transport *outbound.Transport
	namespace string
	// changed wakes all who wait for a budget.
	changed func()
	// version counts changes, because a search of all pods is repeated only after one.
	version atomic.Uint64
	// start runs a watch or a poller in the background while this process leads.
	start func(run func(context.Context))

	// reading guards known, and mu the rules.
	reading sync.Mutex
	known   known

	mu sync.Mutex
	// rules of each budget, by its name.
	rules map[string]*rules
}

// known are all budgets as they were read last.
type known struct {
	// version is Fleet.budgetChanges before they were read.
	version uint64
	// generations are those of the budgets. A change of a status does not matter.
	generations map[types.UID]int64
	// budgets are sorted by name, without closed gates. gated are the rules of those with gates, by name.
	budgets []rollout.Budget
	gated   map[string]*rules
}

// read returns these budgets, and sorts the list. Of thousands only those with gates cost each decision time. The caller holds the lock reading.
func (g *gates) read(objects []*v1alpha1.NodeDisruptionBudget) known {
	slices.SortFunc(objects, func(a, b *v1alpha1.NodeDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	k := known{
		generations: make(map[types.UID]int64, len(objects)), budgets: make([]rollout.Budget, 0, len(objects)), gated: map[string]*rules{},
	}
	names := make(map[string]bool, len(objects))
	for _, o := range objects {
		k.generations[o.UID] = o.Generation
		if o.DeletionTimestamp != nil {
			continue
		}
		r := g.rulesOf(o)
		if o.Spec.Gates != nil {
			k.gated[o.Name] = r
		}
		k.budgets, names[o.Name] = append(k.budgets, r.budget), true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, r := range g.rules {
		if !names[name] {
			r.alerts.stop()
			delete(g.rules, name)
		}
	}
	return k
}

func newGates(clk clock.PassiveClock, pods cache.Informers, changed func()) *gates {
	g := &gates{
		clock: clk, changed: changed, start: func(func(context.Context)) {}, rules: map[string]*rules{}, kinds: map[v1alpha1.WorkloadKind]*watch{},
		transport: outbound.NewTransport(true),
	}
	g.version.Store(1)
	g.namespaces, g.pods, g.workloads = newNamespaces(g), newPods(g), newWorkloads(g)
	g.watches = append(slices.Collect(maps.Values(g.workloads)), g.namespaces, g.pods)
	for _, w := range []*watch{g.pods, g.workloads[kindJob], g.workloads[kindPDB]} {
		w.from = pods // The manager's cache has only the operator's own Jobs.
	}
	return g
}

// notice is called after a change that may open or close a gate.
func (g *gates) notice() {
	g.version.Add(1)
	g.changed()
}

// rules are the gates of one budget, read once for each generation of it.
type rules struct {
	uid        types.UID
	generation int64
	budget     rollout.Budget
	workloads  *workloadsRule
	pods       []rollout.PodsGate
	alerts     *poller

	mu sync.Mutex
	// found holds what the pods gates answered at a version.
	found podBlocks
}

// withClosedGates returns a budget with its closed gates. evicted are nodes with a record of evictions. What the workload except lacks closes
// no gate.
func (g *gates) withClosedGates(r *rules, of *rollout.Budget, evicted []*corev1.Node, except string) *rollout.Budget {
	b := *of
	if r.workloads != nil {
		if why := g.closedByWorkloads(r.workloads, b.Selector, evicted, except); why != "" {
			b.Blocks = append(b.Blocks, rollout.Block{Gate: v1alpha1.ReasonWorkloadsUnavailable, Message: why})
		}
	}
	if len(r.pods) > 0 {
		found := g.closedByPods(r)
		b.Blocks, b.NodeBlocks = append(b.Blocks, found.all...), found.byNode
	}
	if r.alerts != nil {
		block, ignored := r.alerts.judge()
		if block.Gate != "" {
			b.Blocks = append(b.Blocks, block)
		}
		b.AlertsIgnored = ignored
	}
	return &b
}

// rulesOf returns a budget's gates, and starts the watches and the poller that they need.
func (g *gates) rulesOf(from *v1alpha1.NodeDisruptionBudget) *rules {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.rules[from.Name]
	if last != nil && last.uid == from.UID && last.generation == from.Generation {
		return last
	}
	r := &rules{uid: from.UID, generation: from.Generation, budget: rollout.NewBudget(from)}
	if gates := from.Spec.Gates; gates != nil {
		if err := r.parse(g, gates); err != nil {
			// An invalid budget blocks all its nodes.
			r = &rules{uid: from.UID, generation: from.Generation, budget: r.budget}
			r.budget.Error = cmp.Or(r.budget.Error, "spec.gates."+err.Error())
		}
	}
	if r.workloads != nil {
		for _, w := range g.workloads {
			w.want()
		}
		for _, w := range r.workloads.watches {
			w.want()
		}
	}
	if len(r.pods) > 0 {
		g.pods.want()
	}
	if r.byNamespace() {
		g.namespaces.want()
	}
	var before *poller
	if last != nil {
		before = last.alerts
	}
	if before != nil && r.alerts != nil && equality.Semantic.DeepEqual(before.gate, r.alerts.gate) {
		r.alerts = before // It keeps its answers.
	} else {
		before.stop()
		if r.alerts != nil {
			g.start(r.alerts.run)
		}
	}
	g.rules[from.Name] = r
	return r
}

// parse reads a budget's gates. The error names the field.
func (r *rules) parse(g *gates, from *v1alpha1.Gates) error {
	var err error
	if w := from.Workloads; w != nil {
		r.workloads = &workloadsRule{kinds: w.Kinds}
		for _, kind := range w.Kinds {
			if _, err = schema.ParseGroupVersion(kind.APIVersion); err != nil {
				return fmt.Errorf("workloads.kinds: %w", err)
			}
			r.workloads.watches = append(r.workloads.watches, g.watchOf(kind))
		}
		if r.workloads.selector, err = rollout.NewSelector(w.Selector); err != nil {
			return fmt.Errorf("workloads.selector: %w", err)
		}
		if r.workloads.namespaces, err = rollout.NewSelector(w.NamespaceSelector); err != nil {
			return fmt.Errorf("workloads.namespaceSelector: %w", err)
		}
	}
	if r.pods, err = rollout.NewPodsGates(from.Pods); err != nil {
		return err
	}
	if a := from.Alerts; a != nil {
		if r.alerts, err = newPoller(g, a); err != nil {
			return fmt.Errorf("alerts.%w", err)
		}
	}
	return nil
}

// byNamespace reports whether a gate selects by the labels of namespaces.
func (r *rules) byNamespace() bool {
	return r.workloads != nil && r.workloads.namespaces != nil ||
		slices.ContainsFunc(r.pods, func(g rollout.PodsGate) bool { return g.Namespaces != nil })
}

const (
	// named is how many items a message names.
	named = 3
	// longest limits text of other programs in a message, in bytes.
	longest = 200
)

// firstOf joins the first few texts, and counts the others.
func firstOf(texts []string, between string) string {
	var shown []string
	for _, text := range texts[:min(len(texts), named)] {
		shown = append(shown, rollout.Shorten(text, longest))
	}
	text := strings.Join(shown, between)
	if more := len(texts) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
