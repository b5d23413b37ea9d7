// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// indexPlan finds pods by the Plan that their label names, and of the Jobs those that a Plan has to look at on any node: what
// runs, and what another controller has left. indexNode finds all its Jobs on one node.
const (
	indexPlan = "plan"
	indexNode = "plan/node"
)

func indexedByPlan(o client.Object) []string {
	if j, ok := o.(*batchv1.Job); ok && plan.Finished(j) != nil {
		if _, ours := j.Annotations[v1alpha1.AnnotationTurn]; ours {
			return nil
		}
	}
	return []string{o.GetLabels()[upgradev1.LabelPlan]}
}

func indexedByNode(o client.Object) []string {
	return []string{onNode(o.GetLabels()[upgradev1.LabelPlan], o.GetLabels()[upgradev1.LabelNode])}
}

func onNode(plan, node string) string { return plan + "/" + node }

// CacheOptions bounds the caches to what this controller reads: one namespace, its own Jobs, those of their pods that have not finished, and of each object
// the few fields that matter.
func CacheOptions(o Options) map[client.Object]cache.ByObject {
	own := labels.SelectorFromSet(labels.Set{upgradev1.LabelController: o.Name})
	namespaced := map[string]cache.Config{o.Namespace: {}}
	unfinished := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	plans := &unstructured.Unstructured{}
	plans.SetGroupVersionKind(groupVersionKind)
	return map[client.Object]cache.ByObject{
		plans:            {Namespaces: namespaced, Transform: cache.TransformStripManagedFields()},
		&batchv1.Job{}:   {Namespaces: namespaced, Label: own, Transform: trimJob},
		&corev1.Pod{}:    {Namespaces: namespaced, Label: own, Field: unfinished, Transform: trimPod},
		&corev1.Secret{}: {Namespaces: namespaced, Transform: hashOnly},
	}
}

func trimMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
}

func trimJob(object any) (any, error) {
	if j, ok := object.(*batchv1.Job); ok {
		trimMeta(&j.ObjectMeta)
		j.Spec = batchv1.JobSpec{Parallelism: j.Spec.Parallelism, TTLSecondsAfterFinished: j.Spec.TTLSecondsAfterFinished}
		j.Status = batchv1.JobStatus{Conditions: j.Status.Conditions, Active: j.Status.Active, Failed: j.Status.Failed}
	}
	return object, nil
}

func trimPod(object any) (any, error) {
	if p, ok := object.(*corev1.Pod); ok {
		trimMeta(&p.ObjectMeta)
		p.Annotations = nil
		p.Spec = corev1.PodSpec{}
		p.Status = corev1.PodStatus{
			Phase: p.Status.Phase, Conditions: p.Status.Conditions,
			InitContainerStatuses: p.Status.InitContainerStatuses, ContainerStatuses: p.Status.ContainerStatuses,
		}
	}
	return object, nil
}

// hashOnly keeps the data of Secrets out of this process's memory.
func hashOnly(object any) (any, error) {
	s, ok := object.(*corev1.Secret)
	if !ok || s.Annotations[annotationSecretHash] != "" && s.Data == nil {
		return object, nil
	}
	hash, err := secretHash(s)
	if err != nil {
		return nil, err
	}
	trimMeta(&s.ObjectMeta)
	s.Labels, s.Annotations = nil, map[string]string{annotationSecretHash: hash}
	s.Data, s.StringData = nil, nil
	return s, nil
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	c.channels = newChannels(ctx, c.Clock, &c.options)
	indexer := m.GetFieldIndexer()
	if err := errors.Join(
		indexer.IndexField(ctx, &batchv1.Job{}, indexPlan, indexedByPlan),
		indexer.IndexField(ctx, &batchv1.Job{}, indexNode, indexedByNode),
		indexer.IndexField(ctx, &corev1.Pod{}, indexPlan, indexedByPlan),
	); err != nil {
		return fmt.Errorf("indexing jobs and pods, %w", err)
	}
	if err := m.Add(manager.RunnableFunc(c.watcher.Run)); err != nil {
		return fmt.Errorf("following pods, %w", err)
	}
	plans := &unstructured.Unstructured{}
	plans.SetGroupVersionKind(groupVersionKind)
	return ctrl.NewControllerManagedBy(m).
		Named("plan.rollout").
		For(plans, builder.WithPredicates(planChanged)).
		Watches(&batchv1.Job{}, turn.Soon(planOfLabel)).
		Watches(&corev1.Pod{}, turn.Soon(planOfLabel)).
		Watches(&corev1.Node{}, turn.Soon(c.plansOfNode), builder.WithPredicates(nodeChanged)).
		Watches(&corev1.Secret{}, turn.Soon(c.plansOfSecret)).
		WatchesRawSource(source.Channel(c.Fleet.Wake(ctx, c.Waiting), turn.Soon(turn.Itself))).
		WatchesRawSource(c.woken.Source()).
		WatchesRawSource(source.Channel(c.channels.answered, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.options.Threads}).
		Complete(c)
}

func planOfLabel(_ context.Context, objects ...client.Object) []reconcile.Request {
	o := objects[len(objects)-1]
	if name := o.GetLabels()[upgradev1.LabelPlan]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	}
	return nil
}

// plansOfNode are those that select the node, as it is or as it was, and those that have a claim on it, or their mark or taint. A Plan whose
// selector can't be read harms no other.
func (c *Controller) plansOfNode(ctx context.Context, objects ...client.Object) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	note := func(holder string) {
		if name, ok := strings.CutPrefix(holder, kind+"/"+c.options.Namespace+"/"); ok {
			found[types.NamespacedName{Namespace: c.options.Namespace, Name: name}] = true
		}
	}
	for _, o := range objects {
		note(o.GetAnnotations()[v1alpha1.AnnotationCordonedBy])
		note(o.GetAnnotations()[v1alpha1.AnnotationExcludedBy])
		for _, name := range node.TaintedBy(o, kind) {
			note(kind + "/" + c.options.Namespace + "/" + name)
		}
		claims, err := v1alpha1.ParseClaims(o.GetAnnotations())
		if err != nil {
			continue
		}
		for _, claim := range claims {
			note(claim.Rollout)
		}
	}
	c.eachPlan(ctx, func(p *unstructured.Unstructured) {
		selector := nodeSelector(p)
		for _, o := range objects {
			if selector.Matches(labels.Set(o.GetLabels())) {
				found[client.ObjectKeyFromObject(p)] = true
			}
		}
	})
	return requests(found)
}

func (c *Controller) plansOfSecret(ctx context.Context, objects ...client.Object) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	c.eachPlan(ctx, func(p *unstructured.Unstructured) {
		secrets, _, _ := unstructured.NestedSlice(p.Object, "spec", "secrets")
		for _, s := range secrets {
			if secret, ok := s.(map[string]any); ok && secret["name"] == objects[0].GetName() {
				found[client.ObjectKeyFromObject(p)] = true
			}
		}
	})
	return requests(found)
}

func (c *Controller) eachPlan(ctx context.Context, do func(*unstructured.Unstructured)) {
	plans := &unstructured.UnstructuredList{}
	plans.SetGroupVersionKind(groupVersionKind)
	if err := c.Client.List(ctx, plans, client.InNamespace(c.options.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing plans")
		return
	}
	for i := range plans.Items {
		do(&plans.Items[i])
	}
}

// nodeSelector of a Plan that may be malformed: what can't be read selects nothing.
func nodeSelector(p *unstructured.Unstructured) labels.Selector {
	selects, found, err := unstructured.NestedMap(p.Object, "spec", "nodeSelector")
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

func requests(keys map[types.NamespacedName]bool) []reconcile.Request {
	all := make([]reconcile.Request, 0, len(keys))
	for key := range keys {
		all = append(all, reconcile.Request{NamespacedName: key})
	}
	return all
}

// changed lets updates through that a comparison finds to matter, and everything else.
func changed(matters func(old, now client.Object) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return matters(e.ObjectOld, e.ObjectNew) }}
}

// planChanged leaves out this controller's own status writes.
var planChanged = changed(func(old, now client.Object) bool {
	return old.GetUID() != now.GetUID() || old.GetGeneration() != now.GetGeneration() || (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!reflect.DeepEqual(old.GetLabels(), now.GetLabels()) || !reflect.DeepEqual(old.GetAnnotations(), now.GetAnnotations())
})

// nodeChanged leaves out heartbeats. Nodes come here trimmed: what is left of them matters.
var nodeChanged = changed(func(old, now client.Object) bool {
	a, okA := old.(*corev1.Node)
	b, okB := now.(*corev1.Node)
	return !okA || !okB || fleet.NodeChanged(a, b)
})
