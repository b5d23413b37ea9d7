// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// label is a name and its value.
type label struct{ name, value string }

// labelsOf are the object's labels, by names that Prometheus allows: every other character becomes an
// underscore, as in ExtendedDaemonSet. Of keys that become the same the first keeps the name, and the others get a number;
// to give two labels one name would make Prometheus refuse the whole page.
func labelsOf(o metav1.Object) []label {
	var all []label
	values := o.GetLabels()
	taken := map[string]bool{"namespace": true, "name": true}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := labelName(key)
		for n := 1; taken[name]; n++ {
			name = labelName(key) + "_conflict" + strconv.Itoa(n)
		}
		taken[name] = true
		all = append(all, label{name, values[key]})
	}
	return all
}

// labelName is a key as the name of a label. None begins with a digit there.
func labelName(key string) string {
	name := strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, key)
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}
