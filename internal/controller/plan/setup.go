// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/turn"
)

// indexPlan finds pods and Jobs by the Plan that their label names. It leaves out finished Jobs of Moult's own turns. indexNode
// finds all Jobs of a Plan on one node.
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

// CacheOptions limits the caches to what this controller reads: one namespace, its own Jobs, and their unfinished pods. Of each object the
// caches keep only the fields that the controller uses.
func CacheOptions(o Options) map[client.Object]cache.ByObject {
	own := labels.SelectorFromSet(labels.Set{upgradev1.LabelController: o.Name})
	namespaced := map[string]cache.Config{o.Namespace: {}}
	return map[client.Object]cache.ByObject{
		newStored():      {Namespaces: namespaced, Transform: turn.Pack, SyncPeriod: ptr.To(turn.Resync)},
		&batchv1.Job{}:   {Namespaces: namespaced, Label: own, Transform: trimJob},
		&corev1.Pod{}:    {Namespaces: namespaced, Label: own, Field: fleet.PodsNotEnded, Transform: trimPod},
		&corev1.Secret{}: {Namespaces: namespaced, Transform: hashOnly},
	}
}

func trimJob(object any) (any, error) {
	if j, ok := object.(*batchv1.Job); ok {
		j.ManagedFields = nil
		j.Spec = batchv1.JobSpec{Parallelism: j.Spec.Parallelism, TTLSecondsAfterFinished: j.Spec.TTLSecondsAfterFinished}
		j.Status = batchv1.JobStatus{Conditions: j.Status.Conditions, Active: j.Status.Active, Failed: j.Status.Failed}
	}
	return object, nil
}

func trimPod(object any) (any, error) {
	if p, ok := object.(*corev1.Pod); ok {
		p.ManagedFields, p.Annotations = nil, nil
		p.Spec = corev1.PodSpec{}
		p.Status = corev1.PodStatus{
			Phase: p.Status.Phase, Conditions: p.Status.Conditions,
			InitContainerStatuses: p.Status.InitContainerStatuses, ContainerStatuses: p.Status.ContainerStatuses,
		}
	}
	return object, nil
}

// hashOnly replaces the data of Secrets by a hash, so the cache holds no secrets.
func hashOnly(object any) (any, error) {
	s, ok := object.(*corev1.Secret)
	if !ok || s.Annotations[annotationSecretHash] != "" && s.Data == nil {
		return object, nil
	}
	s.ManagedFields, s.Labels, s.Annotations = nil, nil, map[string]string{annotationSecretHash: secretHash(s)}
	s.Data, s.StringData = nil, nil
	return s, nil
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	c.channels = newChannels(ctx, c.Clock, &c.options, c.Waiting.Wake)
	indexer := m.GetFieldIndexer()
	if err := errors.Join(
		indexer.IndexField(ctx, &batchv1.Job{}, indexPlan, indexedByPlan),
		indexer.IndexField(ctx, &batchv1.Job{}, indexNode, indexedByNode),
		indexer.IndexField(ctx, &corev1.Pod{}, indexPlan, indexedByPlan),
	); err != nil {
		return fmt.Errorf("indexing jobs and pods, %w", err)
	}
	b, err := c.NewController(m, "plan.rollout", c.options.Threads, newStored(),
		fleet.Coalesce, turn.RolloutsOfNode(c.Client, groupVersionKind, c.options.Namespace, isPlan))
	if err != nil {
		return err
	}
	return b.
		Watches(&batchv1.Job{}, turn.Soon(planOfLabel)).
		Watches(&corev1.Pod{}, turn.Soon(planOfLabel)).
		Watches(&corev1.Secret{}, turn.Soon(c.plansOfSecret)).
		Complete(c)
}

// isPlan is true of each Plan: one controller carries out all.
func isPlan(*unstructured.Unstructured) bool { return true }

func planOfLabel(_ context.Context, objects ...client.Object) []reconcile.Request {
	o := objects[len(objects)-1]
	if name := o.GetLabels()[upgradev1.LabelPlan]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	}
	return nil
}

func (c *Controller) plansOfSecret(ctx context.Context, objects ...client.Object) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	turn.EachRollout(ctx, c.Client, groupVersionKind, c.options.Namespace, func(p *unstructured.Unstructured) {
		var spec struct{ Secrets []upgradev1.SecretSpec }
		_ = turn.ReadField(p, "spec", &spec) // A Plan that can't be read uses no Secret.
		if slices.ContainsFunc(spec.Secrets, func(s upgradev1.SecretSpec) bool { return s.Name == objects[0].GetName() }) {
			found[client.ObjectKeyFromObject(p)] = true
		}
	})
	return turn.Requests(found)
}
