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
func Transitions(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) []events.Event {
	var all []events.Event
	for _, what := range []func(*v1alpha1.NodeRolloutStatus, *v1alpha1.NodeRollout) *events.Event{invalid, found, waveTurned, halted, complete} {
		if e := what(before, r); e != nil {
			all = append(all, *e)
		}
	}
	return all
}

// stalled is why a rollout is stalled, and by which reason.
func stalled(s *v1alpha1.NodeRolloutStatus) (reason, message string) {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled)
	if c == nil || c.Status != metav1.ConditionTrue {
		return "", ""
	}
	return c.Reason, c.Message
}

func invalid(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) *events.Event {
	reason, why := stalled(&r.Status)
	if then, was := stalled(before); reason != status.ReasonInvalid || then == reason && was == why {
		return nil
	}
	e := events.NodeRolloutInvalid(r, why)
	return &e
}

// found is told when nodes are brought to something else than before.
func found(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) *events.Event {
	if before.Revision == r.Status.Revision || r.Status.Revision == "" {
		return nil
	}
	e := events.NodeRolloutRevision(r)
	return &e
}

func waveTurned(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) *events.Event {
	now, then := r.Status.Wave, before.Wave
	if now == nil || then != nil && then.Revision == now.Revision && then.Number == now.Number && then.State == now.State {
		return nil
	}
	e := events.NodeRolloutWave(r, now)
	return &e
}

// halted is told of a rollout without waves, or one that is halted for more than its wave.
func halted(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) *events.Event {
	why := func(s *v1alpha1.NodeRolloutStatus) string {
		_, message := stalled(s)
		_, text, _ := strings.Cut(message, status.Halted)
		return text
	}
	now := why(&r.Status)
	if now == "" || now == why(before) || r.Status.Wave != nil && r.Status.Wave.State == v1alpha1.WaveHalted {
		return nil
	}
	e := events.NodeRolloutHalted(r, now)
	return &e
}

func complete(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) *events.Event {
	ready := func(s *v1alpha1.NodeRolloutStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	}
	if !ready(&r.Status) || ready(before) || r.Status.Counts == nil || r.Status.Counts.Total == 0 {
		return nil
	}
	e := events.NodeRolloutComplete(r)
	return &e
}
