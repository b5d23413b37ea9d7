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

// legacy reads the pods of DaemonSets that ExtendedDaemonSets take over from. It watches pods and DaemonSets from the first such
// ExtendedDaemonSet on, until the process ends.
type legacy struct {
	cache cache.Cache
	woken chan event.GenericEvent

	mu      sync.Mutex
	watched []cache.Informer
	began   time.Time
}

func newLegacy(c cache.Cache) *legacy {
	return &legacy{cache: c, woken: make(chan event.GenericEvent, 1)}
}

// pods are those of the DaemonSet that an ExtendedDaemonSet takes over from. kept says which of them the DaemonSet still controls: it
// would make them again, so that they can't be replaced. The others are replaced like outdated ones. They are on nodes where the
// DaemonSet makes no more, or it was deleted without them.
func (l *legacy) pods(ctx context.Context, eds *edsv1.ExtendedDaemonSet, nodes []*corev1.Node, now time.Time) (
	pods []*corev1.Pod, kept map[types.UID]bool, err error,
) {
	name := eds.Annotations[edsv1.AnnotationOldDaemonset]
	if name == "" {
		return nil, nil, nil
	}
	if err := l.watch(ctx, now); err != nil {
		return nil, nil, err
	}
	var ds appsv1.DaemonSet
	if err := l.cache.Get(ctx, types.NamespacedName{Namespace: eds.Namespace, Name: name}, &ds); err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("reading DaemonSet %s, %w", name, err)
	}
	var list corev1.PodList
	if err := l.cache.List(ctx, &list, client.InNamespace(eds.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing pods of DaemonSet %s, %w", name, err)
	}
	kept = map[types.UID]bool{}
	again := makesAgain(&ds, nodes)
	for i := range list.Items {
		if pod := &list.Items[i]; daemonset.TakesOver(eds, pod) {
			pods = append(pods, pod)
			owner := metav1.GetControllerOfNoCopy(pod)
			kept[pod.UID] = owner != nil && ds.UID == owner.UID && ds.DeletionTimestamp == nil && again(daemonset.NodeOf(pod))
		}
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

// seenWithin is how long the watches may take before the status says so: it does not pass by itself then.
const seenWithin = 10 * time.Second

// errNotSeen is returned until the watches have shown all objects, and errStillNotSeen when that takes too long.
var (
	errNotSeen      = errors.New("pods and DaemonSets, of which one is to be taken over, are not all seen yet (may they be listed and watched?)")
	errStillNotSeen = fmt.Errorf("%w", errNotSeen)
)

// watch begins to watch pods and DaemonSets, once.
func (l *legacy) watch(ctx context.Context, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		l.began = now
	}
	for _, o := range []client.Object{&corev1.Pod{}, &appsv1.DaemonSet{}}[len(l.watched):] {
		informer, err := l.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T, %w", o, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    l.changed,
			UpdateFunc: func(_, o any) { l.changed(o) },
			DeleteFunc: l.changed,
		}); err != nil {
			return fmt.Errorf("watching %T, %w", o, err)
		}
		l.watched = append(l.watched, informer)
	}
	synced := !slices.ContainsFunc(l.watched, func(i cache.Informer) bool { return !i.HasSynced() })
	switch {
	case synced:
		return nil
	case now.Sub(l.began) < seenWithin:
		return errNotSeen
	}
	return errStillNotSeen
}

// changed wakes those that take over in the namespace of what has changed.
func (l *legacy) changed(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if object, ok := o.(client.Object); ok && object.GetLabels()[edsv1.LabelName] == "" {
		l.woken <- event.GenericEvent{Object: object}
	}
}
