// SPDX-License-Identifier: Apache-2.0

// Package replacement judges the turns of machines that are replaced: which machine takes a place, what a turn does next, and why a node waits. It is pure: the
// controller gathers a World, calls Judge, writes the turns to status, and then takes each turn's Step.
//
//	Adding ─▶ Joining ─▶ Claiming ─▶ Draining ─▶ Leaving ─▶ Deleting ─▶ Soaking ─▶ over
//	   └─────────┴──────────┴───────────┴───────────┴──────────┴─▶ Discarding ─▶ over
//
// A turn without surge claims first, and adds once its machine is deleted: Claiming ─▶ Draining ─▶ Deleting ─▶ Adding ─▶ Joining ─▶ Deleting ─▶ Soaking. Leaving is
// for nodes of the control plane alone: from there on a turn is bound, and is never released half-way.
//
// Invariants, which TestSimulation checks after each step:
//
//   - A scale set never has more machines than its own and surge. A turn adds one machine and deletes one.
//   - Without orders to delete first, a set never has fewer machines than before.
//   - Every order to a cloud is in status, with a token, before it is sent. An order that is sent twice is done once.
//   - A machine is deleted only if its Node is claimed, cordoned and drained, or if it has none, and only if it has left etcd.
//   - A Node is deleted only if its machine is gone. No node stays cordoned when its turn ends.
//   - All memory is in status and in the claims on Nodes: an operator that starts continues what one before it began.
//   - What is ambiguous is not guessed at: the turn or the rollout waits, with a reason that names the object.
//
// Machines of a set are alike, and how many a set has is for others to change at any time. So no account of its capacity is kept: see lost_machine.go.
package replacement
