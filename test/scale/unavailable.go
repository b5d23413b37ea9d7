// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/follow"
)

// tally counts unavailable nodes as they change, and remembers what was wrong.
type tally struct {
	// concurrency is how many nodes may be claimed at once, and limit how many may be unavailable when one is claimed; 0 is
	// no limit.
	concurrency, limit int
	because            map[string]string
	held               sets.Set[string] // claimed now
	ever               sets.Set[string] // claimed at some time
	most               int
	problems           []error
}

func newTally(concurrency, limit int) *tally {
	return &tally{concurrency: concurrency, limit: limit, because: map[string]string{}, held: sets.Set[string]{}, ever: sets.Set[string]{}}
}

// see takes note of a node as it became. What is unavailable for another reason than a claim is nobody's fault, but who
// claims a node beyond the limit is at fault.
func (t *tally) see(kind watch.EventType, n *corev1.Node) {
	claimed, why := unavailable(n)
	_, was := t.because[n.Name]
	if why == "" || kind == watch.Deleted {
		delete(t.because, n.Name)
		t.held.Delete(n.Name)
		return
	}
	t.because[n.Name] = why
	t.most = max(t.most, len(t.because))
	if !claimed {
		t.held.Delete(n.Name)
		return
	}
	taken := !t.held.Has(n.Name)
	t.held.Insert(n.Name)
	t.ever.Insert(n.Name)
	if taken && t.held.Len() > t.concurrency {
		t.problems = append(t.problems, fmt.Errorf("node %s was claimed, as number %d of at most %d", n.Name, t.held.Len(), t.concurrency))
	}
	if now := len(t.because); taken && !was && t.limit > 0 && now > t.limit {
		t.problems = append(t.problems,
			fmt.Errorf("node %s was claimed when with it %d nodes were unavailable (%d of them claimed), and %d may be", n.Name, now, t.held.Len(), t.limit))
	}
}

// verify returns what was wrong by the end of a rollout over so many nodes.
func (t *tally) verify(nodes int) []error {
	if t.ever.Len() != nodes {
		return append(t.problems, fmt.Errorf("%d nodes were seen to be claimed", t.ever.Len()))
	}
	return t.problems
}

// unavailable says why a node is, or nothing when it is available, and whether it is claimed.
func unavailable(n *corev1.Node) (claimed bool, why string) {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return true, err.Error()
	}
	for i := range claims {
		if !claims[i].Parked() {
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

// nodeWatch keeps a tally of all nodes.
type nodeWatch struct {
	cancel context.CancelFunc
	done   chan struct{}
	tally  *tally
}

// watchNodes begins to count, in the order in which the API server has made the changes. The others see the same.
func (b *bench) watchNodes(ctx context.Context, limit int, others ...func(watch.EventType, *corev1.Node)) (*nodeWatch, error) {
	nodes := b.raw.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &nodeWatch{cancel: cancel, done: make(chan struct{}), tally: newTally(b.concurrency, limit)}
	see := func(kind watch.EventType, n *corev1.Node) {
		w.tally.see(kind, n)
		for _, other := range others {
			other(kind, n)
		}
	}
	for i := range list.Items {
		see(watch.Added, &list.Items[i])
	}
	changes := make(chan follow.Change, 100)
	ended := make(chan error, 1)
	go func() { ended <- follow.Changes(ctx, nodes.Watch, list.ResourceVersion, changes) }()
	go func() {
		defer close(w.done)
		for {
			select {
			case change := <-changes:
				if n, ok := change.Object.(*corev1.Node); ok {
					see(change.Type, n)
				}
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					w.tally.problems = append(w.tally.problems, fmt.Errorf("not all changes of nodes were seen, %w", err))
				}
				return
			}
		}
	}()
	return w, nil
}

// stop ends the watch and returns what was seen.
func (w *nodeWatch) stop() *tally {
	w.cancel()
	<-w.done
	return w.tally
}
