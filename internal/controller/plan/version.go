// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// munge makes a version fit for labels and image tags.
func munge(v string) string { return strings.ReplaceAll(v, "+", "-") }

// isDowngrade reports whether to is lower than from. It compares the leading numbers. If these are equal, and the rest differs
// only in its numbers (such as -k3s1 and -k3s10), it compares all numbers.
func isDowngrade(from, to string) bool {
	a, errA := version.ParseGeneric(from)
	b, errB := version.ParseGeneric(to)
	if errA != nil || errB != nil {
		return false
	}
	if b.LessThan(a) || a.LessThan(b) {
		return b.LessThan(a)
	}
	if digits.ReplaceAllString(from, "#") != digits.ReplaceAllString(to, "#") {
		return false
	}
	return slices.CompareFunc(digits.FindAllString(from, -1), digits.FindAllString(to, -1), compareNumbers) > 0
}

var digits = regexp.MustCompile("[0-9]+")

// compareNumbers compares texts of digits, of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
