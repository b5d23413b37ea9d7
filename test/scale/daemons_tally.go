// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/test/follow"
)

// daemonPod is what counts of a pod.
type daemonPod struct {
	node, image    string
	ready, leaving bool
}

// podTally counts daemon pods as they change.
type podTally struct {
	mu sync.Mutex
	// image is what the pods should have, and nodes where they should be.
	image string
	nodes sets.Set[string]
	pods  map[string]daemonPod
	// byNode are the names of the pods on each node.
	byNode map[string]sets.Set[string]
	// available are the nodes that have a ready pod, and done those whose one pod is ready and has the image.
	available, done sets.Set[string]
	// since is from when on all were done.
	since        time.Time
	creating     int
	mostLost     int
	mostCreating int
	problems     []error
}

func newPodTally() *podTally {
	return &podTally{
		nodes: sets.Set[string]{}, pods: map[string]daemonPod{}, byNode: map[string]sets.Set[string]{},
		available: sets.Set[string]{}, done: sets.Set[string]{},
	}
}

// expect begins to count anew: from now on there should be pods with this image on these nodes.
func (t *podTally) expect(image string, nodes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.image, t.nodes = image, sets.New(nodes...)
	t.available, t.done = sets.Set[string]{}, sets.Set[string]{}
	for node := range t.nodes {
		t.judge(node)
	}
	t.mostLost, t.mostCreating = 0, t.creating
	t.count()
}

// see takes note of a pod as it became.
func (t *podTally) see(kind watch.EventType, p *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.pods[p.Name]
	if known && old.creating() {
		t.creating--
	}
	if known && old.node != "" {
		t.byNode[old.node].Delete(p.Name)
	}
	if kind == watch.Deleted {
		delete(t.pods, p.Name)
	} else {
		now := look(p)
		t.pods[p.Name] = now
		if now.creating() {
			t.creating++
		}
		if now.node != "" {
			if t.byNode[now.node] == nil {
				t.byNode[now.node] = sets.Set[string]{}
			}
			t.byNode[now.node].Insert(p.Name)
		}
	}
	for _, node := range slices.Compact([]string{old.node, p.Spec.NodeName}) {
		if t.nodes.Has(node) {
			t.judge(node)
		}
	}
	t.count()
}

func look(p *corev1.Pod) daemonPod {
	d := daemonPod{node: p.Spec.NodeName, image: p.Spec.Containers[0].Image, leaving: p.DeletionTimestamp != nil}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			d.ready = c.Status == corev1.ConditionTrue
		}
	}
	return d
}

func (d daemonPod) creating() bool { return !d.ready && !d.leaving }

// judge finds out what one node has.
func (t *podTally) judge(node string) {
	ready, staying, wanted := 0, 0, 0
	for name := range t.byNode[node] {
		p := t.pods[name]
		if p.leaving {
			continue
		}
		staying++
		if p.ready {
			ready++
			if p.image == t.image {
				wanted++
			}
		}
	}
	set(t.available, node, ready > 0)
	set(t.done, node, staying == 1 && wanted == 1)
	if staying > 1 {
		t.problems = append(t.problems, fmt.Errorf("node %s has %d pods", node, staying))
	}
}

func set(of sets.Set[string], node string, is bool) {
	if is {
		of.Insert(node)
	} else {
		of.Delete(node)
	}
}

func (t *podTally) count() {
	if t.done.Len() < t.nodes.Len() {
		t.since = time.Time{}
	} else if t.since.IsZero() {
		t.since = time.Now()
	}
	t.mostLost = max(t.mostLost, t.nodes.Len()-t.available.Len())
	t.mostCreating = max(t.mostCreating, t.creating)
}

// readyAt is from when on all were done.
func (t *podTally) readyAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// podCounts are what was counted since it was said what to expect.
type podCounts struct{ done, available, mostLost, mostCreating int }

// all is how many pods there are, wherever.
func (t *podTally) all() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pods)
}

func (t *podTally) counts() podCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return podCounts{done: t.done.Len(), available: t.available.Len(), mostLost: t.mostLost, mostCreating: t.mostCreating}
}

// podWatch keeps a tally of all pods of a namespace.
type podWatch struct {
	cancel context.CancelFunc
	done   chan struct{}
	tally  *podTally
}

// watchPods begins to count, in the order in which the API server has made the changes.
func (b *bench) watchPods(ctx context.Context, namespace string) (*podWatch, error) {
	pods := b.raw.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &podWatch{cancel: cancel, done: make(chan struct{}), tally: newPodTally()}
	for i := range list.Items {
		w.tally.see(watch.Added, &list.Items[i])
	}
	changes := make(chan follow.Change, 1000)
	ended := make(chan error, 1)
	go func() { ended <- follow.Changes(ctx, pods.Watch, list.ResourceVersion, changes) }()
	go func() {
		defer close(w.done)
		for {
			select {
			case change := <-changes:
				if p, ok := change.Object.(*corev1.Pod); ok {
					w.tally.see(change.Type, p)
				}
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					w.tally.mu.Lock()
					w.tally.problems = append(w.tally.problems, fmt.Errorf("not all changes of pods were seen, %w", err))
					w.tally.mu.Unlock()
				}
				return
			}
		}
	}()
	return w, nil
}

// stop ends the watch and returns what was wrong.
func (w *podWatch) stop() []error {
	w.cancel()
	<-w.done
	return w.tally.problems
}
