// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

var morning = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// settingFor is one of this age in minutes, for these labels.
func settingFor(name, daemonset string, age int, selects map[string]string) edsv1.ExtendedDaemonsetSetting {
	s := edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, CreationTimestamp: metav1.NewTime(morning.Add(-time.Duration(age) * time.Minute)),
	}}
	if daemonset != "" {
		s.Spec.Reference = &autoscalingv1.CrossVersionObjectReference{Kind: "ExtendedDaemonset", Name: daemonset}
	}
	s.Spec.NodeSelector.MatchLabels = selects
	return s
}

func labelled(name string, has map[string]string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: has}}
}

// problemsOf are those of all Settings of d, by name.
func problemsOf(all []edsv1.ExtendedDaemonsetSetting, d string, nodes ...corev1.Node) map[string]string {
	found := map[string]string{}
	for _, v := range JudgeSettings(all, types.NamespacedName{Namespace: "a", Name: d}, pointersTo(nodes)) {
		found[v.Setting.Name] = v.Problem
	}
	return found
}

func pointersTo(nodes []corev1.Node) []*corev1.Node {
	all := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
	}
	return all
}

func TestJudgeSettings(t *testing.T) {
	type has = map[string]string
	bad := settingFor("bad", "d", -1, nil)
	bad.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Sometimes"}}
	goes := settingFor("goes", "d", -1, nil)
	goes.DeletionTimestamp = &metav1.Time{Time: morning}
	nameless := settingFor("nameless", "", 1, nil)
	nameless.Spec.Reference = &autoscalingv1.CrossVersionObjectReference{}
	named, unlike := settingFor("old", "d", 3, nil), settingFor("unlike", "d", 3, has{"x": "1"})
	named.Status.Error, unlike.Status.Error = conflict+"middle", conflict+"far"
	both := labelled("both", has{"x": "1", "y": "1"})
	for name, tc := range map[string]struct {
		settings  []edsv1.ExtendedDaemonsetSetting
		daemonset string
		nodes     []corev1.Node
		want      map[string]string
	}{
		"none": {nil, "d", []corev1.Node{both}, has{}},
		"one":  {[]edsv1.ExtendedDaemonsetSetting{settingFor("one", "d", 1, nil)}, "d", []corev1.Node{both}, has{"one": ""}},
		"no reference": {
			[]edsv1.ExtendedDaemonsetSetting{settingFor("absent", "", 1, nil), nameless, settingFor("other", "d", 1, nil)}, "", []corev1.Node{both},
			has{"absent": "missing reference in spec", "nameless": "missing reference in spec"},
		},
		"the newer counts, as with ExtendedDaemonSet": {
			[]edsv1.ExtendedDaemonsetSetting{settingFor("young", "d", 1, has{"x": "1"}), settingFor("old", "d", 2, has{"y": "1"})}, "d", []corev1.Node{both},
			has{"old": "conflict with another ExtendedDaemonsetSetting: young", "young": ""},
		},
		"of the same age the last by name counts": {
			[]edsv1.ExtendedDaemonsetSetting{settingFor("b", "d", 1, nil), settingFor("a", "d", 1, nil)}, "d", []corev1.Node{both},
			has{"a": "conflict with another ExtendedDaemonsetSetting: b", "b": ""},
		},
		"they meet nowhere": {
			[]edsv1.ExtendedDaemonsetSetting{settingFor("old", "d", 2, has{"x": "1"}), settingFor("young", "d", 1, has{"y": "1"})}, "d",
			[]corev1.Node{labelled("x", has{"x": "1"}), labelled("y", has{"y": "1"}), labelled("none", nil)},
			has{"old": "", "young": ""},
		},
		"there are no nodes": {
			[]edsv1.ExtendedDaemonsetSetting{settingFor("old", "d", 2, nil), settingFor("young", "d", 1, nil)}, "d", nil,
			has{"old": "", "young": ""},
		},
		"of another daemon set": {
			[]edsv1.ExtendedDaemonsetSetting{settingFor("other", "e", 2, nil), settingFor("young", "d", 1, nil)}, "d", []corev1.Node{both},
			has{"young": ""},
		},
		"the newest is named": {
			[]edsv1.ExtendedDaemonsetSetting{
				settingFor("young", "d", 1, has{"y": "1"}), settingFor("middle", "d", 2, has{"x": "1"}), settingFor("old", "d", 3, nil),
			}, "d",
			[]corev1.Node{labelled("x", has{"x": "1"}), labelled("y", has{"y": "1"})},
			has{"old": "conflict with another ExtendedDaemonsetSetting: young", "middle": "", "young": ""},
		},
		"the one in the status stays": {
			[]edsv1.ExtendedDaemonsetSetting{named, settingFor("middle", "d", 2, nil), settingFor("young", "d", 1, nil)}, "d", []corev1.Node{both},
			has{"old": conflict + "middle", "middle": conflict + "young", "young": ""},
		},
		"the one in the status selects other nodes now": {
			[]edsv1.ExtendedDaemonsetSetting{unlike, settingFor("far", "d", 2, has{"z": "1"}), settingFor("young", "d", 1, nil)}, "d",
			[]corev1.Node{both, labelled("z", has{"z": "1"})},
			has{"unlike": conflict + "young", "far": conflict + "young", "young": ""},
		},
		"one in conflict conflicts, too": {
			[]edsv1.ExtendedDaemonsetSetting{
				settingFor("old", "d", 3, has{"x": "1"}), settingFor("middle", "d", 2, nil), settingFor("young", "d", 1, has{"y": "1"}),
			}, "d",
			[]corev1.Node{labelled("x", has{"x": "1"}), labelled("y", has{"y": "1"})},
			has{
				"old": "conflict with another ExtendedDaemonsetSetting: middle", "middle": "conflict with another ExtendedDaemonsetSetting: young",
				"young": "",
			},
		},
		"one that can't be read selects nothing": {
			[]edsv1.ExtendedDaemonsetSetting{bad, settingFor("young", "d", 1, nil), settingFor("younger", "d", 0, nil)}, "d", []corev1.Node{both},
			has{
				"bad": `invalid nodeSelector in spec: "Sometimes" is not a valid label selector operator`, "younger": "",
				"young": "conflict with another ExtendedDaemonsetSetting: younger",
			},
		},
		"one that is deleted is as good as gone": {
			[]edsv1.ExtendedDaemonsetSetting{goes, settingFor("young", "d", 1, nil)}, "d", []corev1.Node{both},
			has{"young": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, problemsOf(tc.settings, tc.daemonset, tc.nodes...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// However many there are and in whatever order they come: of two that count no node is selected by both, and one in conflict
// meets the one that it names, which is newer.
func TestJudgeAnySettings(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	values := func(n int) map[string]string {
		m := map[string]string{}
		for _, key := range []string{"x", "y", "z"} {
			if r.IntN(2) == 0 {
				m[key] = fmt.Sprint(r.IntN(n))
			}
		}
		return m
	}
	for range 200 {
		var all []edsv1.ExtendedDaemonsetSetting
		for i := range r.IntN(6) {
			all = append(all, settingFor(fmt.Sprintf("s%d", i), "d", r.IntN(3), values(2)))
			if r.IntN(2) == 0 {
				all[i].Status.Error = fmt.Sprintf("%ss%d", conflict, r.IntN(6))
			}
		}
		var nodes []corev1.Node
		for i := range r.IntN(8) {
			nodes = append(nodes, labelled(fmt.Sprintf("n%d", i), values(2)))
		}
		got := problemsOf(all, "d", nodes...)
		for i := range all {
			for j := range all {
				a, b := &all[i], &all[j]
				newer := b.CreationTimestamp.Before(&a.CreationTimestamp) || a.CreationTimestamp.Equal(&b.CreationTimestamp) && a.Name > b.Name
				meet := slices.ContainsFunc(nodes, func(n corev1.Node) bool {
					set := labels.Set(n.Labels)
					return labels.SelectorFromSet(a.Spec.NodeSelector.MatchLabels).Matches(set) && labels.SelectorFromSet(b.Spec.NodeSelector.MatchLabels).Matches(set)
				})
				if newer && meet && got[b.Name] == "" {
					t.Fatalf("%s counts in spite of %s: %v", b.Name, a.Name, got)
				}
				if got[b.Name] == conflict+a.Name && (!newer || !meet) {
					t.Fatalf("%s does not count for %s: %v", b.Name, a.Name, got)
				}
			}
		}
		slices.Reverse(all)
		slices.Reverse(nodes)
		if diff := cmp.Diff(got, problemsOf(all, "d", nodes...)); diff != "" {
			t.Fatalf("it depends on the order (-want +got):\n%s", diff)
		}
	}
}

func BenchmarkJudgeSettings(b *testing.B) {
	var all []edsv1.ExtendedDaemonsetSetting
	for i := range 20 {
		all = append(all, settingFor(fmt.Sprintf("s%02d", i), "d", 20-i, map[string]string{"pool": fmt.Sprint(i)}))
	}
	nodes := make([]corev1.Node, 10000)
	for i := range nodes {
		nodes[i] = labelled(fmt.Sprintf("n%d", i), map[string]string{"pool": fmt.Sprint(i % 20)})
	}
	for b.Loop() {
		JudgeSettings(all, types.NamespacedName{Namespace: "a", Name: "d"}, pointersTo(nodes))
	}
}
