// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
)

// MapFunc returns the rollouts to wake for an object. objects are its states before and after a change.
type MapFunc func(ctx context.Context, objects ...client.Object) []reconcile.Request

// Itself returns the object.
func Itself(_ context.Context, objects ...client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(objects[0])}}
}

// Soon enqueues the requests of an object after fleet.Coalesce, so that one reconcile covers several changes.
func Soon(requests MapFunc) handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, r := range requests(ctx, objects...) {
			q.AddAfter(r, fleet.Coalesce)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, q, e.Object) },
	}
}

// RolloutsOfNode maps a node to the NodeRollouts of one controller, for replacements or for host updates. They select the node before or after
// the change, or have a claim, a mark or a taint on it. A rollout of the other controller is included only if an earlier one of its name left
// something that only this controller removes. A selector that can't be read matches no node.
func RolloutsOfNode(c client.Reader, replacements bool) MapFunc {
	return rolloutsOfNode(c, GroupVersionKind, "", &replacements)
}

// PlansOfNode maps a node to Plans of a namespace, by the same rules.
func PlansOfNode(c client.Reader, kind schema.GroupVersionKind, namespace string) MapFunc {
	return rolloutsOfNode(c, kind, namespace, nil)
}

// rolloutsOfNode maps a node to rollouts of one kind. replacements is nil if the kind has only one controller.
func rolloutsOfNode(c client.Reader, kind schema.GroupVersionKind, namespace string, replacements *bool) MapFunc {
	prefix := node.Holder(kind.Kind, types.NamespacedName{Namespace: namespace})
	known := &selectors{all: map[types.NamespacedName]selects{}}
	return func(ctx context.Context, objects ...client.Object) []reconcile.Request {
		found, left := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
		note := func(holder string, own bool) {
			name, ok := strings.CutPrefix(holder, prefix)
			switch key := (types.NamespacedName{Namespace: namespace, Name: name}); {
			case !ok || name == "":
			case own:
				left[key] = true
			default:
				found[key] = true
			}
		}
		for _, o := range objects {
			annotations := o.GetAnnotations()
			note(annotations[v1alpha1.AnnotationCordonedBy], false)
			note(annotations[v1alpha1.AnnotationExcludedBy], false)
			note(annotations[v1alpha1.AnnotationScaleDownBy], replacements != nil && *replacements)
			for _, name := range node.TaintedBy(o, kind.Kind) {
				note(prefix+name, false)
			}
			if !strings.Contains(annotations[v1alpha1.AnnotationClaims], prefix) {
				continue // Most claims are of another kind.
			}
			claims, err := v1alpha1.ParseClaims(annotations)
			if err != nil {
				continue
			}
			for i := range claims {
				note(claims[i].Rollout, replacements != nil && (claims[i].Machine != "") == *replacements)
			}
		}
		EachRollout(ctx, c, kind, namespace, func(r *unstructured.Unstructured) {
			key := client.ObjectKeyFromObject(r)
			if replacements != nil && Replaces(r) != *replacements {
				delete(found, key)
				return
			}
			selector := known.of(r)
			for _, o := range objects {
				if selector.Matches(labels.Set(o.GetLabels())) {
					found[key] = true
				}
			}
		})
		maps.Copy(found, left)
		return Requests(found)
	}
}

// Requests returns a request for each rollout.
func Requests(keys map[types.NamespacedName]bool) []reconcile.Request {
	all := make([]reconcile.Request, 0, len(keys))
	for key := range keys {
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}

// EachRollout calls do for every rollout of a kind in the cache. An empty namespace means all.
func EachRollout(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, namespace string, do func(*unstructured.Unstructured)) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing rollouts", "kind", kind.Kind)
		return
	}
	for i := range list.Items {
		do(&list.Items[i])
	}
}

// selectors caches the node selectors of rollouts, because each change of any node needs all of them.
type selectors struct {
	mu  sync.Mutex
	all map[types.NamespacedName]selects
}

// selects is the selector of one rollout at a generation.
type selects struct {
	rollout    types.UID
	generation int64
	selector   labels.Selector
}

// forgotten is the size at which selectors is cleared, because some rollouts are gone.
const forgotten = 1000

func (s *selectors) of(r *unstructured.Unstructured) labels.Selector {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(r)
	now, ok := s.all[key]
	if uid, generation := r.GetUID(), r.GetGeneration(); !ok || now.rollout != uid || now.generation != generation {
		if len(s.all) >= forgotten {
			clear(s.all)
		}
		now = selects{uid, generation, nodeSelector(r)}
		s.all[key] = now
	}
	return now.selector
}

// nodeSelector returns the selector of a rollout. A malformed selector selects nothing.
func nodeSelector(r *unstructured.Unstructured) labels.Selector {
	selects, found, err := unstructured.NestedMap(r.Object, "spec", "nodeSelector")
	if err != nil || !found {
		return labels.Nothing()
	}
	var typed metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(selects, &typed); err != nil {
		return labels.Nothing()
	}
	selector, err := metav1.LabelSelectorAsSelector(&typed)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// changed filters updates by matters, and lets all other events through.
func changed(matters func(old, now client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return matters(e.ObjectOld, e.ObjectNew) }}
}

// Resync is how often every rollout is reconciled without a change, in case a watch has missed something.
const Resync = time.Minute

// RolloutChanged filters out the controllers' own status writes. It lets a resync of the cache through: both objects have the same version.
var RolloutChanged = changed(func(old, now client.Object) bool {
	if version := now.GetResourceVersion(); version != "" && version == old.GetResourceVersion() {
		return true
	}
	return old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID() ||
		(old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!reflect.DeepEqual(old.GetLabels(), now.GetLabels()) || !reflect.DeepEqual(old.GetAnnotations(), now.GetAnnotations())
})

// NodeChanged filters out heartbeats. The cache has trimmed the Nodes, so every difference that remains matters.
var NodeChanged = changed(fleet.NodeChanged)

// Bell enqueues rollouts for causes that no watch of the controller shows.
type Bell struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source gives the controller's queue to the Bell.
func (b *Bell) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue = q
		return nil
	})
}

// Ring enqueues a rollout after fleet.Coalesce.
func (b *Bell) Ring(rollout types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queue != nil {
		b.queue.AddAfter(reconcile.Request{NamespacedName: rollout}, fleet.Coalesce)
	}
}
