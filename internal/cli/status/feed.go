// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// feed keeps the objects that a live view is made of up to date, by watches.
type feed struct {
	plans, nodes, budgets cache.SharedIndexInformer
	// changed gets a value when there is something new to see.
	changed chan struct{}

	mu      sync.Mutex
	denied  bool  // Nodes may not be seen.
	unknown error // No budget will be seen.
	fatal   error // No Plan will be seen.
	trouble error // What is shown may be out of date.
}

func newFeed(src *source.Source, where source.Scope) (*feed, error) {
	f := &feed{changed: make(chan struct{}, 1)}
	f.plans = informer(src, &unstructured.Unstructured{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return src.Plans(where.Namespace).List(ctx, where.Only(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return src.Plans(where.Namespace).Watch(ctx, where.Only(o))
		},
	})
	f.nodes = informer(src, &corev1.Node{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return src.Core.Nodes().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return src.Core.Nodes().Watch(ctx, o)
		},
	})
	f.budgets = informer(src, &unstructured.Unstructured{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return src.Budgets().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return src.Budgets().Watch(ctx, o)
		},
	})
	_, errPlans := f.plans.AddEventHandler(f.handler())
	_, errNodes := f.nodes.AddEventHandler(f.handler())
	_, errBudgets := f.budgets.AddEventHandler(f.handler())
	return f, errors.Join(
		errPlans, errNodes, errBudgets,
		f.plans.SetTransform(typed), f.nodes.SetTransform(trim), f.budgets.SetTransform(budget),
		f.plans.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.failed(err, f.plans) }),
		f.nodes.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.failed(err, f.nodes) }),
		f.budgets.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.failed(err, f.budgets) }),
	)
}

func informer(src *source.Source, of runtime.Object, lw *cache.ListWatch) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, src.Client), of, 0, nil)
}

// run watches until the context ends. What the libraries would log goes nowhere: it would spoil the view.
func (f *feed) run(ctx context.Context) (wait func()) {
	ctx = klog.NewContext(ctx, logr.Discard())
	var group sync.WaitGroup
	group.Go(func() { f.plans.RunWithContext(ctx) })
	group.Go(func() { f.nodes.RunWithContext(ctx) })
	group.Go(func() { f.budgets.RunWithContext(ctx) })
	return group.Wait
}

func (f *feed) handler() cache.ResourceEventHandler {
	fresh := func() {
		f.mu.Lock()
		f.trouble = nil
		f.mu.Unlock()
		f.wake()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { fresh() },
		UpdateFunc: func(any, any) { fresh() },
		DeleteFunc: func(any) { fresh() },
	}
}

func (f *feed) wake() {
	select {
	case f.changed <- struct{}{}:
	default: // It is to be looked at already.
	}
}

// failed takes note of a watch that ended. The informer begins another.
func (f *feed) failed(err error, of cache.SharedIndexInformer) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	final := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
	switch {
	case of == f.nodes && apierrors.IsForbidden(err):
		f.denied = true
	case of == f.budgets && final:
		f.unknown = err
	case of == f.plans && (final || !f.plans.HasSynced()):
		f.fatal = source.Explain(err)
	default:
		f.trouble = err
	}
	f.wake()
}

// sight is what is to be seen at one moment.
type sight struct {
	plans   []upgradev1.Plan
	nodes   []corev1.Node // nil when they may not be seen
	budgets []v1alpha1.NodeDisruptionBudget
	// note says what is amiss with it, if anything is.
	note string
}

// look returns what is to be seen now, and false while that is not complete.
func (f *feed) look() (sight, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s sight
	if f.fatal != nil || !f.plans.HasSynced() || !f.denied && !f.nodes.HasSynced() || f.unknown == nil && !f.budgets.HasSynced() {
		return s, false, f.fatal
	}
	for _, object := range f.plans.GetStore().List() {
		s.plans = append(s.plans, *object.(*upgradev1.Plan))
	}
	if f.unknown == nil {
		for _, object := range f.budgets.GetStore().List() {
			s.budgets = append(s.budgets, *object.(*v1alpha1.NodeDisruptionBudget))
		}
	} else if apierrors.IsForbidden(f.unknown) {
		s.note = source.NoBudgets
	}
	if f.trouble != nil {
		s.note = "What is shown may be out of date: " + f.trouble.Error()
	}
	if f.denied {
		s.note = cmp.Or(s.note, source.NoNodes)
		return s, true, nil
	}
	s.nodes = []corev1.Node{}
	for _, object := range f.nodes.GetStore().List() {
		s.nodes = append(s.nodes, *object.(*corev1.Node))
	}
	return s, true, nil
}

// typed makes a Plan of what the API sent.
func typed(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		return source.DecodePlan(u), nil
	}
	return object, nil
}

// budget makes a NodeDisruptionBudget of what the API sent.
func budget(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		return source.DecodeBudget(u), nil
	}
	return object, nil
}

// trim keeps of a Node what is shown of it, and what the engine looks at.
func trim(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	n.ManagedFields = nil
	maps.DeleteFunc(n.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupName+"/") })
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	n.Status = corev1.NodeStatus{Conditions: n.Status.Conditions}
	return n, nil
}
