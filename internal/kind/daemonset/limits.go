// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Defaults of the slow start.
const (
	defaultParallelPodCreation = 250
	defaultSlowStartInterval   = time.Minute
)

// Count is a count as it is, or a percentage of so many, rounded up. It is 0 when there is none, it can't be read, or it is negative.
func Count(v *intstr.IntOrString, of int) int {
	if v == nil {
		return 0
	}
	if v.Type == intstr.Int {
		return max(0, int(v.IntVal))
	}
	digits, ok := strings.CutSuffix(v.StrVal, "%")
	percent, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || percent < 0 || of < 0 {
		return 0
	}
	return int((percent*int64(of) + 99) / 100)
}

// CreationLimit is how many pods may be in creation at once on so many nodes:
//
//	min((1 + ⌊(now - since) / slowStartIntervalDuration⌋) * slowStartAdditiveIncrease, maxParallelPodCreation)
//
// since is when the slow start began; zero: now. next is when the limit grows by the clock alone; zero: never. An increase of
// less than one pod is one, as else there would never be any, and an interval that is not positive is the default, 1m.
func CreationLimit(
	ru *edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate, since, now time.Time, nodes int,
) (limit int, next time.Time) {
	parallel, increase, interval := int64(defaultParallelPodCreation), int64(1), defaultSlowStartInterval
	if ru != nil {
		if ru.MaxParallelPodCreation != nil {
			parallel = max(0, int64(*ru.MaxParallelPodCreation))
		}
		increase = max(1, int64(Count(ru.SlowStartAdditiveIncrease, nodes)))
		if d := ru.SlowStartIntervalDuration; d != nil && d.Duration > 0 {
			interval = d.Duration
		}
	}
	start, elapsed := since, time.Duration(0)
	switch {
	case since.IsZero():
		start = now
	case since.Before(now):
		elapsed = now.Sub(since)
	}
	over := int64(elapsed / interval)
	if over >= math.MaxInt32 || (1+over)*increase >= parallel {
		return int(parallel), time.Time{}
	}
	return int((1 + over) * increase), start.Add(time.Duration(1+over) * interval)
}
