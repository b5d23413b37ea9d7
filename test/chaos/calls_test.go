// SPDX-License-Identifier: Apache-2.0

//go:build all

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

const (
	callMachines, callSurge = 2, 2
	// callsAtOnce is how many calls are to fail next, and callsBetween how many succeed before there is one more.
	callsAtOnce, callsBetween = 6, 3
	// callPatience is after how long without a failure the operator is started anew, once it has lived for callLife: it
	// makes some calls only when it begins, and believes some things only after a while.
	callPatience, callLife = 5 * time.Second, 25 * time.Second
	// callReads is in how many ways a call fails that changes nothing.
	callReads = 2
)

// callFaults are the ways in which each call that changes something fails.
var callFaults = []clouds.FaultKind{
	clouds.Throttled, clouds.Conflict, clouds.Unavailable, clouds.DropBefore, clouds.DropAfter, clouds.Twice,
}

var callsThatRead = regexp.MustCompile(`(?i)^describe|get|list`)

// Each call that the operator makes of a cloud fails once in every way, while machines of three clouds are replaced again
// and again. Each is replaced once for each image all the same.
func TestReplacementEachCallFails(t *testing.T) {
	random := rand.New(rand.NewPCG(seedOf(t), 2))
	ctx, h := newHarness(t, buildOperator(t))
	h.gate.of = func(*http.Request, []byte) write { return write{} }
	var pools []*callPool
	for _, f := range flavours() {
		p := &callPool{pool: newPool(h, f, f.name, callMachines, callSurge)}
		p.begin(ctx, clouds.SimulatedHosts(h.cluster))
		server := httptest.NewServer(p.handler(p.world))
		t.Cleanup(server.Close)
		h.env = append(h.env, p.flavour.env(server.URL)...)
		pools = append(pools, p)
	}
	h.standing = func() (text string) {
		for _, p := range pools {
			text += fmt.Sprintf("%s: %s; %d faults are left, and next are %v\n%s", p.flavour.name, p.missing(), len(p.faults), p.next, p.story())
		}
		return text
	}
	began := time.Now()
	h.start()
	h.journal.follow(ctx, &corev1.NodeList{}, "", nil)
	h.until(ctx, "the kinds are there", func() (bool, error) {
		err := h.client.List(ctx, &v1alpha1.NodeRolloutList{})
		return err == nil, client.IgnoreNotFound(ignoreNoMatch(err))
	})
	h.journal.follow(ctx, &v1alpha1.NodeRolloutList{}, "", nil)
	for _, p := range pools {
		h.create(ctx, p.newRollout(callSurge))
		if err := p.publish(); err != nil {
			t.Fatal(err)
		}
	}
	replaced := func() (bool, error) {
		return !slices.ContainsFunc(pools, func(p *callPool) bool { return p.missing() != "" }), nil
	}
	h.until(ctx, "the first image is everywhere", replaced)
	for _, p := range pools {
		p.draw(random)
	}
	started := time.Now()
	h.until(ctx, "each call has failed in every way", func() (bool, error) {
		over, waits := true, false
		for _, p := range pools {
			if err := p.goOn(); err != nil {
				return false, err
			}
			over = over && len(p.next)+len(p.faults) == 0
			waits = waits || len(p.next) > 0 && time.Since(p.since) > callPatience
		}
		if waits && time.Since(started) > callLife {
			h.Kill()
			h.start()
			started = time.Now()
		}
		return over, nil
	})
	h.until(ctx, "the last image is everywhere", replaced)
	for _, p := range pools {
		p.checkMade()
		t.Logf("%s: %d calls have failed, over %d images, in %.1f s", p.flavour.name, p.failed, p.images, time.Since(began).Seconds())
	}
	h.stop()
	checkLimits(ctx, h)
}

// checkLimits replays the journal.
func checkLimits(ctx context.Context, h *harness) {
	h.t.Helper()
	h.until(ctx, "the journal is complete", func() (bool, error) { return h.journal.complete(ctx) })
	invariants := sharedInvariants()
	for _, f := range flavours() {
		invariants = append(invariants, limited("concurrency is not exceeded", "", callSurge, f.name))
	}
	replayed(h.t, h.journal.inOrder(), invariants)
}

// callPool is a pool whose cloud fails.
type callPool struct {
	*pool
	// faults are those to come, and next the ones that hit next. Since then there were no others.
	faults, next []clouds.Fault
	since        time.Time
	// read is how much of the world's journal was seen, succeeded how many calls succeeded since the last fault, and failed how many failed.
	read, succeeded, failed int
}

// draw mixes all that is to fail: what the cloud was asked, in every way.
func (p *callPool) draw(random *rand.Rand) {
	calls := p.world.Calls()
	p.faults = []clouds.Fault{{Kind: clouds.Quota, Call: "Add", Times: 1}}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		kinds := slices.Clone(callFaults)
		if callsThatRead.MatchString(name) {
			random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			kinds = kinds[:callReads]
		}
		for _, kind := range kinds {
			p.faults = append(p.faults, clouds.Fault{Kind: kind, Call: name, Times: 1})
		}
	}
	random.Shuffle(len(p.faults), func(i, j int) { p.faults[i], p.faults[j] = p.faults[j], p.faults[i] })
	p.read = len(p.world.Journal())
}

// goOn notes what has failed, lets another call fail once enough have succeeded, and publishes the next image as soon as the
// last one is everywhere.
func (p *callPool) goOn() error {
	calls := p.world.Journal()
	for _, call := range calls[p.read:] {
		is := func(f clouds.Fault) bool { return call.Name == f.Call && call.Outcome == string(f.Kind) }
		if i := slices.IndexFunc(p.next, is); i >= 0 {
			p.next = slices.Delete(p.next, i, i+1)
			p.failed++
			p.succeeded, p.since = 0, time.Now()
		} else if call.Outcome == "200" || call.Outcome == "202" {
			p.succeeded++
		}
	}
	p.read = len(calls)
	if len(p.next)+len(p.faults) == 0 {
		return nil
	}
	// Two faults of one call would come one right after the other.
	i := slices.IndexFunc(p.faults, func(f clouds.Fault) bool {
		return !slices.ContainsFunc(p.next, func(next clouds.Fault) bool { return next.Call == f.Call })
	})
	if i >= 0 && len(p.next) < callsAtOnce && p.succeeded >= callsBetween {
		p.next, p.succeeded, p.since = append(p.next, p.faults[i]), 0, time.Now()
		p.world.Fault(p.faults[i])
		p.faults = slices.Delete(p.faults, i, i+1)
	}
	if p.missing() != "" {
		return nil
	}
	p.checkMade()
	return p.publish()
}
