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

// Transitions are the Events of what changed from one status to the next.
func Transitions(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) (all []events.Event) {
	now := &r.Status
	// stalled is why a rollout is stalled, and by which reason.
	stalled := func(s *v1alpha1.NodeRolloutStatus) (reason, message string) {
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
			return c.Reason, c.Message
		}
		return "", ""
	}
	reason, why := stalled(now)
	reasonBefore, whyBefore := stalled(before)
	if reason == status.ReasonInvalid && (reason != reasonBefore || why != whyBefore) {
		all = append(all, events.NodeRolloutInvalid(r, why))
	}
	if now.Revision != before.Revision && now.Revision != "" {
		all = append(all, events.NodeRolloutRevision(r))
	}
	if WaveChanged(before.Wave, now.Wave) {
		all = append(all, events.NodeRolloutWave(r, now.Wave))
	}
	if halted := HaltedNow(whyBefore, why, now.Wave); halted != "" {
		all = append(all, events.NodeRolloutHalted(r, halted))
	}
	isReady := func(s *v1alpha1.NodeRolloutStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	}
	if isReady(now) && !isReady(before) && now.Counts != nil && now.Counts.Total > 0 {
		all = append(all, events.NodeRolloutComplete(r))
	}
	return all
}

// WaveChanged reports whether the wave is another, or in another state.
func WaveChanged(before, now *v1alpha1.WaveStatus) bool {
	return now != nil && (before == nil || before.Revision != now.Revision || before.Number != now.Number || before.State != now.State)
}

// HaltedNow is why a rollout is halted by the message of its condition Stalled, unless the one before says so already. One that is halted
// only for its wave has the Event of the wave.
func HaltedNow(before, now string, wave *v1alpha1.WaveStatus) string {
	_, then, _ := strings.Cut(before, status.Halted)
	_, why, _ := strings.Cut(now, status.Halted)
	if why == then || wave != nil && wave.State == v1alpha1.WaveHalted {
		return ""
	}
	return why
}
