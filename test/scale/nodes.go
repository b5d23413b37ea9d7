// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
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

// nodeTally counts what happens to nodes, change by change, and notes when each node's turn took each step, by the clock of this process.
type nodeTally struct {
	mu sync.Mutex
	// concurrency is how many nodes may be claimed at once, and limit how many may be unavailable when one is claimed; 0 is no limit.
	concurrency, limit int
	nodes              map[string]*nodeState
	// claimed and unavailable are how many nodes are so now, and mostClaimed and mostUnavailable the most there were.
	claimed, unavailable         int
	mostClaimed, mostUnavailable int
	problems                     []error
	// steps are in order. With the step freed a slot becomes free.
	steps []string
	freed string
	// state is what at counts nodes by. Nil: nothing.
	state func(*corev1.Node) string
}

type nodeState struct {
	claimed, unavailable, cordoned bool
	claims, cordons, deletions     int
	state                          string
	// at is when its turn took each step.
	at map[string]time.Time
}

func newNodeTally(concurrency, limit int, freed string, steps ...string) *nodeTally {
	return &nodeTally{concurrency: concurrency, limit: limit, freed: freed, steps: steps, nodes: map[string]*nodeState{}}
}

// node is what is known of a node.
func (t *nodeTally) node(name string) *nodeState {
	if t.nodes[name] == nil {
		t.nodes[name] = &nodeState{at: map[string]time.Time{}}
	}
	return t.nodes[name]
}

// mark notes that a node's turn has taken a step.
func (t *nodeTally) mark(node, step string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.node(node).mark(step)
}

// mark notes a step. The first time counts.
func (s *nodeState) mark(step string) {
	if s.at[step].IsZero() {
		s.at[step] = time.Now()
	}
}

// watch is that of all nodes.
func (t *nodeTally) watch(b *bench) watched {
	return watched{begin: b.raw.CoreV1().Nodes().Watch, list: &corev1.NodeList{}, see: t.see}
}

// see counts a node as it became. It is a problem if a node is claimed beyond the concurrency, or beyond the limit.
func (t *nodeTally) see(kind watch.EventType, object any) {
	n := object.(*corev1.Node)
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.node(n.Name)
	now := nodeState{claims: was.claims, cordons: was.cordons, deletions: was.deletions, at: was.at}
	if kind == watch.Deleted {
		now.deletions++
	} else {
		now.claimed, now.unavailable = disrupted(n)
		now.cordoned = n.Spec.Unschedulable
		if t.state != nil {
			now.state = t.state(n)
		}
	}
	t.claimed += change(was.claimed, now.claimed)
	t.unavailable += change(was.unavailable, now.unavailable)
	t.mostClaimed, t.mostUnavailable = max(t.mostClaimed, t.claimed), max(t.mostUnavailable, t.unavailable)
	if now.cordoned && !was.cordoned {
		now.cordons++
		now.mark(stepCordoned)
	}
	if was.claimed && !now.claimed {
		now.mark(stepReleased)
	}
	if now.claimed && !was.claimed {
		now.claims++
		now.mark(stepClaimed)
		if t.claimed > t.concurrency {
			t.problems = append(t.problems, fmt.Errorf("node %s was claimed as number %d of at most %d", n.Name, t.claimed, t.concurrency))
		}
		if t.limit > 0 && t.unavailable > t.limit && !was.unavailable {
			t.problems = append(t.problems,
				fmt.Errorf("node %s was claimed when %d nodes were unavailable with it, and %d may be", n.Name, t.unavailable, t.limit))
		}
	}
	*was = now
}

func change(was, is bool) int {
	switch {
	case is && !was:
		return 1
	case was && !is:
		return -1
	}
	return 0
}

// number is how many nodes are as is says.
func (t *nodeTally) number(is func(*nodeState) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.nodes {
		if is(s) {
			n++
		}
	}
	return n
}

// released is how many nodes were claimed and are not any more.
func (t *nodeTally) released() int {
	return t.number(func(s *nodeState) bool { return s.claims > 0 && !s.claimed })
}

// at is how many nodes are in a state.
func (t *nodeTally) at(state string) int {
	return t.number(func(s *nodeState) bool { return s.state == state })
}

func (t *nodeTally) progress() string {
	claimed := t.number(func(s *nodeState) bool { return s.claimed })
	return fmt.Sprintf("%d nodes were released or deleted, %d are claimed", t.released(), claimed)
}

// report adds how long it took from each step to the next, and how long a free slot waited for the next claim.
func (t *nodeTally) report(p *phase, slots int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, step := range t.steps[1:] {
		var gaps []time.Duration
		for _, s := range t.nodes {
			if before, at := s.at[t.steps[i]], s.at[step]; !before.IsZero() && !at.IsZero() {
				gaps = append(gaps, at.Sub(before))
			}
		}
		p.spread(t.steps[i]+" → "+step, gaps, 50, 95)
	}
	inOrder := func(step string) (times []time.Time) {
		for _, s := range t.nodes {
			if at := s.at[step]; !at.IsZero() {
				times = append(times, at)
			}
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
	p.spread(t.freed+" → next node "+stepClaimed, idle, 50, 95)
}

// spread adds percentiles of durations, in milliseconds.
func (p *phase) spread(name string, all []time.Duration, percents ...int) {
	slices.Sort(all)
	for _, percent := range percents {
		if len(all) > 0 {
			value := all[(len(all)-1)*percent/100]
			p.figure(fmt.Sprintf("%s, %d %% within ms", name, percent), float64(value.Microseconds())/1000)
		}
	}
}

// verify returns what was wrong. Each of these nodes must have been claimed, cordoned and deleted as often as wanted, and no
// other node at all.
func (t *nodeTally) verify(names []string, wanted nodeState) []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	problems := slices.Clone(t.problems)
	want := map[string]nodeState{}
	for _, name := range names {
		want[name] = wanted
		if t.nodes[name] == nil {
			problems = append(problems, fmt.Errorf("node %s was never seen", name))
		}
	}
	for name, s := range t.nodes {
		if w := want[name]; s.claims != w.claims || s.cordons != w.cordons || s.deletions != w.deletions {
			problems = append(problems, fmt.Errorf("node %s was claimed %d times, cordoned %d times and deleted %d times, and should be %d, %d and %d times",
				name, s.claims, s.cordons, s.deletions, w.claims, w.cordons, w.deletions))
		}
	}
	return problems
}

// disrupted reports whether a node is claimed, and whether it is unavailable.
func disrupted(n *corev1.Node) (claimed, unavailable bool) {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	claimed = err != nil || slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool { return !c.RecordsResult() })
	return claimed, claimed || n.Spec.Unschedulable || !isReady(n)
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// left says what a turn has left on a node.
func left(n *corev1.Node) string {
	switch {
	case n.Annotations[v1alpha1.AnnotationClaims] != "":
		return "is still claimed: " + n.Annotations[v1alpha1.AnnotationClaims]
	case n.Spec.Unschedulable:
		return "is unschedulable"
	case n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] != "":
		return "is still kept from the autoscaler"
	case n.Labels[corev1.LabelNodeExcludeBalancers] != "":
		return "is still kept from load balancers"
	}
	return ""
}

// checkNodes checks that every node is left as it should be. more says what else is wrong with a node.
func (b *bench) checkNodes(ctx context.Context, r *result, more func(*corev1.Node) string) error {
	nodes, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	if len(nodes) != b.size {
		r.wrong("there are %d nodes", len(nodes))
	}
	for i := range nodes {
		for _, why := range []string{left(&nodes[i]), more(&nodes[i])} {
			if why != "" {
				r.wrong("node %s %s", nodes[i].Name, why)
			}
		}
	}
	return nil
}

// updated reports whether the status of a NodeRollout says that all nodes are updated.
func (b *bench) updated(ctx context.Context, rollout *v1alpha1.NodeRollout) (bool, error) {
	err := b.client.Get(ctx, client.ObjectKeyFromObject(rollout), rollout)
	is := &rollout.Status
	return is.ObservedGeneration == rollout.Generation && is.Counts != nil && int(is.Counts.Updated) == b.size && int(is.Counts.Total) == b.size &&
		meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady), err
}

func names(nodes []corev1.Node) []string {
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return names
}
