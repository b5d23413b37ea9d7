// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
)

// +kubebuilder:rbac:groups="",resources=podtemplates,verbs=list;watch;create;patch

// retryForeign is the time before a foreign PodTemplate is looked at again. One without the label is not in the cache, so its deletion
// does not show.
const retryForeign = 10 * time.Minute

// watchPodTemplates makes the manager keep a PodTemplate for each ExtendedDaemonSet. The cluster autoscaler reads there which pods a new
// node will run. Only changes that concern the PodTemplate wake it. A PodTemplate wakes the ExtendedDaemonSet of its name, whoever owns it.
// When an ExtendedDaemonSet is deleted, garbage collection deletes its PodTemplate.
func (c *Controller) watchPodTemplates(m ctrl.Manager) error {
	copied := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(m).
		Named("podtemplate.autoscaler").
		For(&edsv1.ExtendedDaemonSet{}, builder.WithPredicates(copied)).
		Watches(&corev1.PodTemplate{}, &handler.EnqueueRequestForObject{}).
		Complete(reconcile.Func(c.keepPodTemplate))
}

// keepPodTemplate creates or updates the PodTemplate of one ExtendedDaemonSet, unless it is foreign. An invalid one is tried again only when the
// ExtendedDaemonSet changes.
func (c *Controller) keepPodTemplate(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	d := &edsv1.ExtendedDaemonSet{}
	if err := c.client.Get(ctx, request.NamespacedName, d); err != nil || d.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	want := newPodTemplate(d)
	have, happened := &corev1.PodTemplate{}, events.PodTemplateUpdated
	err := c.client.Get(ctx, request.NamespacedName, have)
	switch owner := metav1.GetControllerOfNoCopy(have); {
	case apierrors.IsNotFound(err):
		happened, err = events.PodTemplateCreated, c.client.Create(ctx, want)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the pod template, %w", err)
	case isPredecessors(owner, d): // Garbage collection deletes it in a moment.
		return ctrl.Result{}, nil
	case isForeignPodTemplate(have, d):
		return c.reportForeignPodTemplate(d)
	case have.DeletionTimestamp != nil || isCurrentPodTemplate(have, want):
		return ctrl.Result{}, nil
	default:
		changed := have.DeepCopy()
		changed.Labels, changed.Annotations, changed.Template = want.Labels, want.Annotations, want.Template
		if owner == nil {
			changed.OwnerReferences = append(changed.OwnerReferences, want.OwnerReferences...)
		}
		err = c.client.Patch(ctx, changed, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{}))
	}
	switch {
	case err == nil:
		c.events.Emit(happened(d))
	case apierrors.IsAlreadyExists(err): // It lacks the label, so the cache does not show it.
		return c.reportForeignPodTemplate(d)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The watch shows the newer PodTemplate, or its deletion, and that wakes the controller.
	case apierrors.IsInvalid(err):
		c.events.Emit(events.PodTemplateInvalid(d, err))
	default:
		return ctrl.Result{}, fmt.Errorf("writing the pod template, %w", err)
	}
	return ctrl.Result{}, nil
}

// reportForeignPodTemplate says that a PodTemplate of this name is not ours, and looks again later.
func (c *Controller) reportForeignPodTemplate(d *edsv1.ExtendedDaemonSet) (ctrl.Result, error) {
	c.events.Emit(events.PodTemplateForeign(d))
	return ctrl.Result{RequeueAfter: retryForeign}, nil
}

// newPodTemplate returns the PodTemplate of an ExtendedDaemonSet, with the same labels and annotations. It leaves out the annotation of kubectl
// apply, which describes the ExtendedDaemonSet and would mislead a kubectl apply of the PodTemplate.
func newPodTemplate(d *edsv1.ExtendedDaemonSet) *corev1.PodTemplate {
	t := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name, Labels: maps.Clone(d.Labels), Annotations: maps.Clone(d.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, edsv1.GroupVersion.WithKind(edsKind))},
		},
		Template: *d.Spec.Template.DeepCopy(),
	}
	t.Template.Name = ""
	delete(t.Annotations, corev1.LastAppliedConfigAnnotation)
	metav1.SetMetaDataLabel(&t.ObjectMeta, edsv1.AnnotationDaemonsetPod, edsv1.True)
	metav1.SetMetaDataAnnotation(&t.ObjectMeta, edsv1.AnnotationTemplateHash, daemonset.TemplateHash(&d.Spec.Template))
	return t
}

// isCurrentPodTemplate reports whether a PodTemplate is up to date. The template is compared by its hash, because the API server fills in defaults.
func isCurrentPodTemplate(have, want *corev1.PodTemplate) bool {
	return maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) &&
		metav1.GetControllerOfNoCopy(have) != nil
}

// isPredecessors reports whether the owner of a PodTemplate is a deleted ExtendedDaemonSet of the same name.
func isPredecessors(owner *metav1.OwnerReference, d *edsv1.ExtendedDaemonSet) bool {
	return owner != nil && owner.UID != d.UID && owner.Kind == edsKind && owner.Name == d.Name
}

// isForeignPodTemplate reports whether a PodTemplate has another owner, or has none and was not made for an ExtendedDaemonSet.
func isForeignPodTemplate(t *corev1.PodTemplate, d *edsv1.ExtendedDaemonSet) bool {
	if owner := metav1.GetControllerOfNoCopy(t); owner != nil {
		return owner.UID != d.UID
	}
	return t.Annotations[edsv1.AnnotationTemplateHash] == ""
}
