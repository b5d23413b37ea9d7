// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// legacy knows the pods of DaemonSets that ExtendedDaemonSets take over from. It watches pods that are not ours only while
// there is such a one.
type legacy struct {
	cache cache.Cache
	woken chan event.GenericEvent

	mu sync.Mutex
	// from is which DaemonSet each ExtendedDaemonSet takes over from.
	from    map[types.NamespacedName]string
	watched []cache.Informer
	// began is when it began to watch.
	began time.Time
}

func newLegacy(c cache.Cache) *legacy {
	return &legacy{cache: c, woken: make(chan event.GenericEvent, 1), from: map[types.NamespacedName]string{}}
}

// forget drops an ExtendedDaemonSet that is gone.
func (l *legacy) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.from, key)
}

// pods are those of the DaemonSet that an ExtendedDaemonSet takes over from. kept says which of them the DaemonSet still controls: it
// would make them again, so that they can't be replaced. The others are replaced like outdated ones. They are on nodes where the
// DaemonSet makes no more, or it was deleted without them.
func (l *legacy) pods(ctx context.Context, eds *edsv1.ExtendedDaemonSet, nodes []*corev1.Node, now time.Time) (
	pods []*corev1.Pod, kept map[types.UID]bool, err error,
) {
	name, key := eds.Annotations[edsv1.AnnotationOldDaemonset], client.ObjectKeyFromObject(eds)
	if name == "" {
		l.forget(key)
		return nil, nil, l.rest(ctx)
	}
	if err := l.begin(ctx, key, name, now); err != nil {
		return nil, nil, err
	}
	var ds appsv1.DaemonSet
	if err := l.cache.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, &ds); err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("reading DaemonSet %s, %w", name, err)
	}
	var list corev1.PodList
	if err := l.cache.List(ctx, &list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing pods of DaemonSet %s, %w", name, err)
	}
	kept = map[types.UID]bool{}
	again := makesAgain(&ds, nodes)
	for i := range list.Items {
		pod := &list.Items[i]
		if !daemonset.TakesOver(eds, pod) {
			continue
		}
		pods = append(pods, pod)
		owner := metav1.GetControllerOf(pod)
		kept[pod.UID] = owner != nil && ds.UID == owner.UID && ds.DeletionTimestamp == nil && again(daemonset.NodeOf(pod))
	}
	return pods, kept, nil
}

// makesAgain says on which nodes, which are given by name, a DaemonSet would make a pod again.
func makesAgain(ds *appsv1.DaemonSet, nodes []*corev1.Node) func(node string) bool {
	placer, err := daemonset.NewPlacer(nil, &ds.Spec.Template)
	return func(node string) bool {
		i, known := slices.BinarySearchFunc(nodes, node, func(n *corev1.Node, name string) int { return strings.Compare(n.Name, name) })
		return err != nil || !known || placer.Place(nodes[i]).Create
	}
}

// begin watches pods and DaemonSets, from the first who needs it on.
func (l *legacy) begin(ctx context.Context, key types.NamespacedName, name string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from[key] = name
	for _, informer := range l.watched {
		if !informer.HasSynced() {
			if now.Sub(l.began) >= seenWithin {
				return errStillNotSeen
			}
			return errNotSeen // No other ExtendedDaemonSet waits for that.
		}
	}
	if len(l.watched) > 0 {
		return nil
	}
	l.began = now
	for _, o := range []client.Object{&corev1.Pod{}, &appsv1.DaemonSet{}} {
		informer, err := l.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T, %w", o, err)
		}
		l.watched = append(l.watched, informer)
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { l.changed(o) },
			UpdateFunc: func(_, o any) { l.changed(o) },
			DeleteFunc: func(o any) { l.changed(o) },
		}); err != nil {
			return fmt.Errorf("watching %T, %w", o, err)
		}
	}
	return errNotSeen
}

// seenWithin is how long that may take before the status tells of it: it does not pass by itself then.
const seenWithin = 10 * time.Second

// errNotSeen is said while what the watches begin with has not come, and errStillNotSeen when that takes too long.
var (
	errNotSeen      = errors.New("pods and DaemonSets, of which one is to be taken over, are not all seen yet (may they be listed and watched?)")
	errStillNotSeen = fmt.Errorf("%w", errNotSeen)
)

// changed wakes those who take over in the namespace of what has changed.
func (l *legacy) changed(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	object, ok := o.(client.Object)
	if !ok || object.GetLabels()[edsv1.LabelName] != "" {
		return
	}
	l.mu.Lock()
	var keys []types.NamespacedName
	for key := range l.from {
		if key.Namespace == object.GetNamespace() {
			keys = append(keys, key)
		}
	}
	l.mu.Unlock()
	for _, key := range keys {
		l.woken <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}
	}
}

// rest ends the watch when no ExtendedDaemonSet needs it any more.
func (l *legacy) rest(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.watched) == 0 || len(l.from) > 0 {
		return nil
	}
	for _, o := range []client.Object{&corev1.Pod{}, &appsv1.DaemonSet{}} {
		if err := l.cache.RemoveInformer(ctx, o); err != nil {
			return fmt.Errorf("ending the watch of %T, %w", o, err)
		}
	}
	l.watched = nil
	return nil
}
