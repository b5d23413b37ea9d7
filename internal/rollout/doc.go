// SPDX-License-Identifier: Apache-2.0

// Package rollout decides which node goes next, and why the others wait. It is pure: no client, no clock, no logger; the
// same input gives the same answer, and the answer always comes with its reason.
//
//	objects ──units.go──▶ []Unit ┐
//	nodes ───────────────▶ Fleet ├─▶ Decide ─▶ Start    (claim these, in this order)
//	spec ─────────────▶ Strategy │             Waiting  (every other unit that needs a turn, each with its reason)
//	now ─────────────────────────┘             Next     (when the answer can change by the clock alone)
//
// A unit passes an ordered chain of checks, one rule a file. The first that says no gives the reason:
//
//	optedOut     optout.go       the node carries the rollout's opt-out label
//	fit          fit.go          the rollout can be carried out on such a node at all
//	window       window.go       the rollout's window is open
//	claim        claim.go        no other rollout has the node, or all share it
//	concurrency  concurrency.go  a slot is free
package rollout
