// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
)

// MapFunc returns the rollouts to wake for an object. objects are its states before and after a change.
type MapFunc func(ctx context.Context, objects ...client.Object) []reconcile.Request

// Soon enqueues the requests of an object after fleet.Coalesce, so that one reconcile covers several changes.
func Soon(requests MapFunc) handler.Funcs {
	return after(requests, func(q queue, all []reconcile.Request) {
		for _, r := range all {
			q.AddAfter(r, fleet.Coalesce)
		}
	})
}

// Wake enqueues the requests of an object after a delay: see fleet.Waiters.Add.
func Wake(w *fleet.Waiters, delay time.Duration, requests MapFunc) handler.Funcs {
	return after(requests, func(q queue, all []reconcile.Request) { w.Add(q, delay, all...) })
}

// Created enqueues a new rollout after the changes of those that are known. Thousands may be created at once.
func Created(w *fleet.Waiters) handler.Funcs {
	return handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
		w.AddLast(q, 0, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
	}}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func after(requests MapFunc, enqueue func(queue, []reconcile.Request)) handler.Funcs {
	add := func(ctx context.Context, q queue, objects ...client.Object) { enqueue(q, requests(ctx, objects...)) }
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, q, e.Object) },
	}
}

// RolloutsOfNode maps a node to rollouts of one kind: those that are own, and those that are deleted. They select the node before or after the
// change, and are valid, or have a claim, a mark or a taint on it. A selector that can't be read matches no node.
func RolloutsOfNode(c client.Reader, kind schema.GroupVersionKind, namespace string, own func(*unstructured.Unstructured) bool) MapFunc {
	prefix := node.Holder(kind.Kind, types.NamespacedName{Namespace: namespace})
	return func(ctx context.Context, objects ...client.Object) []reconcile.Request {
		found := map[types.NamespacedName]bool{}
		for _, o := range objects {
			for _, holder := range holders(o, kind.Kind, prefix) {
				if name, ok := strings.CutPrefix(holder, prefix); ok && name != "" {
					found[types.NamespacedName{Namespace: namespace, Name: name}] = true
				}
			}
		}
		labelled := slices.CompactFunc(slices.Clone(objects), func(a, b client.Object) bool { return maps.Equal(a.GetLabels(), b.GetLabels()) })
		EachRollout(ctx, c, kind, namespace, func(r *unstructured.Unstructured) {
			of := outlineOf(r)
			selects := !of.isInvalid && slices.ContainsFunc(labelled, func(o client.Object) bool { return of.selector.Matches(labels.Set(o.GetLabels())) })
			switch {
			case !selects && len(found) == 0: // Most rollouts. The other cases take longer.
			case !own(r):
				delete(found, client.ObjectKeyFromObject(r))
			case selects:
				found[client.ObjectKeyFromObject(r)] = true
			}
		})
		return Requests(found)
	}
}

// holders returns the rollouts with a mark, a taint or a claim on a node, as claims name them. prefix is what the names of a kind begin with.
func holders(o client.Object, kind, prefix string) []string {
	annotations := o.GetAnnotations()
	all := []string{
		annotations[v1alpha1.AnnotationCordonedBy], annotations[v1alpha1.AnnotationExcludedBy], annotations[v1alpha1.AnnotationScaleDownBy],
	}
	for _, name := range node.TaintedBy(o, kind) {
		all = append(all, prefix+name)
	}
	if !strings.Contains(annotations[v1alpha1.AnnotationClaims], prefix) {
		return all // Most claims are of another kind.
	}
	claims, _ := v1alpha1.ParseClaims(annotations) // Claims that can't be read name no rollout.
	for i := range claims {
		all = append(all, claims[i].Rollout)
	}
	return all
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

// changed filters updates by matters, and lets all other events through.
func changed(matters func(old, now client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return matters(e.ObjectOld, e.ObjectNew) }}
}

// IsInvalid reports whether the status of a rollout says that its present spec is invalid. No change of a node can mend that.
func IsInvalid(o client.Object) bool {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return outlineOf(o).isInvalid
	case *edsv1.ExtendedDaemonSet:
		c := edsv1.TrueCondition(o.Status.Conditions, edsv1.ConditionStalled)
		return c != nil && c.Reason == edsv1.ReasonInvalidSpec && o.Status.ObservedGeneration == o.Generation
	}
	return false
}

// Resync is how often rollouts are reconciled without a change, in case a watch has missed something. Invalid ones are not, apart from replacements:
// their turns go on, and another rollout may be in their way.
const Resync = time.Minute

// RolloutChanged filters out the controllers' own status writes, but not a person's approval. It lets a resync of the cache through: both
// objects have the same version. Created is for new rollouts.
var RolloutChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return rolloutChanged(e.ObjectOld, e.ObjectNew) },
}

func rolloutChanged(old, now client.Object) bool {
	if version := now.GetResourceVersion(); version != "" && version == old.GetResourceVersion() {
		r, ok := now.(*unstructured.Unstructured)
		return !IsInvalid(now) || ok && Replaces(r)
	}
	return old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID() ||
		(old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!reflect.DeepEqual(old.GetLabels(), now.GetLabels()) || !reflect.DeepEqual(old.GetAnnotations(), now.GetAnnotations()) ||
		!reflect.DeepEqual(approvalOf(old), approvalOf(now))
}

// approvalOf returns what the status of a rollout says about its last approval.
func approvalOf(o client.Object) *v1alpha1.WaveApproval {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return outlineOf(o).approval
	case *edsv1.ExtendedDaemonSet:
		return o.Status.Approval
	}
	return nil
}

// NodeChanged filters out heartbeats. The cache has trimmed the Nodes, so every difference that remains matters.
var NodeChanged = changed(fleet.NodeChanged)
