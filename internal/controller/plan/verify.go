// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// finish is a turn whose Job has succeeded: its node is verified, it soaks, and then it ends.
func (t *turn) finish(w *world) {
	t.unit.State = v1alpha1.UnitSoaking
	var since time.Time
	switch {
	case t.claim.Soaking != nil:
		since = t.claim.Soaking.Time
	case t.claim.Changed != nil:
		since = t.claim.Changed.Time
	default:
		since = finished(t.job).LastTransitionTime.Time
	}
	end := since
	if d := w.plan.Spec.PostCompleteDelay; d != nil {
		end = since.Add(d.Duration)
	}
	if s := w.plan.Spec.Strategy; s != nil {
		if t.verifying = w.fleet.Unhealthy(t.node.Name, w.now); t.verifying != "" {
			t.verify(w, since)
			return
		}
		var soak time.Duration
		if s.Soak != nil {
			soak = s.Soak.Duration
		}
		if soaked := w.fleet.SoakEnd(t.node.Name, since, soak); soaked.After(end) {
			end = soaked
		}
	}
	switch {
	case !w.now.Before(end):
		t.step = stepFinish
	case t.claim.Soaking == nil:
		t.step, t.wake, t.soakEnd = stepSoak, end, end
	default:
		t.wake = end
	}
	t.unit.Since = since
}

// verify is a turn whose Job has succeeded and whose node is not healthy. It waits, and fails when its time is over; but a
// node that has soaked for a while is not given up.
func (t *turn) verify(w *world, since time.Time) {
	t.unit.Since = since
	switch f := t.claim.Failed; {
	case t.claim.Soaking != nil:
	case f != nil:
		t.stays(w, f)
	default:
		t.unit.State = v1alpha1.UnitUpdating
		if t.claim.Changed == nil {
			t.step = stepVerify
		}
		t.expire(w, "its Job has succeeded, but the node is "+t.verifying)
	}
}

// expire lets a turn fail that takes longer than the strategy allows.
func (t *turn) expire(w *world, standing string) {
	s := w.plan.Spec.Strategy
	if s == nil || s.TurnTimeout == nil || t.step == stepStop {
		return
	}
	switch deadline := t.claim.Since.Add(s.TurnTimeout.Duration); {
	case w.now.Before(deadline):
		t.wake = deadline
	default:
		t.fails(v1alpha1.ReasonTurnTimeout, fmt.Sprintf("the turn of Node %s took longer than turnTimeout, %s; %s",
			t.node.Name, s.TurnTimeout.Duration, standing), metav1.Time{Time: deadline})
	}
}
