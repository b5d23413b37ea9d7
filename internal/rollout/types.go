// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Strategy says how fast and in which order one rollout goes.
type Strategy struct {
	// UID of the rollout: its own claims are told from others' by it.
	UID types.UID
	// Shared is true when a turn tolerates other rollouts' shared claims on the node.
	Shared bool
	// MaxConcurrent is how many units may hold a slot at once; 0 starts nothing.
	MaxConcurrent int
	// Window is when units may be started; nil is always.
	Window *Window
	// WindowError, when not empty, says why the window can't be understood. Nothing is started then.
	WindowError string
}

// Unit is one node's part in one rollout.
type Unit struct {
	// Node is the node's name.
	Node string
	// State is where the unit stands.
	State v1alpha1.UnitState
	// OptedOut is true when the node carries the rollout's opt-out label.
	OptedOut bool
	// InTurn is true for an outdated unit whose turn for an earlier revision is still going on: it holds a slot, and needs
	// no other to start over.
	InTurn bool
	// Since is when it came into its state.
	Since time.Time
	// Rank orders units that may start: lower first, then by name. Rank 0 is for those that hold a claim already.
	Rank uint64
	// Reason and Message say why a failed unit failed, or why an outdated one can't be started at all.
	Reason  v1alpha1.Reason
	Message string
}

// HoldsSlot reports whether the unit uses up concurrency: it is in a turn, or it has failed and nobody has tried again.
func (u *Unit) HoldsSlot() bool {
	switch u.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitFailed:
		return true
	case v1alpha1.UnitOutdated, v1alpha1.UnitUpdated:
	}
	return u.InTurn
}

// Fleet is a snapshot of the nodes by name.
type Fleet map[string]Node

// Node is what the checks need to know of a node.
type Node struct {
	// Claims on the node, by whomever.
	Claims []v1alpha1.Claim
	// ClaimError says why the claims can't be read.
	ClaimError string
}

// Wait says why a unit is not started.
type Wait struct {
	Node    string
	Reason  v1alpha1.Reason
	Message string
	// Holds is true for a unit that holds a slot while it waits: it has failed, or its turn for an earlier revision goes on.
	Holds bool
}

// Decision is the answer of Decide.
type Decision struct {
	// Start holds the nodes to be claimed now, in order.
	Start []string
	// Waiting holds every unit that needs a turn and does not get one now, in the order in which they would go; failed
	// ones come first.
	Waiting []Wait
	// Next is the next instant at which the clock alone can change the answer; zero when none can.
	Next time.Time
}
