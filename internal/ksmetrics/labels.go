// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// labelsOf returns the object's labels under names that Prometheus allows: every other character becomes an underscore, as in
// ExtendedDaemonSet. If several keys become the same name, the last one counts.
func labelsOf(o metav1.Object) prometheus.Labels {
	all := prometheus.Labels{}
	values := o.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all[labelName(key)] = values[key]
	}
	return all
}

// labelName makes a label's key a name for Prometheus. It can't begin with a digit.
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
