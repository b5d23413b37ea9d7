// SPDX-License-Identifier: Apache-2.0

// Package daemonsetsetting writes into the status of each ExtendedDaemonsetSetting whether it applies. The controller of
// ExtendedDaemonSets applies Settings by the same rules.
//
//	read      the Settings of one ExtendedDaemonSet, and the Nodes
//	judge     each of them                                                     package kind/daemonset
//	report    one status write for each whose verdict has changed, then Events
//
// Settings depend on each other, so one reconcile judges all Settings of one ExtendedDaemonSet.
package daemonsetsetting

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
)

// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetsettings,verbs=list;watch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetsettings/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// Controller writes the status of ExtendedDaemonsetSettings.
type Controller struct {
	client client.Client
	events *events.Recorder
}

// NewController returns a controller of Settings; SetupWithManager makes it run. The client reads from a cache.
func NewController(c client.Client, recorder *events.Recorder) *Controller {
	return &Controller{client: c, events: recorder}
}

// indexReference finds Settings by the ExtendedDaemonSet that they name.
const indexReference = "reference"

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	byReference := func(o client.Object) []string { return []string{referenced(ctx, o)[0].Name} }
	if err := m.GetFieldIndexer().IndexField(ctx, &edsv1.ExtendedDaemonsetSetting{}, indexReference, byReference); err != nil {
		return fmt.Errorf("indexing settings, %w", err)
	}
	return ctrl.NewControllerManagedBy(m).
		Named("daemonsetsetting.status").
		Watches(&edsv1.ExtendedDaemonsetSetting{}, handler.EnqueueRequestsFromMapFunc(referenced), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.allReferenced), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(c)
}

// referenced returns the ExtendedDaemonSet that a Setting names.
func referenced(_ context.Context, o client.Object) []reconcile.Request {
	s, ok := o.(*edsv1.ExtendedDaemonsetSetting)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: daemonset.ReferenceOf(s)}}}
}

// allReferenced returns the ExtendedDaemonSets that Settings name. Node labels decide which Settings conflict.
func (c *Controller) allReferenced(ctx context.Context, _ client.Object) []reconcile.Request {
	var list edsv1.ExtendedDaemonsetSettingList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "settings can't be listed")
	}
	var all []reconcile.Request
	for i := range list.Items {
		all = append(all, referenced(ctx, &list.Items[i])...)
	}
	return all
}

// Reconcile judges all Settings of the ExtendedDaemonSet in the request. An empty name means Settings without a reference.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var list edsv1.ExtendedDaemonsetSettingList
	ofThis := client.MatchingFields{indexReference: request.Name}
	if err := c.client.List(ctx, &list, client.InNamespace(request.Namespace), ofThis, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing settings, %w", err)
	}
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing nodes, %w", err)
	}
	pointers := make([]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		pointers[i] = &nodes.Items[i]
	}
	var errs []error
	for _, verdict := range daemonset.JudgeSettings(list.Items, request.NamespacedName, pointers) {
		errs = append(errs, c.report(ctx, verdict))
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// report writes a Setting's status if it changed, and then the Event.
func (c *Controller) report(ctx context.Context, verdict daemonset.SettingVerdict) error {
	want := edsv1.ExtendedDaemonsetSettingStatus{Status: edsv1.SettingValid}
	if verdict.Problem != "" {
		want.Status, want.Error = edsv1.SettingError, verdict.Problem
	}
	if verdict.Setting.Status == want {
		return nil
	}
	s := verdict.Setting.DeepCopy()
	s.Status = want
	if err := c.client.Status().Patch(ctx, s, client.MergeFromWithOptions(verdict.Setting, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing status of setting %s, %w", s.Name, err))
	}
	if verdict.Problem != "" {
		c.events.Emit(events.SettingInvalid(s, verdict.Problem))
	}
	return nil
}
