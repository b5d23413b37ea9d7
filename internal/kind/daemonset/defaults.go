// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// WaveCanary is the name of the canary's wave, by which it is approved.
const WaveCanary = "canary"

// Defaulted returns a deep copy of a spec with the defaults from the comments of the fields. mode is the validation mode of canaries that
// set none. ReconcileFrequency has no default.
func Defaulted(spec *edsv1.ExtendedDaemonSetSpec, mode edsv1.ValidationMode) *edsv1.ExtendedDaemonSetSpec {
	s := spec.DeepCopy()
	s.Template.Name = ""
	fill(&s.RevisionHistoryLimit, 10)
	s.Strategy.Type = cmp.Or(s.Strategy.Type, edsv1.StrategyRollingUpdate)
	ru := &s.Strategy.RollingUpdate
	fill(&ru.MaxSurge, intstr.FromInt32(0))
	if isZero(ru.MaxSurge) {
		fill(&ru.MaxUnavailable, intstr.FromInt32(1))
	}
	fill(&ru.MaxUnavailable, intstr.FromInt32(0))
	fill(&ru.MaxPodSchedulerFailure, intstr.FromInt32(0))
	fill(&ru.MaxParallelPodCreation, 250)
	fill(&ru.SlowStartIntervalDuration, metav1.Duration{Duration: time.Minute})
	fill(&ru.SlowStartAdditiveIncrease, intstr.FromInt32(1))
	if c := s.Strategy.Canary; c != nil {
		defaultCanary(c, mode)
	}
	return s
}

func defaultCanary(c *edsv1.ExtendedDaemonSetSpecStrategyCanary, mode edsv1.ValidationMode) {
	fill(&c.Replicas, intstr.FromInt32(1))
	fill(&c.NodeSelector, metav1.LabelSelector{})
	fill(&c.AutoPause, edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{})
	fill(&c.AutoPause.Enabled, true)
	fill(&c.AutoPause.MaxRestarts, 2)
	fill(&c.AutoFail, edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{})
	fill(&c.AutoFail.Enabled, true)
	fill(&c.AutoFail.MaxRestarts, 5)
	c.ValidationMode = cmp.Or(c.ValidationMode, mode, edsv1.ValidationModeAuto)
	if c.ValidationMode == edsv1.ValidationModeAuto {
		fill(&c.Duration, metav1.Duration{Duration: 10 * time.Minute})
		fill(&c.NoRestartsDuration, metav1.Duration{Duration: 5 * time.Minute})
	}
}

// fill sets what is absent.
func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// isZero reports whether an amount is absent or nothing.
func isZero(v *intstr.IntOrString) bool { return Count(v, 100) == 0 }

// Validate returns what is invalid in a defaulted spec: each field, and its valid values. The API server refuses such a spec. Validate is for
// objects that were stored before the API server had these rules.
func Validate(spec *edsv1.ExtendedDaemonSetSpec) error {
	var problems []string
	check := func(ok bool, field, want string) {
		if !ok {
			problems = append(problems, "spec."+field+" "+want)
		}
	}
	if _, err := NewPlacer(spec.Selector, &spec.Template); err != nil {
		problems = append(problems, err.Error())
	}
	amount := func(v *intstr.IntOrString, field string) {
		_, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
		check(err == nil && !strings.HasPrefix(v.String(), "-"), field, "must be a count of 0 or more, or a percentage")
	}
	ru := &spec.Strategy.RollingUpdate
	const rolling, canary = "strategy.rollingUpdate.", "strategy.canary."
	amount(ru.MaxUnavailable, rolling+"maxUnavailable")
	amount(ru.MaxSurge, rolling+"maxSurge")
	amount(ru.MaxPodSchedulerFailure, rolling+"maxPodSchedulerFailure")
	amount(ru.SlowStartAdditiveIncrease, rolling+"slowStartAdditiveIncrease")
	check(len(problems) > 0 || !isZero(ru.MaxUnavailable) || !isZero(ru.MaxSurge), rolling+"maxUnavailable", "must be 1 or more, or 1% or more, unless maxSurge is: nothing would ever be replaced")
	check(isZero(ru.MaxUnavailable) || isZero(ru.MaxSurge), rolling+"maxUnavailable", "must be 0 or left out with maxSurge")
	check(*ru.MaxParallelPodCreation >= 1, rolling+"maxParallelPodCreation", "must be 1 or more")
	check(ru.SlowStartIntervalDuration.Duration > 0, rolling+"slowStartIntervalDuration", "must be positive")
	if c := spec.Strategy.Canary; c != nil {
		amount(c.Replicas, canary+"replicas")
		_, err := metav1.LabelSelectorAsSelector(c.NodeSelector)
		check(err == nil, canary+"nodeSelector", "must be a label selector")
		manual, fail := c.ValidationMode == edsv1.ValidationModeManual, c.AutoFail
		check(!manual || c.Duration == nil, canary+"duration", "must be left out with validationMode manual")
		check(!manual || c.NoRestartsDuration == nil, canary+"noRestartsDuration", "must be left out with validationMode manual")
		check(!*fail.Enabled || !*c.AutoPause.Enabled || *fail.MaxRestarts >= *c.AutoPause.MaxRestarts, canary+"autoFail.maxRestarts",
			fmt.Sprintf("must be %d or more, no less than autoPause.maxRestarts", *c.AutoPause.MaxRestarts))
		check(manual || !*fail.Enabled || fail.CanaryTimeout == nil || c.Duration == nil || fail.CanaryTimeout.Duration > c.Duration.Duration,
			canary+"autoFail.canaryTimeout", "must be more than duration")
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}
