// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/turn"
)

// finish is a turn whose Job has succeeded: its node is verified, it soaks, and then it ends.
func (t *unit) finish(w *world) {
	t.Unit.State = v1alpha1.UnitSoaking
	var since time.Time
	switch {
	case t.Claim.Soaking != nil:
		since = t.Claim.Soaking.Time
	case t.Claim.Changed != nil:
		since = t.Claim.Changed.Time
	default:
		since = finished(t.job).LastTransitionTime.Time
	}
	end := since
	if d := w.plan.Spec.PostCompleteDelay; d != nil {
		end = since.Add(d.Duration)
	}
	if s := w.plan.Spec.Strategy; s != nil {
		if t.unhealthy = w.fleet.Unhealthy(t.Node.Name, w.now); t.unhealthy != "" {
			t.verify(w, since)
			return
		}
		var soak time.Duration
		if s.Soak != nil {
			soak = s.Soak.Duration
		}
		if soaked := w.fleet.SoakEnd(t.Node.Name, since, soak); soaked.After(end) {
			end = soaked
		}
	}
	switch {
	case !w.now.Before(end):
		t.Step = turn.StepFinish
	case t.Claim.Soaking == nil:
		t.Step, t.Wake, t.SoakEnd = turn.StepSoak, end, end
	default:
		t.Wake = end
	}
	t.Unit.Since = since
}

// verify is a turn whose Job has succeeded and whose node is not healthy. It waits, and fails when its time is over; but a
// node that has soaked for a while is not given up.
func (t *unit) verify(w *world, since time.Time) {
	t.Unit.Since = since
	switch {
	case t.Claim.Soaking != nil:
	case t.Claim.Failed != nil:
		t.ShowFailure(w.plan.Spec.Strategy)
	default:
		t.Unit.State = v1alpha1.UnitUpdating
		if t.Claim.Changed == nil {
			t.Step = stepVerify
		}
		t.expire(w, "its Job has succeeded, but the node is "+t.unhealthy)
	}
}

// expire fails a turn that takes longer than turnTimeout.
func (t *unit) expire(w *world, waitedFor string) {
	if t.Step != stepStop {
		t.Expire(w.plan.Spec.Strategy, waitedFor, w.now)
	}
}
