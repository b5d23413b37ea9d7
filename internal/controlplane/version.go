// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"regexp"
	"strings"
)

// version is a version of Kubernetes.
var version = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)

// VersionOf is the Kubernetes version in an image's name, without a v: the third of exactly five parts between hyphens, as in
// flatcar-stable-1.36.2-v0.3.0-cc9e4ddc. False: there is none.
func VersionOf(image string) (string, bool) {
	parts := strings.Split(image, "-")
	if len(parts) != 5 || !version.MatchString(parts[2]) {
		return "", false
	}
	return bare(parts[2]), true
}

// bare is a version without the v that it may begin with.
func bare(version string) string { return strings.TrimPrefix(version, "v") }
