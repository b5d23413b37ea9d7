// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/follow"
)

// entry is one change of one object, as it became or, deleted, as it was.
type entry struct {
	// revision orders the changes of all objects: they are of one store, which counts its writes.
	revision uint64
	deleted  bool
	object   client.Object
}

// journal sees every change of Nodes, Jobs, pods and the Plan.
type journal struct {
	t      *testing.T
	client client.WithWatch
	// failed says that it can't see any more.
	failed chan error

	mu      sync.Mutex
	entries []entry
	// latest is how the objects are now, by kind and name.
	latest map[string]client.Object
}

// newJournal begins a journal. It calls play for each pod that has begun to run.
func newJournal(ctx context.Context, t *testing.T, c client.WithWatch, play func(context.Context, *corev1.Pod)) *journal {
	t.Helper()
	j := &journal{t: t, client: c, failed: make(chan error, 4), latest: map[string]client.Object{}}
	j.follow(ctx, &corev1.NodeList{}, "", nil)
	j.follow(ctx, &batchv1.JobList{}, namespace, nil)
	played := map[string]bool{}
	j.follow(ctx, &corev1.PodList{}, namespace, func(o client.Object) {
		pod, ok := o.(*corev1.Pod)
		if ok && pod.Status.Phase == corev1.PodRunning && !played[pod.Name] {
			played[pod.Name] = true
			go play(ctx, pod)
		}
	})
	return j
}

// follow notes every change of the objects in a list of this type, and those that are there already.
func (j *journal) follow(ctx context.Context, list client.ObjectList, in string, each func(client.Object)) {
	j.t.Helper()
	if err := j.client.List(ctx, list, client.InNamespace(in)); err != nil {
		j.t.Fatal(err)
	}
	for _, o := range items(list) {
		j.note(watch.Added, o)
	}
	changes := make(chan follow.Change, 1000)
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return j.client.Watch(ctx, list, client.InNamespace(in), &client.ListOptions{Raw: &o})
	}
	revision := list.GetResourceVersion()
	go func() {
		if err := follow.Changes(ctx, begin, revision, changes); ctx.Err() == nil {
			j.failed <- fmt.Errorf("following %T, %w", list, err)
		}
		close(changes)
	}()
	go func() {
		for change := range changes {
			o, ok := change.Object.(client.Object)
			if !ok {
				j.failed <- fmt.Errorf("a watch of %T shows a %T", list, change.Object)
				return
			}
			j.note(change.Type, o)
			if each != nil && change.Type != watch.Deleted {
				each(o)
			}
		}
	}()
}

func items(list client.ObjectList) (all []client.Object) {
	switch list := list.(type) {
	case *corev1.NodeList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *batchv1.JobList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *corev1.PodList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *upgradev1.PlanList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

func (j *journal) note(change watch.EventType, o client.Object) {
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		j.failed <- fmt.Errorf("reading the resourceVersion of %s, %w", o.GetName(), err)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{revision: revision, deleted: change == watch.Deleted, object: o})
	key := fmt.Sprintf("%T %s", o, o.GetName())
	if change == watch.Deleted {
		delete(j.latest, key)
	} else {
		j.latest[key] = o
	}
}

// inOrder are all entries so far, in the order in which they happened.
func (j *journal) inOrder() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := slices.Clone(j.entries)
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// has reports whether the journal has come to where these objects are.
func (j *journal) has(objects []client.Object) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range objects {
		seen, ok := j.latest[fmt.Sprintf("%T %s", o, o.GetName())]
		if !ok || seen.GetResourceVersion() != o.GetResourceVersion() {
			return false
		}
	}
	return true
}

// now says in short how things stand.
func (j *journal) now() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var claimed, without, running, done int
	var updated int32
	jobs := map[string]*batchv1.Job{}
	version := ""
	for _, o := range j.latest {
		switch o := o.(type) {
		case *batchv1.Job:
			jobs[o.Annotations[v1alpha1.AnnotationTurn]+o.Labels[upgradev1.LabelNode]] = o
		case *upgradev1.Plan:
			version = o.Spec.Version
			if o.Status.Counts != nil {
				updated = o.Status.Counts.Updated
			}
		}
	}
	for _, o := range j.latest {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		held, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil || len(held) == 0 {
			continue
		}
		claimed++
		switch job := jobs[held[0].Turn+n.Name]; {
		case job == nil:
			without++
		case succeeded(job):
			done++
		default:
			running++
		}
	}
	return fmt.Sprintf("%s: %d nodes reported as updated, %d claimed: %d without a Job, %d with one that runs, %d with one that is done",
		version, updated, claimed, without, running, done)
}

func succeeded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

func failed(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue
	})
}
