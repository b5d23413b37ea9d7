// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pod := func(kind watch.EventType, revision string) watch.Event {
		return watch.Event{Type: kind, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: revision}}}
	}
	gone := apierrors.NewResourceExpired("too old").Status()
	// What each watch in turn says before the API server ends it.
	watches := [][]watch.Event{
		{pod(watch.Added, "2"), pod(watch.Bookmark, "5")},
		{},
		{pod(watch.Modified, "6"), pod(watch.Deleted, "7")},
		{{Type: watch.Error, Object: &gone}},
	}
	var begun []string
	begin := func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w := watch.NewFakeWithChanSize(10, false)
		for _, e := range watches[len(begun)] {
			w.Action(e.Type, e.Object)
		}
		begun = append(begun, o.ResourceVersion)
		// What is buffered is still to be read.
		w.Stop()
		return w, nil
	}
	changes := make(chan Change, 10)
	err := Changes(ctx, begin, "1", changes)
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("got error %v", err)
	}
	close(changes)
	var got []string
	for c := range changes {
		got = append(got, string(c.Type)+" "+c.Object.GetResourceVersion())
	}
	if diff := cmp.Diff([]string{"ADDED 2", "MODIFIED 6", "DELETED 7"}, got); diff != "" {
		t.Errorf("changes (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1", "5", "5", "7"}, begun); diff != "" {
		t.Errorf("where watches began (-want +got)\n%s", diff)
	}
}

// A watch that fails is begun again where it was, but not for ever.
func TestChangesBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := apierrors.NewServiceUnavailable("busy").Status()
		seen := watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}}}
		var begun []string
		begin := func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			begun = append(begun, o.ResourceVersion)
			if len(begun) != most-1 {
				return nil, apierrors.NewInternalError(errors.New("busy"))
			}
			w := watch.NewFakeWithChanSize(2, false)
			w.Action(seen.Type, seen.Object)
			w.Action(watch.Error, &busy)
			w.Stop()
			return w, nil
		}
		changes := make(chan Change, 10)
		if err := Changes(t.Context(), begin, "1", changes); !apierrors.IsInternalError(err) {
			t.Errorf("got error %v", err)
		}
		want := append(slices.Repeat([]string{"1"}, most-1), slices.Repeat([]string{"2"}, most-1)...)
		if diff := cmp.Diff(want, begun); diff != "" || len(changes) != 1 {
			t.Errorf("%d changes, where watches began (-want +got)\n%s", len(changes), diff)
		}
	})
}

func TestChangesEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	begin := func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		w := watch.NewFake()
		cancel(enough)
		w.Stop()
		return w, nil
	}
	if err := Changes(ctx, begin, "1", nil); !errors.Is(err, enough) {
		t.Errorf("got error %v", err)
	}
}
