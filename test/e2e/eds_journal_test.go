// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/follow"
)

// daemonChange is an object after a change, or before its deletion.
type daemonChange struct {
	// revision orders the changes of all objects.
	revision uint64
	deleted  bool
	object   client.Object
}

// daemonJournal holds every change of the ExtendedDaemonSets and pods of a namespace.
type daemonJournal struct {
	mu      sync.Mutex
	changes []daemonChange
	err     error
}

func newDaemonJournal(t *testing.T, d *daemons) *daemonJournal {
	t.Helper()
	j := &daemonJournal{}
	for _, list := range []client.ObjectList{&edsv1.ExtendedDaemonSetList{}, &corev1.PodList{}} {
		d.list(t, list)
		begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.Watch(ctx, list, client.InNamespace(d.namespace), &client.ListOptions{Raw: &o})
		}
		changes, from := make(chan follow.Change, 100), list.GetResourceVersion()
		go func() {
			defer close(changes)
			if err := follow.Changes(t.Context(), begin, from, changes); t.Context().Err() == nil {
				j.note(follow.Change{}, err)
			}
		}()
		go func() {
			for c := range changes {
				j.note(c, nil)
			}
		}()
	}
	return j
}

func (j *daemonJournal) note(c follow.Change, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		o := c.Object.(client.Object)
		var revision uint64
		revision, err = strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		j.changes = append(j.changes, daemonChange{revision, c.Type == watch.Deleted, o})
	}
	j.err = cmp.Or(j.err, err)
}

// sorted are the changes in the order in which they were made.
func (j *daemonJournal) sorted() ([]daemonChange, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := slices.Clone(j.changes)
	slices.SortStableFunc(all, func(a, b daemonChange) int { return cmp.Compare(a.revision, b.revision) })
	return all, j.err
}

// history is what has happened so far. It waits until the journal holds the present state of every object.
func (d *daemons) history(t *testing.T) (all []daemonChange) {
	t.Helper()
	var sets edsv1.ExtendedDaemonSetList
	var pods corev1.PodList
	d.list(t, &sets)
	d.list(t, &pods)
	want := map[types.UID]string{}
	for i := range sets.Items {
		want[sets.Items[i].UID] = sets.Items[i].ResourceVersion
	}
	for i := range pods.Items {
		want[pods.Items[i].UID] = pods.Items[i].ResourceVersion
	}
	eventually(t, "the journal is up to date", func(context.Context) (string, bool) {
		var err error
		if all, err = d.journal.sorted(); err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if want[c.object.GetUID()] == c.object.GetResourceVersion() {
				delete(want, c.object.GetUID())
			}
		}
		return fmt.Sprint("missing ", want), len(want) == 0
	})
	return all
}

// String is a line for each change that matters.
func (j *daemonJournal) String() string {
	all, err := j.sorted()
	var text strings.Builder
	last := map[types.UID]string{}
	for _, c := range all {
		line := ""
		switch o := c.object.(type) {
		case *edsv1.ExtendedDaemonSet:
			s := o.Status
			line = fmt.Sprintf("eds generation %d/%d %q %q desired %d current %d ready %d available %d upToDate %d active %s canary %+v",
				s.ObservedGeneration, o.Generation, s.State, s.Reason, s.Desired, s.Current, s.Ready, s.Available, s.UpToDate, s.ActiveReplicaSet, s.Canary)
		case *corev1.Pod:
			line = fmt.Sprintf("pod %s on %s %s %s ready %t ending %t", o.Name, nodeOfPod(o), versionOf(&o.Spec), o.Status.Phase, podReady(o), o.DeletionTimestamp != nil)
			for _, s := range o.Status.ContainerStatuses {
				line += fmt.Sprintf(" restarts %d", s.RestartCount)
			}
		}
		if c.deleted {
			line += ", deleted"
		}
		if last[c.object.GetUID()] != line {
			fmt.Fprintf(&text, "%d %s\n", c.revision, line)
		}
		last[c.object.GetUID()] = line
	}
	return fmt.Sprint(text.String(), err)
}

// wantStates compares the states that the ExtendedDaemonSet has been in.
func (d *daemons) wantStates(t *testing.T, want ...edsv1.State) {
	t.Helper()
	var seen []edsv1.State
	for _, c := range d.history(t) {
		if e, ok := c.object.(*edsv1.ExtendedDaemonSet); ok && e.Status.State != "" {
			seen = append(seen, e.Status.State)
		}
	}
	if seen = slices.Compact(seen); !slices.Equal(seen, want) {
		t.Errorf("states are %q, want %q", seen, want)
	}
}

// whenActive is the revision of the change by which an ExtendedDaemonSetReplicaSet became the active one; 0 if it never did.
func whenActive(all []daemonChange, name string) uint64 {
	for _, c := range all {
		if e, ok := c.object.(*edsv1.ExtendedDaemonSet); ok && e.Status.ActiveReplicaSet == name {
			return c.revision
		}
	}
	return 0
}

// whenMade and whenReady are the revisions of the changes by which a pod was made, and became ready; 0 if it never did.
func whenMade(all []daemonChange, uid types.UID) uint64 {
	return all[slices.IndexFunc(all, func(c daemonChange) bool { return c.object.GetUID() == uid })].revision
}

func whenReady(all []daemonChange, uid types.UID) uint64 {
	for _, c := range all {
		if p, ok := c.object.(*corev1.Pod); ok && p.UID == uid && podReady(p) {
			return c.revision
		}
	}
	return 0
}

// now is the point in the history from which disrupted looks.
func (d *daemons) now(t *testing.T) uint64 {
	t.Helper()
	if all := d.history(t); len(all) > 0 {
		return all[len(all)-1].revision
	}
	return 0
}

// disrupted checks what there was at any time since a point: at most so many nodes without a working pod, and at most so many
// nodes with two pods that stay. Without any of those there is never a second pod on a node before the first is gone. A pod
// works from when it is ready until it is deleted: a node that is not ready for a moment is not the operator's doing.
func (d *daemons) disrupted(t *testing.T, since uint64, maxDown, maxDouble int) {
	t.Helper()
	pods, worked := map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
	mostDown, mostDouble, mostOnNode := 0, 0, 0
	for _, c := range d.history(t) {
		p, ok := c.object.(*corev1.Pod)
		if !ok {
			continue
		}
		pods[p.UID], worked[p.UID] = p, worked[p.UID] || podReady(p)
		if c.deleted {
			delete(pods, p.UID)
		}
		if c.revision <= since {
			continue
		}
		up, stay, on := map[string]bool{}, map[string]int{}, map[string]int{}
		for uid, p := range pods {
			n := nodeOfPod(p)
			if on[n]++; p.DeletionTimestamp == nil {
				stay[n]++
				up[n] = up[n] || worked[uid]
			}
		}
		down, double := 0, 0
		for _, n := range d.nodes {
			if !up[n] {
				down++
			}
			if stay[n] > 1 {
				double++
			}
			mostOnNode = max(mostOnNode, on[n])
		}
		mostDown, mostDouble = max(mostDown, down), max(mostDouble, double)
	}
	if mostDown > maxDown {
		t.Errorf("%d nodes were without a working pod at once, want at most %d", mostDown, maxDown)
	}
	if mostDouble > maxDouble || maxDouble == 0 && mostOnNode > 1 {
		t.Errorf("%d nodes had two pods at once, want at most %d; at most %d pods were on one node", mostDouble, maxDouble, mostOnNode)
	}
}
