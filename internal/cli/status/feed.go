// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

// feed keeps the objects that a live view is made of up to date, by watches.
type feed struct {
	src                                *source.Source
	where                              source.Scope
	plans, sets, hosts, nodes, budgets cache.SharedIndexInformer
	// parts are what ExtendedDaemonSets consist of: they are watched once there is one that is not as it should be.
	parts *parts
	// begin watches what was added; it is nil before the feed runs.
	begin func(cache.SharedIndexInformer)
	// changed gets a value when there is something new to see.
	changed chan struct{}

	mu      sync.Mutex
	denied  map[cache.SharedIndexInformer]error // What may not be seen, and need not be.
	fatal   error                               // No rollout will be seen.
	trouble error                               // What is shown may be out of date.
}

func newFeed(src *source.Source, where source.Scope) (*feed, error) {
	f := &feed{src: src, where: where, changed: make(chan struct{}, 1), denied: map[cache.SharedIndexInformer]error{}}
	var errs [5]error
	if where.Means(target.Plan) {
		f.plans, errs[0] = f.watch(&unstructured.Unstructured{}, custom(src.Plans(where.Namespace), where), typed)
	}
	if where.Means(target.DaemonSet) {
		f.sets, errs[1] = f.watch(&unstructured.Unstructured{}, custom(src.DaemonSets(where.Namespace), where), daemonSet)
	}
	if where.Means(target.NodeRollout) {
		f.hosts, errs[4] = f.watch(&unstructured.Unstructured{}, custom(src.NodeRollouts(), where), nodeRollout)
	}
	f.nodes, errs[2] = f.watch(&corev1.Node{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return src.Core.Nodes().List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return src.Core.Nodes().Watch(ctx, o)
		},
	}, trim)
	f.budgets, errs[3] = f.watch(&unstructured.Unstructured{}, custom(src.Budgets(), source.Scope{}), budget)
	return f, errors.Join(errs[:]...)
}

// custom lists and watches custom resources of the scope's name.
func custom(of dynamic.ResourceInterface, where source.Scope) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return of.List(ctx, where.Only(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return of.Watch(ctx, where.Only(o))
		},
	}
}

// watch makes an informer of what this lists and watches.
func (f *feed) watch(of runtime.Object, lw *cache.ListWatch, transform cache.TransformFunc) (cache.SharedIndexInformer, error) {
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, f.src.Client), of, 0, nil)
	_, err := i.AddEventHandler(f.handler())
	return i, errors.Join(
		err, i.SetTransform(transform),
		i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.failed(err, i) }),
	)
}

// run watches until the context ends. What the libraries would log goes nowhere: it would spoil the view.
func (f *feed) run(ctx context.Context) (wait func()) {
	ctx = klog.NewContext(ctx, logr.Discard())
	var group sync.WaitGroup
	f.begin = func(i cache.SharedIndexInformer) {
		group.Go(func() { i.RunWithContext(ctx) })
		// That there is nothing is news, too.
		group.Go(func() {
			select {
			case <-i.HasSyncedChecker().Done():
				f.wake()
			case <-ctx.Done():
			}
		})
	}
	for _, i := range append(f.rollouts(), f.nodes, f.budgets) {
		f.begin(i)
	}
	return group.Wait
}

// rollouts are the informers of the kinds of rollouts that are meant.
func (f *feed) rollouts() []cache.SharedIndexInformer {
	var all []cache.SharedIndexInformer
	for _, i := range []cache.SharedIndexInformer{f.plans, f.sets, f.hosts} {
		if i != nil {
			all = append(all, i)
		}
	}
	return all
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
	case of == f.nodes && apierrors.IsForbidden(err), of != f.nodes && final:
		f.denied[of] = err
	case slices.Contains(f.rollouts(), of) && !of.HasSynced():
		f.fatal = source.ExplainOf(f.kindOf(of), err)
	default:
		f.trouble = err
	}
	f.wake()
}

// kindOf is the kind of rollouts that an informer is of.
func (f *feed) kindOf(of cache.SharedIndexInformer) *target.Kind {
	switch of {
	case f.sets:
		return target.DaemonSet
	case f.hosts:
		return target.NodeRollout
	}
	return target.Plan
}

// sight is what is to be seen at one moment.
type sight struct {
	plans   []upgradev1.Plan
	daemons view.Daemons
	hosts   []v1alpha1.NodeRollout
	nodes   []corev1.Node // nil when they may not be seen
	budgets []v1alpha1.NodeDisruptionBudget
	// note says what is amiss with it, if anything is.
	note string
}

// rollouts is how many there are.
func (s *sight) rollouts() int { return len(s.plans) + len(s.daemons.Sets) + len(s.hosts) }

// look returns what is to be seen now, and false while that is not complete.
func (f *feed) look() (sight, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var s sight
	kinds := f.rollouts()
	var gone []source.Hidden
	for _, i := range kinds {
		if err := f.denied[i]; err != nil {
			gone = append(gone, source.Hidden{Kind: f.kindOf(i), Err: err})
		}
	}
	switch {
	case f.fatal != nil:
		return s, false, f.fatal
	case len(gone) == len(kinds):
		return s, false, source.ExplainOf(gone[0].Kind, gone[0].Err)
	}
	for _, i := range append(kinds, f.nodes, f.budgets) {
		if f.denied[i] == nil && !i.HasSynced() {
			return s, false, nil
		}
	}
	var notes []string
	if f.trouble != nil {
		notes = append(notes, "What is shown may be out of date: "+f.trouble.Error())
	}
	if len(gone) > 0 {
		notes = append(notes, source.Unseen(gone...))
	}
	s.plans = stored[upgradev1.Plan](f.plans)
	s.daemons.Sets = stored[edsv1.ExtendedDaemonSet](f.sets)
	s.hosts = stored[v1alpha1.NodeRollout](f.hosts)
	if err := f.denied[f.plans]; err != nil && s.rollouts() == 0 {
		return s, false, source.Explain(err) // Nothing is to be seen for lack of them.
	}
	said, complete := f.lookAtParts(&s.daemons)
	if !complete {
		return s, false, nil
	}
	notes = append(notes, said...)
	s.budgets = stored[v1alpha1.NodeDisruptionBudget](f.budgets)
	if apierrors.IsForbidden(f.denied[f.budgets]) {
		notes = append(notes, source.NoBudgets)
	}
	if f.denied[f.nodes] != nil {
		notes = append(notes, source.NoNodes)
	} else {
		s.nodes = append([]corev1.Node{}, stored[corev1.Node](f.nodes)...)
	}
	s.note = strings.Join(notes, " ")
	return s, true, nil
}

// stored are the objects of an informer, by namespace and name; none of one that is not there.
func stored[T any](i cache.SharedIndexInformer) []T {
	if i == nil {
		return nil
	}
	store := i.GetStore()
	keys := store.ListKeys()
	slices.Sort(keys)
	all := make([]T, 0, len(keys))
	for _, key := range keys {
		if object, ok, _ := store.GetByKey(key); ok {
			all = append(all, *object.(*T))
		}
	}
	return all
}

// typed makes a Plan of what the API sent.
func typed(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		return source.DecodePlan(u), nil
	}
	return object, nil
}

// daemonSet makes an ExtendedDaemonSet of what the API sent.
func daemonSet(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		return source.DecodeDaemonSet(u), nil
	}
	return object, nil
}

// nodeRollout makes a NodeRollout of what the API sent.
func nodeRollout(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
		return source.DecodeNodeRollout(u), nil
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
	maps.DeleteFunc(n.Annotations, func(key, value string) bool { return !shows(key, value) })
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints, ProviderID: n.Spec.ProviderID}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	n.Status = corev1.NodeStatus{
		Conditions: n.Status.Conditions, NodeInfo: corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID, OSImage: n.Status.NodeInfo.OSImage},
	}
	return n, nil
}

// shows reports whether an annotation of a Node says something here: one of Moult's own or of a host's agent, one for daemons, or one that
// has the value for which a reboot may wait.
func shows(key, value string) bool {
	if value == "true" || strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, edsv1.AnnotationResourcesPrefix) {
		return true
	}
	return slices.ContainsFunc(v1alpha1.HostProtocols, func(p v1alpha1.HostProtocol) bool {
		return slices.Contains([]string{p.Wanted, p.Active, p.State, p.Update}, key)
	})
}
