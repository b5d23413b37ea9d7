// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// WaveCanary is the name of the canary among the waves, by which it is approved.
const WaveCanary = "canary"

// Defaulted is a deep copy of a spec with the defaults of all that it leaves out, as the fields' comments have them. mode is the
// controller's validation mode, for canaries that have none. ReconcileFrequency stays absent: no default waits so long.
func Defaulted(spec *edsv1.ExtendedDaemonSetSpec, mode edsv1.ValidationMode) *edsv1.ExtendedDaemonSetSpec {
	s := spec.DeepCopy()
	s.Template.Name = ""
	fill(&s.RevisionHistoryLimit, 10)
	if s.Strategy.Type == "" {
		s.Strategy.Type = edsv1.StrategyRollingUpdate
	}
	ru := &s.Strategy.RollingUpdate
	fill(&ru.MaxSurge, intstr.FromInt32(0))
	if zero(ru.MaxSurge) {
		fill(&ru.MaxUnavailable, intstr.FromInt32(1))
	} else {
		fill(&ru.MaxUnavailable, intstr.FromInt32(0))
	}
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
	if c.ValidationMode == "" {
		c.ValidationMode = mode
	}
	if c.ValidationMode == "" {
		c.ValidationMode = edsv1.ValidationModeAuto
	}
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

// or is the value, or another where it is absent.
func or[T any](value *T, absent T) T {
	if value == nil {
		return absent
	}
	return *value
}

// zero reports whether an amount is absent or nothing.
func zero(v *intstr.IntOrString) bool {
	n, _, ok := amount(v)
	return ok && n == 0
}

// Validate says what is wrong with a defaulted spec, all of it: each field by name, with what would be right. The API server says
// the same when it is asked to store such a spec, but some are older than that.
func Validate(spec *edsv1.ExtendedDaemonSetSpec) error {
	v := &problems{}
	v.selector("spec.selector", spec.Selector)
	v.check(spec.MinReadySeconds >= 0, "spec.minReadySeconds", "must be 0 or more")
	v.check(or(spec.RevisionHistoryLimit, 0) >= 0, "spec.revisionHistoryLimit", "must be 0 or more")
	pod := &spec.Template.Spec
	v.check(pod.RestartPolicy == "" || pod.RestartPolicy == corev1.RestartPolicyAlways,
		"spec.template.spec.restartPolicy", "must be Always or left out")
	v.check(pod.ActiveDeadlineSeconds == nil, "spec.template.spec.activeDeadlineSeconds", "must be left out")

	if _, err := NewPlacer(nil, &spec.Template); err != nil {
		v.check(false, "spec.template.spec.affinity", "must be one that can be read: "+err.Error())
	}

	s := &spec.Strategy
	v.check(s.Type == edsv1.StrategyRollingUpdate || s.Type == edsv1.StrategyOnDelete,
		"spec.strategy.type", "must be RollingUpdate or OnDelete")
	v.duration("spec.strategy.reconcileFrequency", s.ReconcileFrequency, 0)
	v.rollingUpdate(&s.RollingUpdate)
	if s.Canary != nil {
		v.canary(s.Canary)
	}
	v.duration("spec.strategy.soak", s.Soak, 0)
	v.amount("spec.strategy.maxFailures", s.MaxFailures, 0)
	for i := range s.Order {
		v.order(fmt.Sprintf("spec.strategy.order[%d]", i), &s.Order[i])
	}
	names := map[string]bool{}
	for i := range s.Waves {
		field := fmt.Sprintf("spec.strategy.waves[%d]", i)
		v.wave(field, &s.Waves[i])
		name := s.Waves[i].Name
		v.check(name == "" || !names[name], field+".name", "must be another than that of the waves before")
		v.check(name != WaveCanary || s.Canary == nil, field+".name", "must not be "+WaveCanary+" beside strategy.canary, which is a wave of that name")
		names[name] = true
	}
	for i := range s.Windows {
		field := fmt.Sprintf("spec.strategy.windows[%d]", i)
		v.check(s.Windows[i].Schedule != "", field+".schedule", "must be five fields of cron, such as '0 22 * * 1-5'")
		v.duration(field+".duration", &s.Windows[i].Duration, time.Minute)
	}
	if len(*v) == 0 {
		return nil
	}
	return errors.New(strings.Join(*v, "; "))
}

// problems are what was found to be wrong.
type problems []string

func (v *problems) check(ok bool, field, want string) {
	if !ok {
		*v = append(*v, field+" "+want)
	}
}

func (v *problems) rollingUpdate(ru *edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate) {
	const field = "spec.strategy.rollingUpdate."
	v.amount(field+"maxUnavailable", ru.MaxUnavailable, 0)
	v.amount(field+"maxSurge", ru.MaxSurge, 0)
	v.check(!zero(ru.MaxUnavailable) || !zero(ru.MaxSurge),
		field+"maxUnavailable", "must be 1 or more, or 1% or more, unless maxSurge is: nothing would ever be replaced")
	v.check(zero(ru.MaxUnavailable) || zero(ru.MaxSurge), field+"maxUnavailable", "must be 0 or left out with maxSurge")
	v.amount(field+"maxPodSchedulerFailure", ru.MaxPodSchedulerFailure, 0)
	v.check(or(ru.MaxParallelPodCreation, 1) >= 1, field+"maxParallelPodCreation", "must be 1 or more")
	v.duration(field+"slowStartIntervalDuration", ru.SlowStartIntervalDuration, 1)
	v.amount(field+"slowStartAdditiveIncrease", ru.SlowStartAdditiveIncrease, 1)
}

func (v *problems) canary(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) {
	const field = "spec.strategy.canary."
	v.amount(field+"replicas", c.Replicas, 1)
	v.duration(field+"duration", c.Duration, 0)
	v.duration(field+"noRestartsDuration", c.NoRestartsDuration, 0)
	v.selector(field+"nodeSelector", c.NodeSelector)
	for i, key := range c.NodeAntiAffinityKeys {
		problem := validation.IsQualifiedName(key)
		v.check(len(problem) == 0, fmt.Sprintf("%snodeAntiAffinityKeys[%d]", field, i), "must be a label's key: "+strings.Join(problem, ", "))
	}
	manual := c.ValidationMode == edsv1.ValidationModeManual
	v.check(manual || c.ValidationMode == edsv1.ValidationModeAuto, field+"validationMode", "must be auto or manual")
	v.check(!manual || c.Duration == nil, field+"duration", "must be left out with validationMode manual")
	v.check(!manual || c.NoRestartsDuration == nil, field+"noRestartsDuration", "must be left out with validationMode manual")

	pause, fail := c.AutoPause, c.AutoFail
	if pause != nil {
		v.check(or(pause.MaxRestarts, 0) >= 0, field+"autoPause.maxRestarts", "must be 0 or more")
		v.duration(field+"autoPause.maxSlowStartDuration", pause.MaxSlowStartDuration, 0)
	}
	if fail == nil {
		return
	}
	v.check(or(fail.MaxRestarts, 0) >= 0, field+"autoFail.maxRestarts", "must be 0 or more")
	v.duration(field+"autoFail.maxRestartsDuration", fail.MaxRestartsDuration, 0)
	v.duration(field+"autoFail.canaryTimeout", fail.CanaryTimeout, 0)
	if !or(fail.Enabled, true) {
		return
	}
	if pause != nil && or(pause.Enabled, true) {
		least := or(pause.MaxRestarts, 2)
		v.check(or(fail.MaxRestarts, 5) >= least, field+"autoFail.maxRestarts",
			fmt.Sprintf("must be %d or more, no less than autoPause.maxRestarts", least))
	}
	if !manual && fail.CanaryTimeout != nil && c.Duration != nil {
		v.check(fail.CanaryTimeout.Duration > c.Duration.Duration, field+"autoFail.canaryTimeout",
			fmt.Sprintf("must be more than duration, which is %s", c.Duration.Duration))
	}
}

func (v *problems) order(field string, o *v1alpha1.Order) {
	if o.By == v1alpha1.OrderLabel {
		v.check(o.Key != "", field+".key", "must be given for by: Label")
		return
	}
	v.check(o.Key == "" && len(o.Values) == 0, field, "must have a key and values only for by: Label")
}

func (v *problems) wave(field string, w *v1alpha1.Wave) {
	v.check(w.Size != nil || w.NodeSelector != nil, field, "must have a size or a nodeSelector")
	v.amount(field+".size", w.Size, 1)
	v.selector(field+".nodeSelector", w.NodeSelector)
	v.duration(field+".soak", w.Soak, 0)
}

func (v *problems) duration(field string, d *metav1.Duration, least time.Duration) {
	if d == nil || d.Duration >= least {
		return
	}
	switch least {
	case 0:
		v.check(false, field, "must not be negative")
	case 1:
		v.check(false, field, "must be positive")
	default:
		v.check(false, field, "must be "+least.String()+" or more")
	}
}

func (v *problems) amount(field string, of *intstr.IntOrString, least int) {
	if of == nil {
		return
	}
	n, most, ok := amount(of)
	v.check(ok && n >= least && n <= most, field,
		fmt.Sprintf("must be a count of %d or more, or a percentage from %d%% to 100%%, not %s", least, least, of))
}

func (v *problems) selector(field string, s *metav1.LabelSelector) {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		v.check(false, field, "must be a label selector: "+err.Error())
	}
}

// amount is a count, or a percentage, and what it may be at most; 0 when absent. It is false for what is neither.
func amount(v *intstr.IntOrString) (n, most int, ok bool) {
	if v == nil {
		return 0, 0, true
	}
	if v.Type == intstr.Int {
		return int(v.IntVal), math.MaxInt32, true
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, 100, err == nil && v.StrVal == strconv.Itoa(n)+"%"
}
