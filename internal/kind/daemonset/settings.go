// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// These are the error texts that ExtendedDaemonSet writes.
const (
	missingReference = "missing reference in spec"
	badSelector      = "invalid nodeSelector in spec: "
	conflict         = "conflict with another ExtendedDaemonsetSetting: "
)

// SettingVerdict says whether a Setting applies.
type SettingVerdict struct {
	Setting *edsv1.ExtendedDaemonsetSetting
	// Problem is why the Setting applies to no node, or "".
	Problem string
	// selector of nodes, or nil if it can't be read.
	selector labels.Selector
}

// ReferenceOf returns the name of the ExtendedDaemonSet that a Setting references, or "".
func ReferenceOf(s *edsv1.ExtendedDaemonsetSetting) string {
	return ptr.Deref(s.Spec.Reference, autoscalingv1.CrossVersionObjectReference{}).Name
}

// JudgeSettings returns the Settings that name this ExtendedDaemonSet, each with its problem. The newest comes first. With the same age, the
// last by name comes first, as in ExtendedDaemonSet. Settings that are being deleted are left out.
//
// If several Settings select the same node, the older ones conflict with the newest of them. That holds even if the newest has a conflict
// itself, so solving one conflict changes no other Setting. The problem names the newest, or the one that the status names while that is newer and selects
// the same node: otherwise each new Setting could change the statuses of thousands.
func JudgeSettings(settings []edsv1.ExtendedDaemonsetSetting, eds types.NamespacedName, nodes []*corev1.Node) []SettingVerdict {
	var all []SettingVerdict
	for i := range settings {
		s := &settings[i]
		if s.Namespace != eds.Namespace || ReferenceOf(s) != eds.Name || s.DeletionTimestamp != nil {
			continue
		}
		v := SettingVerdict{Setting: s}
		selector, err := metav1.LabelSelectorAsSelector(&s.Spec.NodeSelector)
		switch {
		case eds.Name == "":
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
	places := map[string]int{}
	for i := range all {
		places[all[i].Setting.Name] = i
	}
	// By Setting: the other one that it conflicts with, and the newer one that its status names. Without one each is the Setting itself.
	others, named, selects := make([]int, len(all)), make([]int, len(all)), make([]bool, len(all))
	for i := range all {
		name, _ := strings.CutPrefix(all[i].Setting.Status.Error, conflict)
		others[i], named[i] = i, i
		if at, there := places[name]; there && at < i {
			named[i] = at
		}
	}
	for _, n := range nodes {
		first := -1
		for i := range all {
			if selects[i] = all[i].selector != nil && all[i].selector.Matches(labels.Set(n.Labels)); !selects[i] {
				continue
			}
			if first < 0 {
				first = i
			}
			if known := named[i]; known < i && (others[i] == known || selects[known]) {
				others[i] = known
			} else {
				others[i] = min(others[i], first)
			}
		}
	}
	for i, other := range others {
		if other < i {
			all[i].Problem = conflict + all[other].Setting.Name
		}
	}
	return all
}
