// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// OptionsOf returns the options of a NodeRollout's spec. Pods of the operator, and of its Jobs, always stay.
func OptionsOf(d *v1alpha1.NodeDrain) (Options, error) {
	apart, err := labels.NewRequirement(upgradev1.LabelController, selection.DoesNotExist, nil)
	if err != nil {
		return Options{}, err
	}
	selector := labels.NewSelector().Add(*apart)
	o := Options{IgnoreDaemonSets: true, DeleteEmptyDirData: true}
	if d == nil {
		o.PodSelector = selector
		return o, nil
	}
	if d.PodSelector != nil {
		own, err := metav1.LabelSelectorAsSelector(d.PodSelector)
		if err != nil {
			return o, fmt.Errorf("spec.drain.podSelector is invalid, %w", err)
		}
		requirements, selectable := own.Requirements()
		if !selectable {
			return o, errors.New("spec.drain.podSelector is not selectable")
		}
		selector = selector.Add(requirements...)
	}
	o.PodSelector = selector
	o.Force, o.DeleteEmptyDirData, o.DisableEviction = d.Force, ptr.Deref(d.DeleteEmptyDirData, true), d.DisableEviction
	o.GracePeriodSeconds = d.GracePeriodSeconds
	o.SkipWaitForDelete = time.Duration(ptr.Deref(d.SkipWaitForDeleteSeconds, 0)) * time.Second
	o.OnTimeout, o.WaitForVolumeDetach = OnTimeout(d.OnTimeout), d.WaitForVolumeDetach
	if d.Timeout != nil {
		o.Timeout = d.Timeout.Duration
	}
	return o, nil
}

// OptionsOfPlan returns the options of a Plan's spec.
func OptionsOfPlan(d *upgradev1.DrainSpec) (Options, error) {
	o, err := OptionsOf(&v1alpha1.NodeDrain{
		PodSelector: d.PodSelector, Force: d.Force, DisableEviction: d.DisableEviction, WaitForVolumeDetach: d.WaitForVolumeDetach,
		DeleteEmptyDirData: ptr.To(ptr.Deref(d.DeleteLocalData, true) && ptr.Deref(d.DeleteEmptydirData, true)),
	})
	o.IgnoreDaemonSets, o.OnTimeout = ptr.Deref(d.IgnoreDaemonSets, true), OnTimeout(d.OnTimeout)
	o.SkipWaitForDelete = time.Duration(d.SkipWaitForDeleteTimeout) * time.Second
	if g := d.GracePeriod; g != nil && *g >= 0 {
		o.GracePeriodSeconds = ptr.To(int64(*g))
	}
	if err == nil && d.Timeout != nil {
		if o.Timeout, err = time.ParseDuration(TimeoutOf(*d.Timeout)); err != nil {
			err = fmt.Errorf("spec.drain.timeout must be a duration such as 5m, %w", err)
		}
	}
	return o, err
}

// TimeoutOf returns the timeout of a Plan's drain as text. A number counts nanoseconds.
func TimeoutOf(t intstr.IntOrString) string {
	if t.Type == intstr.Int {
		return time.Duration(t.IntVal).String()
	}
	return t.StrVal
}
