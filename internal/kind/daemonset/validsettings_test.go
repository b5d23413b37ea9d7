// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Which Settings count follows from these themselves. Their status may be of a moment ago.
func TestSettingsThatCount(t *testing.T) {
	setting := func(name string, age time.Duration, node string) edsv1.ExtendedDaemonsetSetting {
		s := edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: ago(age)}}
		s.Spec.Reference = &autoscalingv1.CrossVersionObjectReference{Kind: "ExtendedDaemonSet", Name: "foo"}
		if node != "" {
			s.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelHostname: node}
		}
		return s
	}
	says := func(s edsv1.ExtendedDaemonsetSetting, status edsv1.SettingStatus) edsv1.ExtendedDaemonsetSetting {
		s.Status.Status = status
		return s
	}
	goes := setting("new", time.Minute, "n0")
	goes.DeletionTimestamp = &metav1.Time{Time: now}
	other := setting("new", time.Minute, "n0")
	other.Spec.Reference.Name = "bar"
	ofAnyKind := setting("new", time.Minute, "n0")
	ofAnyKind.Spec.Reference.Kind, ofAnyKind.Spec.Reference.APIVersion = "Anything", "v0"
	unreadable := says(setting("old", time.Hour, ""), edsv1.SettingValid)
	unreadable.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Sometimes"}}
	was := says(setting("old", time.Hour, ""), edsv1.SettingError)
	for name, tc := range map[string]struct {
		settings []edsv1.ExtendedDaemonsetSetting
		want     []string
	}{
		"the newer of two":                        {[]edsv1.ExtendedDaemonsetSetting{was, says(setting("new", time.Minute, "n0"), edsv1.SettingValid)}, []string{"new"}},
		"before that is said":                     {[]edsv1.ExtendedDaemonsetSetting{says(was, edsv1.SettingValid), setting("new", time.Minute, "n0")}, []string{"new"}},
		"the other, as soon as the newer is gone": {[]edsv1.ExtendedDaemonsetSetting{was}, []string{"old"}},
		"and as soon as it goes":                  {[]edsv1.ExtendedDaemonsetSetting{was, goes}, []string{"old"}},
		"and as soon as it selects other nodes":   {[]edsv1.ExtendedDaemonsetSetting{was, says(setting("new", time.Minute, "elsewhere"), edsv1.SettingValid)}, []string{"new", "old"}},
		"and as soon as it is for others":         {[]edsv1.ExtendedDaemonsetSetting{was, other}, []string{"old"}},
		"whatever kind its reference names":       {[]edsv1.ExtendedDaemonsetSetting{was, ofAnyKind}, []string{"new"}},
		"never one that can't be read":            {[]edsv1.ExtendedDaemonsetSetting{unreadable}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2)
			var got []string
			for _, s := range JudgeSettings(tc.settings, foo, w.nodes) {
				if s.Problem == "" {
					got = append(got, s.Setting.Name)
				}
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
