// SPDX-License-Identifier: Apache-2.0

// Package daemonsetsetting says which ExtendedDaemonsetSettings count. That they do is the doing of the controller of
// ExtendedDaemonSets.
//
//	read      the Settings of one ExtendedDaemonSet, and the Nodes where two of them may meet
//	judge     each of them                                                     package kind/daemonset
//	report    one status write for each whose verdict is another, then Events
//
// Whether a Setting counts depends on the others, so one reconcile is about all those of one ExtendedDaemonSet.
package daemonsetsetting

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
)

// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetsettings,verbs=get;list;watch
// +kubebuilder:rbac:groups=datadoghq.com,resources=extendeddaemonsetsettings/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Controller writes the status of ExtendedDaemonsetSettings.
type Controller struct {
	client client.Client
	events *events.Recorder
}

// NewController returns a controller of Settings; SetupWithManager makes it run. The client reads from a cache.
func NewController(c client.Client, recorder *events.Recorder) *Controller {
	return &Controller{client: c, events: recorder}
}

// Reconcile judges all Settings of the ExtendedDaemonSet that the request names; with no name, those that name none.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var list edsv1.ExtendedDaemonsetSettingList
	if err := c.client.List(ctx, &list, client.InNamespace(request.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing settings, %w", err)
	}
	settings := daemonset.SettingsOf(list.Items, request.Name)
	if daemonset.MayMeet(settings) {
		var nodes corev1.NodeList
		if err := c.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, fmt.Errorf("listing nodes, %w", err)
		}
		daemonset.JudgeSettings(settings, func(yield func(map[string]string) bool) {
			for i := range nodes.Items {
				if !yield(nodes.Items[i].Labels) {
					return
				}
			}
		})
	}
	var errs []error
	for i := range settings {
		errs = append(errs, c.report(ctx, &settings[i]))
	}
	err := errors.Join(errs...)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: coalesce}, nil
	}
	return ctrl.Result{}, err
}

// report writes a Setting's status if it changed, and then the Event.
func (c *Controller) report(ctx context.Context, of *daemonset.SettingVerdict) error {
	want := edsv1.ExtendedDaemonsetSettingStatus{Status: edsv1.SettingValid}
	if of.Problem != "" {
		want.Status, want.Error = edsv1.SettingError, of.Problem
	}
	if of.Setting.Status == want {
		return nil
	}
	s := of.Setting.DeepCopy()
	s.Status = want
	if err := c.client.Status().Patch(ctx, s, client.MergeFromWithOptions(of.Setting, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // It has just gone, and its going is looked at.
		}
		return fmt.Errorf("writing status of setting %s, %w", s.Name, err)
	}
	if of.Problem != "" {
		c.events.Emit(events.SettingInvalid(s, of.Problem))
	}
	return nil
}
