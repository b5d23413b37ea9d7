// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
)

// DrainOptions is the drain that a spec asks for. Pods of the operator, and of its Jobs, always stay.
func DrainOptions(d *v1alpha1.NodeDrain) (drain.Options, error) {
	apart, err := labels.NewRequirement(upgradev1.LabelController, selection.DoesNotExist, nil)
	if err != nil {
		return drain.Options{}, err
	}
	selector := labels.NewSelector().Add(*apart)
	o := drain.Options{IgnoreDaemonSets: true, DeleteEmptyDirData: true}
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
	o.OnTimeout, o.WaitForVolumeDetach = drain.OnTimeout(d.OnTimeout), d.WaitForVolumeDetach
	if d.Timeout != nil {
		o.Timeout = d.Timeout.Duration
	}
	return o, nil
}
