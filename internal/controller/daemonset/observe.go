// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
)

// transitions are the Events of what has changed since the status was last written.
func (p *pass) transitions(before *edsv1.ExtendedDaemonSet) []events.Event {
	var all []events.Event
	if p.problem == nil { // Else nothing has been looked at, and there may be no revision.
		all = p.turns(before)
	}
	if p.turned(before, edsv1.ConditionStalled) {
		c := edsv1.FindCondition(p.eds.Status.Conditions, edsv1.ConditionStalled)
		all = append(all, events.RolloutStalled(p.eds, c.Reason+": "+c.Message))
	}
	return all
}

// turned reports whether a condition has become True.
func (p *pass) turned(before *edsv1.ExtendedDaemonSet, kind string) bool {
	return !edsv1.IsConditionTrue(before.Status.Conditions, kind) && edsv1.IsConditionTrue(p.eds.Status.Conditions, kind)
}

// turns are those of the canary, and of the rollout's end.
func (p *pass) turns(before *edsv1.ExtendedDaemonSet) []events.Event {
	var all []events.Event
	if p.turned(before, edsv1.ConditionCanaryPaused) {
		all = append(all, events.CanaryPaused(p.eds, p.target.Name, string(p.eds.Status.Reason), p.pausedMessage()))
	}
	if edsv1.IsConditionTrue(before.Status.Conditions, edsv1.ConditionCanaryPaused) && p.canary != nil && !p.canary.paused() {
		all = append(all, events.CanaryUnpaused(p.eds, p.target.Name))
	}
	if p.turned(before, edsv1.ConditionCanaryFailed) {
		c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed)
		all = append(all, events.CanaryFailed(p.eds, p.target.Name, c.Reason, c.Message))
	}
	if p.wasReset(before) {
		all = append(all, events.CanaryReset(p.eds, p.target.Name))
	}
	if why := p.refused(); why != "" && !p.toldOf(before, why) {
		all = append(all, events.PodCreateFailed(p.eds, why))
	}
	if p.turned(before, edsv1.ConditionReady) {
		all = append(all, events.RolloutComplete(p.eds))
	}
	return all
}

// toldOf reports whether the status has said already why a pod is refused.
func (p *pass) toldOf(before *edsv1.ExtendedDaemonSet, why string) bool {
	c := edsv1.FindCondition(before.Status.Conditions, edsv1.ConditionReconcileError)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reasonRefused && c.Message == why
}

// wasReset reports whether the failure that the status told of was taken back, so that the same revision is tried again.
func (p *pass) wasReset(before *edsv1.ExtendedDaemonSet) bool {
	c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed)
	return c != nil && c.Reason == edsv1.ReasonReset && edsv1.IsConditionTrue(before.Status.Conditions, edsv1.ConditionCanaryFailed) &&
		!edsv1.IsConditionTrue(p.eds.Status.Conditions, edsv1.ConditionCanaryFailed)
}

// measure tells the metrics how the nodes stand.
func (p *pass) measure() {
	if p.problem != nil {
		return
	}
	states, reasons := map[v1alpha1.UnitState]int{}, map[v1alpha1.Reason]int{}
	for i := range p.sawUnits {
		states[p.sawUnits[i].State]++
	}
	for i := range p.decision.Waiting {
		reasons[p.decision.Waiting[i].Reason]++
	}
	metrics.SetUnits(metrics.DaemonSet(p.key), states, reasons)
	stuck := map[string]bool{}
	for _, rs := range p.sets {
		stuck[rs.Name] = rs == p.active && p.canary == nil && states[v1alpha1.UnitOutdated] > 0 && len(p.decision.Start) == 0
	}
	metrics.SetStuck(p.key, stuck)
}
