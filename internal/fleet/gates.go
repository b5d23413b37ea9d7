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
	"unicode/utf8"

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
	api        client.Reader
	namespaces *watch
	pods       *watch
	workloads  map[string]*watch
	watches    []*watch // all of them

	// changed wakes all rollouts that wait for a budget; noticed wakes the listeners that compute the answers again.
	changed func()
	noticed changes
	// version counts changes, because a search of all pods is repeated only after one.
	version atomic.Uint64

	mu      sync.Mutex
	rules   map[string]*rules
	pollers map[string]*poller
	// pending are the watches and pollers that start when this process leads; spawn starts one after that.
	pending []func(context.Context)
	spawn   func(func(context.Context))
}

func newGates(clk clock.PassiveClock, pods client.Reader) *gates {
	g := &gates{clock: clk, changed: func() {}, rules: map[string]*rules{}, pollers: map[string]*poller{}}
	g.version.Store(1)
	g.namespaces, g.pods, g.workloads = newNamespaces(g), newPods(g), newWorkloads(g)
	g.watches = append(slices.Collect(maps.Values(g.workloads)), g.namespaces, g.pods)
	if from, ok := pods.(cache.Informers); ok {
		g.pods.from = from
	}
	return g
}

// OnGates calls notice after every change that may open or close a gate. notice must return at once, and cause a new
// snapshot soon. The first snapshot with another answer wakes all waiting rollouts.
func (f *Fleet) OnGates(notice func()) { f.gates.noticed.OnChange(notice) }

// notice is called after a change that may open or close a gate.
func (g *gates) notice() {
	g.version.Add(1)
	g.noticed.Changed()
}

// start runs a watch or a poller in the background, once this process leads. The caller holds the lock.
func (g *gates) start(run func(context.Context)) {
	if g.spawn == nil {
		g.pending = append(g.pending, run)
		return
	}
	g.spawn(run)
}

// run lets watches and pollers run until ctx ends.
func (g *gates) run(ctx context.Context) error {
	var running sync.WaitGroup
	g.mu.Lock()
	g.spawn = func(run func(context.Context)) {
		running.Go(func() { run(ctx) })
	}
	for _, run := range g.pending {
		g.spawn(run)
	}
	g.pending = nil
	g.mu.Unlock()

	<-ctx.Done()
	g.mu.Lock()
	g.spawn = nil
	g.mu.Unlock()
	running.Wait()
	return nil
}

// Forget drops the state of a deleted budget, and stops its poller.
func (f *Fleet) Forget(budget string) {
	g := f.gates
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop(budget)
	delete(g.rules, budget)
}

// rules are the gates of one budget, read once for each generation of it.
type rules struct {
	uid        types.UID
	generation int64
	// problem says what is invalid; no gate is set then.
	problem   string
	workloads *workloadsRule
	pods      []rollout.PodsGate
	alerts    *alertsRule

	mu sync.Mutex
	// last is the last answer, and found holds what the pods gates answered at a version.
	last  *rollout.Budget
	found podBlocks
}

// look adds the closed gates to a budget. If they have changed, it wakes waiting rollouts. evicted are nodes with a record of evictions.
func (g *gates) look(from *v1alpha1.NodeDisruptionBudget, b *rollout.Budget, evicted []*corev1.Node) {
	r := g.read(from)
	if r.problem != "" {
		// An invalid budget blocks all its nodes.
		b.Error = cmp.Or(b.Error, r.problem)
		return
	}
	if r.workloads != nil {
		if why := g.closedByWorkloads(r.workloads, b.Selector, evicted); why != "" {
			b.Blocks = append(b.Blocks, rollout.Block{Gate: v1alpha1.ReasonWorkloadsUnavailable, Message: why})
		}
	}
	if len(r.pods) > 0 {
		found := g.closedByPods(r)
		b.Blocks, b.NodeBlocks = append(b.Blocks, found.all...), found.byNode
	}
	if r.alerts != nil {
		if block := g.closedByAlerts(from.Name, r.alerts); block.Gate != "" {
			b.Blocks = append(b.Blocks, block)
		}
	}
	if r.differs(*b) {
		g.changed()
	}
}

// differs stores an answer, and reports whether it differs from the last one.
func (r *rules) differs(b rollout.Budget) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.last
	r.last = &b
	return last != nil && (!slices.Equal(last.Blocks, b.Blocks) || !maps.Equal(last.NodeBlocks, b.NodeBlocks))
}

// read returns a budget's gates, and starts the watches that they need.
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
	g.rules[from.Name] = r
	return r
}

// parse reads a budget's gates. The error names the field.
func (r *rules) parse(from *v1alpha1.Gates) error {
	var err error
	if w := from.Workloads; w != nil {
		r.workloads = &workloadsRule{}
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
		if r.alerts, err = newAlertsRule(a); err != nil {
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
	// longest limits text of other programs in a message.
	longest = 200
)

// firstOf joins the first few texts, and counts the others.
func firstOf(texts []string, between string) string {
	var shown []string
	for _, text := range texts[:min(len(texts), named)] {
		shown = append(shown, short(text))
	}
	text := strings.Join(shown, between)
	if more := len(texts) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// short shortens a text that is too long.
func short(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest]) + "…"
}
