// SPDX-License-Identifier: Apache-2.0

// Package podtemplate keeps a PodTemplate beside each ExtendedDaemonSet, by which the cluster autoscaler knows what a new
// node will have to bear.
//
//	read      the ExtendedDaemonSet, and the PodTemplate of its name
//	build     what the PodTemplate should be                                   build.go
//	judge     whose it is, and whether it is that already                      owner.go, build.go
//	write     create it, or patch it with a precondition; then Events
//
// When an ExtendedDaemonSet goes, its PodTemplate is collected as garbage.
package podtemplate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
)

// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsets/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=podtemplates,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// lookAgain is when a PodTemplate of somebody else's is looked at again which the cache does not show, so that nothing tells
// of its going.
const lookAgain = 10 * time.Minute

// Controller keeps PodTemplates.
type Controller struct {
	client client.Client
	live   client.Reader
	events *events.Recorder
	told   *told
}

// NewController returns a controller of PodTemplates; SetupWithManager makes it run. The client reads from a cache with
// CacheOptions, which shows its own writes; live reads what that cache leaves out.
func NewController(c client.Client, live client.Reader, recorder *events.Recorder) *Controller {
	return &Controller{client: c, live: live, events: recorder, told: newTold()}
}

// Reconcile keeps the PodTemplate of one ExtendedDaemonSet.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	d := &edsv1.ExtendedDaemonSet{}
	if err := c.client.Get(ctx, request.NamespacedName, d); err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading daemon set, %w", err)
	}
	if d.UID == "" || d.DeletionTimestamp != nil {
		c.told.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	want, err := build(d)
	if err != nil {
		return ctrl.Result{}, err
	}
	have := &corev1.PodTemplate{}
	err = c.client.Get(ctx, request.NamespacedName, have)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx, d, want)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading pod template, %w", err)
	}
	_, err = c.update(ctx, d, have, want)
	return c.result(d, err)
}

// create makes the PodTemplate. There may be one of that name that the cache does not show, for want of the label.
func (c *Controller) create(ctx context.Context, d *edsv1.ExtendedDaemonSet, want *corev1.PodTemplate) (ctrl.Result, error) {
	err := c.client.Create(ctx, want.DeepCopy())
	if err == nil {
		c.events.Emit(events.PodTemplateCreated(d))
		return ctrl.Result{}, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return c.result(d, fmt.Errorf("creating pod template, %w", err))
	}
	have := &corev1.PodTemplate{}
	err = c.live.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: soon}, nil // It has just gone.
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading pod template, %w", err)
	}
	ours, err := c.update(ctx, d, have, want)
	if err == nil && !ours {
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return c.result(d, err)
}

// update brings the PodTemplate to what it should be, unless it is somebody else's, which it reports.
func (c *Controller) update(ctx context.Context, d *edsv1.ExtendedDaemonSet, have, want *corev1.PodTemplate) (ours bool, err error) {
	switch whose(have, d) {
	case own:
	case predecessors:
		return false, nil // It is about to be collected.
	case foreign:
		if c.told.first(d, have.UID) {
			c.events.Emit(events.PodTemplateForeign(d))
		}
		return false, nil
	}
	if have.DeletionTimestamp != nil || same(have, want) {
		return true, nil
	}
	changed := merged(have, want)
	if err := c.client.Patch(ctx, changed, client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})); err != nil {
		return true, fmt.Errorf("writing pod template, %w", err)
	}
	c.events.Emit(events.PodTemplateUpdated(d))
	return true, nil
}

// result says what follows from an error: what the API server will refuse again is not tried again before something changes.
func (c *Controller) result(d *edsv1.ExtendedDaemonSet, err error) (ctrl.Result, error) {
	switch {
	case err == nil:
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: soon}, nil // Somebody was faster.
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil // The ExtendedDaemonSet goes as well.
	case apierrors.IsInvalid(err):
		c.events.Emit(events.PodTemplateInvalid(d, err))
		return ctrl.Result{}, nil
	default:
		return ctrl.Result{}, err
	}
}
