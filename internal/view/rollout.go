// SPDX-License-Identifier: Apache-2.0

// Package view is the read model of rollouts: what the plugin shows, made purely from objects.
//
//	Plans         ┐
//	Daemons       ┤         ┌ Rollouts  how each stands; each of its nodes with its state, phase, since when and why
//	NodeRollouts  ┼─▶ See ──┼ Budgets   how each stands, what uses it up, what blocks it
//	Nodes, Budgets┤         ├ Why       one node: what every check of every rollout says of it, and what holds it itself
//	now           ┘         └ Preview   what a rollout would do: in which order, what waits and why, until about when
//
// Daemons are ExtendedDaemonSets with what belongs to them.
//
// A status lists a few nodes of each state and is up to a second old. The claims and labels on the nodes are complete and
// newer, so they decide a unit's state; the status adds what only its controller knows: phases, and why a unit waits.
// For units that the status has no room for, the same engine that the controller asks (package rollout) gives the reason.
//
// The units of an ExtendedDaemonSet are found out from its pods, as its controller does it. Where they are not to be seen, or there
// is no need to look at them because all is as it should be, its status says how it stands.
//
// Those of a NodeRollout with hostUpdate are found out from what the hosts say on their Nodes, by the same pure functions as in its controller
// (package hostupdate), and from its claims there. Units of a NodeRollout with replacement are those of its status and its claims: no cloud is asked.
package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// State is the state of a rollout, in one word.
type State string

// The states of a rollout.
const (
	// Pending: no controller has looked at it, or at its latest change.
	Pending State = "Pending"
	// Progressing: nodes are in a turn, or about to be.
	Progressing State = "Progressing"
	// Waiting: nodes are outdated, and none may be started now.
	Waiting State = "Waiting"
	// Stalled: nothing goes on until a person changes something.
	Stalled State = "Stalled"
	// Complete: every node has the desired revision.
	Complete State = "Complete"
)

// Rollout is one rollout and its nodes.
type Rollout struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Version is what people call the desired state, Revision what identifies it.
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"`
	State    State  `json:"state"`
	// Message says why it waits, stalls or fails, or what else matters.
	Message string `json:"message,omitempty"`
	// Since is when it became complete or stalled; else since when it has not been complete.
	Since  *metav1.Time        `json:"since,omitempty"`
	Counts v1alpha1.UnitCounts `json:"counts"`
	// Stage is what an ExtendedDaemonSet says of itself in status.state.
	Stage edsv1.State `json:"stage,omitempty"`
	// Paused is true when a person has paused it: nothing new starts. PausedBy is the annotation that does so, where it is not the
	// spec.
	Paused   bool   `json:"paused,omitempty"`
	PausedBy string `json:"pausedBy,omitempty"`
	// Halted says why nothing new starts until a person acts on what has failed; empty while that is not so.
	Halted string `json:"halted,omitempty"`
	// Wave is how far a rollout with waves has come.
	Wave *v1alpha1.WaveStatus `json:"wave,omitempty"`
	// Canary is the canary of an ExtendedDaemonSet, while it goes on or has failed.
	Canary *Canary `json:"canary,omitempty"`
	// Pods are how many pods an ExtendedDaemonSet has, by its status.
	Pods *PodCounts `json:"pods,omitempty"`
	// TurnSeconds is how long its turns took on average; 0 while none has ended.
	TurnSeconds int32 `json:"turnSeconds,omitempty"`
	// Budgets are the names of the NodeDisruptionBudgets that select any of its nodes.
	Budgets []string `json:"budgets,omitempty"`
	// OptedOut is how many nodes it would select, if a label did not keep it away.
	OptedOut int32 `json:"optedOut,omitempty"`
	// Unlabelled is how many nodes a NodeRollout selects that have no label that names the interface of their host, so that they are none
	// of its units; and Versions how many of its nodes run which version, the most frequent first.
	Unlabelled int32                  `json:"unlabelled,omitempty"`
	Versions   []v1alpha1.HostVersion `json:"versions,omitempty"`
	// ScaleSets are those that a NodeRollout with replacement replaces machines in.
	ScaleSets []v1alpha1.ScaleSetStatus `json:"scaleSets,omitempty"`
	// Nodes holds its units: failed ones first, then those in a turn, both by age; then those that wait, in the order in
	// which they come; then the updated ones by name.
	Nodes []Node `json:"nodes,omitempty"`
}

// Node is one node's part in one rollout.
type Node struct {
	Node  string             `json:"node"`
	State v1alpha1.UnitState `json:"state"`
	// Phase is the phase of its turn, while it is in one.
	Phase v1alpha1.Phase `json:"phase,omitempty"`
	// Since is when it came into this phase, or failed.
	Since *metav1.Time `json:"since,omitempty"`
	// Started is when its turn began.
	Started *metav1.Time `json:"started,omitempty"`
	// Reason and Message say why it waits or failed, or what holds up its turn.
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Skipped is true for a failed one whose node was released, so that the rollout goes on without it.
	Skipped bool `json:"skipped,omitempty"`
	// RetryAt is when a failed one is tried again by itself.
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
	// Canary is true for one on which the canary of an ExtendedDaemonSet runs, and Pod is the daemon's pod there.
	Canary bool   `json:"canary,omitempty"`
	Pod    string `json:"pod,omitempty"`
	// Version is what the node's host runs, and Target what a NodeRollout brings it to, as far as that is known and another one.
	Version string `json:"version,omitempty"`
	Target  string `json:"target,omitempty"`
	// NotReady and Cordoned are of the node itself.
	NotReady bool `json:"notReady,omitempty"`
	Cordoned bool `json:"cordoned,omitempty"`
}

// FullName is how people call the rollout: by its name, with its namespace before it if it is in one.
func (r *Rollout) FullName() string { return fullName(r.Namespace, r.Name) }

// FullName is how people call the rollout.
func (o *Other) FullName() string { return fullName(o.Namespace, o.Name) }

func fullName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Lasts reports whether a machine's turn has failed, and there is nothing to try again: one that is still being added is waited for, and one that has
// taken the place stays, and is not well yet.
func (n *Node) Lasts() bool {
	phase := v1alpha1.MachinePhase(n.Phase)
	return n.State == v1alpha1.UnitFailed && (phase == v1alpha1.MachineAdding || phase == v1alpha1.MachineSoaking)
}

// InTurn reports whether the node is in the middle of a turn.
func (n *Node) InTurn() bool {
	return n.State == v1alpha1.UnitUpdating || n.State == v1alpha1.UnitSoaking
}
