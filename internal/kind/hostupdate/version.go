// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// CompareVersions compares semantic versions. It is negative if a is older than b, positive if a is newer, and 0 if they are the same. A leading
// v is ignored. A version that can't be parsed is older than any other.
func CompareVersions(a, b string) int {
	if a == b {
		return 0
	}
	switch x, y := parse(a), parse(b); {
	case x == nil && y == nil:
		return strings.Compare(a, b)
	case x == nil || y != nil && x.LessThan(y):
		return -1
	case y == nil || y.LessThan(x):
		return 1
	}
	return 0
}

// parse reads a semantic version; nil if the text is none.
func parse(text string) *version.Version {
	v, _ := version.ParseSemantic(strings.TrimPrefix(text, "v"))
	return v
}

// sameVersion reports whether two versions are known and the same.
func sameVersion(a, b string) bool { return a != "" && b != "" && CompareVersions(a, b) == 0 }
