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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/follow"
)

// daemonChange is an object as it became, or as it was when it was deleted.
type daemonChange struct {
	// revision orders the changes of all objects.
	revision uint64
	at       time.Time
	deleted  bool
	object   client.Object
}

// daemonJournal sees every change of the ExtendedDaemonSets, their revisions and the pods of a namespace.
type daemonJournal struct {
	mu      sync.Mutex
	changes []daemonChange
	// latest is the revision at which each object was seen last.
	latest map[types.UID]uint64
	err    error
}

func newDaemonJournal(t *testing.T, d *daemons) *daemonJournal {
	t.Helper()
	j := &daemonJournal{latest: map[types.UID]uint64{}}
	for _, list := range []client.ObjectList{&edsv1.ExtendedDaemonSetList{}, &edsv1.ExtendedDaemonSetReplicaSetList{}, &corev1.PodList{}} {
		if err := d.List(t.Context(), list, client.InNamespace(d.namespace)); err != nil {
			t.Fatal(err)
		}
		begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return d.Watch(ctx, list, client.InNamespace(d.namespace), &client.ListOptions{Raw: &o})
		}
		changes := make(chan follow.Change, 100)
		from := list.GetResourceVersion()
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
		if revision, err = strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
			j.changes = append(j.changes, daemonChange{revision: revision, at: time.Now(), deleted: c.Type == watch.Deleted, object: o})
			j.latest[o.GetUID()] = revision
		}
	}
	j.err = cmp.Or(j.err, err)
}

// history is what has happened up to now, in order.
func (d *daemons) history(t *testing.T) []daemonChange {
	t.Helper()
	want := map[types.UID]uint64{}
	note := func(o client.Object) {
		revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want[o.GetUID()] = revision
	}
	var sets edsv1.ExtendedDaemonSetList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&sets, &pods} {
		if err := persistently(t.Context(), func(ctx context.Context) error { return d.List(ctx, list, client.InNamespace(d.namespace)) }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sets.Items {
		note(&sets.Items[i])
	}
	for i := range pods.Items {
		note(&pods.Items[i])
	}
	var all []daemonChange
	eventually(t, "the journal is up to date", func(context.Context) (string, bool) {
		d.journal.mu.Lock()
		defer d.journal.mu.Unlock()
		if d.journal.err != nil {
			t.Fatal(d.journal.err)
		}
		for uid, revision := range want {
			if d.journal.latest[uid] < revision {
				return fmt.Sprintf("%s at %d, not %d", uid, d.journal.latest[uid], revision), false
			}
		}
		all = slices.Clone(d.journal.changes)
		return "", true
	})
	slices.SortStableFunc(all, func(a, b daemonChange) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// String says what has happened, a line for each change that matters here.
func (j *daemonJournal) String() string {
	j.mu.Lock()
	all := slices.Clone(j.changes)
	j.mu.Unlock()
	slices.SortStableFunc(all, func(a, b daemonChange) int { return cmp.Compare(a.revision, b.revision) })
	var text strings.Builder
	last := map[types.UID]string{}
	for _, c := range all {
		line := ""
		switch o := c.object.(type) {
		case *edsv1.ExtendedDaemonSet:
			s := o.Status
			line = fmt.Sprintf("eds %s generation %d/%d %q %q desired %d current %d ready %d available %d upToDate %d active %s",
				o.Name, s.ObservedGeneration, o.Generation, s.State, s.Reason, s.Desired, s.Current, s.Ready, s.Available, s.UpToDate, s.ActiveReplicaSet)
			if s.Canary != nil {
				line += fmt.Sprintf(" canary %s on %v", s.Canary.ReplicaSet, s.Canary.Nodes)
			}
		case *edsv1.ExtendedDaemonSetReplicaSet:
			line = fmt.Sprintf("ers %s %q", o.Name, o.Status.Status)
		case *corev1.Pod:
			line = fmt.Sprintf("pod %s on %s %s %s ready %t ending %t", o.Name, nodeOfPod(o), versionOf(o), o.Status.Phase, podReady(o), o.DeletionTimestamp != nil)
			for _, s := range o.Status.ContainerStatuses {
				line += fmt.Sprintf(" restarts %d", s.RestartCount)
				if w := s.State.Waiting; w != nil {
					line += " " + w.Reason
				}
			}
		}
		if c.deleted {
			line += ", and is gone"
		}
		if last[c.object.GetUID()] != line {
			fmt.Fprintf(&text, "%s %s\n", c.at.Format("15:04:05.000"), line)
		}
		last[c.object.GetUID()] = line
	}
	return text.String()
}

// states are those that an ExtendedDaemonSet has been in, each of them once in a row.
func states(all []daemonChange, name string) []edsv1.State {
	var seen []edsv1.State
	for _, c := range all {
		if e, ok := c.object.(*edsv1.ExtendedDaemonSet); ok && e.Name == name && e.Status.State != "" {
			seen = append(seen, e.Status.State)
		}
	}
	return slices.Compact(seen)
}

// whenActive is the change by which a revision became the active one; nothing if it never has.
func whenActive(all []daemonChange, name, revision string) daemonChange {
	for _, c := range all {
		if e, ok := c.object.(*edsv1.ExtendedDaemonSet); ok && e.Name == name && e.Status.ActiveReplicaSet == revision {
			return c
		}
	}
	return daemonChange{}
}

// whenReady is the change by which a pod became ready; nothing if it never has.
func whenReady(all []daemonChange, uid types.UID) daemonChange {
	for _, c := range all {
		if p, ok := c.object.(*corev1.Pod); ok && p.UID == uid && podReady(p) {
			return c
		}
	}
	return daemonChange{}
}

// saysReadySince is since when a pod was ready, as its kubelet said when it told of it; zero if it never has. The journal may
// have seen it later.
func saysReadySince(all []daemonChange, uid types.UID) time.Time {
	p, ok := whenReady(all, uid).object.(*corev1.Pod)
	if !ok {
		return time.Time{}
	}
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return p.Status.Conditions[i].LastTransitionTime.Time
}

// whenMade is when a pod was made, in whole seconds of the API server's clock, by which the operator counts, too.
func whenMade(c daemonChange) time.Time { return c.object.GetCreationTimestamp().Time }

// creations are the pods of an ExtendedDaemonSet that have been made, as they were then, with the time at which that was seen.
func creations(all []daemonChange, name string) []daemonChange {
	seen := map[types.UID]bool{}
	var made []daemonChange
	for _, c := range all {
		if p, ok := c.object.(*corev1.Pod); ok && p.Labels[edsv1.LabelName] == name && !seen[p.UID] {
			seen[p.UID] = true
			made = append(made, c)
		}
	}
	return made
}

// replay calls each after every change of a pod, with all pods that there were then.
func replay(all []daemonChange, each func(c daemonChange, pods map[types.UID]*corev1.Pod)) {
	pods := map[types.UID]*corev1.Pod{}
	for _, c := range all {
		p, ok := c.object.(*corev1.Pod)
		if !ok {
			continue
		}
		if pods[p.UID] = p; c.deleted {
			delete(pods, p.UID)
		}
		each(c, pods)
	}
}

// now is a point in the history from which on something is looked at.
func (d *daemons) now(t *testing.T) uint64 {
	t.Helper()
	all := d.history(t)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].revision
}

// mostDown is on how many of the nodes at once there was no available pod of those that belong, from a point on.
func (d *daemons) mostDown(t *testing.T, since uint64, belongs func(*corev1.Pod) bool) int {
	t.Helper()
	most := 0
	replay(d.history(t), func(c daemonChange, pods map[types.UID]*corev1.Pod) {
		if c.revision <= since {
			return
		}
		up := map[string]bool{}
		for _, p := range pods {
			if belongs(p) && podAvailable(p) {
				up[nodeOfPod(p)] = true
			}
		}
		down := 0
		for _, n := range d.nodes {
			if !up[n] {
				down++
			}
		}
		most = max(most, down)
	})
	return most
}

// of are the pods of an ExtendedDaemonSet.
func of(name string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Labels[edsv1.LabelName] == name }
}

// mostOnANode is how many pods that belong there were at once on one node, those on their way out too, and mostDouble on how
// many nodes at once there was more than one, those on their way out aside.
func (d *daemons) mostOnANode(t *testing.T, belongs func(*corev1.Pod) bool) (most, mostDouble int) {
	t.Helper()
	replay(d.history(t), func(_ daemonChange, pods map[types.UID]*corev1.Pod) {
		on, staying, double := map[string]int{}, map[string]int{}, 0
		for _, p := range pods {
			if !belongs(p) {
				continue
			}
			if on[nodeOfPod(p)]++; p.DeletionTimestamp == nil {
				staying[nodeOfPod(p)]++
			}
		}
		for node, n := range on {
			if most = max(most, n); staying[node] > 1 {
				double++
			}
		}
		mostDouble = max(mostDouble, double)
	})
	return most, mostDouble
}

// onePerNode checks that there was never a second pod of an ExtendedDaemonSet on a node before the first was gone.
func (d *daemons) onePerNode(t *testing.T, name string) {
	t.Helper()
	if most, _ := d.mostOnANode(t, of(name)); most != 1 {
		t.Errorf("there were %d pods of %s on one node, want 1 at any time", most, name)
	}
}

// neverActive checks that a revision has not been the active one.
func (d *daemons) neverActive(t *testing.T, name, revision string) {
	t.Helper()
	if c := whenActive(d.history(t), name, revision); c.object != nil {
		t.Errorf("%s was promoted at %s", revision, c.at.Format("15:04:05.000"))
	}
}
