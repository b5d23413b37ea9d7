// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

type (
	spec   = edsv1.ExtendedDaemonSetSpec
	update = edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate

	canarySpec = edsv1.ExtendedDaemonSetSpecStrategyCanary
	pauseSpec  = edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause
	failSpec   = edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail
)

func count(n int32) *intstr.IntOrString { return ptr.To(intstr.FromInt32(n)) }

func percent(text string) *intstr.IntOrString { return ptr.To(intstr.FromString(text)) }

func lasting(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// defaults are those of a spec that says nothing.
func defaults() *spec {
	return &spec{
		RevisionHistoryLimit: ptr.To[int32](10),
		Strategy: edsv1.ExtendedDaemonSetSpecStrategy{
			Type: edsv1.StrategyRollingUpdate,
			RollingUpdate: update{
				MaxUnavailable: count(1), MaxSurge: count(0), MaxPodSchedulerFailure: count(0), MaxParallelPodCreation: ptr.To[int32](250),
				SlowStartIntervalDuration: lasting(time.Minute), SlowStartAdditiveIncrease: count(1),
			},
		},
	}
}

// canaryDefaults are those of a canary that says nothing.
func canaryDefaults() *canarySpec {
	return &canarySpec{
		Replicas: count(1), Duration: lasting(10 * time.Minute), NoRestartsDuration: lasting(5 * time.Minute), NodeSelector: &metav1.LabelSelector{},
		AutoPause:      &pauseSpec{Enabled: ptr.To(true), MaxRestarts: ptr.To[int32](2)},
		AutoFail:       &failSpec{Enabled: ptr.To(true), MaxRestarts: ptr.To[int32](5)},
		ValidationMode: edsv1.ValidationModeAuto,
	}
}

type change = func(*spec)

func changed(s *spec, all ...change) *spec {
	for _, c := range all {
		c(s)
	}
	return s
}

// withCanary changes a canary, which is there then.
func withCanary(from *canarySpec, all ...func(*canarySpec)) change {
	return func(s *spec) {
		s.Strategy.Canary = from
		for _, c := range all {
			c(from)
		}
	}
}

func TestDefaulted(t *testing.T) {
	manual := func(c *canarySpec) {
		c.ValidationMode, c.Duration, c.NoRestartsDuration = edsv1.ValidationModeManual, nil, nil
	}
	full := changed(defaults(), withCanary(canaryDefaults()), func(s *spec) {
		s.Selector, s.MinReadySeconds, s.RevisionHistoryLimit = &metav1.LabelSelector{}, 3, ptr.To[int32](0)
		s.Strategy.Type, s.Strategy.ReconcileFrequency, s.Strategy.Paused = edsv1.StrategyOnDelete, lasting(time.Second), true
		ru, c := &s.Strategy.RollingUpdate, s.Strategy.Canary
		ru.MaxUnavailable, ru.MaxSurge, ru.MaxPodSchedulerFailure = percent("10%"), percent("0%"), count(2)
		ru.MaxParallelPodCreation, ru.SlowStartIntervalDuration, ru.SlowStartAdditiveIncrease = ptr.To[int32](1), lasting(1), percent("5%")
		c.Replicas, c.Duration, c.NoRestartsDuration = percent("5%"), lasting(0), lasting(0)
		c.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		c.AutoPause.Enabled, c.AutoPause.MaxRestarts = ptr.To(false), ptr.To[int32](0)
		c.AutoFail.Enabled, c.AutoFail.MaxRestarts = ptr.To(false), ptr.To[int32](0)
	})
	for name, tc := range map[string]struct {
		spec *spec
		mode edsv1.ValidationMode
		want *spec
	}{
		"nothing said": {&spec{}, "", defaults()},
		"the template's name": {
			&spec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "b"}}}}, "",
			changed(defaults(), func(s *spec) { s.Template.Labels = map[string]string{"a": "b"} }),
		},
		"a surge": {
			changed(&spec{}, func(s *spec) { s.Strategy.RollingUpdate.MaxSurge = percent("10%") }), "",
			changed(defaults(), func(s *spec) {
				s.Strategy.RollingUpdate.MaxSurge, s.Strategy.RollingUpdate.MaxUnavailable = percent("10%"), count(0)
			}),
		},
		"no surge": {
			changed(&spec{}, func(s *spec) { s.Strategy.RollingUpdate.MaxSurge = percent("0%") }), "",
			changed(defaults(), func(s *spec) { s.Strategy.RollingUpdate.MaxSurge = percent("0%") }),
		},
		"a canary":         {changed(&spec{}, withCanary(&canarySpec{})), "", changed(defaults(), withCanary(canaryDefaults()))},
		"a canary, auto":   {changed(&spec{}, withCanary(&canarySpec{})), edsv1.ValidationModeAuto, changed(defaults(), withCanary(canaryDefaults()))},
		"a canary, manual": {changed(&spec{}, withCanary(&canarySpec{})), edsv1.ValidationModeManual, changed(defaults(), withCanary(canaryDefaults(), manual))},
		"its own mode first": {
			changed(&spec{}, withCanary(&canarySpec{ValidationMode: edsv1.ValidationModeManual})), edsv1.ValidationModeAuto,
			changed(defaults(), withCanary(canaryDefaults(), manual)),
		},
		"half of a canary": {
			changed(&spec{}, withCanary(&canarySpec{AutoFail: &failSpec{CanaryTimeout: lasting(time.Hour)}})), "",
			changed(defaults(), withCanary(canaryDefaults(), func(c *canarySpec) { c.AutoFail.CanaryTimeout = lasting(time.Hour) })),
		},
		"everything said": {full, edsv1.ValidationModeManual, full},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.spec.DeepCopy()
			got := Defaulted(tc.spec, tc.mode)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.spec); diff != "" {
				t.Errorf("the spec has been changed:\n%s", diff)
			}
			if diff := cmp.Diff(got, Defaulted(got, tc.mode)); diff != "" {
				t.Errorf("the second time it is other:\n%s", diff)
			}
			if err := Validate(got); err != nil {
				t.Errorf("the defaults are invalid: %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	rolling := func(change func(*update)) change {
		return func(s *spec) { change(&s.Strategy.RollingUpdate) }
	}
	of := func(change func(*canarySpec)) change { return withCanary(&canarySpec{}, change) }
	unreadable := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Gt", Values: []string{"1"}}}}
	const ru, can = "spec.strategy.rollingUpdate.", "spec.strategy.canary."
	for name, tc := range map[string]struct {
		change change
		// want begins the text; "" when nothing is wrong.
		want string
	}{
		"maxUnavailable 0": {
			rolling(func(r *update) { r.MaxUnavailable = count(0) }),
			ru + "maxUnavailable must be 1 or more, or 1% or more, unless maxSurge is",
		},
		"maxUnavailable 0%": {rolling(func(r *update) { r.MaxUnavailable = percent("0%") }), ru + "maxUnavailable must be 1 or more"},
		"maxUnavailable negative": {
			rolling(func(r *update) { r.MaxUnavailable = count(-1) }),
			ru + "maxUnavailable must be a count of 0 or more, or a percentage",
		},
		"maxUnavailable a word": {
			rolling(func(r *update) { r.MaxUnavailable = percent("all") }),
			ru + "maxUnavailable must be a count of 0 or more, or a percentage",
		},
		"maxUnavailable a number": {rolling(func(r *update) { r.MaxUnavailable = percent("1") }), ru + "maxUnavailable must be a count"},
		"maxUnavailable all":      {rolling(func(r *update) { r.MaxUnavailable = percent("100%") }), ""},
		"surge instead":           {rolling(func(r *update) { r.MaxUnavailable, r.MaxSurge = count(0), count(1) }), ""},
		"surge besides": {
			rolling(func(r *update) { r.MaxUnavailable, r.MaxSurge = count(1), percent("1%") }),
			ru + "maxUnavailable must be 0 or left out with maxSurge",
		},
		"surge of none besides":  {rolling(func(r *update) { r.MaxUnavailable, r.MaxSurge = count(1), percent("0%") }), ""},
		"maxSurge":               {rolling(func(r *update) { r.MaxSurge = percent("x%") }), ru + "maxSurge must be"},
		"maxPodSchedulerFailure": {rolling(func(r *update) { r.MaxPodSchedulerFailure = count(-1) }), ru + "maxPodSchedulerFailure must be"},
		"maxParallelPodCreation": {rolling(func(r *update) { r.MaxParallelPodCreation = ptr.To[int32](0) }), ru + "maxParallelPodCreation must be 1 or more"},
		"no interval":            {rolling(func(r *update) { r.SlowStartIntervalDuration = lasting(0) }), ru + "slowStartIntervalDuration must be positive"},

		"selector": {func(s *spec) { s.Selector = unreadable }, "reading spec.selector, "},
		"affinity": {
			func(s *spec) {
				s.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: "Like"}}}},
				}}}
			},
			"reading spec.template.spec.affinity, ",
		},

		"no duration":  {of(func(c *canarySpec) { c.Duration = lasting(0) }), ""},
		"nodeSelector": {of(func(c *canarySpec) { c.NodeSelector = unreadable }), can + "nodeSelector must be a label selector"},
		"manual":       {of(func(c *canarySpec) { c.ValidationMode = "manual" }), ""},
		"manual with a duration": {
			of(func(c *canarySpec) { c.ValidationMode, c.Duration = "manual", lasting(time.Hour) }),
			can + "duration must be left out with validationMode manual",
		},
		"manual with noRestarts": {
			of(func(c *canarySpec) { c.ValidationMode, c.NoRestartsDuration = "manual", lasting(0) }),
			can + "noRestartsDuration must be left out",
		},
		"manual with a timeout": {of(func(c *canarySpec) {
			c.ValidationMode, c.AutoFail = "manual", &failSpec{CanaryTimeout: lasting(time.Second)}
		}), ""},
		"manual with a duration and a shorter timeout": {of(func(c *canarySpec) {
			c.ValidationMode, c.Duration, c.AutoFail = "manual", lasting(time.Hour), &failSpec{CanaryTimeout: lasting(time.Second)}
		}), can + "duration must be left out"},
		"fails before it pauses": {of(func(c *canarySpec) {
			c.AutoPause = &pauseSpec{MaxRestarts: ptr.To[int32](6)}
		}), can + "autoFail.maxRestarts must be 6 or more, no less than autoPause.maxRestarts"},
		"fails before it pauses by default": {of(func(c *canarySpec) {
			c.AutoFail = &failSpec{MaxRestarts: ptr.To[int32](1)}
		}), can + "autoFail.maxRestarts must be 2 or more"},
		"fails when it pauses": {of(func(c *canarySpec) {
			c.AutoPause = &pauseSpec{MaxRestarts: ptr.To[int32](5)}
		}), ""},
		"never pauses": {of(func(c *canarySpec) {
			c.AutoPause = &pauseSpec{MaxRestarts: ptr.To[int32](9), Enabled: ptr.To(false)}
		}), ""},
		"never fails": {of(func(c *canarySpec) {
			c.AutoFail = &failSpec{MaxRestarts: ptr.To[int32](0), CanaryTimeout: lasting(1), Enabled: ptr.To(false)}
		}), ""},
		"a timeout as long as the canary": {of(func(c *canarySpec) {
			c.AutoFail = &failSpec{CanaryTimeout: lasting(10 * time.Minute)}
		}), can + "autoFail.canaryTimeout must be more than duration"},
		"a longer timeout": {of(func(c *canarySpec) {
			c.Duration, c.AutoFail = lasting(time.Minute), &failSpec{CanaryTimeout: lasting(61 * time.Second)}
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate(Defaulted(changed(&spec{}, tc.change), ""))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			case err != nil && strings.Contains(err.Error(), "; "):
				t.Errorf("one thing is wrong, but it says %v", err)
			}
		})
	}

	both := changed(&spec{}, rolling(func(r *update) { r.MaxUnavailable = count(-1) }), rolling(func(r *update) { r.MaxParallelPodCreation = ptr.To[int32](0) }))
	want := "spec.strategy.rollingUpdate.maxUnavailable must be a count of 0 or more, or a percentage; spec.strategy.rollingUpdate.maxParallelPodCreation must be 1 or more"
	if err := Validate(Defaulted(both, "")); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := Validate(Defaulted(changed(&spec{}, of(func(c *canarySpec) { c.Duration = lasting(time.Hour) })), edsv1.ValidationModeManual)); err == nil {
		t.Error("a duration is allowed where the controller's mode is manual")
	}
}
