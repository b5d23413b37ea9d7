// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/follow"
)

// hostState is what a machine shows, and what its kubelet has told of it.
type hostState struct {
	// release and boot are the machine's own words; image and told what stands on its Node.
	release, boot string
	image, told   string
	unschedulable bool
}

// look looks at all machines.
func (d *bottlerocketDemo) look(ctx context.Context) (map[string]hostState, error) {
	raw, err := kubernetes.NewForConfig(d.cluster.Config())
	if err != nil {
		return nil, err
	}
	states := map[string]hostState{}
	for _, m := range d.cluster.Machines() {
		release, err := bottlerocket.Open(m).OSRelease(ctx, "PRETTY_NAME")
		if err != nil {
			return nil, err
		}
		node, err := raw.CoreV1().Nodes().Get(ctx, m.Name(), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		states[m.Name()] = hostState{
			release: release, boot: m.BootID(), image: node.Status.NodeInfo.OSImage, told: node.Status.NodeInfo.BootID,
			unschedulable: node.Spec.Unschedulable,
		}
	}
	return states, nil
}

func prettyRelease(version string) string {
	return fmt.Sprintf("Bottlerocket OS %s (%s)", version, bottlerocket.Variant)
}

// compare prints what has changed, and fails unless every machine runs the release in another boot than before.
func (d *bottlerocketDemo) compare(after map[string]hostState) error {
	w := tabwriter.NewWriter(d.details(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tBEFORE\tAFTER\tBOOT BEFORE\tBOOT AFTER")
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, m := range d.cluster.Machines() {
		was, is := d.before[m.Name()], after[m.Name()]
		fmt.Fprintf(w, "%s\t%s\t%s\t%.8s\t%.8s\n", m.Name(), was.release, is.release, was.boot, is.boot)
		if was.release != prettyRelease(oldRelease) || is.release != prettyRelease(newRelease) {
			wrong("%s has come from %q to %q", m.Name(), was.release, is.release)
		}
		if was.boot == is.boot || is.boot == "" {
			wrong("%s has not rebooted: its boot was %q, and is %q", m.Name(), was.boot, is.boot)
		}
		if is.image != is.release || is.told != is.boot {
			wrong("the node of %s tells of %q and boot %q", m.Name(), is.image, is.told)
		}
		if is.unschedulable {
			wrong("%s is unschedulable", m.Name())
		}
	}
	return errors.Join(append(problems, w.Flush())...)
}

// witness sees every change of the nodes and of the workload.
type witness struct {
	end func() error

	mu    sync.Mutex
	turns []turn
	boots map[string][]string
	// faint are nodes that were not ready while nobody did anything to them: this machine is too busy.
	faint  map[string]bool
	fewest int32
}

// turn is for how long a node was cordoned.
type turn struct {
	node       string
	began, end time.Time
}

// watch begins to see.
func (d *bottlerocketDemo) watch(ctx context.Context) (*witness, error) {
	w := &witness{boots: map[string][]string{}, faint: map[string]bool{}, fewest: -1}
	var err error
	w.end, err = d.watchAll(ctx, func(change follow.Change) {
		switch o := change.Object.(type) {
		case *corev1.Node:
			w.seeNode(o, time.Now())
		case *appsv1.Deployment:
			w.seeWorkload(o)
		}
	})
	return w, err
}

// seeNode takes note of a node as it became.
func (w *witness) seeNode(n *corev1.Node, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	boots := w.boots[n.Name]
	if id := n.Status.NodeInfo.BootID; len(boots) == 0 || boots[len(boots)-1] != id {
		w.boots[n.Name] = append(boots, id)
	}
	var open *turn
	for i := range w.turns {
		if t := &w.turns[i]; t.node == n.Name && t.end.IsZero() {
			open = t
		}
	}
	switch away := n.Spec.Unschedulable; {
	case away && open == nil:
		w.turns = append(w.turns, turn{node: n.Name, began: now})
	case !away && open != nil:
		open.end = now
	case !away && !ready(n):
		w.faint[n.Name] = true
	}
}

func ready(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// seeWorkload takes note of how many of its pods are available.
func (w *witness) seeWorkload(d *appsv1.Deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := d.Status.AvailableReplicas; w.fewest < 0 || n < w.fewest {
		w.fewest = n
	}
}

// stop ends the watch.
func (w *witness) stop() error { return w.end() }

// tell prints what was seen, and fails unless each of so many nodes was cordoned once, alone, and rebooted once, and the workload
// had never more than one pod missing, as far as that was not this machine's fault.
func (w *witness) tell(out io.Writer, machines int) error {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IN TURN\tCORDONED\tBACK AFTER\tREBOOTS")
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	for i, t := range w.turns {
		fmt.Fprintf(table, "%s\t%s\t%.1fs\t%d\n", t.node, t.began.Format("15:04:05"), t.end.Sub(t.began).Seconds(), len(w.boots[t.node])-1)
		if t.end.IsZero() {
			wrong("%s is still cordoned", t.node)
		}
		if i > 0 && t.began.Before(w.turns[i-1].end) {
			wrong("%s was cordoned before %s was back", t.node, w.turns[i-1].node)
		}
		if seen[t.node] {
			wrong("%s was cordoned more than once", t.node)
		}
		seen[t.node] = true
		if n := len(w.boots[t.node]) - 1; n != 1 {
			wrong("%s has rebooted %d times", t.node, n)
		}
	}
	if len(seen) != machines {
		wrong("%d machines were cordoned, of %d", len(seen), machines)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe workload had never fewer than %d of its 3 pods available.\n", w.fewest)
	for _, name := range slices.Sorted(maps.Keys(w.faint)) {
		fmt.Fprintf(out, "%s was not ready for a while, by itself: this computer has too much to do.\n", name)
	}
	if w.fewest < 2 && len(w.faint) == 0 {
		wrong("the PodDisruptionBudget allows no fewer than 2 of 3 pods")
	}
	return errors.Join(problems...)
}

// nodesStatusCommand is what people know from the Bottlerocket update operator.
const nodesStatusCommand = `kubectl get nodes -o json | jq -S '.items | map(.metadata|{(.name): ` +
	`(.annotations|to_entries|map(select(.key|startswith("bottlerocket")))|from_entries)}) | add'`

// nodesStatus is what that command prints.
func nodesStatus(ctx context.Context, config *rest.Config) (string, error) {
	raw, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	nodes, err := raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.HostProtocols[0].InterfaceLabel})
	if err != nil {
		return "", err
	}
	all := map[string]map[string]string{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		said := map[string]string{}
		for key, value := range n.Annotations {
			if strings.HasPrefix(key, "bottlerocket") {
				said[key] = value
			}
		}
		all[n.Name] = said
	}
	text, err := json.MarshalIndent(all, "  ", "  ")
	return "  " + string(text), err
}
