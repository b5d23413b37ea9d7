// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/kind/plan"
)

func TestWithTag(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]string{
		"rancher/k3s-upgrade":           "rancher/k3s-upgrade:v1",
		"alpine":                        "alpine:v1",
		"docker.io/library/alpine":      "alpine:v1",
		"docker.io/rancher/k3s-upgrade": "rancher/k3s-upgrade:v1",
		"localhost/k3s":                 "localhost/k3s:v1",
		"registry.example.com:5000/a/b": "registry.example.com:5000/a/b:v1",
		"alpine:3":                      "alpine:3",
		"alpine:latest":                 "alpine:latest",
		"docker.io/library/alpine:3":    "docker.io/library/alpine:3",
		"alpine" + digest:               "alpine" + digest,
		"alpine:3" + digest:             "alpine:3" + digest,
		"registry.example.com:5000/a:b": "registry.example.com:5000/a:b",
		// What can't be parsed is left for the kubelet to say.
		"":        "",
		"UPPER":   "UPPER",
		"a b":     "a b",
		"alpine:": "alpine:",
		// 64 hexadecimal digits are an id, not a name.
		strings.Repeat("a", 64): strings.Repeat("a", 64),
	} {
		if got := withTag(image, "v1"); got != want {
			t.Errorf("%q: got %q, want %q", image, got, want)
		}
	}
	for _, tag := range []string{"", "a+b", strings.Repeat("x", 129)} {
		if got := withTag("alpine", tag); got != "alpine" {
			t.Errorf("with tag %q: got %q", tag, got)
		}
	}
}

// The names are system-upgrade-controller's, by which people find the volumes in what else they apply to the pods. Those that it cuts end
// in another hash, and a secret whose name has dots had none that the API server takes.
func TestSecretVolume(t *testing.T) {
	long := strings.Repeat("x", 45)
	for secret, want := range map[string]string{
		"s1":                    "secret-s1",
		"a-b":                   "secret-a-b",
		strings.Repeat("x", 56): "secret-" + strings.Repeat("x", 56), // 63
		// The end is the beginning of the SHA-256 of the whole name.
		strings.Repeat("x", 57): "secret-" + long + "-1b9fe4edc5",
		long + "-" + long:       "secret-" + long + "-d9f5d682d5",
		"a.b":                   "secret-a-b-4e23aaee53",
	} {
		got := secretVolume(secret)
		if problems := validation.IsDNS1123Label(got); len(problems) > 0 {
			t.Errorf("%s: %q is no name: %v", secret, got, problems)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", secret, got, want)
		}
	}
}

func TestDrainArgs(t *testing.T) {
	first := []string{"drain", "node-1", "--pod-selector", "!upgrade.cattle.io/controller"}
	args := func(more ...string) []string { return append(slices.Clip(first), more...) }
	for name, tc := range map[string]struct {
		spec upgradev1.DrainSpec
		want []string
	}{
		"nothing": {
			upgradev1.DrainSpec{},
			args("--ignore-daemonsets", "--delete-emptydir-data"),
		},
		"what is default": {
			upgradev1.DrainSpec{IgnoreDaemonSets: ptr.To(true), DeleteEmptydirData: ptr.To(true)},
			args("--ignore-daemonsets", "--delete-emptydir-data"),
		},
		"daemon sets": {
			upgradev1.DrainSpec{IgnoreDaemonSets: ptr.To(false)},
			args("--delete-emptydir-data"),
		},
		"no empty dirs": {
			upgradev1.DrainSpec{DeleteEmptydirData: ptr.To(false)},
			args("--ignore-daemonsets"),
		},
		"no empty dirs, by the old name": {
			upgradev1.DrainSpec{DeleteLocalData: ptr.To(false)},
			args("--ignore-daemonsets"),
		},
		"empty dirs, by the old name": {
			upgradev1.DrainSpec{DeleteLocalData: ptr.To(true)},
			args("--ignore-daemonsets", "--delete-emptydir-data"),
		},
		"a timeout": {
			upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("1h30m"))},
			args("--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "1h30m"),
		},
		// A number counts nanoseconds: it was a time.Duration once.
		"a timeout in nanoseconds": {
			upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromInt32(1_500_000_000))},
			args("--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "1.5s"),
		},
		"a timeout of 0": {
			upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromInt32(0))},
			args("--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "0s"),
		},
		"a grace period of 0": {
			upgradev1.DrainSpec{GracePeriod: ptr.To[int32](0)},
			args("--ignore-daemonsets", "--delete-emptydir-data", "--grace-period", "0"),
		},
		"a grace period below 0": {
			upgradev1.DrainSpec{GracePeriod: ptr.To[int32](-1)},
			args("--ignore-daemonsets", "--delete-emptydir-data", "--grace-period", "-1"),
		},
		"skip no wait": {
			upgradev1.DrainSpec{SkipWaitForDeleteTimeout: -1},
			args("--ignore-daemonsets", "--delete-emptydir-data"),
		},
		"everything": {
			upgradev1.DrainSpec{
				Timeout: ptr.To(intstr.FromString("5m")), GracePeriod: ptr.To[int32](30), Force: true, DisableEviction: true, SkipWaitForDeleteTimeout: 60,
			},
			args("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout", "5m", "--grace-period", "30", "--disable-eviction=true",
				"--skip-wait-for-delete-timeout", "60"),
		},
	} {
		if diff := cmp.Diff(tc.want, drainArgs(&tc.spec, "node-1")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDrainSelector(t *testing.T) {
	for want, selector := range map[string]*metav1.LabelSelector{
		"!upgrade.cattle.io/controller":                           {},
		"app=web,!upgrade.cattle.io/controller":                   {MatchLabels: map[string]string{"app": "web"}},
		"!upgrade.cattle.io/controller,zone=a":                    {MatchLabels: map[string]string{"zone": "a"}},
		"app notin (csi,x),!upgrade.cattle.io/controller":         {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x", "csi"}}}},
		"!app,tier,!upgrade.cattle.io/controller,zone in (a,b,c)": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"c", "a", "b"}}, {Key: "tier", Operator: metav1.LabelSelectorOpExists}, {Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}},
	} {
		if got := drainArgs(&upgradev1.DrainSpec{PodSelector: selector}, "node-1")[3]; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// kubectl would refuse the argument that only this program's own image knows.
func TestTurnIsForTheOwnImage(t *testing.T) {
	for _, tc := range []struct {
		kubectl string
		windows bool
		want    bool
	}{{"", false, true}, {"rancher/kubectl", false, false}, {"", true, false}, {"rancher/kubectl", true, false}} {
		o := &plan.JobOptions{Image: "moult:v1", KubectlImage: tc.kubectl, KubectlImageWindows: "kubectl:windows"}
		for _, change := range []func(*upgradev1.Plan){drains, func(p *upgradev1.Plan) { p.Spec.Cordon = true }} {
			n := newNode("node-1")
			if tc.windows {
				windows(n)
			}
			args := initContainers(newPlan(change), n, "t1", o)[0].Args
			if got := slices.Contains(args, "--turn") && args[len(args)-1] == "t1"; got != tc.want {
				t.Errorf("%+v: the turn is in %v: %v", tc, args, got)
			}
		}
	}
}
