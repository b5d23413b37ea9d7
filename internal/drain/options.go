// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// OnTimeout is what happens to the remaining pods when the drain times out. It does not override the options: a refused pod
// stays refused.
type OnTimeout string

const (
	// HaltOnTimeout evicts nothing more, and the drain has failed. It is the default.
	HaltOnTimeout OnTimeout = "Halt"
	// SkipOnTimeout evicts nothing more. The caller skips and releases the node, and continues with others.
	SkipOnTimeout OnTimeout = "Skip"
	// ForceOnTimeout deletes the remaining pods and ignores PodDisruptionBudgets. The drain is done when they are gone; it
	// waits for no volume.
	ForceOnTimeout OnTimeout = "Force"
)

// Options say which pods a drain may evict, and how. The zero value is the most careful drain: it evicts pods with a
// controller and without local data, within their budgets and without a timeout.
type Options struct {
	// PodSelector limits the drain to the pods that it selects. Nil selects every pod.
	PodSelector labels.Selector
	// Force also evicts pods without a controller, and those of a deleted DaemonSet.
	Force bool
	// IgnoreDaemonSets skips the pods of DaemonSets. Without it they block the drain.
	IgnoreDaemonSets bool
	// DeleteEmptyDirData also evicts pods with emptyDir volumes, whose content is lost.
	DeleteEmptyDirData bool
	// GracePeriodSeconds replaces the pods' own grace period. Nil keeps it, 0 kills at once. A pod that already terminates
	// with a longer one is evicted again with this one.
	GracePeriodSeconds *int64
	// DisableEviction deletes pods instead of evicting them, and so ignores every PodDisruptionBudget.
	DisableEviction bool
	// SkipWaitForDelete, if positive, is how long to wait for a pod after the end of its grace period. After that its node
	// will probably never end it.
	SkipWaitForDelete time.Duration
	// Timeout, if positive, is how long the drain may take, from Pass's argument since.
	Timeout time.Duration
	// OnTimeout is what happens after the timeout. Empty means HaltOnTimeout.
	OnTimeout OnTimeout
	// WaitForVolumeDetach also waits until the volumes of evicted pods are detached from the node. It lists
	// VolumeAttachments, and reads the PersistentVolumeClaims of pods that stay.
	WaitForVolumeDetach bool
}

// ended reports whether nothing more is evicted after the timeout.
func (t OnTimeout) ended() bool { return t == HaltOnTimeout || t == SkipOnTimeout }

// deadline returns when the drain times out, or zero if it has no timeout.
func (o *Options) deadline(since time.Time) time.Time {
	if o.Timeout <= 0 || since.IsZero() {
		return time.Time{}
	}
	return since.Add(o.Timeout)
}

// timedOut returns the action after the timeout, and empty before.
func (o *Options) timedOut(since, now time.Time) OnTimeout {
	if deadline := o.deadline(since); deadline.IsZero() || now.Before(deadline) {
		return ""
	}
	return cmp.Or(o.OnTimeout, HaltOnTimeout)
}

// OptionsOf returns the options of a NodeRollout's spec. Pods of the operator, and of its Jobs, always stay.
func OptionsOf(spec *v1alpha1.NodeDrain) (Options, error) {
	d := ptr.Deref(spec, v1alpha1.NodeDrain{})
	o := Options{
		Force: d.Force, IgnoreDaemonSets: true, DeleteEmptyDirData: ptr.Deref(d.DeleteEmptyDirData, true), DisableEviction: d.DisableEviction,
		GracePeriodSeconds:  d.GracePeriodSeconds,
		SkipWaitForDelete:   time.Duration(ptr.Deref(d.SkipWaitForDeleteSeconds, 0)) * time.Second,
		Timeout:             ptr.Deref(d.Timeout, metav1.Duration{}).Duration,
		OnTimeout:           OnTimeout(d.OnTimeout),
		WaitForVolumeDetach: d.WaitForVolumeDetach,
	}
	selects := ptr.Deref(d.PodSelector, metav1.LabelSelector{})
	selects.MatchExpressions = append(slices.Clip(selects.MatchExpressions),
		metav1.LabelSelectorRequirement{Key: upgradev1.LabelController, Operator: metav1.LabelSelectorOpDoesNotExist})
	var err error
	if o.PodSelector, err = metav1.LabelSelectorAsSelector(&selects); err != nil {
		return o, fmt.Errorf("spec.drain.podSelector is invalid, %w", err)
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

// NeverWait returns a config whose evictions return at once. By itself client-go obeys the Retry-After of a refused
// eviction: it would sleep ten seconds, ten times, inside one call. The error is unchanged.
func NeverWait(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/eviction") {
				resp.Header.Del("Retry-After")
			}
			return resp, err
		})
	})
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
