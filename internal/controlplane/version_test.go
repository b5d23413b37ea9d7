// SPDX-License-Identifier: Apache-2.0

package controlplane

import "testing"

func TestVersionOf(t *testing.T) {
	for image, want := range map[string]string{
		"conducktor-flatcar-1.20.7-v0.3.0-cc9e4ddc":   "1.20.7",
		"conducktor-flatcar-v1.20.7-v0.3.0-cc9e4ddc":  "1.20.7",
		"a-b-1.37.1+build.2-c-d":                      "1.37.1+build.2",
		"golduck--1.18.9--20201120-x":                 "",
		"conducktor-flatcar-1.20.7-v0.3.0":            "",
		"conducktor-flatcar-1.20.7-v0.3.0-cc9e4ddc-x": "",
		"a-b-stable-c-d":                              "",
		"a-b-1.20-c-d":                                "",
		"a-b--c-d":                                    "",
		"":                                            "",
	} {
		if got, ok := VersionOf(image); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %t", image, got, ok)
		}
	}
}
