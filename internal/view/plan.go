// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/rollout"
)

// planUnits are the units of one Plan.
type planUnits struct {
	units
	plan     *upgradev1.Plan
	selector labels.Selector
}

// plan judges every node that the Plan selects or claims, like its controller but without its Jobs, and asks the engine.
// In a preview the Plan counts as resolved, and if its spec may be newer than its status also as valid.
func (c *Cluster) plan(p *upgradev1.Plan, named string, preview *Supposition) *planUnits {
	if preview != nil && preview.Unresolved {
		p = p.DeepCopy()
		p.Status.LatestHash, p.Status.Wave = "", nil
		p.Status.LatestVersion = strings.ReplaceAll(p.Spec.Version, "+", "-")
	}
	s := &p.Status
	u := &planUnits{plan: p, units: units{cluster: c, conditions: planConditions(p), listed: listedUnits(s.Failed, s.Updating, s.Waiting)}}
	u.described = Rollout{
		Kind: "Plan", Namespace: p.Namespace, Name: p.Name, Version: s.LatestVersion, Revision: s.LatestHash,
		Wave: s.Wave, TurnSeconds: s.TurnSeconds, Paused: p.Spec.Strategy != nil && p.Spec.Strategy.Paused,
		Counts: ptr.Deref(s.Counts, v1alpha1.UnitCounts{}), History: s.History, RolledBack: ptr.Deref(s.RolledBack, upgradev1.PlanRevision{}).Version,
	}
	if u.nodes = u.listed; c.nodes == nil {
		return u
	}
	w, err := plan.NewWorld(p)
	switch u.selector = w.Selector; {
	case err != nil && preview == nil: // The status tells too why it can't be read.
		u.problem = cmp.Or(u.conditions.refusal(), err.Error())
	case err != nil:
		u.problem = err.Error()
	case p.Spec.Version == "" && p.Spec.Channel == "":
		u.problem = "spec.version or spec.channel must say the version"
	case preview != nil && !preview.Changed:
		u.problem = u.conditions.refusal()
	}
	complete := u.conditions.complete
	w.Ready = preview != nil || complete != nil && complete.Reason != upgradev1.ReasonNotReady
	w.Fleet, w.OwnNode, w.Now, w.SharedHostnames = c.fleet, c.ownNode, c.now, rollout.SharedHostnames(c.nodes)
	turns := w.Units(c.nodes, nil, nil)
	if preview != nil && preview.Unresolved {
		for _, t := range turns { // What is in a turn starts over.
			if t.Unit.State == v1alpha1.UnitUpdating || t.Unit.State == v1alpha1.UnitSoaking {
				t.Unit.State, t.Unit.InTurn = v1alpha1.UnitOutdated, true
			}
		}
	}
	u.decided = w.Ready
	decide(&u.units, turns, named, func(total int) rollout.Strategy { return w.Strategy(total, s.Wave) }, u.line)
	return u
}

// line shows a unit. The status adds the phase that only the Job shows, if the status is of this turn.
func (u *planUnits) line(t *plan.Unit, wait *rollout.Wait) Node {
	phase, since, message := t.Phase(u.cluster.now)
	status := u.inStatus(t.Node.Name)
	ofTurn := t.Claim != nil && status.Since != nil && status.Since.Unix() >= t.Claim.Since.Unix()
	if ofTurn && phase == v1alpha1.PhaseClaimed && status.Phase != "" {
		phase, since, message = status.Phase, status.Since.Time, status.Message
	}
	return u.units.line(t.Base(), wait, phase, since, message)
}

// unselected says why a Plan does not select the node, or "".
func (u *planUnits) unselected(n *corev1.Node) string {
	if u.cluster.claimOn(n.Name, u.plan.UID) != nil {
		return ""
	}
	if _, ok := n.Labels[corev1.LabelHostname]; !ok {
		return "the node has no label " + corev1.LabelHostname
	}
	return u.unmetRequirements(u.selector, n)
}

// unmetRequirements names the selector requirements that the node does not meet; "" if it meets all.
func (u *units) unmetRequirements(selector labels.Selector, n *corev1.Node) string {
	var missing []string
	requirements, selectable := selector.Requirements()
	if !selectable {
		return cmp.Or(u.problem, "it has no spec.nodeSelector, and so selects no node")
	}
	for i := range requirements {
		if !requirements[i].Matches(labels.Set(n.Labels)) {
			missing = append(missing, requirements[i].String())
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "its spec.nodeSelector asks for " + strings.Join(missing, ", ")
}

// planConditions returns the conditions that show the state of a Plan.
func planConditions(p *upgradev1.Plan) rolloutConditions {
	c := rolloutConditions{object: p, observed: p.Status.ObservedGeneration}
	c.complete, c.stalled = planCondition(p, upgradev1.ConditionComplete), planCondition(p, upgradev1.ConditionStalled)
	c.message = ptr.Deref(c.complete, metav1.Condition{}).Message
	resolved := planCondition(p, upgradev1.ConditionLatestResolved)
	for _, of := range []*metav1.Condition{planCondition(p, upgradev1.ConditionValidated), resolved} {
		if of != nil && of.Status != metav1.ConditionTrue {
			c.message = of.Message
			return c
		}
	}
	c.message = cmp.Or(c.message, ptr.Deref(resolved, metav1.Condition{}).Message) // It may say why a newer version is not taken.
	return c
}

// planCondition returns a condition of a Plan as one of Kubernetes; nil if the Plan does not have it.
func planCondition(p *upgradev1.Plan, kind string) *metav1.Condition {
	c := p.Status.Condition(kind)
	if c == nil {
		return nil
	}
	at, _ := time.Parse(time.RFC3339, c.LastTransitionTime) // Without a time it is not known since when.
	return &metav1.Condition{Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.Time{Time: at}}
}

// preview says what the Plan would do, and what is not known about that.
func (u *planUnits) preview(s Supposition) Preview {
	var notes []string
	if s.Unresolved {
		notes = append(notes, fmt.Sprintf("The revision is not known before the operator has resolved it: all %d nodes count as outdated.", len(u.nodes)))
	}
	return u.units.preview(s, nil, notes)
}
