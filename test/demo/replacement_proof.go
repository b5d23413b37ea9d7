// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/follow"
)

// replicas and budget are how many pods the workload has, and how many of them its PodDisruptionBudget wants to be available.
const (
	replicas = 3
	budget   = 2
)

// spectator sees every change of the nodes and of the workload.
type spectator struct {
	end func() error

	mu sync.Mutex
	// sights are what was seen of nodes, in the order in which they were first cordoned or went.
	sights []*sight
	// away are those that are cordoned now.
	away map[string]bool
	most int
	// faint are nodes that were not ready while nobody did anything to them: this machine is too busy.
	faint  map[string]bool
	fit    map[string]bool
	fewest int32
}

// sight is what was seen of one node.
type sight struct {
	node           string
	cordons        int
	cordoned, gone time.Time
}

func newSpectator() *spectator {
	return &spectator{away: map[string]bool{}, faint: map[string]bool{}, fit: map[string]bool{}, fewest: -1}
}

// watch begins to see.
func (d *replacementDemo) watch(ctx context.Context) (w *spectator, err error) {
	w = newSpectator()
	w.end, err = d.watchAll(ctx, func(change follow.Change) {
		switch o := change.Object.(type) {
		case *corev1.Node:
			w.seeNode(change.Type, o, time.Now())
		case *appsv1.Deployment:
			w.seeWorkload(o)
		}
	})
	return w, err
}

// seeNode takes note of a node as it became.
func (w *spectator) seeNode(what watch.EventType, n *corev1.Node, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case what == watch.Deleted:
		w.of(n.Name).gone = now
		delete(w.away, n.Name)
	case n.Spec.Unschedulable && !w.away[n.Name]:
		s := w.of(n.Name)
		s.cordons++
		s.cordoned = now
		w.away[n.Name] = true
		w.most = max(w.most, len(w.away))
	case !n.Spec.Unschedulable:
		delete(w.away, n.Name)
		if is := ready(n); is {
			w.fit[n.Name] = true
		} else if w.fit[n.Name] {
			w.faint[n.Name] = true
		}
	}
}

// of is what was seen of a node.
func (w *spectator) of(node string) *sight {
	for _, s := range w.sights {
		if s.node == node {
			return s
		}
	}
	s := &sight{node: node}
	w.sights = append(w.sights, s)
	return s
}

// seeWorkload takes note of how many of its pods are available.
func (w *spectator) seeWorkload(d *appsv1.Deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := d.Status.AvailableReplicas; w.fewest < 0 || n < w.fewest {
		w.fewest = n
	}
}

// workers are the nodes of the scale set.
func (d *replacementDemo) workers(ctx context.Context) ([]corev1.Node, error) {
	raw, err := kubernetes.NewForConfig(d.cluster.Config())
	if err != nil {
		return nil, err
	}
	list, err := raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "moult.dev/demo=machine"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// replacementProof is how things stand at the end.
type replacementProof struct {
	capacity int
	set      clouds.Set
	// original machines were there at first, gone ones have been, and now are what there is.
	original, gone, now []clouds.Machine
	journal             []clouds.Call
	nodes               []corev1.Node
	// running are the real machines that are on, if there are real ones.
	real    bool
	running []string
}

// tell prints what was seen, and fails unless each machine was replaced once, alone, by one of the new image, the workload kept to its budget as
// far as that was not this machine's fault, and cloud and nodes are as before.
func (p *replacementProof) tell(out io.Writer, w *spectator) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := p.table(out, w); err != nil {
		return err
	}
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, why := range slices.Concat(p.replaced(), p.cordoned(w), p.left()) {
		wrong("%s", why)
	}
	fewest, most := p.bounds()
	added, deleted, calls := p.counted()
	fmt.Fprintf(out, "\nThe workload had never fewer than %d of its %d pods available; its budget wants %d.\n", w.fewest, replicas, budget)
	fmt.Fprintf(out, "The scale set had %d machines at least and %d at most, and has %d. The cloud was asked %d times: %d machines were added, and %d deleted.\n",
		fewest, most, p.set.Capacity, calls, added, deleted)
	for _, name := range slices.Sorted(maps.Keys(w.faint)) {
		fmt.Fprintf(out, "%s was not ready for a while, by itself: this computer has too much to do.\n", name)
	}
	if fewest < p.capacity || most > p.capacity+surge {
		wrong("the scale set had %d to %d machines, and was to have %d to %d", fewest, most, p.capacity, p.capacity+surge)
	}
	if w.fewest < budget && len(w.faint) == 0 {
		wrong("the PodDisruptionBudget allows no fewer than %d of %d pods", budget, replicas)
	}
	return errors.Join(problems...)
}

// table has a line for each machine that has gone, and the one that has come for it: one after the other, so that they come in the same order.
func (p *replacementProof) table(out io.Writer, w *spectator) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tIMAGE\tCORDONED\tGONE AFTER\tIN ITS PLACE\tIMAGE")
	images := map[string]string{}
	for i := range p.nodes {
		images[p.nodes[i].Name] = p.nodes[i].Status.NodeInfo.OSImage
	}
	for i, m := range p.gone {
		s := sight{}
		for _, seen := range w.sights {
			if seen.node == m.NodeName {
				s = *seen
			}
		}
		took, by := "-", "-\t-"
		if !s.gone.IsZero() {
			took = fmt.Sprintf("%.1fs", s.gone.Sub(s.cordoned).Seconds())
		}
		if i < len(p.now) {
			by = p.now[i].NodeName + "\t" + images[p.now[i].NodeName]
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", m.NodeName, clouds.ImageName(m.Image), s.cordoned.Format("15:04:05"), took, by)
	}
	return table.Flush()
}

// replaced says what is wrong with the machines that have gone, and with those that are there.
func (p *replacementProof) replaced() (wrong []string) {
	times := map[string]int{}
	for _, m := range p.gone {
		times[m.NodeName]++
	}
	for _, m := range p.original {
		if n := times[m.NodeName]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s was deleted %d times", m.NodeName, n))
		}
		delete(times, m.NodeName)
		if slices.Contains(p.running, m.NodeName) {
			wrong = append(wrong, m.NodeName+" is on still")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		wrong = append(wrong, name+" was added, and deleted again")
	}
	for _, m := range p.now {
		switch {
		case clouds.ImageName(m.Image) != newImage || m.State != clouds.Running:
			wrong = append(wrong, fmt.Sprintf("%s is %s, and made of %s", m.NodeName, m.State, m.Image))
		case p.real && !slices.Contains(p.running, m.NodeName):
			wrong = append(wrong, m.NodeName+" is not on")
		}
	}
	if p.set.Capacity != p.capacity || len(p.now) != p.capacity {
		wrong = append(wrong, fmt.Sprintf("the scale set has %d machines, of %d", len(p.now), p.set.Capacity))
	}
	return wrong
}

// cordoned says what is wrong with who was cordoned when.
func (p *replacementProof) cordoned(w *spectator) (wrong []string) {
	if w.most > 1 {
		wrong = append(wrong, fmt.Sprintf("%d were cordoned at once", w.most))
	}
	seen := map[string]*sight{}
	for _, s := range w.sights {
		seen[s.node] = s
	}
	for _, m := range p.original {
		s := seen[m.NodeName]
		if s == nil || s.cordons != 1 || s.gone.IsZero() {
			wrong = append(wrong, m.NodeName+" was not cordoned once, and then deleted")
		}
		delete(seen, m.NodeName)
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		wrong = append(wrong, name+" was cordoned or deleted")
	}
	return wrong
}

// left says what was left on nodes, and of which there is no machine.
func (p *replacementProof) left() (wrong []string) {
	there := map[string]bool{}
	for _, m := range p.now {
		there[m.NodeName] = true
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		say := func(what string) { wrong = append(wrong, n.Name+" "+what) }
		if !there[n.Name] {
			say("is of no machine")
		}
		delete(there, n.Name)
		switch {
		case n.Status.NodeInfo.OSImage != newImage:
			say("tells of " + n.Status.NodeInfo.OSImage)
		case n.Spec.Unschedulable:
			say("is unschedulable")
		case n.Annotations[v1alpha1.AnnotationClaims] != "":
			say("is still claimed")
		case n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] != "":
			say("is still kept from the autoscaler")
		case !ready(n):
			say("is not ready")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		wrong = append(wrong, name+" has no node")
	}
	return wrong
}

// bounds are how few and how many machines there were that did not go.
func (p *replacementProof) bounds() (fewest, most int) {
	n := p.capacity
	fewest, most = n, n
	for _, c := range p.journal {
		if names := strings.Fields(c.Detail); len(names) > 0 && names[0] == p.set.Name && c.Outcome == "" {
			switch c.Name {
			case "Add", "Heal":
				n += len(names) - 1
			case "Delete", "Kill":
				n -= len(names) - 1
			}
			fewest, most = min(fewest, n), max(most, n)
		}
	}
	return fewest, most
}

// counted are the machines that were added and deleted, and the requests that the cloud has had.
func (p *replacementProof) counted() (added, deleted, calls int) {
	for _, c := range p.journal {
		machines := len(strings.Fields(c.Detail)) - 1
		switch c.Name {
		case "Add":
			added += machines
		case "Delete":
			deleted += machines
		case "Edit", "Heal", "Kill", "Start", "Stop":
		default:
			calls++
		}
	}
	return added, deleted, calls
}
