// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// labelsOf are the object's labels, by names that Prometheus allows: every other character becomes an
// underscore, as in ExtendedDaemonSet. The first of keys that become the same keeps the name, and the others get a number:
// Prometheus refuses a page on which a metric has two labels of one name.
func labelsOf(o metav1.Object) prometheus.Labels {
	all := prometheus.Labels{}
	values := o.GetLabels()
	taken := sets.New("namespace", "name")
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := labelName(key)
		for n := 1; taken.Has(name); n++ {
			name = labelName(key) + "_conflict" + strconv.Itoa(n)
		}
		taken.Insert(name)
		all[name] = values[key]
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
