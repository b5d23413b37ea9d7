// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/kind/plan"
)

// secretsBut is a lookup that finds every secret but these.
func secretsBut(missing ...string) func(string) error {
	return func(name string) error {
		if slices.Contains(missing, name) {
			return fmt.Errorf("secrets %q not found", name)
		}
		return nil
	}
}

func window(days []upgradev1.Day, start, end, zone string) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) {
		p.Spec.Window = &upgradev1.TimeWindowSpec{Days: days, StartTime: start, EndTime: end, TimeZone: zone}
	}
}

func secrets(specs ...upgradev1.SecretSpec) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) { p.Spec.Secrets = specs }
}

func selects(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: operator, Values: values}}}
}

// Those of the messages that system-upgrade-controller has are in its words.
func TestParse(t *testing.T) {
	monday := []upgradev1.Day{"mo"}
	for name, tc := range map[string]struct {
		plan   func(*upgradev1.Plan)
		lookup func(string) error
		want   string
	}{
		"valid":      {func(*upgradev1.Plan) {}, nil, ""},
		"everything": {everything, nil, ""},

		"both names of one drain option": {func(p *upgradev1.Plan) {
			p.Spec.Drain = &upgradev1.DrainSpec{DeleteEmptydirData: ptr.To(true), DeleteLocalData: ptr.To(true)}
		}, nil, "spec.drain cannot specify both deleteEmptydirData and deleteLocalData"},
		"both names of one drain option, off": {func(p *upgradev1.Plan) {
			p.Spec.Drain = &upgradev1.DrainSpec{DeleteEmptydirData: ptr.To(false), DeleteLocalData: ptr.To(false)}
		}, nil, "spec.drain cannot specify both deleteEmptydirData and deleteLocalData"},
		"a pod selector of all": {func(p *upgradev1.Plan) { p.Spec.Drain = &upgradev1.DrainSpec{PodSelector: &metav1.LabelSelector{}} }, nil, ""},
		"a pod selector without values": {func(p *upgradev1.Plan) {
			p.Spec.Drain = &upgradev1.DrainSpec{PodSelector: selects(metav1.LabelSelectorOpIn)}
		}, nil, "spec.drain.podSelector is invalid, values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
		"a pod selector of an unknown kind": {func(p *upgradev1.Plan) {
			p.Spec.Drain = &upgradev1.DrainSpec{PodSelector: selects("Like", "x")}
		}, nil, `spec.drain.podSelector is invalid, "Like" is not a valid label selector operator`},

		"a window":                 {window(monday, "22:00", "04:00", "Europe/Berlin"), nil, ""},
		"a window on no day":       {window(nil, "22:00", "04:00", ""), nil, ""}, // It never opens, and was taken always.
		"a window without a start": {window(monday, "", "04:00", ""), nil, "spec.window is invalid, invalid time format: "},
		"a window without an end":  {window(monday, "22:00", "", ""), nil, "spec.window is invalid, invalid time format: "},
		"a window on a strange day": {window([]upgradev1.Day{"mo", "someday"}, "22:00", "04:00", ""), nil,
			"spec.window is invalid, invalid weekday: someday"},
		"a window in a strange place": {window(monday, "22:00", "04:00", "Europe/Atlantis"), nil,
			"spec.window is invalid, unknown time zone Europe/Atlantis"},

		"a delay":        {soaks(time.Hour), nil, ""},
		"no delay":       {soaks(0), nil, ""},
		"a delay before": {soaks(-1), nil, "spec.postCompleteDelay is negative"},

		"secrets":                     {secrets(upgradev1.SecretSpec{Name: "a"}, upgradev1.SecretSpec{Name: "b"}), nil, ""},
		"a secret is not":             {secrets(upgradev1.SecretSpec{Name: "a"}, upgradev1.SecretSpec{Name: "b"}), secretsBut("b"), `secrets "b" not found`},
		"two are not":                 {secrets(upgradev1.SecretSpec{Name: "a"}, upgradev1.SecretSpec{Name: "b"}), secretsBut("a", "b"), `secrets "a" not found, secrets "b" not found`},
		"a secret that may be absent": {secrets(upgradev1.SecretSpec{Name: "a", IgnoreUpdates: true}), secretsBut("a"), ""},

		"a name that is too long for a label": {func(p *upgradev1.Plan) { p.Name = strings.Repeat("x", 64) }, nil,
			"metadata.name must serve as a label value on Jobs and nodes: must be no more than 63 bytes"},
		"no upgrade":       {func(p *upgradev1.Plan) { p.Spec.Upgrade = nil }, nil, "spec.upgrade is missing"},
		"no image":         {imageless, nil, ""}, // The API server refuses the Job.
		"no node selector": {func(p *upgradev1.Plan) { p.Spec.NodeSelector = nil }, nil, ""},
		"a node selector without values": {func(p *upgradev1.Plan) { p.Spec.NodeSelector = selects(metav1.LabelSelectorOpNotIn) }, nil,
			"spec.nodeSelector is invalid, values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
		"a node selector of an unknown kind": {func(p *upgradev1.Plan) { p.Spec.NodeSelector = selects("Gt", "1") }, nil,
			`spec.nodeSelector is invalid, "Gt" is not a valid label selector operator`},

		// The first problem is told, in system-upgrade-controller's order.
		"drain before window": {func(p *upgradev1.Plan) {
			p.Spec.Drain = &upgradev1.DrainSpec{DeleteEmptydirData: ptr.To(true), DeleteLocalData: ptr.To(true)}
			window(monday, "", "", "")(p)
		}, nil, "spec.drain cannot specify both deleteEmptydirData and deleteLocalData"},
		"window before delay": {func(p *upgradev1.Plan) {
			window(monday, "", "", "")(p)
			soaks(-1)(p)
		}, nil, "spec.window is invalid, invalid time format: "},
		"secrets before what Moult adds": {func(p *upgradev1.Plan) {
			secrets(upgradev1.SecretSpec{Name: "a"})(p)
			p.Spec.Upgrade, p.Spec.NodeSelector, p.Name = nil, selects("Gt"), strings.Repeat("x", 64)
		}, secretsBut("a"), `secrets "a" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.lookup == nil {
				tc.lookup = secretsBut()
			}
			p := newPlan(tc.plan)
			before := p.DeepCopy()
			_, err := parse(p, tc.lookup)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if _, ofSelector := errors.AsType[plan.SelectorError](err); ofSelector != strings.HasPrefix(tc.want, "spec.nodeSelector") {
				t.Errorf("taken for a bad node selector: %v", ofSelector)
			}
			if !equality.Semantic.DeepEqual(before, p) {
				t.Error("changed the Plan")
			}
		})
	}
}

func TestParseSelector(t *testing.T) {
	for name, tc := range map[string]struct {
		selector *metav1.LabelSelector
		labels   labels.Set
		want     bool
	}{
		"absent selects none": {nil, labels.Set{"a": "b"}, false},
		"empty selects all":   {&metav1.LabelSelector{}, labels.Set{}, true},
		"a label":             {&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, labels.Set{"a": "b"}, true},
		"another label":       {&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, labels.Set{"a": "c"}, false},
		"an expression":       {selects(metav1.LabelSelectorOpNotIn, "c"), labels.Set{}, true},
	} {
		got, err := parse(newPlan(func(p *upgradev1.Plan) { p.Spec.NodeSelector = tc.selector }), secretsBut())
		if err != nil || got.Selector.Matches(tc.labels) != tc.want {
			t.Errorf("%s: got %v, %v", name, got.Selector, err)
		}
	}
}

// A window that is parsed is the one that was asked for.
func TestParseWindow(t *testing.T) {
	w, err := parse(newPlan(window([]upgradev1.Day{"5"}, "13:00", "1pm", "Europe/Berlin")), secretsBut())
	if got := w.Strategy(1, nil).Window; err != nil || !got[0].Contains(now) || got[0].Contains(now.Add(time.Second)) || got[0].Contains(now.Add(24*time.Hour)) {
		t.Errorf("got %+v, %v", got, err)
	}
	w, err = parse(newPlan(), secretsBut())
	if got := w.Strategy(1, nil).Window; err != nil || got != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What comes after the timeout of a drain must come before the end of the Job.
func TestDeadlineOfDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		drain upgradev1.DrainSpec
		own   *int64
		jobs  plan.JobOptions
		want  string
	}{
		"in time":         {drain: upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("10m")), OnTimeout: "Skip"}},
		"by its own time": {drain: upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("20m")), OnTimeout: "Skip"}, own: ptr.To[int64](2700)},
		"no deadline":     {drain: upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("20m")), OnTimeout: "Force"}, own: ptr.To[int64](0)},
		"as before":       {drain: upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("20m"))}},
		"kubectl drains":  {drain: upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("20m")), OnTimeout: "Skip"}, jobs: plan.JobOptions{KubectlImage: "kubectl"}},
		"too late": {drain: upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("15m")), OnTimeout: "Skip"},
			want: "spec.drain.timeout, 15m0s, must be less than the deadline of the Job, 15m0s, for onTimeout: Skip to come: shorten it, or raise spec.jobActiveDeadlineSecs or its limit"},
	} {
		p := newPlan(func(p *upgradev1.Plan) { p.Spec.Drain, p.Spec.JobActiveDeadlineSecs = &tc.drain, tc.own })
		tc.jobs.ActiveDeadlineSeconds = 900
		got := ""
		if err := checkDeadline(p, &tc.jobs); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

type spec = upgradev1.PlanSpec

// No Plan may use the operator's account and its Secrets.
func TestReserved(t *testing.T) {
	fromSecret := func(name string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
	}
	key := func(name string) []corev1.EnvVar {
		ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		return []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}}}
	}
	volume := corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "etcd"}}}
	projected := corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "projected"}}},
	}}}}
	own := NewReserved(&corev1.PodSpec{
		ServiceAccountName: "moult", Volumes: []corev1.Volume{volume, projected},
		Containers: []corev1.Container{{EnvFrom: fromSecret("cloud"), Env: key("ducklett")}},
	})
	for name, test := range map[string]struct {
		r    Reserved
		plan func(*upgradev1.PlanSpec)
		want string
	}{
		"the account":          {own, func(p *spec) { p.ServiceAccountName = "moult" }, "spec.serviceAccountName: \"moult\" is"},
		"no account":           {Reserved{ServiceAccount: "default"}, func(p *spec) { p.ServiceAccountName = "" }, "spec.serviceAccountName: \"default\""},
		"another account":      {own, func(p *spec) { p.ServiceAccountName = "system-upgrade" }, ""},
		"no account, of moult": {own, func(p *spec) { p.ServiceAccountName = "" }, ""},
		"elsewhere":            {Reserved{}, func(p *spec) { p.ServiceAccountName = "moult" }, ""},
		"a cloud":              {Reserved{}, func(p *spec) { p.Upgrade.EnvFrom = fromSecret("moult-cloud") }, "spec.upgrade.envFrom: Secret \"moult-cloud\""},
		"prometheus":           {Reserved{}, func(p *spec) { p.Upgrade.Env = key("moult-prometheus") }, "spec.upgrade.envs: Secret \"moult-prometheus\""},
		"webhooks":             {Reserved{}, func(p *spec) { p.Upgrade.Env = key("moult-notifications") }, "spec.upgrade.envs: Secret \"moult-notifications\""},
		"envFrom":              {own, func(p *spec) { p.Upgrade.EnvFrom = fromSecret("cloud") }, "spec.upgrade.envFrom: Secret \"cloud\""},
		"env":                  {own, func(p *spec) { p.Upgrade.Env = key("ducklett") }, "spec.upgrade.envs: Secret \"ducklett\""},
		"prepare":              {own, func(p *spec) { p.Prepare = &upgradev1.ContainerSpec{Env: key("etcd")} }, "spec.prepare.envs: Secret \"etcd\""},
		"a volume": {own, func(p *spec) {
			p.Secrets = []upgradev1.SecretSpec{{Name: "projected", IgnoreUpdates: true}}
		}, "spec.secrets: Secret \"projected\""},
		"another Secret": {own, func(p *spec) { p.Upgrade.EnvFrom = fromSecret("mine") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.r.check(newPlan(func(p *upgradev1.Plan) { test.plan(&p.Spec) }))
			if text := fmt.Sprint(got); (got == nil) != (test.want == "") || len(text) < len(test.want) || got != nil && text[:len(test.want)] != test.want {
				t.Errorf("got %v, want %q", got, test.want)
			}
		})
	}
}
