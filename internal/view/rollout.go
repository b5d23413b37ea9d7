// SPDX-License-Identifier: Apache-2.0

// Package view is the read model of rollouts: what the plugin shows, computed from objects only.
//
//	Plans         ┐
//	Daemons       ┤         ┌ Rollouts  how each stands; each of its nodes with its state, phase, since when and why
//	NodeRollouts  ┼─▶ See ──┼ Budgets   how each stands, what uses it up, what blocks it
//	Nodes, Budgets┤         ├ Why       one node: what every check of every rollout says of it, and what holds it itself
//	now           ┘         └ Preview   what a rollout would do: in which order, what waits and why, until about when
//
// Daemons are ExtendedDaemonSets with their revisions and pods.
//
// A status lists a few nodes of each state and is up to a second old. The claims and labels on the nodes are complete and
// newer, so they decide a unit's state; the status adds what only its controller knows: phases, and why a unit waits.
// The status lists only some units. For others the controller's engine (package rollout) gives the reason.
//
// The units of an ExtendedDaemonSet are computed from its pods, as in its controller. If the pods may not be read, or the
// status says that all are as desired, the status is used instead.
//
// The units of a NodeRollout with hostUpdate are computed from the hosts' state and the claims on Nodes, by the functions of its controller
// (package hostupdate). The units of a NodeRollout with replacement come from its status and claims. No cloud is asked.
//
//	units.go      the units of all kinds; plan.go, hosts.go, machines.go and daemon*.go add what only one kind has
//	rollout.go    a rollout as it is shown, and its state in one word; needs.go lists what needs a person
//	budget.go     NodeDisruptionBudgets, and the gates that depend on pods
//	why.go        one node
//	preview.go    what a rollout would do; schedule.go estimates when
package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// Rollout is one rollout and its nodes.
type Rollout struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Version is the readable name of the desired state. Revision identifies it.
	Version  string `json:"version,omitempty"`
	Revision string `json:"revision,omitempty"`
	// RolledBack is the failed version from which nodes are brought back to Version.
	RolledBack string `json:"rolledBack,omitempty"`
	State      State  `json:"state"`
	// Message says why the rollout waits, is stalled or fails, or is a note.
	Message string `json:"message,omitempty"`
	// Since is when the rollout became complete or stalled, or else stopped being complete.
	Since  *metav1.Time        `json:"since,omitempty"`
	Counts v1alpha1.UnitCounts `json:"counts"`
	// Stage is status.state of an ExtendedDaemonSet.
	Stage edsv1.State `json:"stage,omitempty"`
	// Paused is true when a person has paused the rollout: no turn starts. PausedBy is the annotation that pauses it; empty if the
	// spec does.
	Paused   bool   `json:"paused,omitempty"`
	PausedBy string `json:"pausedBy,omitempty"`
	// PolicyMissing says that nothing bounds what the agents of a NodeRollout may write; empty if a policy does.
	PolicyMissing string `json:"policyMissing,omitempty"`
	// Halted says why no turn starts until a person acts on failed units; empty if not halted.
	Halted string `json:"halted,omitempty"`
	// Wave is the progress of a rollout with waves.
	Wave *v1alpha1.WaveStatus `json:"wave,omitempty"`
	// Canary is the running or failed canary of an ExtendedDaemonSet.
	Canary *Canary `json:"canary,omitempty"`
	// Pods are how many pods an ExtendedDaemonSet has, by its status.
	Pods *PodCounts `json:"pods,omitempty"`
	// TurnSeconds is the average duration of its turns; 0 until the first ends.
	TurnSeconds int32 `json:"turnSeconds,omitempty"`
	// Budgets are the names of the NodeDisruptionBudgets that select any of its nodes.
	Budgets []string `json:"budgets,omitempty"`
	// OptedOut is how many selected nodes have a label that opts out of the rollout.
	OptedOut int32 `json:"optedOut,omitempty"`
	// Unlabelled is how many nodes a NodeRollout selects without a label for the host's interface. They are not units.
	// Versions is how many of its nodes run which version, the most frequent first.
	Unlabelled int32                  `json:"unlabelled,omitempty"`
	Versions   []v1alpha1.HostVersion `json:"versions,omitempty"`
	// ScaleSets are the scale sets in which a NodeRollout replaces machines.
	ScaleSets []v1alpha1.ScaleSetStatus `json:"scaleSets,omitempty"`
	// History are its last runs, the newest first.
	History []v1alpha1.Run `json:"history,omitempty"`
	// Nodes holds the units: first failed units, then units in a turn, both by age; then waiting units in the order
	// of their start; then updated units by name.
	Nodes []Node `json:"nodes,omitempty"`
}

// Node is one node's part in one rollout.
type Node struct {
	Node  string             `json:"node"`
	State v1alpha1.UnitState `json:"state"`
	// Phase is the phase of its turn, while it is in one.
	Phase v1alpha1.Phase `json:"phase,omitempty"`
	// Since is when the phase began, or when the unit failed.
	Since *metav1.Time `json:"since,omitempty"`
	// Started is when its turn began.
	Started *metav1.Time `json:"started,omitempty"`
	// Reason and Message say why the unit waits or failed, or what delays its turn.
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Skipped is true for a failed unit whose node was released: the rollout continues without it.
	Skipped bool `json:"skipped,omitempty"`
	// RetryAt is when a failed unit is retried automatically.
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
	// Recovers is true for a failed unit whose host runs the version: the turn ends when its node is healthy.
	Recovers bool `json:"recovers,omitempty"`
	// Canary is true if the canary of an ExtendedDaemonSet runs on the node. Pod is the daemon's pod there.
	Canary bool   `json:"canary,omitempty"`
	Pod    string `json:"pod,omitempty"`
	// Version is what the node's host runs. Target is the version after the update, if it is known and different.
	Version string `json:"version,omitempty"`
	Target  string `json:"target,omitempty"`
	// NotReady and Cordoned are the node's own state.
	NotReady bool `json:"notReady,omitempty"`
	Cordoned bool `json:"cordoned,omitempty"`
}

// judge judges a rollout of one kind as its controller does.
type judge interface {
	rollout() Rollout
	// unselected says why the rollout does not concern a node; else "".
	unselected(n *corev1.Node) string
	// explain adds to a node's part what keeps the node from starting.
	explain(part *Part)
	// preview says what the rollout would do, if it was judged for that.
	preview(s Supposition) Preview
}

// judged is a rollout of any kind.
type judged struct {
	Rollout
	judge
}

// Objects returns the Plans, ExtendedDaemonSets and NodeRollouts.
func (c *Cluster) Objects() (all []metav1.Object) {
	for i := range c.plans {
		all = append(all, &c.plans[i])
	}
	for i := range c.daemons.Sets {
		all = append(all, &c.daemons.Sets[i])
	}
	for i := range c.nodeRollouts {
		all = append(all, &c.nodeRollouts[i])
	}
	return all
}

// judgeOne judges a rollout, as it is or for a preview. The node called named counts even if it opted out.
func (c *Cluster) judgeOne(object metav1.Object, named string, preview *Supposition) judge {
	switch o := object.(type) {
	case *upgradev1.Plan:
		return c.plan(o, named, preview)
	case *v1alpha1.NodeRollout:
		if o.Spec.Replacement != nil {
			return c.machines(o, named, preview)
		}
		return c.hosts(o, named, preview)
	}
	return c.daemonSet(object.(*edsv1.ExtendedDaemonSet), preview)
}

// judge returns all rollouts, sorted by namespace and name. The node called named counts even if it opted out.
func (c *Cluster) judge(named string) []judged {
	var all []judged
	for _, o := range c.Objects() {
		j := c.judgeOne(o, named, nil)
		all = append(all, judged{j.rollout(), j})
	}
	slices.SortFunc(all, func(a, b judged) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Kind, a.Kind))
	})
	return all
}

// Rollouts returns all rollouts, sorted by namespace and name. NodeRollouts have no namespace and come first.
// A Plan comes before an ExtendedDaemonSet of the same name.
func (c *Cluster) Rollouts() []Rollout {
	rollouts := []Rollout{}
	for _, j := range c.judge("") {
		rollouts = append(rollouts, j.Rollout)
	}
	return rollouts
}

// Reason says in one word why no node starts, or why the next one waits; empty if the rollout is complete.
func (r *Rollout) Reason() v1alpha1.Reason {
	switch {
	case r.State == Complete:
		return ""
	case r.Halted != "":
		return v1alpha1.ReasonHalted
	case r.Paused:
		return v1alpha1.ReasonPaused
	}
	var reason v1alpha1.Reason
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == v1alpha1.UnitOutdated && n.Reason != "" {
			return n.Reason // Those that come first are listed first.
		} else if n.State == v1alpha1.UnitFailed {
			reason = cmp.Or(reason, n.Reason)
		}
	}
	return reason
}

// Waits are the nodes of a rollout that wait for one reason.
type Waits struct {
	Reason  v1alpha1.Reason
	Message string
	Nodes   []Node
}

// WaitsOf groups the nodes that wait by their reason, in the order of their start. Nodes without a reason have the reason Next.
func WaitsOf(nodes []Node) (all []Waits) {
	for _, n := range nodes {
		if n.State != v1alpha1.UnitOutdated {
			continue
		}
		reason := cmp.Or(n.Reason, "Next")
		i := slices.IndexFunc(all, func(w Waits) bool { return w.Reason == reason })
		if i < 0 {
			i = len(all)
			all = append(all, Waits{Reason: reason, Message: n.Message})
		}
		all[i].Nodes = append(all[i].Nodes, n)
	}
	return all
}

// FullName is the rollout's name, as namespace/name if it has a namespace.
func (r *Rollout) FullName() string { return cache.NewObjectName(r.Namespace, r.Name).String() }

// FullName is the object's name, as namespace/name if it has a namespace.
func (r *Remark) FullName() string { return cache.NewObjectName(r.Namespace, r.Name).String() }

// ContinuesFailed reports whether a turn has failed but continues without a retry: a machine's replacement is still being added, or has joined and is
// not healthy yet, or a host runs the version, and its node is not healthy yet.
func (n *Node) ContinuesFailed() bool {
	phase := v1alpha1.MachinePhase(n.Phase)
	return n.State == v1alpha1.UnitFailed && (phase == v1alpha1.MachineAdding || phase == v1alpha1.MachineSoaking || n.Recovers)
}

// InTurn reports whether the node is in a turn that has not failed.
func (n *Node) InTurn() bool {
	return n.State == v1alpha1.UnitUpdating || n.State == v1alpha1.UnitSoaking
}

// indexOf returns the index of a node, or -1.
func indexOf(nodes []Node, name string) int {
	return slices.IndexFunc(nodes, func(n Node) bool { return n.Node == name })
}

// State is the state of a rollout, in one word.
type State string

// The states of a rollout.
const (
	// Pending: no controller has observed the rollout or its latest change.
	Pending State = "Pending"
	// Progressing: nodes are in a turn, or about to be.
	Progressing State = "Progressing"
	// Waiting: nodes are outdated, and none may be started now.
	Waiting State = "Waiting"
	// Stalled: the rollout stops until a person changes something.
	Stalled State = "Stalled"
	// Complete: every node has the desired revision.
	Complete State = "Complete"
)

// unnoticed is how old a rollout may be without a status before a message says so.
const unnoticed = 10 * time.Second

// rolloutConditions are what decides the state of a rollout, of any kind.
type rolloutConditions struct {
	object   metav1.Object
	observed int64 // generation; 0 if the controller does not write it
	// complete says whether the rollout is complete; nil before a controller has looked at it. stalled may be nil too.
	complete, stalled *metav1.Condition
	// message is shown unless the rollout is pending or stalled.
	message string
}

// startReasons are the reasons of a Plan's condition Complete while turns go on or start.
var startReasons = []string{upgradev1.ReasonSyncJob, upgradev1.ReasonResolved}

// refusal says why the controller carries out nothing of a rollout as it is; else "".
func (c *rolloutConditions) refusal() string {
	reasons := []string{"Invalid", upgradev1.ReasonNotReady, string(v1alpha1.ReasonDefinitionIncomplete)}
	isOlder := c.observed != 0 && c.observed != c.object.GetGeneration()
	if isOlder || c.stalled == nil || c.stalled.Status != metav1.ConditionTrue || !slices.Contains(reasons, c.stalled.Reason) {
		return ""
	}
	return c.stalled.Message
}

// state returns a rollout's state, the message for it, and its start.
func (c *rolloutConditions) state(r *Rollout, now time.Time) (State, string, *metav1.Time) {
	starts := func(n Node) bool { return n.State == v1alpha1.UnitOutdated && n.Reason == "" }
	switch {
	case c.complete == nil && now.Sub(c.object.GetCreationTimestamp().Time) < unnoticed:
		return Pending, "", nil
	case c.complete == nil:
		return Pending, "no controller has looked at it: does one run, for its kind and namespace?", nil
	case c.observed != 0 && c.observed != c.object.GetGeneration():
		return Pending, "the controller has not looked at its latest change yet", nil
	case c.stalled != nil && c.stalled.Status == metav1.ConditionTrue:
		return Stalled, c.stalled.Message, timeOrNil(c.stalled.LastTransitionTime.Time)
	}
	state := Waiting
	switch {
	case c.complete.Status == metav1.ConditionTrue && r.Counts.Updating == 0: // Else the Nodes were read before the rollout.
		state = Complete
	case r.Counts.Updating > 0 || slices.Contains(startReasons, c.complete.Reason) || slices.ContainsFunc(r.Nodes, starts):
		state = Progressing
	}
	return state, c.message, timeOrNil(c.complete.LastTransitionTime.Time)
}
