// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/budget"
	"moult.dev/moult/internal/rollout"
)

// BudgetState is the state of a NodeDisruptionBudget, in one word.
type BudgetState string

// The states of a budget.
const (
	// BudgetOpen: nodes may be taken.
	BudgetOpen BudgetState = "Open"
	// BudgetExhausted: the budget's limit of unavailable nodes is reached.
	BudgetExhausted BudgetState = "Exhausted"
	// BudgetBlocked: a gate, a window or a pause keeps nodes from being taken.
	BudgetBlocked BudgetState = "Blocked"
	// BudgetInvalid: the budget has an error, so no node may be taken.
	BudgetInvalid BudgetState = "Invalid"
)

// Budget is the state of a NodeDisruptionBudget.
type Budget struct {
	Name  string      `json:"name"`
	State BudgetState `json:"state"`
	// Matched is how many nodes the budget selects. Unavailable is how many of them are unavailable.
	Matched     int `json:"matched"`
	Unavailable int `json:"unavailable"`
	// Limit is how many nodes may be unavailable; absent without a limit by number.
	Limit *int `json:"limit,omitempty"`
	// Allowed is how many more nodes may be taken now; absent without a limit by number while nothing blocks.
	Allowed *int32 `json:"allowed,omitempty"`
	// Domains are the topology domains with unavailable nodes, and how many. MaxDomains bounds the domains.
	TopologyKey string         `json:"topologyKey,omitempty"`
	Domains     map[string]int `json:"domains,omitempty"`
	MaxDomains  int            `json:"maxDomains,omitempty"`
	only        string         // see rollout.Budget.OnlyIn
	// Holders are the unavailable nodes, the longest unavailable first.
	Holders []v1alpha1.BudgetHolder `json:"holders,omitempty"`
	// BlockedBy is what blocks now, apart from the number of unavailable nodes. Since is null if the budget's status lacks it.
	BlockedBy []v1alpha1.BudgetBlock `json:"blockedBy,omitempty"`
}

// operatorGates are the gates that only the operator can see.
var operatorGates = []v1alpha1.Reason{
	v1alpha1.ReasonWorkloadsUnavailable, v1alpha1.ReasonPodsBlock, v1alpha1.ReasonAlertsActive, v1alpha1.ReasonAlertsUnreachable,
}

// engineBudget is the budget for the engine. Gates that only the operator sees are closed if the status says so.
func engineBudget(from *v1alpha1.NodeDisruptionBudget) rollout.Budget {
	b := rollout.NewBudget(from)
	if from.Status.ObservedGeneration != from.Generation { // The operator has not observed the latest change.
		return b
	}
	for _, block := range from.Status.BlockedBy {
		switch {
		case slices.Contains(operatorGates, block.Gate):
			b.Blocks = append(b.Blocks, rollout.Block{Gate: block.Gate, Message: block.Message})
		case block.Gate == v1alpha1.ReasonBudgetInvalid && b.Error == "":
			b.Error = block.Message
		}
	}
	return b
}

// Budgets returns all budgets, sorted by name.
func (c *Cluster) Budgets() []Budget {
	all := make([]Budget, len(c.budgets))
	for i := range c.budgets {
		all[i] = c.budget(&c.budgets[i])
	}
	return all
}

// budgetsNamed returns the budgets with these names.
func (c *Cluster) budgetsNamed(names []string) []Budget {
	return slices.DeleteFunc(c.Budgets(), func(b Budget) bool { return !slices.Contains(names, b.Name) })
}

// budget is the state of a budget, as the engine sees it. If Nodes may not be read, it is the budget's status.
func (c *Cluster) budget(from *v1alpha1.NodeDisruptionBudget) Budget {
	b := Budget{Name: from.Name, State: BudgetOpen}
	engine, status := engineBudget(from), from.Status
	if c.nodes != nil {
		account := engine.Examine(&c.fleet, c.now)
		status = budget.Status(from, &account, time.Time{})
		if account.Limit >= 0 {
			b.Limit = ptr.To(account.Limit)
		}
		if engine.TopologyKey != "" {
			b.TopologyKey, b.Domains, b.MaxDomains, b.only = engine.TopologyKey, account.Domains, engine.MaxDomains, engine.OnlyIn(account.Domains)
		}
	}
	b.Matched, b.Unavailable, b.Allowed = int(status.Matched), int(status.Unavailable), status.Allowed
	b.Holders, b.BlockedBy = status.Holders, status.BlockedBy
	switch {
	case engine.Error != "":
		b.State = BudgetInvalid
	case len(b.BlockedBy) > 0:
		b.State = BudgetBlocked
	case b.Allowed != nil && *b.Allowed == 0:
		b.State = BudgetExhausted
	}
	return b
}

// Line summarizes the budget's numbers.
func (b *Budget) Line() string {
	text := fmt.Sprintf("%d of %d unavailable", b.Unavailable, b.Matched)
	if b.Limit != nil {
		text = fmt.Sprintf("%d of at most %d unavailable", b.Unavailable, *b.Limit)
	}
	switch {
	case b.Allowed == nil:
		text += ", no limit by number"
	case *b.Allowed == 0:
		text += ", none more may be taken"
	default:
		text += fmt.Sprintf(", %d more may be taken", *b.Allowed)
	}
	if b.only != "" {
		text += ", " + b.only
	}
	return text
}

// budgetsOf returns the names of the budgets that select any of these nodes.
func (c *Cluster) budgetsOf(nodes []Node) []string {
	var names []string
	for _, b := range c.fleet.Budgets {
		if slices.ContainsFunc(nodes, func(n Node) bool { return c.selects(&b, n.Node) }) {
			names = append(names, b.Name)
		}
	}
	return names
}

// PodGates reports whether a gate depends on pods on the node, and whether it depends on the labels of their namespaces.
// An empty name means any node. No status lists these gates.
func (c *Cluster) PodGates(node string) (pods, namespaces bool) {
	for i := range c.fleet.Budgets {
		if node != "" && !c.selects(&c.fleet.Budgets[i], node) {
			continue
		}
		for _, g := range nodeGates(&c.budgets[i]) {
			pods, namespaces = true, namespaces || g.NamespaceSelector != nil
		}
	}
	return pods, namespaces
}

// PodsOnNodes adds pods and the labels of namespaces, so that gates for such pods close.
func (c *Cluster) PodsOnNodes(pods []corev1.Pod, namespaces map[string]labels.Set) {
	all := make([]*corev1.Pod, len(pods))
	for i := range pods {
		all[i] = &pods[i]
	}
	labelsOf := func(namespace string) (labels.Set, bool) {
		set, ok := namespaces[namespace]
		return set, ok
	}
	for i := range c.fleet.Budgets {
		b := &c.fleet.Budgets[i]
		gates, err := rollout.NewPodsGates(nodeGates(&c.budgets[i]))
		if err != nil {
			continue // The budget's status shows the error.
		}
		_, b.NodeBlocks = rollout.PodBlocks(gates, all, labelsOf)
		maps.DeleteFunc(b.NodeBlocks, func(node string, _ rollout.Block) bool { return !c.selects(b, node) })
	}
}

// nodeGates returns the gates of a budget that a pod closes for its own node only.
func nodeGates(b *v1alpha1.NodeDisruptionBudget) []v1alpha1.PodsGate {
	if b.Spec.Gates == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Spec.Gates.Pods), func(g v1alpha1.PodsGate) bool { return g.Scope == v1alpha1.PodsInCluster })
}

// selects reports whether a budget selects a node.
func (c *Cluster) selects(b *rollout.Budget, node string) bool {
	n := c.fleet.Nodes[node]
	return n != nil && b.Selector.Matches(labels.Set(n.Labels))
}
