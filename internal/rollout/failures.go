// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// halt is a cause for which nothing new is started: it says which, or "".
type halt struct {
	name string
	why  func(p *pass, failed []string) string
}

// notHalted starts nothing new once more units have failed than the strategy bears. What the rollout has in its hands
// already may be tried again: that is how it gets out of it.
func notHalted(p *pass, c *candidate) (v1alpha1.Reason, string) {
	if p.halted == "" || c.Claimed {
		return "", ""
	}
	return v1alpha1.ReasonHalted, p.halted
}

// lookAtFailures says why the rollout is halted, if it is.
func (p *pass) lookAtFailures(units []Unit) {
	var failed []string
	for i := range units {
		if u := &units[i]; u.lost() && !u.OptedOut {
			failed = append(failed, u.Node)
		}
	}
	for i := range p.halts {
		if p.halted = p.halts[i].why(p, failed); p.halted != "" {
			return
		}
	}
}

// canaryFailed halts a rollout by a failure in its first wave, whatever the limit: to fail there, and not elsewhere, is
// what a canary is for.
func canaryFailed(p *pass, _ []string) string {
	if len(p.wave.tally) == 0 || len(p.wave.tally[0].failed) == 0 {
		return ""
	}
	canaries := p.wave.tally[0].failed
	return fmt.Sprintf("the change has failed on %s, in the first wave (%s)", list(canaries, len(canaries)), p.strategy.Waves[0].Name)
}

// tooManyFailed halts a rollout that has failed on more nodes than it bears.
func tooManyFailed(p *pass, failed []string) string {
	limit := p.strategy.MaxFailures
	if limit == nil || len(failed) <= *limit {
		return ""
	}
	return fmt.Sprintf("the change has failed on %s, and maxFailures bears %d: %s", count(len(failed)), *limit, list(failed, len(failed)))
}

func count(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// failed is what is said of a unit that has failed and is not to be tried again now.
func (p *pass) failed(u *Unit) Wait {
	w := Wait{Node: u.Node, Reason: u.Reason, Message: u.Message, Holds: p.slots.holds(u)}
	if !u.RetryAt.IsZero() {
		p.wake(u.RetryAt)
		w.Message += " (it is tried again at " + u.RetryAt.UTC().Format(time.RFC3339) + ")"
	}
	return w
}

// defaults of v1alpha1.Retries.
const (
	backoff    = time.Minute
	maxBackoff = time.Hour
)

// RetryAt is when a turn is tried again that failed at this time, as the so-manieth in a row; zero is never.
func RetryAt(r *v1alpha1.Retries, failures int32, at time.Time) time.Time {
	if r == nil || failures > r.Limit {
		return time.Time{}
	}
	wait, most := backoff, maxBackoff
	if r.Backoff != nil {
		wait = r.Backoff.Duration
	}
	if r.MaxBackoff != nil {
		most = r.MaxBackoff.Duration
	}
	for i := int32(1); i < failures && wait < most; i++ {
		if wait > most/2 {
			wait = most // It would be more, or overflow.
			break
		}
		wait *= 2
	}
	return at.Add(min(wait, most))
}
