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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/follow"
)

// entry is one change of one object.
type entry struct {
	// revision orders the changes of all objects: one store counts its writes.
	revision uint64
	deleted  bool
	// object is what it became, or what it was when it was deleted.
	object client.Object
}

// journal sees every change of the objects that it follows.
type journal struct {
	t      *testing.T
	client client.WithWatch
	// only selects what it follows; nil for everything.
	only labels.Selector
	// failed receives why the journal sees nothing more.
	failed chan error
	// lists are what it follows.
	lists []func() (client.ObjectList, []client.ListOption)

	mu      sync.Mutex
	entries []entry
	// latest is the present state of the objects, by key.
	latest map[string]client.Object
}

func newJournal(t *testing.T, c client.WithWatch) *journal {
	return &journal{t: t, client: c, failed: make(chan error, 10), latest: map[string]client.Object{}}
}

func keyOf(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }

// find returns an object as the journal knows it, or nil.
func find[T client.Object](j *journal, name string) (found T) {
	j.see(func(latest map[string]client.Object) { found, _ = latest[fmt.Sprintf("%T %s", found, name)].(T) })
	return found
}

// follow notes every change of the objects in a list of this type, and those that are there already.
func (j *journal) follow(ctx context.Context, list client.ObjectList, in string, each func(client.Object)) {
	j.t.Helper()
	empty, ok := list.DeepCopyObject().(client.ObjectList)
	if !ok {
		j.t.Fatalf("%T is no list", list)
	}
	among := &client.ListOptions{Namespace: in, LabelSelector: j.only}
	j.lists = append(j.lists, func() (client.ObjectList, []client.ListOption) {
		again, _ := empty.DeepCopyObject().(client.ObjectList)
		return again, []client.ListOption{among}
	})
	if err := j.client.List(ctx, list, among); err != nil {
		j.t.Fatal(err)
	}
	for _, o := range items(j.t, list) {
		j.note(watch.Added, o)
	}
	changes := make(chan follow.Change, 1000)
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return j.client.Watch(ctx, empty, &client.ListOptions{Namespace: in, LabelSelector: j.only, Raw: &o})
	}
	go func() {
		defer close(changes)
		if err := follow.Changes(ctx, begin, list.GetResourceVersion(), changes); ctx.Err() == nil {
			j.failed <- fmt.Errorf("following %T, %w", list, err)
		}
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

func items(t *testing.T, list client.ObjectList) (all []client.Object) {
	t.Helper()
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("a %T has a %T in it", list, o)
		}
		all = append(all, object)
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
	if change == watch.Deleted {
		delete(j.latest, keyOf(o))
	} else {
		j.latest[keyOf(o)] = o
	}
}

// inOrder returns all entries so far, in the order in which they happened.
func (j *journal) inOrder() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := slices.Clone(j.entries)
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// complete reports whether the journal knows the same objects, in the same versions, as the API server has now.
func (j *journal) complete(ctx context.Context) (bool, error) {
	versions, count := map[string]string{}, 0
	j.see(func(latest map[string]client.Object) {
		for _, o := range latest {
			versions[string(o.GetUID())] = o.GetResourceVersion()
		}
	})
	for _, each := range j.lists {
		list, options := each()
		if err := j.client.List(ctx, list, options...); err != nil {
			return false, err
		}
		for _, o := range items(j.t, list) {
			count++
			if versions[string(o.GetUID())] != o.GetResourceVersion() {
				return false, nil
			}
		}
	}
	return count == len(versions), nil
}

// see shows all objects as the journal knows them now.
func (j *journal) see(look func(map[string]client.Object)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	look(j.latest)
}
