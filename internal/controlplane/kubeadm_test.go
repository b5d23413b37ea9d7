// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"math/rand/v2"
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
	"double":      "---\n\"kubernetesVersion\": \"VERSION\"\r\nkind: ClusterConfiguration\r\n",
	"JSON":        `{"kind":"ClusterConfiguration","größe":1,"kubernetesVersion":"VERSION","networking":{}}`,
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
	for _, text := range []string{"", "\n# nothing\n", "kind: ClusterConfiguration\n", "nested:\n  kubernetesVersion: v1.2.3\n"} {
		if got, err := withVersion(text, "1.37.0", true); got != text || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"a: [":                               "yaml:",
		"- a":                                "it is no mapping",
		"kubernetesVersion: [v1.2.3]":        "kubernetesVersion in line 1 is no text",
		"a: 1\nkubernetesVersion: &x v1.2.3": "", // See below.
		"kubernetesVersion: >-\n  v1.2.3\n":  "kubernetesVersion in line 1: " + errInPlace.Error(),
		"kubernetesVersion: !!str v1.2.3\n":  "",
	} {
		got, err := withVersion(text, "1.37.0", true)
		switch {
		case want == "" && err != nil && !strings.Contains(err.Error(), errInPlace.Error()):
			t.Errorf("%q: got %q, %v", text, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %q, %v, want %s", text, got, err, want)
		}
	}
	if _, err := withVersion("kubernetesVersion: v1.2.3", "latest", true); err == nil {
		t.Error("took a version that is none")
	}
}

func TestWithoutEndpoint(t *testing.T) {
	const kubeadm = `apiEndpoints:
  cp-1:
    advertiseAddress: 10.0.0.1
    bindPort: 6443
  cp-2:
    advertiseAddress: 10.0.0.2
    bindPort: 6443
  cp-3:
    advertiseAddress: 10.0.0.3
    bindPort: 6443
apiVersion: kubeadm.k8s.io/v1beta2
kind: ClusterStatus
`
	one := func(name string) string {
		return "  cp-" + name + ":\n    advertiseAddress: 10.0.0." + name + "\n    bindPort: 6443\n"
	}
	const commented = `# who is there
apiEndpoints:   # all of them

    # the first
    cp-1:   {advertiseAddress: 10.0.0.1,   bindPort: 6443}

    # the second
    'cp-2':
        advertiseAddress: "10.0.0.2"
        # inside
        note: |
          cp-3:
            not this one

          nor this
        unknown: [1,
          2]

    # the third
    "cp-3": {}
kind:   ClusterStatus`
	for _, test := range []struct{ name, text, node, want string }{
		{"the first", kubeadm, "cp-1", strings.Replace(kubeadm, one("1"), "", 1)},
		{"one between", kubeadm, "cp-2", strings.Replace(kubeadm, one("2"), "", 1)},
		{"the last", kubeadm, "cp-3", strings.Replace(kubeadm, one("3"), "", 1)},
		{"not there", kubeadm, "cp-4", kubeadm},
		{"not even as a name that begins alike", kubeadm, "cp", kubeadm},
		{"the only one", "apiEndpoints:\n" + one("1") + "kind: ClusterStatus\n", "cp-1", "apiEndpoints: {}\nkind: ClusterStatus\n"},
		{"the only one, at the end", "kind: ClusterStatus\napiEndpoints:\n" + one("1"), "cp-1", "kind: ClusterStatus\napiEndpoints: {}\n"},
		{"comments", commented, "cp-1", strings.Replace(commented, "    cp-1:   {advertiseAddress: 10.0.0.1,   bindPort: 6443}\n", "", 1)},
		{"all that is below", commented, "cp-2", commented[:strings.Index(commented, "    'cp-2'")] + commented[strings.Index(commented, "\n    # the third"):]},
		{"in quotes", commented, "cp-3", strings.Replace(commented, "    \"cp-3\": {}\n", "", 1)},
		{"named like a number", "apiEndpoints:\n  1:\n    a: b\n  2: {}\n", "1", "apiEndpoints:\n  2: {}\n"},
		{"no endpoints", "kind: ClusterStatus\n", "cp-1", "kind: ClusterStatus\n"},
		{"null", "apiEndpoints:\nkind: ClusterStatus\n", "cp-1", "apiEndpoints:\nkind: ClusterStatus\n"},
		{"empty", "", "cp-1", ""},
		{
			"set out in another way: what it says is kept", `{"apiEndpoints":{"cp-1":{"bindPort":6443},"cp-2":{"bindPort":6443}},"kind":"ClusterStatus"}`, "cp-1",
			`{"apiEndpoints": {"cp-2": {"bindPort": 6443}}, "kind": "ClusterStatus"}` + "\n",
		},
	} {
		got, err := withoutEndpoint(test.text, test.node)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	if _, err := withoutEndpoint("apiEndpoints: [", "cp-1"); err == nil {
		t.Error("took what is no YAML")
	}
}

// TestEditsOfAnyText edits what is hardly YAML any more: what can't be edited is an error, what was edited says what it should, and is not edited
// again.
func TestEditsOfAnyText(t *testing.T) {
	seeds := []string{"apiEndpoints:\n  a:\n    x: 1\n  b: {}\nkind: ClusterStatus\nkubernetesVersion: v1.2.3\n", `{"apiEndpoints":{"a":{},"b":{}},"kubernetesVersion":"v1.2.3"}`}
	for _, text := range configurations {
		seeds = append(seeds, strings.ReplaceAll(text, "VERSION", "v1.36.2")+"apiEndpoints:\n    a:\n        - 1\n    b: |\n        text\n    c:\n")
	}
	pieces := []string{"\n", "  ", "a:", "- ", "{", "}", "[", "]", "#", "'", `"`, "|", ">", "&x ", "*x", "!!str ", ",", "~", "\t", "\r", "ö", "? ", "kubernetesVersion: ", "apiEndpoints:", "<<: ", "---\n"}
	edited, refused := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		text := seeds[r.IntN(len(seeds))]
		for range r.IntN(4) {
			from := r.IntN(len(text) + 1)
			to := min(len(text), from+r.IntN(6))
			text = text[:from] + pieces[r.IntN(len(pieces))] + text[to:]
		}
		for _, edit := range []func(string) (string, error){
			func(text string) (string, error) { return withVersion(text, "1.37.0", true) },
			func(text string) (string, error) { return withoutEndpoint(text, "a") },
		} {
			got, err := edit(text)
			switch {
			case err != nil:
				refused++
			case got != text:
				edited++
				if again, err := edit(got); (err != nil || again != got) && strings.Count(text, "a:") < 2 {
					t.Errorf("seed %d: %q became %q, and then %q, %v", seed, text, got, again, err)
				}
			}
		}
	}
	if edited < 1000 || refused < 100 {
		t.Errorf("only %d were edited, and %d refused", edited, refused)
	}
}
