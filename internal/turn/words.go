// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"cmp"
	"math"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// Oldest returns the oldest units that a status may list.
func Oldest(list []v1alpha1.UnitStatus) []v1alpha1.UnitStatus {
	slices.SortFunc(list, func(a, b v1alpha1.UnitStatus) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return list[:min(len(list), v1alpha1.MaxListedUnits)]
}

// Average returns the moving average of the duration of turns, in seconds. The latest turn counts one quarter. before is 0 for the first turn.
func Average(before int32, took time.Duration) int32 {
	seconds := int32(min(max(1, took.Round(time.Second)/time.Second), math.MaxInt32))
	if before > 0 {
		seconds = int32((int64(before)*3 + int64(seconds) + 2) / 4)
	}
	return seconds
}

// Waiting lists the nodes that start next, and counts all waits by reason. The list omits nodes that failed, hold a slot or
// opted out. g receives the reason of the first listed node.
func Waiting(d *rollout.Decision, failed map[string]bool, g *status.Progress) (list []v1alpha1.UnitStatus, reasons map[v1alpha1.Reason]int) {
	reasons = map[v1alpha1.Reason]int{}
	for i := range d.Waiting {
		wait := &d.Waiting[i]
		reasons[wait.Reason]++
		if wait.Holds || failed[wait.Node] || wait.Reason == v1alpha1.ReasonOptedOut {
			continue
		}
		if g.Wait == "" {
			g.Wait, g.WaitMessage = wait.Reason, wait.Message
		}
		if len(list) < v1alpha1.MaxListedUnits {
			list = append(list, v1alpha1.UnitStatus{Node: wait.Node, Reason: wait.Reason, Message: wait.Message})
		}
	}
	return list, reasons
}
