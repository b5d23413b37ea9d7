// SPDX-License-Identifier: Apache-2.0

package daemonsetsetting

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
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

// contender is a Setting among those of one ExtendedDaemonSet.
type contender struct {
	setting *edsv1.ExtendedDaemonsetSetting
	// selector of nodes, or nil if it can't be read.
	selector labels.Selector
	// problem is why the Setting does not count, or "".
	problem string
}

// reference is the ExtendedDaemonSet that a Setting names, or "".
func reference(s *edsv1.ExtendedDaemonsetSetting) string {
	if s.Spec.Reference == nil {
		return ""
	}
	return s.Spec.Reference.Name
}

// contenders are those of a namespace's Settings that name this ExtendedDaemonSet, the newest first, and of the same age
// the last by name, as ExtendedDaemonSet has them. Those that are being deleted are as good as gone.
func contenders(settings []edsv1.ExtendedDaemonsetSetting, daemonset string) []contender {
	var all []contender
	for i := range settings {
		s := &settings[i]
		if reference(s) != daemonset || s.DeletionTimestamp != nil {
			continue
		}
		c := contender{setting: s}
		selector, err := metav1.LabelSelectorAsSelector(&s.Spec.NodeSelector)
		switch {
		case daemonset == "":
			c.problem = missingReference
		case err != nil:
			c.problem = badSelector + err.Error()
		default:
			c.selector = selector
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b contender) int {
		return cmp.Or(b.setting.CreationTimestamp.Compare(a.setting.CreationTimestamp.Time), cmp.Compare(b.setting.Name, a.setting.Name))
	})
	return all
}

// mayMeet reports whether it depends on the nodes which of them count.
func mayMeet(settings []contender) bool {
	able := 0
	for i := range settings {
		if settings[i].selector != nil {
			able++
		}
	}
	return able > 1
}

// judge notes the problem of each Setting that selects a node which a newer one selects too, and names the newest such. A
// newer one counts in that even if it has a problem of that kind itself: were that solved, nothing else would change.
func judge(settings []contender, nodes []corev1.Node) {
	newest := make([]int, len(settings)) // by Setting, the newest of those before it that it meets
	for i := range newest {
		newest[i] = i
	}
	for n := range nodes {
		set, first := labels.Set(nodes[n].Labels), -1
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
			settings[i].problem = conflict + settings[other].setting.Name
		}
	}
}
