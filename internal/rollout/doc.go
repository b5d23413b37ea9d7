// SPDX-License-Identifier: Apache-2.0

// Package rollout decides which node goes next, and why the others wait. It is pure: no client, no clock, no logger; the
// same input gives the same answer, and the answer always comes with its reason.
//
//	objects ──caller────▶ []Unit ┐
//	nodes, budgets ──────▶ Fleet ├─▶ Decide ─▶ Start    (claim these, in this order)
//	spec ─────────────▶ Strategy │             Waiting  (every other unit that needs a turn, each with its reason)
//	now ─────────────────────────┘             Wave     (the progress of the waves; stored for the next decision)
//	                                           Next     (when the answer can change by the clock alone)
//
// Units are sorted (order.go) and divided into waves (wave.go). Then each unit passes an ordered chain of checks,
// in the order of decide.go. The first refusal is the reason:
//
//	optedOut          checks.go       the node carries the rollout's opt-out label
//	fit               checks.go       the unit can be updated at all
//	understood        checks.go       the strategy is valid
//	paused            checks.go       the rollout is not paused
//	failures          failures.go     no more units failed than maxFailures allows, and none of the canary
//	window            window.go       the rollout's windows are open (cronwindow.go has those of cron)
//	wave              wave.go         the unit's wave has begun
//	claim             checks.go       no other rollout has the node, or all claims are shared
//	concurrency       concurrency.go  a slot is free
//	budgetUnderstood  checks.go       every budget that selects the node is valid
//	budgetPaused      checks.go       no such budget is paused
//	budgetWindow      checks.go       their windows are open
//	gates             checks.go       their health gates are open
//	domains           checks.go       the budget allows unavailable nodes in the node's domain
//	budget            checks.go       the budget allows one more unavailable node
//
// A unit whose node the rollout has already claimed adds no cost: failures, waves, gates, domains and the number of
// unavailable nodes do not stop it.
//
// A rollout that leaves its nodes in service, such as an ExtendedDaemonSet, is limited by domains and by the number of
// unavailable nodes only if the budget counts DaemonPods (Strategy.Claimless).
package rollout
