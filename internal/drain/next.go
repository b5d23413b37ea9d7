// SPDX-License-Identifier: Apache-2.0

package drain

import "time"

// retryAfter is the time until blocked or failed evictions are retried, and volumes are read again.
const retryAfter = 5 * time.Second

// next returns the earliest time at which another pass can have another result without a change of a pod.
func next(r *Result, verdicts []Verdict, o *Options, since, now time.Time) time.Time {
	if r.Done() || r.Stuck() {
		return time.Time{}
	}
	var at time.Time
	wake := func(t time.Time) {
		if !t.IsZero() && t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if r.TimedOut == "" {
		wake(o.deadline(since))
	}
	if len(r.In(Blocked, Failed)) > 0 || len(r.Attached) > 0 {
		wake(now.Add(retryAfter))
	}
	if o.SkipWaitForDelete > 0 {
		for i := range verdicts {
			if v := &verdicts[i]; v.Action == Evict && !v.Pod.DeletionTimestamp.IsZero() {
				wake(v.Pod.DeletionTimestamp.Add(o.SkipWaitForDelete + time.Second))
			}
		}
	}
	return at
}
