// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// The errors are those that ExtendedDaemonSet writes.
const (
	missingReference = "missing reference in spec"
	badSelector      = "invalid nodeSelector in spec: "
	conflict         = "conflict with another ExtendedDaemonsetSetting: "
)

// SettingVerdict says of a Setting among those of one ExtendedDaemonSet whether it counts.
type SettingVerdict struct {
	Setting *edsv1.ExtendedDaemonsetSetting
	// Problem is why the Setting does not count, on no node, or "".
	Problem string
	// selector of nodes, or nil if it can't be read.
	selector labels.Selector
}

// ReferenceOf is the ExtendedDaemonSet that a Setting names, or "".
func ReferenceOf(s *edsv1.ExtendedDaemonsetSetting) string {
	if s.Spec.Reference == nil {
		return ""
	}
	return s.Spec.Reference.Name
}

// SettingsOf are those of a namespace's Settings that name this ExtendedDaemonSet, the newest first, and of the same age
// the last by name, as ExtendedDaemonSet has them. Those that are being deleted are as good as gone. It notes what is wrong with each by
// itself; with those that MayMeet JudgeSettings has more to say.
func SettingsOf(settings []edsv1.ExtendedDaemonsetSetting, daemonset string) []SettingVerdict {
	var all []SettingVerdict
	for i := range settings {
		s := &settings[i]
		if ReferenceOf(s) != daemonset || s.DeletionTimestamp != nil {
			continue
		}
		v := SettingVerdict{Setting: s}
		selector, err := metav1.LabelSelectorAsSelector(&s.Spec.NodeSelector)
		switch {
		case daemonset == "":
			v.Problem = missingReference
		case err != nil:
			v.Problem = badSelector + err.Error()
		default:
			v.selector = selector
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b SettingVerdict) int {
		return cmp.Or(b.Setting.CreationTimestamp.Compare(a.Setting.CreationTimestamp.Time), cmp.Compare(b.Setting.Name, a.Setting.Name))
	})
	return all
}

// MayMeet reports whether it depends on the nodes which of them count.
func MayMeet(settings []SettingVerdict) bool {
	able := 0
	for i := range settings {
		if settings[i].selector != nil {
			able++
		}
	}
	return able > 1
}

// JudgeSettings notes the problem of each Setting that selects a node which a newer one selects too, and names the newest such. Of the
// nodes it needs the labels. A newer one counts in that even if it has a problem of that kind itself: were that solved, nothing else would
// change.
func JudgeSettings(settings []SettingVerdict, nodes iter.Seq[map[string]string]) {
	newest := make([]int, len(settings)) // by Setting, the newest of those before it that it meets
	for i := range newest {
		newest[i] = i
	}
	for has := range nodes {
		set, first := labels.Set(has), -1
		for i := range settings {
			if settings[i].selector == nil || !settings[i].selector.Matches(set) {
				continue
			}
			if first < 0 {
				first = i
			}
			newest[i] = min(newest[i], first)
		}
	}
	for i, other := range newest {
		if other < i {
			settings[i].Problem = conflict + settings[other].Setting.Name
		}
	}
}
