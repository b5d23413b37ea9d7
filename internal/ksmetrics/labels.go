// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"maps"
	"regexp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notInNames matches what a name of a label can't have: a digit at its beginning, and most characters.
var notInNames = regexp.MustCompile(`^([0-9])|[^0-9A-Za-z_]`)

// labelsOf returns the object's labels under names that Prometheus allows: every other character becomes an underscore, as in
// ExtendedDaemonSet, and a digit at the beginning gets one. If several keys become the same name, the last one counts.
func labelsOf(o metav1.Object) prometheus.Labels {
	all := prometheus.Labels{}
	values := o.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all[notInNames.ReplaceAllString(key, "_$1")] = values[key]
	}
	return all
}
