// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// OnTimeout is what happens to the pods that are still there when the drain's time is over. It gives no leave that the
// options don't give: a pod that they refuse is refused for as long as it is there.
type OnTimeout string

const (
	// HaltOnTimeout evicts nothing more, and the drain is not done: it has failed. It is the default.
	HaltOnTimeout OnTimeout = "Halt"
	// SkipOnTimeout evicts nothing more, and the drain is not done either: whoever drains skips the node, gives it back, and
	// goes on with others.
	SkipOnTimeout OnTimeout = "Skip"
	// ForceOnTimeout deletes the rest, whatever PodDisruptionBudgets say, and is done when it is gone. It waits for no volume
	// any more.
	ForceOnTimeout OnTimeout = "Force"
)

// Options says which pods a drain may take off a node, and how. The zero value is the most careful drain: pods with a
// controller and without local data, evicted within their budgets, without a limit of time.
type Options struct {
	// PodSelector leaves alone the pods that it doesn't select. Nil selects every pod.
	PodSelector labels.Selector
	// Force also takes pods that no controller would make again, and those of a DaemonSet that is gone.
	Force bool
	// IgnoreDaemonSets leaves the pods of DaemonSets where they are. Without it they refuse the drain.
	IgnoreDaemonSets bool
	// DeleteEmptyDirData also takes pods with emptyDir volumes, whose content is lost.
	DeleteEmptyDirData bool
	// GracePeriodSeconds replaces the pods' own. Nil keeps it, 0 kills at once. A pod that already terminates with a
	// longer one is asked again with this.
	GracePeriodSeconds *int64
	// DisableEviction deletes pods instead of evicting them, and so asks no PodDisruptionBudget.
	DisableEviction bool
	// SkipWaitForDelete, if positive, stops waiting for a pod so long after the end of its grace period: its node will
	// probably never end it.
	SkipWaitForDelete time.Duration
	// Timeout, if positive, is how long the drain may take, counted from the time that the caller gives to Pass.
	Timeout time.Duration
	// OnTimeout says what happens then. Empty is HaltOnTimeout.
	OnTimeout OnTimeout
	// WaitForVolumeDetach is done only when the volumes of the pods that went are detached from the node, too. Those of pods
	// that stay are not waited for. It lists VolumeAttachments, and reads the PersistentVolumeClaims of pods that stay.
	WaitForVolumeDetach bool
	// ChunkSize, if positive, lists pods and VolumeAttachments in pages of that size. Leave it 0 with a client that reads from a cache.
	ChunkSize int64
	// DryRun asks the API server to judge every eviction and to do none.
	DryRun bool
}

// ended says that, when the time is over, nothing more is evicted.
func (t OnTimeout) ended() bool { return t == HaltOnTimeout || t == SkipOnTimeout }

// deadline is when the drain's time is over, or zero if it has no end.
func (o *Options) deadline(since time.Time) time.Time {
	if o.Timeout <= 0 || since.IsZero() {
		return time.Time{}
	}
	return since.Add(o.Timeout)
}
