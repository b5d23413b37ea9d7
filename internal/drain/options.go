// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
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
	// DryRun sends every eviction as a dry run, so that no pod is evicted.
	DryRun bool
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
