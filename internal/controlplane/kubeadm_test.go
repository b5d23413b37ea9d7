// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// configurations are as kubeadm writes them, in each of its versions, and as people have changed them.
var configurations = map[string]string{
	"v1beta2": `apiServer:
  extraArgs:
    authorization-mode: Node,RBAC
  timeoutForControlPlane: 4m0s
apiVersion: kubeadm.k8s.io/v1beta2
certificatesDir: /etc/kubernetes/pki
clusterName: kubernetes
dns:
  type: CoreDNS
etcd:
  local:
    dataDir: /var/lib/etcd
kind: ClusterConfiguration
kubernetesVersion: VERSION
networking:
  dnsDomain: cluster.local
`,
	"v1beta4": `apiServer:
  extraArgs:
  - name: audit-log-path
    value: "/var/log/audit.log"   # kept
apiVersion: kubeadm.k8s.io/v1beta4
encryptionAlgorithm: RSA-2048
kind: ClusterConfiguration

# the version of all nodes
kubernetesVersion:   VERSION   # by hand

futureField: {a: [1,2 , 3],   b: ~}
networking: {}
proxy: {disabled: false}
`,
	"v1":          "apiVersion: kubeadm.k8s.io/v1\nkind: ClusterConfiguration\nkubernetesVersion: VERSION",
	"single":      "# Größe\nkubernetesVersion: 'VERSION'\nkind: ClusterConfiguration\n",
	"double":      "---\nkubernetesVersion: \"VERSION\"\r\nkind: ClusterConfiguration\r\n",
	"twice there": "imageRepository: VERSION\nkubernetesVersion: VERSION\nnested:\n  kubernetesVersion: v1.0.0\n",
}

func TestWithVersion(t *testing.T) {
	for name, text := range configurations {
		before := strings.ReplaceAll(text, "VERSION", "v1.36.2")
		after := before
		if at := strings.LastIndex(text, "VERSION"); at >= 0 {
			after = strings.ReplaceAll(text[:at], "VERSION", "v1.36.2") + "v1.37.0" + strings.ReplaceAll(text[at+len("VERSION"):], "VERSION", "v1.36.2")
		}
		for _, to := range []string{"1.37.0", "v1.37.0"} {
			got, err := withVersion(before, to, true)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if diff := cmp.Diff(after, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		for _, same := range []string{"1.36.2", "v1.36.2"} {
			if got, err := withVersion(before, same, true); got != before || err != nil {
				t.Errorf("%s to %s: got %q, %v", name, same, got, err)
			}
		}
		if bare := strings.ReplaceAll(text, "VERSION", "1.36.2"); true {
			if got, err := withVersion(bare, "v1.36.2", true); got != bare || err != nil {
				t.Errorf("%s without v: got %q, %v", name, got, err)
			}
		}
	}
	for _, text := range []string{"", "\n# nothing\n", "kind: ClusterConfiguration\n"} {
		if got, err := withVersion(text, "1.37.0", true); got != text || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"kubernetesVersion: [v1.2.3]":            `kubernetesVersion "[v1.2.3]" is not a version: write it on one line, as kubeadm does`,
		"kubernetesVersion: >-\n  v1.2.3\n":      `kubernetesVersion ">-" is not a version: write it on one line, as kubeadm does`,
		`{"kubernetesVersion": "v1.2.3"}`:        "there is no line kubernetesVersion: write it on one line, as kubeadm does",
		"nested:\n  kubernetesVersion: v1.2.3\n": "there is no line kubernetesVersion: write it on one line, as kubeadm does",
	} {
		if got, err := withVersion(text, "1.37.0", true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want %s", text, got, err, want)
		}
	}
	if _, err := withVersion("kubernetesVersion: v1.2.3", "latest", true); err == nil {
		t.Error("took a version that is none")
	}
}

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
