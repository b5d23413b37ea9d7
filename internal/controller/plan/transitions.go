// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/turn"
)

// transitions returns the Events for the changes from the status before to the present one. problem is why the Plan is not valid.
func transitions(before *upgradev1.PlanStatus, p *upgradev1.Plan, problem error) (all []events.Event) {
	now := &p.Status
	// changed returns the present condition, and whether it differs from before.
	changed := func(kind string) (c upgradev1.Condition, differs bool) {
		c, then := ptr.Deref(now.Condition(kind), upgradev1.Condition{}), ptr.Deref(before.Condition(kind), upgradev1.Condition{})
		return c, c.Type != "" && (then.Status != c.Status || then.Reason != c.Reason || then.Message != c.Message)
	}
	switch c, differs := changed(upgradev1.ConditionValidated); {
	case !differs:
	case c.Status == metav1.ConditionTrue:
		all = append(all, events.PlanValidated(p))
	default:
		failed := events.PlanValidateFailed
		if _, ok := errors.AsType[plan.SelectorError](problem); ok {
			failed = events.PlanSelectNodesFailed
		}
		all = append(all, failed(p, c.Message))
	}
	switch c, differs := changed(upgradev1.ConditionLatestResolved); {
	case differs && c.Message != "" && c.Status != metav1.ConditionUnknown:
		all = append(all, events.PlanResolveFailed(p, c.Message))
	case c.Status == metav1.ConditionTrue && (now.LatestHash != before.LatestHash || now.LatestVersion != before.LatestVersion):
		all = append(all, events.PlanResolved(p))
	}
	unfit := func(u v1alpha1.UnitStatus) bool { return u.Reason == v1alpha1.ReasonWindowsImageMissing }
	if i := slices.IndexFunc(now.Waiting, unfit); i >= 0 && !slices.ContainsFunc(before.Waiting, unfit) {
		all = append(all, events.PlanWindowsUnsupported(p, now.Waiting[i].Node, now.Waiting[i].Message))
	}
	all = append(all, events.Approved(p, before.Approval, before.Wave, now.Wave)...)
	if turn.WaveChanged(before.Wave, now.Wave) {
		all = append(all, events.PlanWave(p, now.Wave))
	}
	all = append(all, halts(before, p)...)
	switch c, differs := changed(upgradev1.ConditionComplete); {
	case differs && c.Reason == upgradev1.ReasonWaiting:
		all = append(all, events.PlanWaiting(p, c.Message))
	case differs && c.Reason == upgradev1.ReasonComplete:
		all = append(all, events.PlanComplete(p))
	}
	return all
}

// halts returns the Events for a halt since the status before, and for a rollback.
func halts(before *upgradev1.PlanStatus, p *upgradev1.Plan) (all []events.Event) {
	now := &p.Status
	stalled := func(s *upgradev1.PlanStatus) string {
		if c := s.Condition(upgradev1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
			return c.Message
		}
		return ""
	}
	if why := turn.HaltedNow(stalled(before), stalled(now), now.Wave); why != "" {
		all = append(all, events.PlanHalted(p, why))
	}
	if now.RolledBack != nil && before.RolledBack == nil {
		all = append(all, events.PlanRolledBack(p))
	}
	return all
}
