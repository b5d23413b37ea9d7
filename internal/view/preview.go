// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Preview is what a rollout would do without outside changes.
type Preview struct {
	// Rollout is the state now, without nodes.
	Rollout Rollout `json:"rollout"`
	// New is true if the rollout is not in the cluster.
	New bool `json:"new,omitempty"`
	// Problem is an error of the spec that keeps everything from starting.
	Problem string `json:"problem,omitempty"`
	// InTurn and Failed are the nodes that are in a turn, and those that have failed.
	InTurn []Node `json:"inTurn,omitempty"`
	Failed []Node `json:"failed,omitempty"`
	// Creation is how an ExtendedDaemonSet's nodes without a pod get one.
	Creation *Creation `json:"creation,omitempty"`
	// Canary is how an ExtendedDaemonSet would try its new revision.
	Canary *Trial `json:"canary,omitempty"`
	// AtOnce is how many nodes of an ExtendedDaemonSet are updated at once. AtOnceBy names the field that sets it.
	AtOnce   int    `json:"atOnce,omitempty"`
	AtOnceBy string `json:"atOnceBy,omitempty"`
	// Unfit are the nodes on which an ExtendedDaemonSet creates no pod.
	Unfit []Unfit `json:"unfit,omitempty"`
	// Unlabelled are the nodes that a NodeRollout selects, but without a label that names their host's interface.
	Unlabelled []string `json:"unlabelled,omitempty"`
	// Surge is how a NodeRollout with replacement adds and deletes machines.
	Surge *Surge `json:"surge,omitempty"`
	// Steps are the nodes that will be started, in their order.
	Steps []Step `json:"steps"`
	// Schedule estimates when they start; nil if the duration of a turn is neither measured nor assumed.
	Schedule *Schedule `json:"schedule,omitempty"`
	// Budgets are those that select any of the rollout's nodes, sorted by name.
	Budgets []Budget `json:"budgets,omitempty"`
	// Notes say what the preview does not know.
	Notes []string `json:"notes,omitempty"`
}

// Creation is how nodes get a pod that have none.
type Creation struct {
	// Nodes is how many have no pod.
	Nodes int `json:"nodes"`
	// Limit is how many pods may be in creation at once now.
	Limit int `json:"limit"`
	// Increase is how much Limit grows after each Interval, up to Most.
	Increase int    `json:"increase"`
	Interval string `json:"interval"`
	Most     int    `json:"most"`
}

// Trial is the canary of a preview.
type Trial struct {
	// Nodes are the canary's nodes. Wanted is how many it needs.
	Nodes  []string `json:"nodes"`
	Wanted int      `json:"wanted"`
	// Duration is how long its pods must have been ready. Calm is how long none may have restarted.
	Duration string `json:"duration,omitempty"`
	Calm     string `json:"noRestartsDuration,omitempty"`
	// Manual is true if a person must validate the canary.
	Manual bool `json:"manual,omitempty"`
}

// Unfit are nodes that get no pod, and why not.
type Unfit struct {
	Message string   `json:"message"`
	Nodes   []string `json:"nodes"`
}

// Surge is how machines are added and deleted.
type Surge struct {
	// Rule is spec.replacement.surge. OnFull is what happens if no machine can be added.
	Rule   string          `json:"rule"`
	OnFull v1alpha1.OnFull `json:"onFull"`
	// DeletesFirst is true if a machine is deleted before its replacement is added.
	DeletesFirst bool `json:"deletesFirst,omitempty"`
	// ScaleSets are the known scale sets, and how many extra machines each may have.
	ScaleSets []SurgeOf `json:"scaleSets,omitempty"`
}

// SurgeOf is the surge of one scale set.
type SurgeOf struct {
	Name string `json:"name"`
	// Image is what new machines are made of.
	Image string `json:"image,omitempty"`
	// Machines it has. Outdated of them wait for replacement. More is how many extra it may have at once.
	Machines int32 `json:"machines"`
	Outdated int32 `json:"outdated"`
	More     int   `json:"more"`
	// Message says why the scale set can't be changed.
	Message string `json:"message,omitempty"`
}

// Step is a node that will be started.
type Step struct {
	rollout.Step `json:",inline"`
	// At is the estimated start, if there is an estimate.
	At *metav1.Time `json:"at,omitempty"`
	// From is the version that the node's host runs. To is the version after the update. Both may be unknown.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Supposition is what a preview assumes about a rollout.
type Supposition struct {
	// New: the rollout is not in the cluster.
	New bool
	// Changed: the spec may be newer than the status.
	Changed bool
	// Unresolved: the revision is not known, so all nodes count as outdated.
	Unresolved bool
	// Turn is how long a turn takes. 0 means the measured time in the status of a Plan or NodeRollout; others have none.
	Turn time.Duration
}

// Preview says what a rollout would do. The object need not be in the Cluster, but its revisions and pods, if any, must be.
func (c *Cluster) Preview(object metav1.Object, s Supposition) Preview {
	return c.judgeOne(object, "", &s).preview(s)
}

// preview says what the rollout would do. blockedUntil is when units may start that may not start now.
func (u *units) preview(s Supposition, blockedUntil map[string]time.Time, notes []string) Preview {
	v := Preview{Rollout: u.rollout(), New: s.New, Problem: cmp.Or(u.problem, u.strategy.Problem()), Steps: []Step{}, Notes: notes}
	turn := cmp.Or(s.Turn, time.Duration(v.Rollout.TurnSeconds)*time.Second)
	starts := map[string]time.Time{}
	if turn > 0 && v.Problem == "" {
		p := u.cluster.newSimulation(u.strategy, u.engineUnits, u.cluster.now, turn)
		for node, at := range blockedUntil {
			unit := &p.units[p.index[node]]
			p.at(at, func() { unit.Reason, unit.Message = "", "" })
		}
		v.Schedule, starts = p.schedule(), p.starts
	}
	lines := make(map[string]Node, len(v.Rollout.Nodes))
	for _, n := range v.Rollout.Nodes {
		lines[n.Node] = n
	}
	for _, from := range rollout.Sequence(u.strategy, u.engineUnits, u.cluster.fleet, u.cluster.now) {
		v.Steps = append(v.Steps, Step{Step: from, At: timeOrNil(starts[from.Node]), From: lines[from.Node].Version, To: lines[from.Node].Target})
	}
	v.finish(u.cluster, s)
	return v
}

// finish sets InTurn and Failed from the rollout's nodes, apart from those in Steps, and Budgets. It clears the nodes.
func (v *Preview) finish(c *Cluster, s Supposition) {
	for _, n := range v.Rollout.Nodes {
		switch {
		case n.State == v1alpha1.UnitFailed:
			v.Failed = append(v.Failed, n)
		case n.InTurn() && !slices.ContainsFunc(v.Steps, func(step Step) bool { return step.Node == n.Node }):
			v.InTurn = append(v.InTurn, n)
		}
	}
	v.Rollout.Nodes = nil
	v.Budgets = c.budgetsNamed(v.Rollout.Budgets)
	if (s.New || s.Unresolved) && len(v.Steps) > 1 {
		v.Notes = append(v.Notes, "Nodes that spec.strategy.order leaves equal are shuffled by the uid and the revision: they may come in another order.")
	}
}
