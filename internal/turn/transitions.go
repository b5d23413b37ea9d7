// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/status"
)

// Transitions returns the Events for the changes between two statuses.
func Transitions(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) (all []events.Event) {
	now := &r.Status
	// stalled returns the condition Stalled if it is True.
	stalled := func(s *v1alpha1.NodeRolloutStatus) (c metav1.Condition) {
		if found := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled); found != nil && found.Status == metav1.ConditionTrue {
			c = *found
		}
		return c
	}
	was, is := stalled(before), stalled(now)
	if is.Reason == status.ReasonInvalid && (was.Reason != is.Reason || was.Message != is.Message) {
		all = append(all, events.NodeRolloutInvalid(r, is.Message))
	}
	if now.Revision != before.Revision && now.Revision != "" {
		all = append(all, events.NodeRolloutRevision(r))
	}
	all = append(all, events.Approved(r, before.Approval, before.Wave, now.Wave)...)
	if WaveChanged(before.Wave, now.Wave) {
		all = append(all, events.NodeRolloutWave(r, now.Wave))
	}
	if halted := HaltedNow(was.Message, is.Message, now.Wave); halted != "" {
		all = append(all, events.NodeRolloutHalted(r, halted))
	}
	if now.RolledBack != "" && before.RolledBack == "" {
		all = append(all, events.HostsRolledBack(r))
	}
	if why := IrreversibleNow(was.Message, is.Message); why != "" {
		impossible := events.HostRollbackImpossible
		if r.Spec.Replacement != nil {
			impossible = events.RollbackImpossible
		}
		all = append(all, impossible(r, why))
	}
	wasReady := meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionReady)
	if !wasReady && meta.IsStatusConditionTrue(now.Conditions, v1alpha1.ConditionReady) && now.Counts != nil && now.Counts.Total > 0 {
		all = append(all, events.NodeRolloutComplete(r))
	}
	return all
}

// IrreversibleNow returns why a halted rollout can't be rolled back, from the messages of its condition Stalled before and now. It is empty if the
// cause is the same.
func IrreversibleNow(before, now string) string {
	cause := func(message string) string {
		_, after, _ := strings.Cut(message, irreversible)
		why, _, _ := strings.Cut(after, "; ")
		return why
	}
	if why := cause(now); why != cause(before) {
		return why
	}
	return ""
}

// WaveChanged reports whether the current wave or its state differs.
func WaveChanged(before, now *v1alpha1.WaveStatus) bool {
	return now != nil && (before == nil || before.Revision != now.Revision || before.Number != now.Number || before.State != now.State)
}

// HaltedNow returns why a rollout is halted, from the messages of its condition Stalled before and now. It is empty if the cause is the same.
// It is also empty for a halted wave, which has its own Event.
func HaltedNow(before, now string, wave *v1alpha1.WaveStatus) string {
	_, then, _ := strings.Cut(before, status.Halted)
	_, why, _ := strings.Cut(now, status.Halted)
	if why == then || wave != nil && wave.State == v1alpha1.WaveHalted {
		return ""
	}
	return why
}
