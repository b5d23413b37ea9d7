// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Strategy says how fast and in which order one rollout goes. New makes it from the API's.
type Strategy struct {
	// UID of the rollout: its own claims are told from others' by it.
	UID types.UID
	// Revision that the units are brought to: progress through the waves counts for one revision only.
	Revision string
	// Shared is true when a turn tolerates other rollouts' shared claims on the node.
	Shared bool
	// MaxConcurrent is how many units may hold a slot at once; 0 starts nothing.
	MaxConcurrent int
	// MaxFailures is how many failed units the rollout bears; nil sets no limit, and lets them keep their slots.
	MaxFailures *int
	// Paused starts nothing.
	Paused bool
	// Window is when units may be started; nil is always. Windows, when there are any, must allow it too.
	Window  *Window
	Windows []CronWindow
	// WindowError, when not empty, says why a window can't be understood. Nothing is started then.
	WindowError string
	// Error, when not empty, says what else of the strategy can't be understood. Nothing is started then.
	Error string
	// Order holds the criteria by which units that may start are sorted, before their rank.
	Order []v1alpha1.Order
	// Drains is true when a turn evicts the pods of its node.
	Drains bool
	// Beside is true when a turn does not take its node, and claims none: what budgets allow by number and by domain is not asked,
	// and not used up; whether they are paused, their windows and their gates are. Another's claim keeps it away, shared or not.
	Beside bool
	// OwnNode is the node that the operator runs on; it goes last.
	OwnNode string
	// Health is what the rollout asks of nodes that it has changed, before a wave is over: no budget counts a node that lacks it.
	Health Health
	// Waves divide the rollout.
	Waves []Wave
	// SoakLast lets also the last wave that has units soak, and be approved, before the rollout is complete; and one without any
	// unit is not complete before its first wave has one. Otherwise only what something follows soaks.
	SoakLast bool
	// Wave is how far the rollout had come when it was last decided about; nil at the beginning.
	Wave *v1alpha1.WaveStatus
	// Approved is what somebody has approved: the value of the annotation moult.dev/approve.
	Approved string
}

// Health says when a node is healthy, beside being ready.
type Health struct {
	// MinReady is for how long a node must have been ready.
	MinReady time.Duration
	v1alpha1.NodesGate
}

// Wave is a part of a rollout that is finished before the next begins.
type Wave struct {
	// Name of the wave.
	Name string
	// Size is how many units it takes at most; 0 is all that are there.
	Size int
	// Selector bounds it to nodes with such labels; nil is any.
	Selector labels.Selector
	// Nodes bounds it to these, by name; nil is any, and one that is empty none.
	Nodes map[string]bool
	// Soak is how long all of it must have been updated and healthy.
	Soak time.Duration
	// Manual is true when somebody must approve it before the next begins.
	Manual bool
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
	// Running is true for such a unit while what runs on its node will end by itself: nothing needs it to start over at once.
	Running bool
	// Claimed is true when the rollout has its claim on the node, so that what it costs the cluster is spent already.
	Claimed bool
	// Down is true when what is to be changed on the node is out of service already: it goes before those that still serve.
	Down bool
	// Unoffered is true for a unit to which the revision is not offered, as far as is known. Waves take it after all others. One that
	// is updated all the same does not run the revision, and shows nothing of how that fares.
	Unoffered bool
	// Nodeless is true for a machine that has no Node: it shows nothing of how nodes fare, and comes after all waves.
	Nodeless bool
	// Excused is true when it is not the rollout's doing that the unit does not get on, as where its node is not ready: it holds no
	// slot, and does not count as a failure. Its wave waits for it.
	Excused bool
	// Skipped is true for a failed unit whose node was given back, so that the rollout goes on without it.
	Skipped bool
	// RetryAt is when a failed unit is tried again by itself; zero is never.
	RetryAt time.Time
	// Since is when it came into its state.
	Since time.Time
	// Rank orders units that may start: lower first, then by name.
	Rank uint64
	// Reason and Message say why a failed unit failed, or why an outdated one can't be started at all.
	Reason  v1alpha1.Reason
	Message string
}

// HoldsSlot reports whether the unit uses up concurrency: it is in a turn, or it has failed and nobody has tried again; unless
// it is excused. A strategy with a limit of failures lets those that have failed for good go on without their slots.
func (u *Unit) HoldsSlot() bool {
	if u.Excused {
		return false
	}
	switch u.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
		return true
	case v1alpha1.UnitFailed:
		return !u.Skipped
	case v1alpha1.UnitOutdated, v1alpha1.UnitUpdated:
	}
	return u.InTurn
}

// lost reports whether the unit has failed for good, and counts as a failure.
func (u *Unit) lost() bool {
	return u.State == v1alpha1.UnitFailed && u.RetryAt.IsZero() && !u.Skipped && !u.Excused
}

// asks reports whether the unit waits to be started.
func (u *Unit) asks(now time.Time) bool {
	return u.State == v1alpha1.UnitOutdated || u.State == v1alpha1.UnitFailed && !u.RetryAt.IsZero() && !now.Before(u.RetryAt)
}

// Fleet is a snapshot of the cluster: its nodes by name, and its budgets. An empty one says that nothing is known, and
// that nothing keeps a unit back.
type Fleet struct {
	Nodes   map[string]*Node
	Budgets []Budget
	// Leaves is a node that goes, whether it is available or not: budgets are asked as if it were. Empty is none.
	Leaves string
}

// Node is what the checks need to know of a node.
type Node struct {
	Name   string
	Labels map[string]string
	// Created is when it joined.
	Created time.Time
	// Unschedulable is true when it is cordoned, by whomever.
	Unschedulable bool
	Taints        []corev1.Taint
	Conditions    []corev1.NodeCondition
	// Claims on the node, by whomever.
	Claims []v1alpha1.Claim
	// ClaimError says why the claims can't be read.
	ClaimError string
	// Draining is true from when the node is claimed for a drain until that is over: only then does it show what the workloads lack.
	Draining bool
	// Evictions is how many pods a drain would evict; negative when that is not known.
	Evictions int

	// readiness is that of Conditions, once the node is settled.
	readiness *readiness
}

// Budget is what the cluster allows, whichever rollouts ask. NewBudget makes it from the API's.
type Budget struct {
	// Name of the NodeDisruptionBudget.
	Name string
	// Selector selects the nodes.
	Selector labels.Selector
	// Error, when not empty, says what can't be understood. No selected node may be taken then.
	Error string
	// MaxUnavailable is how many of the nodes may be unavailable; nil sets no limit.
	MaxUnavailable *Amount
	// TopologyKey is the label that names a node's domain, and MaxDomains in how many of them there may be unavailable nodes.
	TopologyKey string
	MaxDomains  int
	// Windows are when nodes may be taken; none is always.
	Windows []CronWindow
	// Paused lets nobody take a node.
	Paused bool
	// MinReady is for how long a node must have been ready to be available.
	MinReady time.Duration
	// Health is what else a node must meet to be healthy.
	Health v1alpha1.NodesGate
	// Workloads is true when what drains evict must be available again before another node is taken.
	Workloads bool
	// Blocks are the gates that are closed now.
	Blocks []Block
	// NodeBlocks says by node why its own gate is closed.
	NodeBlocks map[string]Block
}

// Block is a closed gate.
type Block struct {
	Gate    v1alpha1.Reason
	Message string
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
	// Halted says why nothing new is started at all until somebody acts; nil while that is not so. Its Node is empty.
	Halted *Wait
	// Wave is how far a rollout with waves has come; nil for one without. It is to be kept for the next decision.
	Wave *v1alpha1.WaveStatus
	// Next is the next instant at which the clock alone can change the answer; zero when none can.
	Next time.Time
}
