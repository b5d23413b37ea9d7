// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// optedOut refuses nodes with the rollout's opt-out label.
func optedOut(_ *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.OptedOut {
		return v1alpha1.ReasonOptedOut, "the node's label opts it out"
	}
	return "", ""
}

// updatable refuses units that can't be updated at all; the unit has the reason.
func updatable(_ *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.State == v1alpha1.UnitFailed {
		return "", "" // Its reason is the reason of the failure.
	}
	return c.Reason, c.Message
}

// strategyValid starts nothing in a rollout with an invalid strategy.
func strategyValid(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	if p.strategy.Error != "" {
		return v1alpha1.ReasonStrategyInvalid, p.strategy.Error
	}
	return "", ""
}

// paused starts nothing in a paused rollout, restarts included.
func paused(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	if p.strategy.Paused {
		return v1alpha1.ReasonPaused, "the rollout is paused"
	}
	return "", ""
}

// replacementTime is how long the replacement of a daemon pod keeps other rollouts from its node. A pod that is not available by
// then may never be, perhaps because of the node.
const replacementTime = 10 * time.Minute

// unclaimed refuses nodes that another rollout has claimed. Shared claims may coexist. An exclusive claim excludes all
// others. A rollout that claims no nodes waits for every claim. A claim that only records a result excludes nothing. A daemon
// pod that is being replaced excludes new claims, and nothing else: several rollouts may replace pods on one node.
func unclaimed(p *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.node.ClaimError != "" {
		return v1alpha1.ReasonClaimUnreadable, c.node.ClaimError
	}
	for i := range c.node.Claims {
		claim := &c.node.Claims[i]
		shared := claim.Shared && p.strategy.Shared && !p.strategy.Claimless
		if claim.UID == p.strategy.UID || shared || claim.RecordsResult() {
			continue
		}
		return v1alpha1.ReasonClaimed, "claimed by " + claim.Rollout + " since " + claim.Since.UTC().Format(time.RFC3339)
	}
	if c.Claimed || p.strategy.Claimless {
		return "", ""
	}
	if c.node.Removal != "" {
		return v1alpha1.ReasonClaimed, "the node is " + c.node.Removal
	}
	for _, r := range p.fleet.Replaced[c.Node] {
		if end := r.Since.Add(replacementTime); p.now.Before(end) {
			p.wake(end)
			return v1alpha1.ReasonClaimed, r.message()
		}
	}
	return "", ""
}

// budgetOpen starts nothing on nodes of a budget that is blocked for this reason, restarts included.
func budgetOpen(reason v1alpha1.Reason) func(*pass, *candidate) (v1alpha1.Reason, string) {
	return func(p *pass, c *candidate) (v1alpha1.Reason, string) {
		for _, a := range p.budgets(c) {
			for i := range a.Account.Blocks[:a.firstGate] {
				if block := &a.Account.Blocks[i]; block.Gate == reason {
					return reason, block.Message
				}
			}
		}
		return "", ""
	}
}

// gatesOpen starts nothing while a health gate of a budget is closed. Claimed nodes continue: one of them may be the cause
// of the closed gate, and to stop it would keep the gate closed forever. A node that serves again after a failed turn still waits for its own pods.
func gatesOpen(p *pass, c *candidate) (v1alpha1.Reason, string) {
	for _, a := range p.budgets(c) {
		if gates := a.Account.Blocks[a.firstGate:]; len(gates) > 0 && !c.Claimed {
			return gates[0].Gate, gates[0].Message
		}
		if block, ok := a.NodeBlocks[c.Node]; ok && (!c.Claimed || !c.InTurn && !c.node.Unschedulable) {
			return block.Gate, a.withName(block.Message)
		}
	}
	return "", ""
}

// domainFree keeps unavailable nodes within each budget's number of domains. If more domains are already affected, because
// nodes failed by themselves, no further node starts in any of them.
func domainFree(p *pass, c *candidate) (v1alpha1.Reason, string) {
	for _, a := range p.budgets(c) {
		if a.TopologyKey == "" || len(a.Domains) < a.MaxDomains || !p.uses(a, c) {
			continue
		}
		own := c.node.Labels[a.TopologyKey]
		others := len(a.Domains)
		if a.Domains[own] > 0 {
			others--
		}
		if others >= a.MaxDomains {
			return v1alpha1.ReasonMaxDomains, a.explainDomain(own)
		}
	}
	return "", ""
}

// budgetLeft keeps the number of unavailable nodes within each budget, for any cause of unavailability. A used-up budget
// starts nothing, not even on an unavailable node: a person who cordoned it may be working there. Only claimed nodes
// continue, because they make no further node unavailable.
func budgetLeft(p *pass, c *candidate) (v1alpha1.Reason, string) {
	for _, a := range p.budgets(c) {
		if a.Limit >= 0 && a.used >= a.Limit && p.uses(a, c) {
			return v1alpha1.ReasonBudgetExhausted, a.explain()
		}
	}
	return "", ""
}
