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
	x, okX := parse(a)
	y, okY := parse(b)
	switch {
	case !okX && !okY:
		return strings.Compare(a, b)
	case !okX:
		return -1
	case !okY:
		return 1
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	}
	return 0
}

func parse(text string) (*version.Version, bool) {
	v, err := version.ParseSemantic(strings.TrimPrefix(text, "v"))
	return v, err == nil
}

// sameVersion reports whether two versions are known and the same.
func sameVersion(a, b string) bool { return a != "" && b != "" && CompareVersions(a, b) == 0 }
