// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"sync"
	"time"
)

// The steps of turns, as far as an onlooker sees them.
const (
	stepClaimed    = "claimed"
	stepCordoned   = "cordoned"
	stepJobCreated = "Job created"
	stepJobDone    = "Job complete"
	stepReboot     = "reboot begun"
	stepBooted     = "booted"
	stepReleased   = "released"
)

// turnTimes notes when each node's turn took each step, by the clock of this process.
type turnTimes struct {
	// steps are in order. With the step freed a slot becomes free.
	steps []string
	freed string

	mu sync.Mutex
	at map[string]map[string]time.Time // by step and node
}

func newTurnTimes(freed string, steps ...string) *turnTimes {
	t := &turnTimes{steps: steps, freed: freed, at: map[string]map[string]time.Time{}}
	for _, step := range steps {
		t.at[step] = map[string]time.Time{}
	}
	return t
}

// mark notes that a node's turn has taken a step. The first time counts.
func (t *turnTimes) mark(node, step string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if nodes := t.at[step]; nodes != nil && nodes[node].IsZero() {
		nodes[node] = time.Now()
	}
}

// report adds how long it took from each step to the next, and how long a free slot waited for the next claim.
func (t *turnTimes) report(p *phase, slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, step := range t.steps[1:] {
		var gaps []time.Duration
		for node, at := range t.at[step] {
			if before := t.at[t.steps[i]][node]; !before.IsZero() {
				gaps = append(gaps, at.Sub(before))
			}
		}
		p.spread(t.steps[i]+" → "+step, gaps)
	}
	inOrder := func(step string) []time.Time {
		var times []time.Time
		for _, at := range t.at[step] {
			times = append(times, at)
		}
		slices.SortFunc(times, time.Time.Compare)
		return times
	}
	var idle []time.Duration
	claims := inOrder(stepClaimed)
	for i, freed := range inOrder(t.freed) {
		if i+slots < len(claims) {
			idle = append(idle, claims[i+slots].Sub(freed))
		}
	}
	p.spread(t.freed+" → next node "+stepClaimed, idle)
}

// spread adds the median and the 95th percentile of durations, in milliseconds.
func (p *phase) spread(name string, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	for _, percent := range []int{50, 95} {
		value := all[(len(all)-1)*percent/100]
		p.figure(name+map[int]string{50: ", median in ms", 95: ", 95 % within ms"}[percent], float64(value.Microseconds())/1000)
	}
}
