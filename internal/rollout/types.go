// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Strategy is how fast and in which order one rollout goes. New makes it from the API object.
type Strategy struct {
	// UID of the rollout; it identifies the rollout's own claims.
	UID types.UID
	// Revision is the target revision. Progress through the waves counts for one revision only.
	Revision string
	// Shared is true when a turn tolerates other rollouts' shared claims on the node.
	Shared bool
	// MaxConcurrent is how many units may hold a slot at once; 0 starts nothing.
	MaxConcurrent int
	// MaxFailures is how many units may fail; nil sets no limit, and failed units keep their slots.
	MaxFailures *int
	// Paused starts nothing.
	Paused bool
	// Window is when units may be started: while one of them is open; none means always. If there are Windows, one of them must be open too.
	Window, Windows []CronWindow
	// WindowError says why a window is invalid; empty if none is. An invalid window starts nothing.
	WindowError string
	// Error says what else of the strategy is invalid; empty if nothing is. An invalid strategy starts nothing.
	Error string
	// Order holds the criteria by which units that may start are sorted, before their rank.
	Order []v1alpha1.Order
	// Drains is true when a turn evicts the pods of its node.
	Drains bool
	// Claimless is true when turns leave their nodes in service and claim none, like those of an ExtendedDaemonSet. They
	// neither need nor use up what budgets allow by number and by domain, unless a budget counts DaemonPods. Pauses, windows
	// and gates of budgets still apply.
	// Any claim of another rollout, shared or not, keeps the turn away.
	Claimless bool
	// OwnNode is the node that the operator runs on; it is started last.
	OwnNode string
	// Health is what changed nodes need before their wave is complete. Budgets do not use it.
	Health Health
	// Waves divide the rollout.
	Waves []Wave
	// SoakLast makes the last wave with units soak, and need approval, before the rollout is complete. A rollout without
	// units is then not complete before its first wave has one. Without SoakLast a wave soaks only if another follows.
	SoakLast bool
	// Wave is the progress at the last decision; nil at the beginning.
	Wave *v1alpha1.WaveStatus
	// Template identifies what is done to nodes at the revision. An approval is for one template. Empty: the revision says all.
	Template string
	// Approved are the approvals of people: see ApprovalOf.
	Approved []string
}

// Health says when a node is healthy, in addition to being ready.
type Health struct {
	// MinReady is for how long a node must have been ready.
	MinReady time.Duration
	v1alpha1.NodesGate
}

// Wave is a part of a rollout that is finished before the next begins.
type Wave struct {
	// Name of the wave.
	Name string
	// Size is the maximum number of units; 0 means no maximum.
	Size int
	// Selector limits the wave to nodes with these labels; nil means any.
	Selector labels.Selector
	// Nodes limits the wave to these names; nil means any, empty means none.
	Nodes map[string]bool
	// Soak is how long all its nodes must have been updated and healthy.
	Soak time.Duration
	// Manual is true when a person must approve the wave before the next begins.
	Manual bool
}

// Unit is one node's part in one rollout.
type Unit struct {
	// Node is the node's name.
	Node string
	// State of the unit.
	State v1alpha1.UnitState
	// Reason and Message say why a unit failed, or why an outdated unit can't start at all.
	Reason  v1alpha1.Reason
	Message string
	// OptedOut is true when the node carries the rollout's opt-out label.
	OptedOut bool
	// InTurn is true for an outdated unit whose turn for an earlier revision still runs. It holds a slot, and keeps it when
	// it restarts.
	InTurn bool
	// Running is true for such a unit while its change will end by itself, so that it need not restart now.
	Running bool
	// Claimed is true when the rollout has claimed the node. Its cost is already part of the budgets.
	Claimed bool
	// Retried is true when the claim only records that the last turn failed. It keeps the unit's place, but uses no budget.
	Retried bool
	// Down is true when the unit is already out of service. It starts before units that still serve.
	Down bool
	// Unoffered is true for a unit to which the revision is not known to be offered. Waves take it after all others. If it
	// is updated nevertheless, it does not run the revision, and does not prove that the revision works.
	Unoffered bool
	// Excused is true when the rollout did not cause the problem of the unit, such as a node that is not ready. It holds no
	// slot, and does not count as a failure. Its wave waits for it.
	Excused bool
	// Skipped is true for a failed unit whose node was released; the rollout continues without it.
	Skipped bool
	// RetryAt is when a failed unit is retried automatically; zero means never.
	RetryAt time.Time
	// Since is when it entered its state.
	Since time.Time
	// Rank orders units that may start: lower first, then by name.
	Rank uint64
}

// begun reports whether a turn of the unit has begun before. It may be tried again, whatever has happened to other units since.
func (u *Unit) begun() bool { return u.Claimed || u.Retried }

// HoldsSlot reports whether the unit uses up concurrency: it is in a turn, or it has failed and was not retried. Excused
// units hold no slot. With a failure limit, units that failed for good hold none either (slots.holds).
func (u *Unit) HoldsSlot() bool {
	if u.Excused {
		return false
	}
	switch u.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
		return true
	case v1alpha1.UnitFailed:
		return !u.Skipped
	default:
		return u.InTurn
	}
}

// failedForGood reports whether the unit counts as a failure and has no automatic retry.
func (u *Unit) failedForGood() bool {
	return u.State == v1alpha1.UnitFailed && u.RetryAt.IsZero() && !u.Skipped && !u.Excused
}

// wantsStart reports whether the unit waits for its start.
func (u *Unit) wantsStart(now time.Time) bool {
	return u.State == v1alpha1.UnitOutdated || u.State == v1alpha1.UnitFailed && !u.RetryAt.IsZero() && !now.Before(u.RetryAt)
}

// Fleet is a snapshot of the cluster: its nodes by name, and its budgets. An empty one restricts nothing.
type Fleet struct {
	Nodes   map[string]*Node
	Budgets []Budget
	// Gates returns a budget with the gates that are closed now. It is asked for the budgets of candidates alone. Nil: Budgets have them.
	Gates func(*Budget) *Budget
	// Evictions is how many pods a drain would evict from each node, for strategies that order by it. A node without an
	// entry has an unknown count.
	Evictions map[string]int
	// Replaced are the nodes on which daemon pods are being replaced, and by which rollouts.
	Replaced map[string][]Replacement
	// Leaving is a node that is going away. Budgets count it as available even if it is not. Empty means none.
	Leaving string
}

// Replacement is the replacement of a daemon pod by a rollout that claims no nodes.
type Replacement struct {
	// By is the rollout, as "Kind/namespace/name".
	By    string
	Since time.Time
}

// Node is what the checks need to know of a node. The fields that budgets read of every node are together, because they
// are then read faster.
type Node struct {
	// Claims of all rollouts on the node.
	Claims []v1alpha1.Claim
	// ClaimError says which annotation can't be read, so that no rollout may take the node.
	ClaimError string
	Labels     map[string]string
	// Unschedulable is true when it is cordoned.
	Unschedulable bool
	// Removal says what is removing the Node from the cluster; empty for nothing.
	Removal string
	// Draining is true from the claim for a drain until the drain is complete. Until then the workloads gate can't see all
	// evicted pods.
	Draining bool
	// readiness is that of Conditions, if NewNode computed it. Then its Conditions must not change.
	readiness readiness

	Name string
	// Created is when it joined.
	Created    time.Time
	Taints     []corev1.Taint
	Conditions []corev1.NodeCondition
}

// Budget limits the disruption of nodes by all rollouts together. NewBudget makes it from the API object.
type Budget struct {
	// Name of the NodeDisruptionBudget.
	Name string
	// Selector selects the nodes.
	Selector labels.Selector
	// Error says what is invalid; empty if nothing is. No rollout may claim a node of an invalid budget.
	Error string
	// MaxUnavailable is how many of the nodes may be unavailable; nil sets no limit.
	MaxUnavailable *Amount
	// TopologyKey is the label that names a node's domain. MaxDomains is in how many domains nodes may be unavailable.
	TopologyKey string
	MaxDomains  int
	// DaemonPods is true when nodes with replaced daemon pods use up both numbers. NoNodes is true when unavailable ones do not.
	DaemonPods, NoNodes bool
	// Windows are when rollouts may claim nodes; none means always.
	Windows []CronWindow
	// Paused lets no rollout claim a node.
	Paused bool
	// Health is what a node must meet to be available.
	Health Health
	// Workloads is true when evicted workloads must be available again before a rollout claims another node.
	Workloads bool
	// Blocks are the gates that are closed now.
	Blocks []Block
	// NodeBlocks are the gates that are closed for single nodes, by name.
	NodeBlocks map[string]Block
	// AlertsIgnored says why the alerts gate is open although the alerts are not known; empty if they are known.
	AlertsIgnored string
}

// Block is why a budget allows no start: a closed gate or window, a pause, or an invalid budget.
type Block struct {
	Gate    v1alpha1.Reason
	Message string
}

// Wait says why a unit is not started.
type Wait struct {
	Node    string
	Reason  v1alpha1.Reason
	Message string
	// Holds is true for a unit that holds a slot while it waits: it has failed, or its turn for an earlier revision still
	// runs.
	Holds bool
}

// Decision is the answer of Decide.
type Decision struct {
	// Start holds the nodes to claim now, in order.
	Start []string
	// Waiting holds every unit that needs a turn and does not get one now: failed units first, then the others in order.
	Waiting []Wait
	// Halted says why the rollout starts no further node until a person acts, unless Wave says it; empty if it is not halted.
	Halted string
	// Wave is the progress of the waves; nil without waves. The caller stores it for the next decision.
	Wave *v1alpha1.WaveStatus
	// Next is the next instant at which the clock alone can change the answer; zero when none can.
	Next time.Time
}

// NewNode returns the facts of a Node that the checks need.
func NewNode(o *corev1.Node) *Node {
	n := &Node{
		Name: o.Name, Labels: o.Labels, Created: o.CreationTimestamp.Time, Unschedulable: o.Spec.Unschedulable,
		Taints: o.Spec.Taints, Conditions: o.Status.Conditions,
	}
	var err error
	if n.Claims, err = v1alpha1.ParseClaims(o.Annotations); err != nil {
		n.ClaimError = cannotRead(v1alpha1.AnnotationClaims)
	} else if _, err = v1alpha1.ParseEvicted(o.Annotations); err != nil && len(n.Claims) == 0 { // A turn that has begun replaces the record.
		n.ClaimError = cannotRead(v1alpha1.AnnotationEvicted)
	}
	n.Draining, n.Removal = draining(o, n.Claims), removal(o)
	n.readiness = n.ready()
	return n
}

// removal says what is removing a Node from the cluster. Karpenter and the cluster autoscaler need not cordon it: they taint it.
func removal(o *corev1.Node) string {
	if o.DeletionTimestamp != nil {
		return "being deleted"
	}
	for i := range o.Spec.Taints {
		if key := o.Spec.Taints[i].Key; key == "ToBeDeletedByClusterAutoscaler" || key == "karpenter.sh/disrupted" {
			return "being removed (taint " + key + ")"
		}
	}
	return ""
}

// cannotRead says that an annotation of a Node can't be read. It does not quote the value or the decoder's error. So the statuses of the rollouts that
// wait for the node do not change each time a kubelet writes another value that can't be read.
func cannotRead(annotation string) string { return "annotation " + annotation + " can't be read" }

// draining reports whether the node is claimed for a drain that is not complete. It is complete if the node's condition,
// the claim, or a later step of the turn says so. The condition Drained of a schedulable node is out of date.
func draining(o *corev1.Node, claims []v1alpha1.Claim) bool {
	drains := func(c v1alpha1.Claim) bool {
		return c.Drains && c.Drained == nil && c.Rebooting == nil && c.Changed == nil && c.Soaking == nil && c.Failed == nil
	}
	drained := NodeCondition(o.Status.Conditions, corev1.NodeDrained)
	return slices.ContainsFunc(claims, drains) && (!o.Spec.Unschedulable || drained == nil || drained.Status != corev1.ConditionTrue)
}

// SharedHostnames returns the values of the label kubernetes.io/hostname that several Nodes have.
func SharedHostnames(nodes []*corev1.Node) map[string]bool {
	seen, shared := make(map[string]bool, len(nodes)), map[string]bool{}
	for _, n := range nodes {
		if hostname := n.Labels[corev1.LabelHostname]; hostname != "" && seen[hostname] {
			shared[hostname] = true
		} else {
			seen[hostname] = true
		}
	}
	return shared
}

// Earlier returns the earlier of two times. Zero means no time.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Count returns how many elements the function accepts.
func Count[T any](all []T, accepts func(*T) bool) (n int) {
	for i := range all {
		if accepts(&all[i]) {
			n++
		}
	}
	return n
}

// Find returns the first element that the function accepts, or nil.
func Find[T any](all []T, accepts func(*T) bool) *T {
	for i := range all {
		if accepts(&all[i]) {
			return &all[i]
		}
	}
	return nil
}
