// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

// machineTally keeps in mind what happened to nodes whose machines are replaced.
type machineTally struct {
	mu      sync.Mutex
	claimed map[string]bool
	// cordons counts how often each was cordoned, and gone those that were deleted.
	cordoned map[string]bool
	cordons  map[string]int
	gone     map[string]int
	most     int
}

func newMachineTally() *machineTally {
	return &machineTally{claimed: map[string]bool{}, cordoned: map[string]bool{}, cordons: map[string]int{}, gone: map[string]int{}}
}

// see takes note of a node as it became.
func (t *machineTally) see(kind watch.EventType, n *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == watch.Deleted {
		t.gone[n.Name]++
		delete(t.claimed, n.Name)
		delete(t.cordoned, n.Name)
		return
	}
	if n.Spec.Unschedulable && !t.cordoned[n.Name] {
		t.cordons[n.Name]++
	}
	note(t.cordoned, n.Name, n.Spec.Unschedulable)
	note(t.claimed, n.Name, n.Annotations[v1alpha1.AnnotationClaims] != "")
	t.most = max(t.most, len(t.claimed))
}

func note(set map[string]bool, name string, is bool) {
	if is {
		set[name] = true
	} else {
		delete(set, name)
	}
}

// progress says in a line how far it has come.
func (t *machineTally) progress() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d nodes gone, %d claimed", len(t.gone), len(t.claimed))
}

// verify returns what was wrong with nodes: each of the first must have been cordoned once, and have gone, and no other.
func (t *machineTally) verify(original []clouds.Machine, atOnce int) []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []error
	if t.most > atOnce {
		problems = append(problems, fmt.Errorf("%d nodes were claimed at once, and %d may be", t.most, atOnce))
	}
	want := map[string]int{}
	for _, m := range original {
		want[m.NodeName] = 1
	}
	for what, times := range map[string]map[string]int{"cordoned": t.cordons, "deleted": t.gone} {
		for _, name := range union(want, times) {
			if times[name] != want[name] {
				problems = append(problems, fmt.Errorf("node %s was %s %d times, and should be %d times", name, what, times[name], want[name]))
			}
		}
	}
	return problems
}

func union(a, b map[string]int) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// scaleSetEnd is how a scale set stands when all is done, and what has happened in it since it was made.
type scaleSetEnd struct {
	set            clouds.Set
	capacity       int
	original       []clouds.Machine
	now, gone      []clouds.Machine
	journal        []clouds.Call
	fewest, most   int
	added, deleted int
}

// reckon counts the machines that did not go, change by change.
func (e *scaleSetEnd) reckon() {
	n := e.capacity
	e.fewest, e.most = n, n
	for _, c := range e.journal {
		names := strings.Fields(c.Detail)
		if len(names) == 0 || names[0] != e.set.Name || c.Outcome != "" {
			continue
		}
		switch c.Name {
		case "Add", "Heal":
			n += len(names) - 1
			e.added += len(names) - 1
		case "Delete", "Kill":
			n -= len(names) - 1
			e.deleted += len(names) - 1
		}
		e.fewest, e.most = min(e.fewest, n), max(e.most, n)
	}
}

// zones is how many machines there are in each zone, in the order of these.
func (e *scaleSetEnd) zones() []int {
	n := make([]int, len(e.set.Zones))
	for _, m := range e.now {
		n[slices.Index(e.set.Zones, m.Zone)]++
	}
	return n
}

// verify returns what is wrong: each of the first machines is to be replaced by one of an image, once, with never more than the surge, and never
// fewer than before, and no zone is to have more machines than another, but for so many.
func (e *scaleSetEnd) verify(image string, surge, unevenness int) []error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	first := map[string]int{}
	for _, m := range e.original {
		first[m.ID]++
	}
	gone := map[string]int{}
	for _, m := range e.gone {
		gone[m.ID]++
	}
	for _, id := range union(first, gone) {
		switch {
		case first[id] == 0:
			wrong("machine %s was added, and deleted again", id)
		case gone[id] != 1:
			wrong("machine %s was deleted %d times", id, gone[id])
		}
	}
	for _, m := range e.now {
		if clouds.ImageName(m.Image) != image || m.State != clouds.Running {
			wrong("machine %s is %s, and of image %s", m.ID, m.State, m.Image)
		}
	}
	if zones := e.zones(); slices.Max(zones) > slices.Min(zones)+unevenness {
		wrong("the zones are out of balance: %v", zones)
	}
	if e.set.Capacity != e.capacity || len(e.now) != e.capacity {
		wrong("there are %d machines, and the scale set is to have %d; before it were %d", len(e.now), e.set.Capacity, e.capacity)
	}
	if e.most > e.capacity+surge {
		wrong("there were %d machines at once, and may be %d", e.most, e.capacity+surge)
	}
	if e.fewest < e.capacity {
		wrong("there were only %d machines", e.fewest)
	}
	return problems
}
