// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
)

// Account is the state of a budget.
type Account struct {
	// Matched is how many nodes the budget selects.
	Matched int
	// Limit is how many of them may be unavailable; negative when there is no limit by number.
	Limit int
	// Holders are the nodes that use it up, sorted by name.
	Holders []Holder
	// Domains are the domains with holders, and how many they have.
	Domains map[string]int
	// Blocks are all other causes for which no selected node may be claimed now.
	Blocks []Block
	// Next is when the clock alone can change the account; zero if it can't.
	Next time.Time

	// draining are the nodes whose drain is not complete, and firstGate is the index of the first block that is a gate.
	draining  []string
	firstGate int
}

// Holder is a node that uses up the budget.
type Holder struct {
	Node    string
	Cause   v1alpha1.UnavailableCause
	By      string
	Message string
	Since   time.Time
}

// Examine returns the state of a budget.
func (b *Budget) Examine(f *Fleet, now time.Time) Account {
	a := Account{Limit: -1, Domains: map[string]int{}}
	for name, n := range f.Nodes {
		a.count(b, name, n, f.Replaced[name], now)
	}
	a.finish(b, now)
	return a
}

// count adds a node, if the budget selects it.
func (a *Account) count(b *Budget, name string, n *Node, replaced []Replacement, now time.Time) {
	if !b.Selects(n) {
		return
	}
	a.Matched++
	if b.Workloads && n.Draining {
		a.draining = append(a.draining, name)
	}
	var h Holder
	if !b.NoNodes {
		var end time.Time
		h, end = b.unavailable(n, now)
		a.wake(end, now)
	}
	if h.Cause == "" && b.DaemonPods && len(replaced) > 0 {
		r := &replaced[0]
		h = Holder{Cause: v1alpha1.CauseDaemonPod, By: r.By, Message: r.message(), Since: r.Since}
	}
	if h.Cause == "" {
		return
	}
	h.Node = name
	a.Holders = append(a.Holders, h)
	if b.TopologyKey != "" {
		a.Domains[n.Labels[b.TopologyKey]]++
	}
}

func (r *Replacement) message() string { return "daemon pod replaced by " + r.By + sinceText(r.Since) }

// finish sorts the holders, and adds the limit and the blocks.
func (a *Account) finish(b *Budget, now time.Time) {
	slices.SortFunc(a.Holders, func(x, y Holder) int { return cmp.Compare(x.Node, y.Node) })
	if b.MaxUnavailable != nil {
		a.Limit = b.MaxUnavailable.AtLeastOne(a.Matched)
	}
	if b.Error != "" {
		a.Blocks = append(a.Blocks, Block{v1alpha1.ReasonBudgetInvalid, b.Error})
	}
	if b.Paused {
		a.Blocks = append(a.Blocks, Block{v1alpha1.ReasonBudgetPaused, "it is paused"})
	}
	if len(b.Windows) > 0 {
		open, next := openAt(b.Windows, now)
		a.wake(next, now)
		if !open {
			a.Blocks = append(a.Blocks, Block{v1alpha1.ReasonOutsideBudgetWindow, closedMessage(next)})
		}
	}
	a.firstGate = len(a.Blocks)
	a.Blocks = append(a.Blocks, b.Blocks...)
	if len(a.draining) > 0 {
		slices.Sort(a.draining)
		if block := undrainedBlock(a.draining...); !slices.Contains(a.Blocks, block) { // The plugin reads it from the status too.
			a.Blocks = append(a.Blocks, block)
		}
	}
}

// undrainedBlock closes the workloads gate until a drain is complete. Pods that are not evicted yet, or that terminate, still
// count as available. Without this rule two drains could run together, and each would find all workloads available.
func undrainedBlock(nodes ...string) Block {
	return Block{v1alpha1.ReasonWorkloadsUnavailable, "nodes that are not drained yet: " + list(nodes, len(nodes))}
}

// holds reports whether a node is one of the holders.
func (a *Account) holds(node string) bool {
	_, ok := slices.BinarySearchFunc(a.Holders, node, func(h Holder, node string) int { return cmp.Compare(h.Node, node) })
	return ok
}

func (a *Account) wake(at, now time.Time) {
	if at.After(now) {
		a.Next = Earlier(a.Next, at)
	}
}

// Selects reports whether the budget selects the node.
func (b *Budget) Selects(n *Node) bool {
	return b.Selector == nil || b.Selector.Empty() || b.Selector.Matches(labels.Set(n.Labels))
}

// unavailable returns why a node is unavailable, and when the clock alone ends that.
func (b *Budget) unavailable(n *Node, now time.Time) (h Holder, end time.Time) {
	for i := range n.Claims {
		if c := &n.Claims[i]; !c.RecordsResult() {
			return Holder{Cause: v1alpha1.CauseClaimed, By: c.Rollout, Message: "claimed by " + c.Rollout + sinceText(c.Since.Time), Since: c.Since.Time}, end
		}
	}
	if n.Removal != "" {
		return Holder{Cause: v1alpha1.CauseBeingRemoved, Message: n.Removal}, end
	}
	if n.Unschedulable {
		return Holder{Cause: v1alpha1.CauseUnschedulable, Message: "unschedulable"}, end
	}
	if h, end = b.Health.unmet(n, now); h.Cause == "" && n.ClaimError != "" {
		h = Holder{Cause: v1alpha1.CauseUnreadable, Message: n.ClaimError}
	}
	return h, end
}

// account is a budget during one pass: its state at the beginning, and the units that the pass started since.
type account struct {
	*Budget
	Account
	used    int
	started []string
	// The texts are cached: they are the same for every unit, or for every unit of a domain.
	message       string
	domainMessage map[string]string
}

// openAccounts computes the state of all budgets of candidates in one loop over the nodes. Then it finds the budgets of each candidate.
// Labels are read faster in one loop over all candidates than by the checks of one candidate after another.
func (p *pass) openAccounts() {
	p.opened = true
	accounts := make([]*account, 0, len(p.fleet.Budgets))
	for i := range p.fleet.Budgets {
		b := &p.fleet.Budgets[i]
		if !slices.ContainsFunc(p.candidates, func(c candidate) bool { return b.Selects(c.node) }) {
			continue // It is not asked for.
		}
		if p.fleet.Gates != nil {
			b = p.fleet.Gates(b)
		}
		accounts = append(accounts, &account{
			Budget: b, Account: Account{Limit: -1, Domains: map[string]int{}}, domainMessage: map[string]string{},
		})
	}
	for name, n := range p.fleet.Nodes {
		replaced := p.fleet.Replaced[name]
		for _, a := range accounts {
			switch {
			case (len(replaced) == 0 || !a.DaemonPods) && a.skips(n, p.now):
			case name != p.fleet.Leaving:
				a.count(a.Budget, name, n, replaced, p.now)
			case a.Selects(n):
				a.Matched++
			}
		}
	}
	for _, a := range accounts {
		a.finish(a.Budget, p.now)
		a.used = len(a.Holders)
		for i := range a.Account.Blocks {
			a.Account.Blocks[i].Message = a.withName(a.Account.Blocks[i].Message)
		}
	}
	accounts = slices.DeleteFunc(accounts, (*account).idle)
	matched := make([]*account, 0, len(accounts)*len(p.candidates))
	for i := range p.candidates {
		c, first := &p.candidates[i], len(matched)
		for _, a := range accounts {
			if a.Selects(c.node) {
				matched = append(matched, a)
			}
		}
		c.accounts = matched[first:]
	}
}

// skips reports whether a node does not change the account: it is available, and the limit is not a percentage. Its labels
// are then not read, because that is slow.
func (a *account) skips(n *Node, now time.Time) bool {
	h, _ := a.unavailable(n, now)
	return h.Cause == "" && (a.MaxUnavailable == nil || !a.MaxUnavailable.Percent)
}

// idle reports whether the budget can neither refuse a unit in this pass nor change by the clock alone.
func (a *account) idle() bool {
	return a.Limit < 0 && a.TopologyKey == "" && !a.Workloads && len(a.Account.Blocks) == 0 && len(a.NodeBlocks) == 0 && a.Next.IsZero()
}

func (a *account) withName(message string) string { return "budget " + a.Name + ": " + message }

// budgets returns the accounts of the budgets that select the candidate's node. They are computed for the first unit that
// needs them.
func (p *pass) budgets(c *candidate) []*account {
	if !p.opened && len(p.fleet.Budgets) > 0 {
		p.openAccounts()
	}
	if !c.looked {
		c.looked = true
		for _, a := range c.accounts {
			p.wake(a.Next)
		}
	}
	return c.accounts
}

// bookBudget books the cost of a unit that is started now. A node that was already unavailable or claimed adds no cost, but its
// drain counts.
func bookBudget(p *pass, c *candidate) {
	for _, a := range p.budgets(c) {
		if a.Workloads && p.strategy.Drains && !p.strategy.Claimless {
			block := undrainedBlock(c.Unit.Node)
			a.Account.Blocks = append(a.Account.Blocks, Block{block.Gate, a.withName(block.Message)})
		}
		if !p.uses(a, c) || a.holds(c.Node) {
			continue
		}
		a.used++
		a.started = append(a.started, c.Node)
		a.message = ""
		if a.TopologyKey != "" {
			a.Domains[c.node.Labels[a.TopologyKey]]++
			clear(a.domainMessage)
		}
	}
}

// uses reports whether a start uses up the budget: it makes the node unavailable, because the rollout has not claimed it yet,
// or it replaces a daemon pod, and the budget counts that.
func (p *pass) uses(a *account, c *candidate) bool {
	if p.strategy.Claimless {
		return a.DaemonPods
	}
	return !c.Claimed && !a.NoNodes
}

// explain returns why the budget is used up.
func (a *account) explain() string {
	if a.message == "" {
		a.message = a.withName(fmt.Sprintf("%s unavailable, at most %d allowed", NodeCount(a.used), a.Limit))
		var who []string
		for _, h := range a.Holders[:min(len(a.Holders), maxListed)] {
			who = append(who, h.Node+" "+h.Message)
		}
		for _, node := range a.started[:min(len(a.started), maxListed)] {
			who = append(who, node+" started now")
		}
		if a.used > 0 {
			a.message += " (" + list(who, a.used) + ")"
		}
	}
	return a.message
}

// noDomain is the name in messages of the domain of nodes without the label.
const noDomain = "(none)"

// explainDomain returns why a unit of a domain waits for this budget.
func (a *account) explainDomain(own string) string {
	text := a.domainMessage[own]
	if text == "" {
		others := maps.Clone(a.Domains)
		delete(others, own)
		text = a.withName(fmt.Sprintf("nodes of %s=%s wait while some of %s are unavailable, at most %d at once",
			a.TopologyKey, cmp.Or(own, noDomain), domainNames(others), a.MaxDomains))
		a.domainMessage[own] = text
	}
	return text
}

func domainNames(domains map[string]int) string {
	names := slices.Sorted(maps.Keys(domains))
	if len(names) > 0 {
		names[0] = cmp.Or(names[0], noDomain)
	}
	return list(names, len(names))
}

// OnlyIn names the domains to which the budget is limited now, as "only in KEY=NAMES"; "" if it is limited to none.
func (b *Budget) OnlyIn(domains map[string]int) string {
	if b.TopologyKey == "" || len(domains) < b.MaxDomains {
		return ""
	}
	return "only in " + b.TopologyKey + "=" + domainNames(domains)
}
