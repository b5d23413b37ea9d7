// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// BudgetState is how a NodeDisruptionBudget stands, in one word.
type BudgetState string

// The states of a budget.
const (
	// BudgetOpen: nodes may be taken.
	BudgetOpen BudgetState = "Open"
	// BudgetExhausted: as many nodes are unavailable as it allows.
	BudgetExhausted BudgetState = "Exhausted"
	// BudgetBlocked: something else than the number of unavailable nodes keeps nodes from being taken.
	BudgetBlocked BudgetState = "Blocked"
	// BudgetInvalid: it can't be understood, so that nothing may be taken.
	BudgetInvalid BudgetState = "Invalid"
)

// Budget is how a NodeDisruptionBudget stands.
type Budget struct {
	Name  string      `json:"name"`
	State BudgetState `json:"state"`
	// Message says what else is to be known, such as that the operator has not looked at it.
	Message string `json:"message,omitempty"`
	// Matched is how many nodes it selects, and Unavailable how many of them are unavailable.
	Matched     int `json:"matched"`
	Unavailable int `json:"unavailable"`
	// Limit is how many may be; absent when there is no limit by number.
	Limit *int `json:"limit,omitempty"`
	// Allowed is how many more may be taken now; absent when there is no limit by number and nothing blocks.
	Allowed *int `json:"allowed,omitempty"`
	// Domains are those with unavailable nodes, with their number, when it counts domains; MaxDomains bounds them.
	TopologyKey string         `json:"topologyKey,omitempty"`
	Domains     map[string]int `json:"domains,omitempty"`
	MaxDomains  int            `json:"maxDomains,omitempty"`
	// Holders are the unavailable nodes, those that have been so longest first.
	Holders []v1alpha1.BudgetHolder `json:"holders,omitempty"`
	// BlockedBy is what blocks now, beside the number of unavailable nodes.
	BlockedBy []Block `json:"blockedBy,omitempty"`
}

// Block is what blocks a budget.
type Block struct {
	Gate    v1alpha1.Reason `json:"gate"`
	Message string          `json:"message,omitempty"`
	// Since is since when, as far as the budget's status tells.
	Since *metav1.Time `json:"since,omitempty"`
}

// watched are the gates that only the operator can see.
var watched = []v1alpha1.Reason{
	v1alpha1.ReasonWorkloadsUnavailable, v1alpha1.ReasonPodsBlock, v1alpha1.ReasonAlertsActive, v1alpha1.ReasonAlertsUnreachable,
}

// governing is the budget as the engine wants it, with the gates that its status says are closed.
func governing(from *v1alpha1.NodeDisruptionBudget) rollout.Budget {
	b := rollout.NewBudget(from)
	if !current(from) {
		return b
	}
	for _, block := range from.Status.BlockedBy {
		switch {
		case slices.Contains(watched, block.Gate):
			b.Blocks = append(b.Blocks, rollout.Block{Gate: block.Gate, Message: block.Message})
		case block.Gate == v1alpha1.ReasonBudgetInvalid && b.Error == "":
			b.Error = block.Message
		}
	}
	return b
}

// current reports whether the budget's status is of its latest change.
func current(b *v1alpha1.NodeDisruptionBudget) bool {
	return b.Status.ObservedGeneration == b.Generation
}

// Budgets says how the budgets stand, by name.
func (c *Cluster) Budgets() []Budget {
	all := make([]Budget, 0, len(c.budgets))
	for i := range c.budgets {
		all = append(all, c.budget(&c.budgets[i]))
	}
	slices.SortFunc(all, func(a, b Budget) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (c *Cluster) budget(from *v1alpha1.NodeDisruptionBudget) Budget {
	b := Budget{Name: from.Name, Message: c.unobserved(from)}
	engine := governing(from)
	if c.facts == nil {
		b.told(from)
	} else {
		b.examined(&engine, engine.Examine(c.fleet.Nodes, c.now))
		for i := range b.BlockedBy {
			b.BlockedBy[i].Since = since(from, b.BlockedBy[i].Gate)
		}
	}
	switch {
	case engine.Error != "":
		b.State = BudgetInvalid
	case len(b.BlockedBy) > 0:
		b.State = BudgetBlocked
	case b.Allowed != nil && *b.Allowed == 0:
		b.State = BudgetExhausted
	default:
		b.State = BudgetOpen
	}
	return b
}

// unobserved says that the operator has not looked at the budget, where that matters: nobody else sees its gates.
func (c *Cluster) unobserved(from *v1alpha1.NodeDisruptionBudget) string {
	g := from.Spec.Gates
	switch {
	case current(from) || c.now.Sub(from.CreationTimestamp.Time) < unnoticed:
		return ""
	case g != nil && (g.Workloads != nil || len(g.Pods) > 0 || g.Alerts != nil):
		return "the operator has not looked at its latest change, so its gates are not known"
	}
	return ""
}

// told takes what the status says.
func (b *Budget) told(from *v1alpha1.NodeDisruptionBudget) {
	s := &from.Status
	b.Matched, b.Unavailable, b.Holders = int(s.Matched), int(s.Unavailable), s.Holders
	if s.Allowed != nil {
		b.Allowed = ptr.To(int(*s.Allowed))
	}
	for i := range s.BlockedBy {
		b.BlockedBy = append(b.BlockedBy, Block{s.BlockedBy[i].Gate, s.BlockedBy[i].Message, &s.BlockedBy[i].Since})
	}
}

// examined takes what the engine says.
func (b *Budget) examined(from *rollout.Budget, a rollout.Account) {
	b.Matched, b.Unavailable = a.Matched, len(a.Holders)
	if a.Limit >= 0 {
		b.Limit = ptr.To(a.Limit)
		b.Allowed = ptr.To(max(0, a.Limit-len(a.Holders)))
	}
	if from.TopologyKey != "" {
		b.TopologyKey, b.Domains, b.MaxDomains = from.TopologyKey, a.Domains, from.MaxDomains
	}
	for _, h := range a.Holders {
		b.Holders = append(b.Holders, v1alpha1.BudgetHolder{Node: h.Node, Cause: h.Cause, By: h.By, Message: h.Message, Since: known(h.Since)})
	}
	slices.SortStableFunc(b.Holders, func(x, y v1alpha1.BudgetHolder) int {
		switch {
		case x.Since == nil || y.Since == nil:
			return cmp.Compare(unsaid(x.Since), unsaid(y.Since))
		default:
			return x.Since.Compare(y.Since.Time)
		}
	})
	for _, block := range a.Blocks {
		b.Allowed = ptr.To(0)
		b.BlockedBy = append(b.BlockedBy, Block{Gate: block.Gate, Message: block.Message})
	}
}

func unsaid(t *metav1.Time) int {
	if t == nil {
		return 1
	}
	return 0
}

func known(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// since is since when a gate has been closed, as the status remembers it.
func since(from *v1alpha1.NodeDisruptionBudget, gate v1alpha1.Reason) *metav1.Time {
	for i := range from.Status.BlockedBy {
		if block := &from.Status.BlockedBy[i]; block.Gate == gate && !block.Since.IsZero() {
			return &block.Since
		}
	}
	return nil
}

// Line says in a few words how the budget stands.
func (b *Budget) Line() string {
	text := fmt.Sprintf("%d of %d unavailable", b.Unavailable, b.Matched)
	switch {
	case b.Limit != nil:
		text = fmt.Sprintf("%d of at most %d unavailable", b.Unavailable, *b.Limit)
	case b.Allowed == nil:
		text += ", no limit by number"
	}
	switch {
	case b.Allowed == nil:
	case *b.Allowed == 0:
		text += ", none more may be taken"
	default:
		text += fmt.Sprintf(", %d more may be taken", *b.Allowed)
	}
	if b.MaxDomains > 0 && len(b.Domains) >= b.MaxDomains {
		text += ", only in " + b.TopologyKey + "=" + domains(b.Domains)
	}
	return text
}

func domains(of map[string]int) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		names = append(names, cmp.Or(name, "(none)"))
	}
	return strings.Join(names, ", ")
}

// selecting are the names of the budgets that select any of these nodes.
func (c *Cluster) selecting(nodes []Node) []string {
	var names []string
	for i := range c.fleet.Budgets {
		b := &c.fleet.Budgets[i]
		if slices.ContainsFunc(nodes, func(n Node) bool {
			node := c.fleet.Nodes[n.Node]
			return node != nil && b.Selector.Matches(labels.Set(node.Labels))
		}) {
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}
