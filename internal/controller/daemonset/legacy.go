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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/turn"
)

// legacy watches all pods and DaemonSets of some namespaces: those with an ExtendedDaemonSet that replaces a DaemonSet. A watch ends with the
// process.
type legacy struct {
	// start runs a cache, and watch makes the controller watch a source.
	start func(manager.Runnable) error
	watch func(source.Source) error

	mu         sync.Mutex
	namespaces map[string]*legacyCache
}

// legacyCache has the pods and DaemonSets of one namespace. The client writes pods, and reads its own writes.
type legacyCache struct {
	cache.Cache
	pods  client.Client
	began time.Time
}

// gatherLegacy reads the pods of the ExtendedDaemonSet, and of the DaemonSet that it replaces. A pod that the DaemonSet would create
// again is Recreated: it can't be replaced. The other pods of the DaemonSet are replaced like outdated pods. The DaemonSet creates no pods on their
// nodes any more, or it was deleted without its pods.
func (p *pass) gatherLegacy(ctx context.Context, facts *daemonset.Facts) error {
	watched, err := p.watchLegacy(ctx)
	if err != nil {
		return err
	}
	p.pods = watched.pods
	var ds appsv1.DaemonSet
	key := types.NamespacedName{Namespace: p.key.Namespace, Name: p.stored.Annotations[edsv1.AnnotationOldDaemonset]}
	if err := watched.Get(ctx, key, &ds); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading DaemonSet %s, %w", key.Name, err)
	}
	var list corev1.PodList
	if err := p.pods.List(ctx, &list, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing pods of DaemonSet %s, %w", key.Name, err)
	}
	facts.Recreated = map[types.UID]bool{}
	createsAgain := createsAgain(&ds, facts.Nodes)
	for i := range list.Items {
		switch pod := &list.Items[i]; {
		case daemonset.TakesOver(p.stored, pod):
			facts.Pods = append(facts.Pods, pod)
			owner := metav1.GetControllerOfNoCopy(pod)
			facts.Recreated[pod.UID] = owner != nil && ds.UID == owner.UID && ds.DeletionTimestamp == nil && createsAgain(daemonset.NodeOf(pod))
		case pod.Labels[edsv1.LabelName] == p.key.Name && daemonset.IsDaemonPod(pod):
			facts.Pods = append(facts.Pods, pod)
		}
	}
	return nil
}

// createsAgain returns a function that reports whether a DaemonSet would create a pod again on a node, by name.
func createsAgain(ds *appsv1.DaemonSet, nodes []*corev1.Node) func(node string) bool {
	placer, err := daemonset.NewPlacer(nil, &ds.Spec.Template)
	return func(node string) bool {
		i, known := slices.BinarySearchFunc(nodes, node, func(n *corev1.Node, name string) int { return strings.Compare(n.Name, name) })
		return err != nil || !known || placer.Place(nodes[i]).Create
	}
}

// seenWithin is how long the watches may take to sync. After that the status shows the problem.
const seenWithin = 10 * time.Second

// errNotSeen is returned until the watches have shown all objects, and errStillNotSeen when that takes too long.
var (
	errNotSeen      = errors.New("the pods and the DaemonSet that are taken over are not all known yet (may they be listed and watched?)")
	errStillNotSeen = fmt.Errorf("%w", errNotSeen)
)

// watchLegacy starts the watches of a namespace's pods and DaemonSets once. It returns an error until they have synced.
func (p *pass) watchLegacy(ctx context.Context) (*legacyCache, error) {
	l := p.legacy
	l.mu.Lock()
	defer l.mu.Unlock()
	objects := []client.Object{&corev1.Pod{}, &appsv1.DaemonSet{}}
	watched := l.namespaces[p.key.Namespace]
	if watched == nil {
		pods, through, err := p.newLegacy(p.key.Namespace)
		if err == nil {
			err = l.start(pods)
		}
		if err != nil {
			return nil, fmt.Errorf("starting a cache of pods, %w", err)
		}
		for _, o := range objects {
			if err := l.watch(source.Kind(pods, o, turn.Soon(p.ofReplaced))); err != nil {
				return nil, fmt.Errorf("watching %T, %w", o, err)
			}
		}
		watched = &legacyCache{pods, through, p.now}
		l.namespaces[p.key.Namespace] = watched
	}
	for _, o := range objects {
		switch informer, err := watched.GetInformer(ctx, o, cache.BlockUntilSynced(false)); {
		case err != nil:
			return nil, fmt.Errorf("watching %T, %w", o, err)
		case informer.HasSynced():
		case p.now.Sub(watched.began) < seenWithin:
			return nil, errNotSeen
		default:
			return nil, errStillNotSeen
		}
	}
	return watched, nil
}

// ofReplaced returns the ExtendedDaemonSets that take over a pod, or replace a DaemonSet, before or after a change.
func (c *Controller) ofReplaced(ctx context.Context, objects ...client.Object) []reconcile.Request {
	if objects[0].GetLabels()[edsv1.LabelName] != "" {
		return nil // Most pods. No ExtendedDaemonSet takes them over.
	}
	return c.listed(ctx, objects[0].GetNamespace(), func(eds *edsv1.ExtendedDaemonSet) bool {
		return slices.ContainsFunc(objects, func(o client.Object) bool {
			pod, isPod := o.(*corev1.Pod)
			return isPod && daemonset.TakesOver(eds, pod) || !isPod && o.GetName() == eds.Annotations[edsv1.AnnotationOldDaemonset]
		})
	}, client.MatchingFields{indexSelected: anyNode})
}
