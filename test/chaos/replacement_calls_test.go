// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
)

const (
	callMachines = 2
	callSurge    = 2
	// callsAtOnce is how many calls are to fail next, and callsBetween how many go well before there is one more. callPatience is how long it may take
	// until one comes, before the operator is killed: some calls it makes when it begins.
	callsAtOnce  = 6
	callsBetween = 3
	callPatience = 5 * time.Second
	// callLife is how long the operator lives at least: what it believes only after a while it has to see for as long.
	callLife = 25 * time.Second
)

// callFaults are the ways in which each call of each cloud that changes something fails once. Quota is for machines that are added. Calls that only ask
// fail in some of these ways.
var callFaults = []clouds.FaultKind{
	clouds.Throttled, clouds.Conflict, clouds.Unavailable, clouds.DropBefore, clouds.DropAfter, clouds.Twice,
}

// waysToAsk is in how many ways a call fails that only asks.
const waysToAsk = 2

var asksOnly = regexp.MustCompile(`(?i)^describe|get|list`)

// Each call that the operator makes of a cloud fails once in every way, while machines are replaced again and again: those of three clouds at once.
// Each is replaced once for each image all the same.
func TestReplacementEachCallFails(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a cluster, and minutes")
	}
	t.Parallel()
	seed := seed(t)
	t.Logf("MOULT_SEED=%d repeats what was drawn, though not what happens in between", seed)
	ctx, cancel := context.WithTimeoutCause(t.Context(), replaceLimit, fmt.Errorf("the test took longer than %s", replaceLimit))
	defer cancel()
	c := newCallChaos(ctx, t, rand.New(rand.NewPCG(seed, 6)))
	defer c.end()
	defer func() {
		cancel()
		c.measuring.Wait()
	}()
	began := time.Now()
	c.untilAllReplaced(ctx)
	for _, p := range c.pools {
		c.draw(p)
	}
	c.until(ctx, "each call has failed in every way", func() (bool, error) { return c.goOn() })
	for _, p := range c.pools {
		c.t.Logf("%s: %d calls have failed, over %d images, in %.1f s", p.cloud.name, p.failed, p.image, time.Since(began).Seconds())
	}
	c.untilAllReplaced(ctx)
	c.stopOperator()
}

// callChaos is the state of the test.
type callChaos struct {
	*harness
	pools     []*callPool
	measuring sync.WaitGroup
	// restarted is when the operator was last started.
	restarted time.Time
}

// callPool is a pool whose cloud fails.
type callPool struct {
	*pool
	// image is the newest.
	image int
	// faults are those to come, and next the ones that are to hit next. Since then there are no others.
	faults, next []clouds.Fault
	since        time.Time
	// read is how much of the world's journal was looked at, well how many calls went well since the last fault, and failed how many did not.
	read, well, failed int
}

func newCallChaos(ctx context.Context, t *testing.T, random *rand.Rand) *callChaos {
	t.Helper()
	c := &callChaos{harness: newHarness(ctx, t, random, cluster.Options{}, writesOfReplacements(&misdeeds{}))}
	c.now = c.standing
	for _, cloud := range replaceClouds() {
		p := &callPool{pool: &pool{harness: c.harness, cloud: cloud, set: cloud.set("calls"), rollout: cloud.name}}
		p.world = cloud.world(ctx, clouds.SimulatedHosts(c.cluster))
		server := httptest.NewServer(cloud.handler(p.world))
		t.Cleanup(server.Close)
		c.env = append(c.env, cloud.env(server.URL)...)
		if err := p.world.Create(ctx, cloud.scaleSet(p.pool, callMachines)); err != nil {
			t.Fatal(err)
		}
		c.pools = append(c.pools, p)
	}
	c.startOperator()
	c.restarted = time.Now()
	c.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	for _, p := range c.pools {
		c.createSoon(ctx, p.cloud.rollout(p.pool, callSurge, callSurge))
		if err := p.publish(); err != nil {
			t.Fatal(err)
		}
	}
	c.journal.follow(ctx, &v1alpha1.NodeRolloutList{}, "", nil)
	for _, p := range c.pools {
		c.measuring.Go(func() { p.measure(ctx) })
	}
	return c
}

// measure looks at the scale set all the time.
func (p *callPool) measure(ctx context.Context) {
	for ctx.Err() == nil {
		if set, ok := p.world.Set(p.set); ok && (set.Capacity > callMachines+callSurge || set.Capacity < callMachines) {
			p.t.Errorf("%s: the scale set is to have %d machines, want from %d to %d", p.cloud.name, set.Capacity, callMachines, callMachines+callSurge)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *callChaos) standing() (text string) {
	for _, p := range c.pools {
		text += fmt.Sprintf("%s: %s; %s; %d faults are left\n", p.cloud.name, p.standing(), p.replaced(), len(p.faults))
	}
	for _, p := range c.pools {
		if p.replaced() != "" {
			text += p.cloud.name + "\n" + p.story(context.Background())
		}
	}
	return text
}

// draw mixes all that is to fail: what the cloud has been asked, in every way.
func (c *callChaos) draw(p *callPool) {
	calls := p.world.Calls()
	c.t.Logf("for the first image %s was asked %v", p.cloud.name, calls)
	p.faults = []clouds.Fault{{Kind: clouds.Quota, Call: "Add", Times: 1}}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		kinds := slices.Clone(callFaults)
		if asksOnly.MatchString(name) {
			c.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			kinds = kinds[:waysToAsk]
		}
		for _, kind := range kinds {
			p.faults = append(p.faults, clouds.Fault{Kind: kind, Call: name, Times: 1})
		}
	}
	c.random.Shuffle(len(p.faults), func(i, j int) { p.faults[i], p.faults[j] = p.faults[j], p.faults[i] })
	p.read = len(p.world.Journal())
}

// untilAllReplaced returns when the newest images are everywhere.
func (c *callChaos) untilAllReplaced(ctx context.Context) {
	c.t.Helper()
	c.until(ctx, "all machines are replaced", func() (bool, error) {
		done := true
		for _, p := range c.pools {
			done = done && p.replaced() == ""
		}
		return done, nil
	})
	for _, p := range c.pools {
		p.checkMade()
	}
}

// goOn publishes images, lets calls fail, and reports whether all have.
func (c *callChaos) goOn() (bool, error) {
	over, waits := true, false
	for _, p := range c.pools {
		p.see()
		if len(p.next) == 0 && len(p.faults) == 0 {
			continue
		}
		over = false
		p.failNext()
		waits = waits || len(p.next) > 0 && time.Since(p.since) > callPatience
		if p.replaced() == "" {
			p.checkMade()
			if err := p.publish(); err != nil {
				return false, err
			}
		}
	}
	if waits && time.Since(c.restarted) > callLife {
		c.process.Kill()
		c.startOperator()
		c.restarted = time.Now()
	}
	return over, nil
}

// failNext lets another call fail, once enough have gone well: one of another name than those that are to fail already.
func (p *callPool) failNext() {
	if len(p.next) == callsAtOnce || p.well < callsBetween {
		return
	}
	i := slices.IndexFunc(p.faults, func(f clouds.Fault) bool {
		return !slices.ContainsFunc(p.next, func(next clouds.Fault) bool { return next.Call == f.Call })
	})
	if i < 0 {
		return
	}
	p.next, p.well, p.since = append(p.next, p.faults[i]), 0, time.Now()
	p.world.Fault(p.faults[i])
	p.faults = slices.Delete(p.faults, i, i+1)
}

// see reads on in the world's journal.
func (p *callPool) see() {
	calls := p.world.Journal()
	for _, call := range calls[p.read:] {
		is := func(f clouds.Fault) bool { return call.Name == f.Call && call.Outcome == string(f.Kind) }
		if i := slices.IndexFunc(p.next, is); i >= 0 {
			p.next = slices.Delete(p.next, i, i+1)
			p.failed++
			p.well, p.since = 0, time.Now()
		} else if call.Outcome == "200" || call.Outcome == "202" {
			p.well++
		}
	}
	p.read = len(calls)
}

// publish gives the scale set another image.
func (p *callPool) publish() error {
	p.image++
	return p.cloud.setImage(p.pool, p.image)
}

// checkMade checks that each machine was replaced once for the newest image.
func (p *callPool) checkMade() {
	p.t.Helper()
	made := 0
	for _, m := range slices.Concat(p.world.Machines(p.set), p.world.Gone(p.set)) {
		if clouds.ImageName(m.Image) == clouds.ImageName(p.cloud.image(p.image)) {
			made++
		}
	}
	if set, _ := p.world.Set(p.set); set.Capacity != callMachines || made != callMachines {
		p.t.Errorf("%s, image %d: the capacity is %d, want %d, and %d machines were made", p.cloud.name, p.image, set.Capacity, callMachines, made)
	}
}
