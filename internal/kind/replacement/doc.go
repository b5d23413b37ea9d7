// SPDX-License-Identifier: Apache-2.0

// Package replacement decides about turns of machines that are replaced: which machine replaces which, what a turn does next, and why a node waits.
// It calls no API: the controller gathers a World, calls Judge, writes the turns to status, and then takes each turn's Step.
//
//	Adding ─▶ Joining ─▶ Claiming ─▶ Draining ─▶ Leaving ─▶ Deleting ─▶ Soaking ─▶ over
//	   └─────────┴──────────┴───────────┴───────────┴──────────┴─▶ Discarding ─▶ over
//
// A turn without surge claims first, and adds after its machine is deleted: Claiming ─▶ Draining ─▶ Deleting ─▶ Adding ─▶ Joining ─▶ Deleting ─▶
// Soaking. Only nodes of the control plane go through Leaving. From then on a turn is bound, and can't be cancelled.
//
// Invariants, which TestSimulation checks after each step:
//
//   - A scale set never has more machines than its own capacity plus surge. A turn adds one machine and deletes one.
//   - Unless turns delete first, a set never has fewer machines than before.
//   - Each cloud request is recorded in status with a token before it is sent. A request that is sent twice takes effect once.
//   - A machine is deleted only after it has left etcd. Its Node must be claimed, cordoned and drained, or must not exist.
//   - A Node is deleted only if its machine is gone. No node stays cordoned when its turn ends.
//   - All state is in status and in the claims on Nodes: after a restart the operator continues what it began.
//   - Moult does not guess. If a case is ambiguous, the turn or the rollout waits, with a reason that names the object.
//
// Machines of a set are alike, and others may change the capacity of a set at any time. So earlier capacities are not tracked: see lost_machine.go.
package replacement
