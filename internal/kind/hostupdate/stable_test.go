// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

func TestStable(t *testing.T) {
	changed := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(seconds int) metav1.Time {
		return metav1.NewTime(changed.Add(time.Duration(seconds) * time.Second))
	}
	now := at(100).Time

	pod := func(name string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "net", Name: name, Labels: map[string]string{"app": "cni"}},
			Status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(5)}},
				}},
			},
		}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	restarted := func(seconds int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].RestartCount = 3
			p.Status.ContainerStatuses[0].State.Running.StartedAt = at(seconds)
		}
	}
	going := func(told int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(at(told+30)), ptr.To[int64](30)
		}
	}
	ended := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			unready(p)
			p.Status.Phase = phase
		}
	}
	cni := func(seconds int32) []v1alpha1.StablePods {
		return []v1alpha1.StablePods{{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "cni"}}, Seconds: seconds}}
	}

	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want []v1alpha1.StablePods
		why  string
		next time.Time
	}{
		"nothing is asked for": {pods: []corev1.Pod{pod("a", unready)}},
		"none is selected":     {want: cni(3600)},
		"another namespace":    {pods: []corev1.Pod{pod("a", unready)}, want: []v1alpha1.StablePods{{Namespace: "other"}}},
		"the namespace":        {pods: []corev1.Pod{pod("a", unready)}, want: []v1alpha1.StablePods{{Namespace: "net"}}, why: "pod net/a is not ready"},
		"another label":        {pods: []corev1.Pod{pod("a", unready, func(p *corev1.Pod) { p.Labels["app"] = "x" })}, want: cni(0)},
		"ready":                {pods: []corev1.Pod{pod("a")}, want: cni(0)},
		"not ready":            {pods: []corev1.Pod{pod("a", unready)}, want: cni(0), why: "pod net/a is not ready"},
		"no condition yet":     {pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Conditions = nil })}, want: cni(0), why: "pod net/a is not ready"},
		"some are not":         {pods: []corev1.Pod{pod("c", unready), pod("b", unready), pod("a")}, want: cni(0), why: "pod net/b is not ready"},
		"ready long enough":    {pods: []corev1.Pod{pod("a")}, want: cni(100)},
		"the change is fresh":  {pods: []corev1.Pod{pod("a")}, want: cni(101), why: "pod net/a must run for 1m41s, from the change at 2026-01-02T03:00:00Z on", next: at(101).Time},
		"first start is no restart": {
			pods: []corev1.Pod{pod("a", restarted(90), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 0 })}, want: cni(60),
		},
		"a restart before the change": {pods: []corev1.Pod{pod("a", restarted(-5))}, want: cni(60)},
		"a restart long ago":          {pods: []corev1.Pod{pod("a", restarted(40))}, want: cni(60)},
		"a restart": {
			pods: []corev1.Pod{pod("a", restarted(90)), pod("b")}, want: cni(60),
			why: "pod net/a must run for 1m0s, and its container c restarted at 2026-01-02T03:01:30Z", next: at(150).Time,
		},
		"the last restart counts": {
			pods: []corev1.Pod{pod("a", restarted(80)), pod("b", restarted(95)), pod("c", restarted(70))}, want: cni(60),
			why: "pod net/b must run for 1m0s, and its container c restarted at 2026-01-02T03:01:35Z", next: at(155).Time,
		},
		"a sidecar restarts": {
			pods: []corev1.Pod{pod("a", func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{
					{Name: "init", RestartCount: 1},
					{Name: "side", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(90)}}},
				}
			})}, want: cni(60),
			why: "pod net/a must run for 1m0s, and its container side restarted at 2026-01-02T03:01:30Z", next: at(150).Time,
		},
		"a restart does not hide one that is not ready": {
			pods: []corev1.Pod{pod("a", restarted(90)), pod("b", unready)}, want: cni(60), why: "pod net/b is not ready",
		},
		"the longest wait of several entries": {
			pods: []corev1.Pod{pod("a")}, want: append(cni(110), cni(200)...),
			why: "pod net/a must run for 3m20s, from the change at 2026-01-02T03:00:00Z on", next: at(200).Time,
		},
		"ended":             {pods: []corev1.Pod{pod("a", ended(corev1.PodSucceeded)), pod("b", ended(corev1.PodFailed))}, want: cni(60)},
		"told to go since":  {pods: []corev1.Pod{pod("a", going(10))}, want: cni(0), why: "pod net/a is terminating"},
		"told to go before": {pods: []corev1.Pod{pod("a", going(-10), unready)}, want: cni(0)},
		"a selector that can't be read": {
			want: []v1alpha1.StablePods{{}, {Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}},
			why:  `health.pods[1] can't be understood: "Like" is not a valid label selector operator`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			why, next := Stable(tc.pods, tc.want, changed, now)
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("why (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.next, next); diff != "" {
				t.Errorf("next (-want +got)\n%s", diff)
			}
			// The words stay the same until then.
			if again, _ := Stable(tc.pods, tc.want, changed, now.Add(time.Millisecond)); again != why {
				t.Errorf("said %q, and a moment later %q", why, again)
			}
			if !next.IsZero() {
				if why, _ := Stable(tc.pods, tc.want, changed, next); why != "" {
					t.Errorf("at next: %s", why)
				}
			}
		})
	}
}
