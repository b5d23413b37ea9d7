// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/status"
)

// transitions are the Events of what changed from one status to the next.
func transitions(before *upgradev1.PlanStatus, p *upgradev1.Plan, r resolution) []events.Event {
	var all []events.Event
	for _, what := range []func(*upgradev1.PlanStatus, *upgradev1.Plan, resolution) *events.Event{
		validityTurned, versionTurned, windowsWait, waveTurned, halted, completionTurned,
	} {
		if e := what(before, p, r); e != nil {
			all = append(all, *e)
		}
	}
	return all
}

// turned returns a condition as it is now, and whether it says something else than before.
func turned(before *upgradev1.PlanStatus, p *upgradev1.Plan, kind string) (now *upgradev1.Condition, changed bool) {
	now, then := p.Status.Condition(kind), before.Condition(kind)
	return now, now != nil && (then == nil || then.Status != now.Status || then.Reason != now.Reason || then.Message != now.Message)
}

func validityTurned(before *upgradev1.PlanStatus, p *upgradev1.Plan, r resolution) *events.Event {
	c, changed := turned(before, p, upgradev1.ConditionValidated)
	var e events.Event
	switch {
	case !changed:
		return nil
	case c.Status == metav1.ConditionTrue:
		e = events.PlanValidated(p)
	case isSelectorError(r.problem):
		e = events.PlanSelectNodesFailed(p, c.Message)
	default:
		e = events.PlanValidateFailed(p, c.Message)
	}
	return &e
}

func versionTurned(before *upgradev1.PlanStatus, p *upgradev1.Plan, _ resolution) *events.Event {
	c, changed := turned(before, p, upgradev1.ConditionLatestResolved)
	var e events.Event
	switch {
	case c == nil:
		return nil
	case changed && c.Message != "" && c.Status != metav1.ConditionUnknown:
		e = events.PlanResolveFailed(p, c.Message)
	case c.Status == metav1.ConditionTrue && (p.Status.LatestHash != before.LatestHash || p.Status.LatestVersion != before.LatestVersion):
		e = events.PlanResolved(p)
	default:
		return nil
	}
	return &e
}

func windowsWait(before *upgradev1.PlanStatus, p *upgradev1.Plan, _ resolution) *events.Event {
	unfit := func(u v1alpha1.UnitStatus) bool { return u.Reason == v1alpha1.ReasonWindowsImageMissing }
	i := slices.IndexFunc(p.Status.Waiting, unfit)
	if i < 0 || slices.ContainsFunc(before.Waiting, unfit) {
		return nil
	}
	e := events.PlanWindowsUnsupported(p, p.Status.Waiting[i].Node, p.Status.Waiting[i].Message)
	return &e
}

func waveTurned(before *upgradev1.PlanStatus, p *upgradev1.Plan, _ resolution) *events.Event {
	now, then := p.Status.Wave, before.Wave
	if now == nil || then != nil && then.Revision == now.Revision && then.Number == now.Number && then.State == now.State {
		return nil
	}
	e := events.PlanWave(p, now)
	return &e
}

// halted is told of a Plan without waves, or one that is halted for more than its wave.
func halted(before *upgradev1.PlanStatus, p *upgradev1.Plan, _ resolution) *events.Event {
	why := func(s *upgradev1.PlanStatus) string {
		c := s.Condition(upgradev1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue {
			return ""
		}
		_, text, _ := strings.Cut(c.Message, status.Halted)
		return text
	}
	now := why(&p.Status)
	if now == "" || now == why(before) || p.Status.Wave != nil && p.Status.Wave.State == v1alpha1.WaveHalted {
		return nil
	}
	e := events.PlanHalted(p, now)
	return &e
}

func completionTurned(before *upgradev1.PlanStatus, p *upgradev1.Plan, _ resolution) *events.Event {
	c, changed := turned(before, p, upgradev1.ConditionComplete)
	var e events.Event
	switch {
	case changed && c.Reason == upgradev1.ReasonWaiting:
		e = events.PlanWaiting(p, c.Message)
	case changed && c.Reason == upgradev1.ReasonComplete:
		e = events.PlanComplete(p)
	default:
		return nil
	}
	return &e
}
