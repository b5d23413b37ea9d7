// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// halt is a cause that halts a rollout. It returns the message, or "".
type halt func(p *pass, failed []string) string

// notHalted starts no further unit after more failures than the strategy allows. Claimed nodes may still be retried,
// because a successful retry ends the halt.
func notHalted(p *pass, c *candidate) (v1alpha1.Reason, string) {
	if p.halted == "" || c.begun() {
		return "", ""
	}
	return v1alpha1.ReasonHalted, p.halted
}

// lookAtFailures sets why the rollout is halted, if it is.
func (p *pass) lookAtFailures(units []Unit) {
	var failed []string
	for i := range units {
		if u := &units[i]; u.failedForGood() && !u.OptedOut {
			failed = append(failed, u.Node)
		}
	}
	for i := range p.halts {
		if p.halted = p.halts[i].apply(p, failed); p.halted != "" {
			return
		}
	}
}

// canaryFailed halts a rollout after a failure in its first wave, regardless of the limit: the first wave is the canary.
func canaryFailed(p *pass, _ []string) string {
	if len(p.wave.tally) == 0 || len(p.wave.tally[0].failed) == 0 {
		return ""
	}
	canaries := p.wave.tally[0].failed
	return fmt.Sprintf("the change failed on %s, in the first wave (%s)", list(canaries, len(canaries)), p.strategy.Waves[0].Name)
}

// tooManyFailed halts a rollout that failed on more nodes than maxFailures.
func tooManyFailed(p *pass, failed []string) string {
	limit := p.strategy.MaxFailures
	if limit == nil || len(failed) <= *limit {
		return ""
	}
	return fmt.Sprintf("%s failed; maxFailures is %d: %s", NodeCount(len(failed)), *limit, list(failed, len(failed)))
}

// NodeCount returns "1 node" or "2 nodes".
func NodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// failed returns the entry of a failed unit that is not retried now.
func (p *pass) failed(u *Unit) Wait {
	w := Wait{Node: u.Node, Reason: u.Reason, Message: u.Message, Holds: p.slots.holds(u)}
	if !u.RetryAt.IsZero() {
		p.wake(u.RetryAt)
		w.Message += " (retry at " + u.RetryAt.UTC().Format(time.RFC3339) + ")"
	}
	return w
}

// defaults of v1alpha1.Retries.
var backoff, maxBackoff = metav1.Duration{Duration: time.Minute}, metav1.Duration{Duration: time.Hour}

// RetryAt returns when a turn that failed at this time is retried; failures is how many failed in a row. Zero means never.
func RetryAt(r *v1alpha1.Retries, failures int32, at time.Time) time.Time {
	if r == nil || failures > r.Limit {
		return time.Time{}
	}
	wait, most := ptr.Deref(r.Backoff, backoff).Duration, ptr.Deref(r.MaxBackoff, maxBackoff).Duration
	for i := int32(1); i < failures && wait < most; i++ {
		wait += min(wait, most-wait) // Doubling would exceed the maximum, or overflow.
	}
	return at.Add(min(wait, most))
}
