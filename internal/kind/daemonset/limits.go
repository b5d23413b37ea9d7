// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Count returns a count as it is, or a percentage of this number, rounded up. It is 0 if v is absent, invalid or negative.
func Count(v *intstr.IntOrString, of int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, of, true)
	if err != nil {
		return 0
	}
	return max(0, n)
}

// CreationLimit is how many pods may be in creation at once on so many nodes, by a valid strategy with defaults:
//
//	min((1 + ⌊(now - since) / slowStartIntervalDuration⌋) * slowStartAdditiveIncrease, maxParallelPodCreation)
//
// since is when the slow start began. next is when the limit grows by the clock alone; zero: never. The increase is at least one pod.
func CreationLimit(ru *edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate, since, now time.Time, nodes int) (limit int, next time.Time) {
	most, increase := int64(*ru.MaxParallelPodCreation), int64(max(1, Count(ru.SlowStartAdditiveIncrease, nodes)))
	interval := max(ru.SlowStartIntervalDuration.Duration, 1) // Validate refuses 0.
	intervals := min(int64(max(0, now.Sub(since))/interval), math.MaxInt32) + 1
	if intervals*increase >= most {
		return int(most), time.Time{}
	}
	return int(intervals * increase), since.Add(time.Duration(intervals) * interval)
}
