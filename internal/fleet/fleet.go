// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/outbound"
	"moult.dev/moult/internal/rollout"
)

// Fleet is the state of the cluster in the caches.
type Fleet struct {
	// NoBudgets is true if the API server does not know NodeDisruptionBudgets. Then there are none.
	NoBudgets bool
	// Refused says why no rollout of a kind is carried out, or returns nil.
	Refused func(kind string) error

	client client.Client
	gates  *gates
	nodes  nodes
	// replaced are the nodes with daemon pods in replacement.
	replaced replaced
	// records are the records of evictions that count.
	records records
	// store holds the Nodes; nil before SetupWithManager. absent returns deleted Nodes that budgets still count.
	store toolscache.Store
	// budgetStore holds the budgets; nil before SetupWithManager, and without budgets. budgetChanges counts the changes of their specs.
	budgetStore   toolscache.Store
	budgetChanges atomic.Uint64
	absent        func(context.Context) ([]*corev1.Node, error)

	listening sync.RWMutex
	listeners []func()

	// admission is held from the snapshot until the claims of its decision are written, or the daemon pods that it replaces are set.
	admission sync.Mutex
}

// New returns a fleet. The client reads nodes and budgets from a cache that shows its own writes. pods is the cache of the pods
// of all namespaces. It is used only if a budget or a strategy needs it.
func New(clk clock.PassiveClock, c client.Client, pods cache.Informers) *Fleet {
	f := &Fleet{client: c, Refused: func(string) error { return nil }}
	f.budgetChanges.Store(1) // gates.known has version 0, so that the first read is complete.
	f.gates = newGates(clk, pods, f.Changed)
	return f
}

// QueryThrough sets the transport of queries of Prometheus, and the operator's namespace, which has the Secrets with credentials for them. It is
// called before the fleet runs. Default: a transport that also reaches local addresses.
func (f *Fleet) QueryThrough(transport *outbound.Transport, namespace string) {
	f.gates.transport, f.gates.namespace = transport, namespace
}

// OnChange calls listener whenever a budget, what a budget counts, or a gate may have changed. It must return at once.
func (f *Fleet) OnChange(listener func()) {
	f.listening.Lock()
	defer f.listening.Unlock()
	f.listeners = append(f.listeners, listener)
}

// Changed calls all listeners.
func (f *Fleet) Changed() {
	f.listening.RLock()
	defer f.listening.RUnlock()
	for _, listener := range f.listeners {
		listener()
	}
}

// Snapshot is the fleet at one moment. It and its objects must not be changed.
type Snapshot struct {
	rollout.Fleet
	// Objects are the Nodes, sorted by name.
	Objects []*corev1.Node
	// Claimed names the nodes that have claims.
	Claimed []string
	// Evicted are the nodes with a record of evictions that counts, deleted ones that budgets still count included. RecordsEnd is when the first
	// of these records ends; zero if none does.
	Evicted    []*corev1.Node
	RecordsEnd time.Time
	// SharedHostnames are values of the label kubernetes.io/hostname that several Nodes have.
	SharedHostnames map[string]bool
	// Generations are those of the budgets, by UID.
	Generations map[types.UID]int64
}

// Snapshot returns the fleet now.
func (f *Fleet) Snapshot(ctx context.Context) (Snapshot, error) { return f.SnapshotFor(ctx, "") }

// SnapshotFor returns the fleet for a rollout whose own pods a workloads gate looks at, as "Kind/namespace/name". What it lacks closes no gate:
// otherwise broken pods of a rollout would keep it from replacing them.
func (f *Fleet) SnapshotFor(ctx context.Context, workload string) (Snapshot, error) {
	objects, err := f.list(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	s := f.nodes.read(objects)
	if f.absent != nil {
		absent, err := f.absent(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		s = s.with(absent)
	}
	s.Replaced = f.replaced.byNode()
	s.Evicted, s.RecordsEnd = f.records.counting(s.Evicted, f.gates.clock.Now())
	known, err := f.budgets(ctx)
	s.Budgets, s.Generations = known.budgets, known.generations
	s.Gates = func(b *rollout.Budget) *rollout.Budget {
		if rules := known.gated[b.Name]; rules != nil {
			return f.gates.withClosedGates(rules, b, s.Evicted, workload)
		}
		return b
	}
	return s, err
}

// AlsoCounts lets budgets count deleted Nodes whose replacements do not exist yet. They are in a snapshot's
// Nodes, unless a Node of that name exists, and in Evicted. It is called once, before the first snapshot.
func (f *Fleet) AlsoCounts(absent func(context.Context) ([]*corev1.Node, error)) { f.absent = absent }

// with adds deleted Nodes that budgets still count.
func (s Snapshot) with(absent []*corev1.Node) Snapshot {
	if len(absent) == 0 {
		return s
	}
	s.Nodes, s.Evicted = maps.Clone(s.Nodes), slices.Clone(s.Evicted)
	for _, o := range absent {
		if s.Nodes[o.Name] == nil {
			s.Nodes[o.Name] = rollout.NewNode(o)
		}
		if hasRecord(o) {
			s.Evicted = append(s.Evicted, o)
		}
	}
	slices.SortFunc(s.Evicted, byName)
	return s
}

// Admit lets one rollout at a time decide and claim. decide receives a snapshot with all earlier claims, and writes its own
// before it returns. One that claims no nodes calls SetReplaced instead.
func (f *Fleet) Admit(ctx context.Context, decide func(Snapshot) error) error {
	return f.AdmitFor(ctx, "", decide)
}

// AdmitFor is Admit with the snapshot of SnapshotFor.
func (f *Fleet) AdmitFor(ctx context.Context, workload string, decide func(Snapshot) error) error {
	f.admission.Lock()
	defer f.admission.Unlock()
	s, err := f.SnapshotFor(ctx, workload)
	if err != nil {
		return err
	}
	return decide(s)
}

// list returns the Nodes of the cache, unsorted, with all writes of this process.
func (f *Fleet) list(ctx context.Context) ([]*corev1.Node, error) {
	var nodes corev1.NodeList
	opts := []client.ListOption{client.UnsafeDisableDeepCopy}
	if f.store != nil {
		// This call waits until the cache shows this process's writes. It reads one Node, because a copy of thousands takes
		// longer than a decision.
		opts = append(opts, client.Limit(1))
	}
	if err := f.client.List(ctx, &nodes, opts...); err != nil {
		return nil, fmt.Errorf("listing nodes, %w", err)
	}
	if f.store != nil {
		return objectsOf[*corev1.Node](f.store), nil
	}
	objects := make([]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		objects[i] = &nodes.Items[i]
	}
	return objects, nil
}

// budgets returns the budgets. Those of the cache are read again only after a change. One call at a time reads them, so that none are replaced by
// older ones.
func (f *Fleet) budgets(ctx context.Context) (known, error) {
	if f.NoBudgets {
		return known{}, nil
	}
	g := f.gates
	g.reading.Lock()
	defer g.reading.Unlock()
	version := f.budgetChanges.Load() // Before the objects, which may be newer.
	if f.budgetStore != nil {         // A list would copy each. Decisions need not wait for writes of their statuses.
		if g.known.version != version {
			g.known = g.read(objectsOf[*v1alpha1.NodeDisruptionBudget](f.budgetStore))
			g.known.version = version
		}
		return g.known, nil
	}
	var list v1alpha1.NodeDisruptionBudgetList
	if err := f.client.List(ctx, &list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return known{}, fmt.Errorf("listing budgets, %w", err)
	}
	objects := make([]*v1alpha1.NodeDisruptionBudget, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return g.read(objects), nil
}
