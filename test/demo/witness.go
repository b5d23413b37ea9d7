// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/test/follow"
)

// witness sees every change of the nodes, and of the workload's pods.
type witness struct {
	mu  sync.Mutex
	err error
	// turns are for how long nodes were cordoned, in the order in which that began. most is how many were at once.
	turns []*turn
	most  int
	// fewest is how many of the workload's pods were available, of total.
	pods          map[string]*corev1.Pod
	fewest, total int
	// tried has the nodes on which there were pods of an image, and boots the boot ids of each node.
	tried, boots map[string][]string
	// faint are nodes that became not ready while they were not cordoned: this computer was too busy.
	ready, faint map[string]bool
}

// turn is for how long a node was cordoned. One that was deleted then is gone.
type turn struct {
	node       string
	began, end time.Time
	gone       bool
}

func newWitness(total int) *witness {
	return &witness{
		total: total, fewest: total, pods: map[string]*corev1.Pod{}, tried: map[string][]string{}, boots: map[string][]string{},
		ready: map[string]bool{}, faint: map[string]bool{},
	}
}

// watch begins to see. The workload has so many pods, and all are available.
func (d *demo) watch(ctx context.Context, total int) *witness {
	w := newWitness(total)
	d.try(func() error {
		raw, err := kubernetes.NewForConfig(d.cluster.Config())
		if err != nil {
			return err
		}
		nodes, err := raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := raw.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range nodes.Items {
			w.see(follow.Change{Object: &nodes.Items[i]}, time.Now())
		}
		for i := range pods.Items {
			w.see(follow.Change{Object: &pods.Items[i]}, time.Now())
		}
		w.fewest = total
		changes := make(chan follow.Change, 100)
		begin := func(begin follow.Begin, from string) {
			err := follow.Changes(ctx, begin, from, changes)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.err = fmt.Errorf("not all changes were seen, %w", err)
		}
		go begin(raw.CoreV1().Nodes().Watch, nodes.ResourceVersion)
		go begin(raw.CoreV1().Pods("default").Watch, pods.ResourceVersion)
		go func() {
			for c := range changes {
				w.see(c, time.Now())
			}
		}()
		return nil
	})
	return w
}

// see takes note of a change.
func (w *witness) see(c follow.Change, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := c.Object.(type) {
	case *corev1.Node:
		w.seeNode(o, c.Type == watch.Deleted, now)
	case *corev1.Pod:
		if w.pods[o.Name] = o; c.Type == watch.Deleted {
			delete(w.pods, o.Name)
		}
		image := o.Spec.Containers[0].Image
		if node := o.Spec.NodeName; node != "" && !slices.Contains(w.tried[image], node) {
			w.tried[image] = append(w.tried[image], node)
		}
		available := 0
		for _, p := range w.pods {
			if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				available++
			}
		}
		w.fewest = min(w.fewest, available)
	}
}

func (w *witness) seeNode(n *corev1.Node, gone bool, now time.Time) {
	if boot := n.Status.NodeInfo.BootID; !slices.Contains(w.boots[n.Name], boot) {
		w.boots[n.Name] = append(w.boots[n.Name], boot)
	}
	open := slices.IndexFunc(w.turns, func(t *turn) bool { return t.node == n.Name && t.end.IsZero() })
	if open < 0 && (gone || n.Spec.Unschedulable) {
		w.turns, open = append(w.turns, &turn{node: n.Name, began: now}), len(w.turns)
	}
	switch {
	case open >= 0 && (gone || !n.Spec.Unschedulable):
		w.turns[open].end, w.turns[open].gone = now, gone
	case open < 0:
		w.faint[n.Name] = w.faint[n.Name] || w.ready[n.Name] && !isReady(n)
		w.ready[n.Name] = isReady(n)
	}
	cordoned := 0
	for _, t := range w.turns {
		if t.end.IsZero() {
			cordoned++
		}
	}
	w.most = max(w.most, cordoned)
}

// nodesOf is how many nodes have had pods of an image.
func (w *witness) nodesOf(image string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tried[image])
}

// bootsOf is how many boots of a node were seen.
func (w *witness) bootsOf(node string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.boots[node])
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// tell prints what was seen, and fails unless just these nodes were cordoned, each once and no more than so many at once, and are back, or gone if
// that is wanted. No more than one pod of the workload may have been missing, as far as that was not this computer's fault.
func (w *witness) tell(ctx context.Context, out io.Writer, atOnce int, gone bool, nodes ...string) error {
	var problems error
	// What was done last may be seen a moment later.
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		problems = w.judge(atOnce, gone, nodes...)
		return problems == nil, nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if len(w.turns) > 0 {
		fmt.Fprintln(table, "IN TURN\tCORDONED\tFOR")
	}
	for _, t := range w.turns {
		fmt.Fprintf(table, "%s\t%s\t%.1fs\n", t.node, t.began.Format("15:04:05"), t.end.Sub(t.began).Seconds())
	}
	fmt.Fprintf(table, "Nodes cordoned at once: %d at most. Pods of the workload that were available: never fewer than %d of %d.\n", w.most, w.fewest, w.total)
	for n, is := range w.faint {
		if is {
			fmt.Fprintf(table, "%s was not ready for a while by itself: this computer has too much to do.\n", n)
		}
	}
	problems = errors.Join(problems, table.Flush())
	fmt.Fprint(out, text.String())
	return problems
}

func (w *witness) judge(atOnce int, gone bool, nodes ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	problems := []error{w.err}
	is := func(problem bool, format string, args ...any) {
		if problem {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	times := map[string]int{}
	for _, t := range w.turns {
		times[t.node]++
		is(t.end.IsZero(), "%s is still cordoned", t.node)
		is(t.gone != gone, "%s was deleted: %t", t.node, t.gone)
		is(!slices.Contains(nodes, t.node), "%s was cordoned or deleted", t.node)
	}
	for _, n := range nodes {
		is(times[n] != 1, "%s was cordoned %d times", n, times[n])
	}
	faint := false
	for _, is := range w.faint {
		faint = faint || is
	}
	is(w.most > atOnce, "%d nodes were cordoned at once, and %d may be", w.most, atOnce)
	is(w.fewest < w.total-1 && !faint, "the workload had %d of %d pods available, and one may be missing", w.fewest, w.total)
	return errors.Join(problems...)
}
