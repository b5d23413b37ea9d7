// SPDX-License-Identifier: Apache-2.0

// Package status sets conditions. Each has one setter, so that its reasons and texts are in one place.
package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// The texts of system-upgrade-controller that its users look for.
const (
	messageNotReady      = "plan is not valid and resolved"
	messageOutsideWindow = "current time is not within configured window"
)

func is(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func setPlan(p *upgradev1.Plan, kind string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	p.Status.SetCondition(upgradev1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: p.Generation,
	}, now)
}

// InitPlan adds the conditions that system-upgrade-controller sets on every Plan, in the same order.
func InitPlan(p *upgradev1.Plan, now time.Time) {
	for _, kind := range []string{upgradev1.ConditionValidated, upgradev1.ConditionLatestResolved, upgradev1.ConditionComplete} {
		if p.Status.Condition(kind) == nil {
			setPlan(p, kind, metav1.ConditionUnknown, "", "", now)
		}
	}
}

// SetPlanValidated reports whether the spec is valid.
func SetPlanValidated(p *upgradev1.Plan, problem error, now time.Time) {
	if problem != nil {
		setPlan(p, upgradev1.ConditionValidated, metav1.ConditionFalse, upgradev1.ReasonError, problem.Error(), now)
		return
	}
	setPlan(p, upgradev1.ConditionValidated, metav1.ConditionTrue, upgradev1.ReasonPlanIsValid, "", now)
}

// SetPlanUnresolved reports that the version is not known yet: Unknown while the channel is queried, False with a problem.
func SetPlanUnresolved(p *upgradev1.Plan, problem error, now time.Time) {
	if problem != nil {
		setPlan(p, upgradev1.ConditionLatestResolved, metav1.ConditionFalse, upgradev1.ReasonError, problem.Error(), now)
		return
	}
	setPlan(p, upgradev1.ConditionLatestResolved, metav1.ConditionUnknown, upgradev1.ReasonChannel, "the channel is being asked", now)
}

// SetPlanResolved reports that the version is known, and its source. The note says why a newer answer is ignored.
func SetPlanResolved(p *upgradev1.Plan, reason, note string, now time.Time) {
	setPlan(p, upgradev1.ConditionLatestResolved, metav1.ConditionTrue, reason, note, now)
}

// Halted begins the message of a rollout that starts nothing new until a person acts.
const Halted = "halted: "

// Progress is the input of the conditions Complete, Ready, Reconciling and Stalled.
type Progress struct {
	// Ready is true when the spec is valid, and its revision is known.
	Ready bool
	// Problem says why Ready is false, if only a person can change that.
	Problem string
	Counts  v1alpha1.UnitCounts
	// Failure is the text of the newest failure.
	Failure string
	// Wait is why the first unit in line waits.
	Wait        v1alpha1.Reason
	WaitMessage string
	// Halted says why nothing new starts until a person acts; empty otherwise.
	Halted string
	// Stuck is true when failures stop all other units.
	Stuck bool
	// Unknown is why the remaining work is unknown. The rollout is not complete then. UnknownMessage is the text for people.
	Unknown        v1alpha1.Reason
	UnknownMessage string
	// Note is appended to the message.
	Note string
}

// SetPlanProgress sets Complete as system-upgrade-controller does, and from it Ready, Reconciling and Stalled.
func SetPlanProgress(p *upgradev1.Plan, g Progress, now time.Time) {
	complete, reason, message := false, "", ""
	switch {
	case !g.Ready:
		reason, message = upgradev1.ReasonNotReady, messageNotReady
	case g.Counts.Failed > 0:
		reason, message = upgradev1.ReasonJobFailed, g.Failure
	case g.Counts.Updating > 0:
		reason = upgradev1.ReasonSyncJob
	case g.Counts.Waiting > 0 && g.Wait == v1alpha1.ReasonOutsideWindow:
		reason, message = upgradev1.ReasonWaiting, messageOutsideWindow
	case g.Counts.Waiting > 0 && g.Wait != "":
		reason, message = upgradev1.ReasonWaiting, g.WaitMessage
	case g.Counts.Waiting > 0:
		reason = upgradev1.ReasonResolved
	default:
		complete, reason = true, upgradev1.ReasonComplete
	}
	setPlan(p, upgradev1.ConditionComplete, is(complete), reason, message, now)

	setKstatus(func(kind string, status bool, reason, message string) {
		setPlan(p, kind, is(status), reason, message, now)
	}, complete, g.Stalled(), reason, progressText(g))
}

// Stalled reports whether nothing continues until a person acts.
func (g *Progress) Stalled() bool { return !g.Ready && g.Problem != "" || g.Stuck }

// setKstatus sets Ready, Reconciling and Stalled, as kstatus reads them.
func setKstatus(set func(kind string, status bool, reason, message string), complete, stalled bool, reason, text string) {
	why := ""
	if stalled {
		why = text
	}
	set(v1alpha1.ConditionReady, complete, reason, text)
	set(v1alpha1.ConditionReconciling, !complete && !stalled, reason, "")
	set(v1alpha1.ConditionStalled, stalled, reason, why)
}

// conditionSetter returns a setter for a list of conditions.
func conditionSetter(list *[]metav1.Condition, generation int64, now time.Time) func(kind string, status bool, reason, message string) {
	return func(kind string, status bool, reason, message string) {
		meta.SetStatusCondition(list, metav1.Condition{
			Type: kind, Status: is(status), Reason: reason, Message: message,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
		})
	}
}

func progressText(g Progress) string {
	if !g.Ready {
		return cmp.Or(g.Problem, messageNotReady)
	}
	c := g.Counts
	if g.Halted != "" {
		g.Failure = Halted + g.Halted + "; " + g.Failure
	}
	parts := []string{fmt.Sprintf("%d of %d nodes updated", c.Updated, c.Total)}
	for _, part := range []struct {
		n    int32
		what string
	}{{c.Updating, "updating"}, {c.Failed, "failed"}, {c.Waiting, "waiting"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	text := strings.Join(parts, ", ")
	if c.Failed > 0 && g.Failure != "" {
		text += ": " + g.Failure
	} else if c.Updating == 0 && g.WaitMessage != "" {
		text += ": " + g.WaitMessage
	}
	for _, more := range []string{g.UnknownMessage, g.Note} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}
