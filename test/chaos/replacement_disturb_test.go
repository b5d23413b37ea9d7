// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"time"

	"moult.dev/moult/test/clouds"
)

// drift is how far the autoscaler goes away from the capacity that the set began with.
const drift = 2

// disturb lets the cloud be changed by others, machines die, and answers be lost, until it is calm again.
func (c *replaceChaos) disturb(ctx context.Context) {
	c.t.Helper()
	until := c.revision(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm, c.strict = false, false
	c.calms[len(c.calms)-1][1] = until
	c.published[len(c.published)-1] = false
	c.goingOn.Go(func() {
		for {
			c.mu.Lock()
			if c.calm {
				c.mu.Unlock()
				return
			}
			wait := time.Duration(500+c.disturbances.IntN(3000)) * time.Millisecond
			c.disturbOnce()
			c.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// calmDown ends that, and returns when all that it has left is cleared away.
func (c *replaceChaos) calmDown(ctx context.Context) {
	c.t.Helper()
	c.mu.Lock()
	c.calm = true
	c.last = true
	c.world.ClearFaults()
	c.mu.Unlock()
	c.untilReplaced(ctx)
	since := c.revision(ctx)
	c.mu.Lock()
	set, _ := c.world.Set(c.set)
	if set.Capacity < c.low || set.Capacity > c.high {
		c.problem("the capacity is %d, after all that others have done it must be from %d to %d", set.Capacity, c.low, c.high)
	}
	c.t.Logf("after %d machines were lost, the capacity is %d of %d to %d", len(c.lost), set.Capacity, c.low, c.high)
	// From now on it is to stay what it is.
	c.low, c.high = set.Capacity, set.Capacity
	c.calms = append(c.calms, [2]uint64{since})
	c.last, c.strict = false, true
	c.mu.Unlock()
	c.publish()
	c.goingOn.Go(func() { c.publishAll(ctx) })
}

// disturbOnce does one of the things that happen to scale sets.
func (c *replaceChaos) disturbOnce() {
	set, _ := c.world.Set(c.set)
	var err error
	switch what := c.disturbances.IntN(12); {
	case what < 1 && c.high < replaceMachines+drift:
		c.low++
		c.high++
		_, err = c.world.Scale(c.set, set.Capacity+1)
	case what < 2 && c.low > replaceMachines-drift:
		// One whose place is being taken may be what goes. Then there are as many as before.
		c.low--
		before := c.running()
		_, err = c.world.Scale(c.set, set.Capacity-1)
		after := c.running()
		for id := range before {
			if _, ok := after[id]; !ok {
				c.lost[id] = true
			}
		}
	case what < 4:
		shrink := c.disturbances.IntN(2) == 0 && c.low > replaceMachines-drift
		if shrink {
			c.low--
		}
		machines := c.world.Machines(c.set)
		m := machines[c.disturbances.IntN(len(machines))]
		if m.State == clouds.Deleting {
			return
		}
		c.lost[m.ID] = true
		err = c.world.Kill(c.set, m.ID, shrink)
	default:
		kinds := []clouds.FaultKind{
			clouds.DropAfter, clouds.DropAfter, clouds.DropBefore, clouds.Twice, clouds.Throttled, clouds.Unavailable, clouds.Truncated,
		}
		c.world.Fault(clouds.Fault{Kind: kinds[c.disturbances.IntN(len(kinds))], Times: 1})
	}
	if err != nil {
		c.t.Errorf("disturbing the scale set, %v", err)
	}
}

// running are the machines that are not on their way out.
func (c *replaceChaos) running() map[string]bool {
	all := map[string]bool{}
	for _, m := range c.world.Machines(c.set) {
		if m.State != clouds.Deleting {
			all[m.ID] = true
		}
	}
	return all
}

// stopped says of a machine that is switched off whether it was taken away by others than the operator, whether nobody but the operator changes
// anything, and whether somebody else is to delete its Node.
func (c *replaceChaos) stopped(m clouds.Machine) (lost, strict, early bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost[m.ID], c.strict, c.tooLate[m.ID] || !c.calm && c.disturbances.IntN(3) == 0
}
