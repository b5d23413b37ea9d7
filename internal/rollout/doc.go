// SPDX-License-Identifier: Apache-2.0

// Package rollout decides which node goes next, and why the others wait. It is pure: no client, no clock, no logger; the
// same input gives the same answer, and the answer always comes with its reason.
//
//	objects ──units.go──▶ []Unit ┐
//	nodes, budgets ──────▶ Fleet ├─▶ Decide ─▶ Start    (claim these, in this order)
//	spec ─────────────▶ Strategy │             Waiting  (every other unit that needs a turn, each with its reason)
//	now ─────────────────────────┘             Wave     (how far the rollout has come; to be kept for the next decision)
//	                                           Next     (when the answer can change by the clock alone)
//
// Units are sorted (order.go, rank.go) and divided into waves (wave.go). Then each passes an ordered chain of checks, one rule
// a file. The first that says no gives the reason:
//
//	optedOut          optout.go       the node carries the rollout's opt-out label
//	fit               fit.go          the rollout can be carried out on such a node at all
//	understood        pause.go        the strategy can be read
//	paused            pause.go        nobody has paused the rollout
//	failures          failures.go     not more has failed than the strategy bears, and nothing of the canary
//	window            window.go       the rollout's windows are open (cronwindow.go has those of cron)
//	wave              wave.go         the unit's wave has begun
//	claim             claim.go        no other rollout has the node, or all share it
//	concurrency       concurrency.go  a slot is free
//	budgetUnderstood  budget.go       every budget that selects the node can be read
//	budgetPaused      budget.go       nobody has paused one
//	budgetWindow      budget.go       their windows are open
//	gates             gate.go         their health gates are open
//	domains           budget.go       no further domain has to become unavailable, or one more may
//	budget            budget.go       no further node has to become unavailable, or one more may
//
// A unit whose node the rollout has claimed already costs the cluster nothing more: failures, waves, gates, domains and the
// number of unavailable nodes do not hold it up.
//
// A rollout that changes something beside what runs on its nodes, and takes none of them, such as that of a daemon, is asked
// for neither domains nor the number of unavailable nodes (Strategy.Beside).
package rollout
