// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
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
type plain struct{ dynamic.Interface }

func (plain) IsWatchListSemanticsUnSupported() bool { return true }

// following is a source that follows objects.
func following() (*Source, *Feed) {
	src := &Source{Client: plain{}}
	return src, src.Follow()
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := watch.NewFake()
	src, f := following()
	nodes := lists(nil, w, *node("a", "1"))
	enough := errors.New("enough")
	var seen []int
	err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
		all, err := read[corev1.Node](ctx, src, nodes, metav1.ListOptions{}, "nodes", func(*corev1.Node) {})
		if err != nil {
			return false, err
		}
		if len(seen) == 0 {
			go w.Add(node("b", "2"))
		}
		seen = append(seen, len(all))
		if len(all) == 2 {
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
	src, f := following()
	if err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
		all, err := read[corev1.Node](ctx, src, lists(nil, watch.NewFake()), metav1.ListOptions{}, "nodes", func(*corev1.Node) {})
		return len(all) == 0, err
	}); err != nil {
		t.Error(err)
	}
}

// expiring lists nodes, but its second list is refused, as with a token that has just expired. Its watches end at once.
type expiring struct {
	lister
	lists *int
}

func (e expiring) List(ctx context.Context, o metav1.ListOptions) (*corev1.NodeList, error) {
	*e.lists++
	switch *e.lists {
	case 1:
		return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: e.nodes[:1]}, nil
	case 2:
		return nil, apierrors.NewUnauthorized("the token has expired")
	}
	return e.lister.List(ctx, o)
}

func (expiring) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, apierrors.NewResourceExpired("too old")
}

// TestRunSurvivesARefusal goes on with what was read before, says so, and recovers.
func TestRunSurvivesARefusal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	src, f := following()
	nodes := expiring{lister{nil, nil, []corev1.Node{*node("a", "1"), *node("b", "2")}}, new(int)}
	troubled := false
	if err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
		all, err := read[corev1.Node](ctx, src, nodes, metav1.ListOptions{}, "nodes", func(*corev1.Node) {})
		troubled = troubled || len(all) == 1 && apierrors.IsUnauthorized(f.Trouble())
		return len(all) == 2 && f.Trouble() == nil, err
	}); err != nil || !troubled {
		t.Errorf("it ends with %v, and said that the objects may be out of date: %v", err, troubled)
	}
}

// TestTroubleOfOneWatch stays until that watch recovers, whatever others do.
func TestTroubleOfOneWatch(t *testing.T) {
	f := &Feed{watched: map[string]*watched{"a": {}, "b": {}}, changed: make(chan struct{}, 1)}
	broken := errors.New("broken")
	f.report(f.watched["a"], &broken)
	f.report(f.watched["b"], nil)
	f.recovered(f.watched["a"], broken)
	if err := f.Trouble(); !errors.Is(err, broken) {
		t.Errorf("trouble %v, want %v", err, broken)
	}
	f.recovered(f.watched["a"], nil)
	if err := f.Trouble(); err != nil {
		t.Errorf("trouble %v after it recovered", err)
	}
}

func TestRunEnds(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no"))
	for name, tc := range map[string]struct {
		err, want error
	}{
		"when all may be seen":              {},
		"when it may not be seen":           {err: forbidden, want: forbidden},
		"when the API server can't be seen": {err: errNoServer, want: errNoServer},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			src, f := following()
			err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
				_, errFirst := read[corev1.Node](ctx, src, lists(nil, watch.NewFake(), *node("a", "1")), metav1.ListOptions{}, "nodes", func(*corev1.Node) {})
				_, err := read[corev1.Node](ctx, src, lists(tc.err, watch.NewFake()), metav1.ListOptions{}, "others", func(*corev1.Node) {})
				return true, cmp.Or(err, errFirst)
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("it ends with %v, want %v", err, tc.want)
			}
		})
	}
}

var errNoServer = errors.New("connection refused")

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	src, f := following()
	stopped := errors.New("stopped")
	err := f.Run(ctx, clock.RealClock{}, nil, func() (bool, error) {
		_, err := read[corev1.Node](ctx, src, lists(nil, watch.NewFake()), metav1.ListOptions{}, "nodes", func(*corev1.Node) {})
		if err == nil {
			cancel(stopped)
		}
		return false, err
	})
	if !errors.Is(err, stopped) {
		t.Errorf("it ends with %v", err)
	}
}
