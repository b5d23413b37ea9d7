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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/follow"
)

// entry is one change of one object, as it became or, deleted, as it was.
type entry struct {
	// revision orders the changes of all objects: they are of one store, which counts its writes.
	revision uint64
	deleted  bool
	object   client.Object
}

// journal sees every change of the objects that it follows.
type journal struct {
	t      *testing.T
	client client.WithWatch
	// failed says that it can't see any more.
	failed chan error

	mu      sync.Mutex
	entries []entry
	// latest is how the objects are now, by kind and name.
	latest map[string]client.Object
	// reached is how far each object has come.
	reached map[types.UID]uint64
}

func newJournal(t *testing.T, c client.WithWatch) *journal {
	return &journal{t: t, client: c, failed: make(chan error, 4), latest: map[string]client.Object{}, reached: map[types.UID]uint64{}}
}

// follow notes every change of the objects in a list of this type, and those that are there already.
func (j *journal) follow(ctx context.Context, list client.ObjectList, in string, each func(client.Object)) {
	j.t.Helper()
	if err := j.client.List(ctx, list, client.InNamespace(in)); err != nil {
		j.t.Fatal(err)
	}
	for _, o := range j.items(list) {
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

func (j *journal) items(list client.ObjectList) (all []client.Object) {
	j.t.Helper()
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("a %T has a %T in it", list, o)
		}
		all = append(all, object)
		return nil
	})
	if err != nil {
		j.t.Fatal(err)
	}
	return all
}

func (j *journal) note(change watch.EventType, o client.Object) {
	revision, err := storeRevision(o)
	if err != nil {
		j.failed <- err
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reached[o.GetUID()] = max(j.reached[o.GetUID()], revision)
	j.entries = append(j.entries, entry{revision: revision, deleted: change == watch.Deleted, object: o})
	key := fmt.Sprintf("%T %s", o, o.GetName())
	if change == watch.Deleted {
		delete(j.latest, key)
	} else {
		j.latest[key] = o
	}
}

// storeRevision is that of the write which made an object what it is.
func storeRevision(o client.Object) (uint64, error) {
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the resourceVersion of %s, %w", o.GetName(), err)
	}
	return revision, nil
}

// inOrder are all entries so far, in the order in which they happened.
func (j *journal) inOrder() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := slices.Clone(j.entries)
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// has reports whether the journal has come to where these objects are, or past it.
func (j *journal) has(objects []client.Object) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range objects {
		revision, err := storeRevision(o)
		if err != nil || j.reached[o.GetUID()] < revision {
			return false, err
		}
	}
	return true, nil
}

// see shows all objects as they are now.
func (j *journal) see(look func(map[string]client.Object)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	look(j.latest)
}
