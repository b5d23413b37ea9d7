// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// patience is for what happens in goroutines. Nothing waits that long.
const patience = time.Minute

func node(name, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// lister lists nodes, or fails, and watches what is sent.
type lister struct {
	err   error
	watch watch.Interface
	nodes []corev1.Node
}

func (l lister) List(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
	if l.err != nil {
		return nil, l.err
	}
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: l.nodes}, nil
}

func (l lister) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return l.watch, l.err
}

func lists(err error, w watch.Interface, nodes ...corev1.Node) lister { return lister{err, w, nodes} }

// plain is a client that can't list by a watch.
type plain struct{}

func (plain) IsWatchListSemanticsUnSupported() bool { return true }

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f, w := New(plain{}), watch.NewFake()
	objects, err := Add[corev1.Node](f, lists(nil, w, *node("a", "1")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	var seen []int
	err = f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
		n := len(objects.All())
		if len(seen) == 0 {
			go w.Add(node("b", "2"))
		}
		seen = append(seen, n)
		if n == 2 {
			return true, enough
		}
		return false, nil
	})
	if !errors.Is(err, enough) || seen[0] != 1 {
		t.Errorf("it ends with %v, after it saw %v", err, seen)
	}
}

func TestRunSeesThatThereIsNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f := New(plain{})
	objects, err := Add[corev1.Node](f, lists(nil, watch.NewFake()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) { return len(objects.All()) == 0, nil }); err != nil {
		t.Error(err)
	}
}

func TestRunEnds(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no"))
	for name, tc := range map[string]struct {
		err      error
		optional bool
		denied   bool
		want     error
	}{
		"when all may be seen":              {},
		"when it may not be seen":           {err: forbidden, want: forbidden},
		"though what is optional is denied": {err: forbidden, optional: true, denied: true},
		"when the API server can't be seen": {err: errNoServer, optional: true, want: errNoServer},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f := New(plain{})
			if _, err := Add[corev1.Node](f, lists(nil, watch.NewFake(), *node("a", "1")), Options{}); err != nil {
				t.Fatal(err)
			}
			other, err := Add[corev1.Node](f, lists(tc.err, watch.NewFake()), Options{Optional: tc.optional})
			if err != nil {
				t.Fatal(err)
			}
			err = f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) { return true, nil })
			if !errors.Is(err, tc.want) || (other.Denied() != nil) != tc.denied {
				t.Errorf("it ends with %v, want %v; denied: %v", err, tc.want, other.Denied())
			}
		})
	}
}

var errNoServer = errors.New("connection refused")

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	f := New(plain{})
	if _, err := Add[corev1.Node](f, lists(nil, watch.NewFake()), Options{}); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
		cancel(stopped)
		return false, nil
	})
	if !errors.Is(err, stopped) {
		t.Errorf("it ends with %v", err)
	}
}
