// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
)

// nodeTally counts what happens to nodes, change by change.
type nodeTally struct {
	mu sync.Mutex
	// concurrency is how many nodes may be claimed at once, and limit how many may be unavailable when one is claimed; 0 is no limit.
	concurrency, limit int
	nodes              map[string]*nodeState
	// claimed and unavailable are how many nodes are so now, and mostClaimed and mostUnavailable the most there were.
	claimed, unavailable         int
	mostClaimed, mostUnavailable int
	problems                     []error
	times                        *turnTimes
	// state is what at counts nodes by. Nil: nothing.
	state func(*corev1.Node) string
}

type nodeState struct {
	claimed, unavailable, cordoned bool
	claims, cordons, deletions     int
	state                          string
}

func newNodeTally(concurrency, limit int, times *turnTimes) *nodeTally {
	return &nodeTally{concurrency: concurrency, limit: limit, times: times, nodes: map[string]*nodeState{}}
}

// watch is that of all nodes.
func (t *nodeTally) watch(b *bench) watched {
	return watched{begin: b.raw.CoreV1().Nodes().Watch, list: &corev1.NodeList{}, see: func(kind watch.EventType, o any) {
		if n, ok := o.(*corev1.Node); ok {
			t.see(kind, n)
		}
	}}
}

// see counts a node as it became. It is a problem if a node is claimed beyond the concurrency, or beyond the limit.
func (t *nodeTally) see(kind watch.EventType, n *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.nodes[n.Name]
	if was == nil {
		was = &nodeState{}
		t.nodes[n.Name] = was
	}
	now := nodeState{claims: was.claims, cordons: was.cordons, deletions: was.deletions}
	if kind == watch.Deleted {
		now.deletions++
	} else {
		claimed, why := unavailable(n)
		now.claimed, now.unavailable, now.cordoned = claimed, why != "", n.Spec.Unschedulable
		if t.state != nil {
			now.state = t.state(n)
		}
	}
	t.claimed += change(was.claimed, now.claimed)
	t.unavailable += change(was.unavailable, now.unavailable)
	t.mostClaimed, t.mostUnavailable = max(t.mostClaimed, t.claimed), max(t.mostUnavailable, t.unavailable)
	if now.cordoned && !was.cordoned {
		now.cordons++
		t.times.mark(n.Name, stepCordoned)
	}
	if was.claimed && !now.claimed {
		t.times.mark(n.Name, stepReleased)
	}
	if now.claimed && !was.claimed {
		now.claims++
		t.times.mark(n.Name, stepClaimed)
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
		got, w := nodeState{claims: s.claims, cordons: s.cordons, deletions: s.deletions}, want[name]
		if got != w {
			problems = append(problems, fmt.Errorf("node %s was claimed %d times, cordoned %d times and deleted %d times, and should be %d, %d and %d times",
				name, got.claims, got.cordons, got.deletions, w.claims, w.cordons, w.deletions))
		}
	}
	return problems
}

// unavailable says why a node is, or nothing when it is available, and whether it is claimed.
func unavailable(n *corev1.Node) (claimed bool, why string) {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return true, err.Error()
	}
	for i := range claims {
		if !claims[i].RecordsResult() {
			return true, "claimed by " + claims[i].Rollout
		}
	}
	if n.Spec.Unschedulable {
		return false, "unschedulable"
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return false, ""
		}
	}
	return false, "not ready"
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

func names(nodes []corev1.Node) []string {
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return names
}
