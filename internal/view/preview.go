// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
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
	Node string `json:"node"`
	// Wave is the name of its wave, where there are waves.
	Wave string `json:"wave,omitempty"`
	// Reason and Message say why it waits; without a reason it starts now.
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
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
	// Unresolved: the revision is not known, so all nodes count as outdated.
	Unresolved bool
	// Turn is how long a turn takes. 0 means the measured time in the status of a Plan or NodeRollout; others have none.
	Turn time.Duration
}

// Preview says what a Plan would do. The Plan need not be in the Cluster.
func (c *Cluster) Preview(p *upgradev1.Plan, s Supposition) Preview {
	if s.Unresolved {
		p = p.DeepCopy()
		p.Status.LatestHash, p.Status.Wave = "", nil
	}
	u := c.observe(p, "", true)
	if s.Unresolved {
		u.makeOutdated()
	}
	v := Preview{Rollout: u.rollout(), New: s.New, Problem: u.problem()}
	if s.Unresolved {
		v.Rollout.Version = strings.ReplaceAll(p.Spec.Version, "+", "-")
	}
	v.foresee(c, u.strategy, u.asked, cmp.Or(s.Turn, seconds(p.Status.TurnSeconds)), nil)
	if s.Unresolved {
		v.Notes = append(v.Notes, fmt.Sprintf("The revision is not known before the operator has resolved it: all %d nodes count as outdated.", len(u.nodes)))
	}
	if (s.Unresolved || s.New) && len(v.Steps) > 1 {
		v.Notes = append(v.Notes, shuffled)
	}
	return v
}

const shuffled = "Nodes that spec.strategy.order leaves equal are shuffled by the uid and the revision: they may come in another order."

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// foresee adds the steps in order, and an estimate if the duration of a turn is known. prepare may change the simulation before it runs.
func (v *Preview) foresee(c *Cluster, s rollout.Strategy, units []rollout.Unit, turn time.Duration, prepare func(*simulation)) {
	lines := make(map[string]Node, len(v.Rollout.Nodes))
	for _, n := range v.Rollout.Nodes {
		lines[n.Node] = n
	}
	v.sort(c)
	starts := map[string]time.Time{}
	if turn > 0 && v.Problem == "" {
		p := c.newSimulation(s, units, c.now, turn)
		if prepare != nil {
			prepare(p)
		}
		v.Schedule, starts = p.schedule(), p.starts
	}
	v.Steps = []Step{}
	for _, step := range rollout.Sequence(s, units, c.fleet, c.now) {
		v.Steps = append(v.Steps, Step{
			Node: step.Node, Wave: step.Wave, Reason: step.Reason, Message: step.Message, At: known(starts[step.Node]),
			From: lines[step.Node].Version, To: lines[step.Node].Target,
		})
	}
}

// sort sets InTurn and Failed from the rollout's nodes, and Budgets. It clears the nodes.
func (v *Preview) sort(c *Cluster) {
	for _, n := range v.Rollout.Nodes {
		switch {
		case n.InTurn():
			v.InTurn = append(v.InTurn, n)
		case n.State == v1alpha1.UnitFailed:
			v.Failed = append(v.Failed, n)
		}
	}
	v.Rollout.Nodes = nil
	v.Budgets = c.budgetsNamed(v.Rollout.Budgets)
}

// makeOutdated makes every unit outdated, as when the Plan gets a new revision.
func (u *planUnits) makeOutdated() {
	for i := range u.asked {
		ask := &u.asked[i]
		switch ask.State {
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			ask.InTurn = true // It starts over.
		case v1alpha1.UnitFailed:
			ask.Reason, ask.Message, ask.Skipped, ask.RetryAt = "", "", false, time.Time{}
		case v1alpha1.UnitOutdated, v1alpha1.UnitUpdated:
		}
		ask.State = v1alpha1.UnitOutdated
	}
	for i := range u.nodes {
		if n := &u.nodes[i]; n.State == v1alpha1.UnitFailed {
			n.State, n.Reason, n.Message = v1alpha1.UnitOutdated, "", ""
		}
	}
	u.decision = rollout.Decide(u.strategy, u.asked, u.cluster.fleet, u.cluster.now)
}

// problem is an error of the spec, or "".
func (u *planUnits) problem() string {
	spec := &u.world.Plan.Spec
	switch d := spec.Drain; {
	case u.invalid != nil:
		return u.invalid.Error()
	case spec.Version == "" && spec.Channel == "":
		return "spec.version or spec.channel must say the version"
	case d != nil && d.DeleteLocalData != nil && d.DeleteEmptydirData != nil:
		return "spec.drain.deleteLocalData is the old name of spec.drain.deleteEmptydirData: only one of them may be given"
	case d != nil && d.Timeout != nil && d.Timeout.Type == intstr.String:
		if _, err := time.ParseDuration(d.Timeout.StrVal); err != nil {
			return "spec.drain.timeout: " + err.Error()
		}
	}
	return ""
}
