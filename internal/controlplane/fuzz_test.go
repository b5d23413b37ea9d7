// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// FuzzWithVersion finds configurations of kubeadm of which more changes than the version.
func FuzzWithVersion(f *testing.F) {
	f.Add("apiVersion: kubeadm.k8s.io/v1beta4\nkubernetesVersion: v1.34.1 # x\nx: y\n", "1.35.0", false)
	f.Add(`kubernetesVersion: "v1.36.0"`, "1.35.0", true)
	f.Add("kubernetesVersion:\n  v1.2.3", "1.35.0", true)
	f.Add("{kubernetesVersion: v1.2.3}", "v1.35.0-rc.1+b", false)
	f.Add("kubernetesVersion: v1.2.3\n---\nkubernetesVersion: v1.2.4\n", "1.3.0", false)
	f.Add("", "x", false)
	f.Fuzz(func(t *testing.T, text, to string, older bool) {
		got, err := withVersion(text, to, older)
		if err != nil {
			return
		}
		if again, err := withVersion(got, to, older); err != nil || again != got {
			t.Errorf("%q became %q, and %q, %v", text, got, again, err)
		}
		if rest := func(of string) string { return versionLine.ReplaceAllString(of, "$1") }; rest(got) != rest(text) {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// FuzzVersionOf finds images whose version is none.
func FuzzVersionOf(f *testing.F) {
	for _, image := range []string{"flatcar-stable-1.36.2-v0.3.0-cc9e4ddc", "a-b-v1.2.3-c-d", "----", "a-b-1.2-c-d", ""} {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, image string) {
		version, ok := VersionOf(image)
		if _, err := utilversion.ParseSemantic(version); ok && err != nil || !ok && version != "" || strings.HasPrefix(version, "v") {
			t.Errorf("%q: %q, %v", image, version, err)
		}
	})
}
