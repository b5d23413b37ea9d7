// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
)

// transitions are the Events of what has changed since the status was last written.
func (p *pass) transitions(before *edsv1.ExtendedDaemonSet) []events.Event {
	var all []events.Event
	was, is := &before.Status, &p.eds.Status
	turned := func(kind string) bool {
		return !edsv1.IsConditionTrue(was.Conditions, kind) && edsv1.IsConditionTrue(is.Conditions, kind)
	}
	if turned(edsv1.ConditionCanaryPaused) {
		all = append(all, events.CanaryPaused(p.eds, p.target.Name, string(is.Reason), p.pausedMessage()))
	}
	if edsv1.IsConditionTrue(was.Conditions, edsv1.ConditionCanaryPaused) && p.canary != nil && !p.canary.paused() {
		all = append(all, events.CanaryUnpaused(p.eds, p.target.Name))
	}
	if turned(edsv1.ConditionCanaryFailed) {
		c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed)
		all = append(all, events.CanaryFailed(p.eds, p.target.Name, c.Reason, c.Message))
	}
	if c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed); c != nil && c.Reason == edsv1.ReasonReset &&
		edsv1.IsConditionTrue(was.Conditions, edsv1.ConditionCanaryFailed) && !edsv1.IsConditionTrue(is.Conditions, edsv1.ConditionCanaryFailed) {
		all = append(all, events.CanaryReset(p.eds, p.target.Name))
	}
	if turned(edsv1.ConditionReady) {
		all = append(all, events.RolloutComplete(p.eds))
	}
	if turned(edsv1.ConditionStalled) {
		c := edsv1.FindCondition(is.Conditions, edsv1.ConditionStalled)
		all = append(all, events.RolloutStalled(p.eds, c.Reason+": "+c.Message))
	}
	return all
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
		stuck[rs.Name] = rs == p.active && states[v1alpha1.UnitOutdated] > 0 && len(p.decision.Start) == 0
	}
	metrics.SetStuck(p.key, stuck)
}
