// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func TestRead(t *testing.T) {
	bottlerocket, thar, own := v1alpha1.HostProtocols[0], v1alpha1.HostProtocols[1], v1alpha1.HostProtocols[2]
	full := map[string]string{
		bottlerocket.Wanted: "prepare-update", bottlerocket.Active: "stabilize", bottlerocket.State: "ready", bottlerocket.Update: "true",
		thar.Wanted: "reboot-update", thar.State: "error",
		v1alpha1.AnnotationHostVersion: "1.20.3", v1alpha1.AnnotationHostTarget: "1.21.0", v1alpha1.AnnotationHostError: "no space", v1alpha1.AnnotationHostBoot: "old",
		v1alpha1.AnnotationHostAttempts: "2", v1alpha1.AnnotationHostChecked: "2026-11-20T12:00:00Z",
	}
	for _, tc := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		image       string
		want        Report
		ok          bool
	}{
		{name: "no label", annotations: full},
		{"nothing said", map[string]string{own.InterfaceLabel: "sentinel"}, nil, "Ubuntu 24.04", Report{Protocol: own, Interface: "sentinel", BootID: "now"}, true},
		{"everything said", map[string]string{bottlerocket.InterfaceLabel: "2.0.0"}, full, "Bottlerocket OS 1.0.0 (aws-k8s-1.31)", Report{
			Protocol: bottlerocket, Interface: "2.0.0", Wanted: "prepare-update", Active: "stabilize", State: "ready", Update: "true", Version: "1.0.0", Booted: "1.0.0", Target: "1.21.0",
			Error: "no space", BootID: "now", RebootingFrom: "old", Attempts: 2, Checked: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		}, true},
		{"of several protocols the first counts", map[string]string{thar.InterfaceLabel: "x", own.InterfaceLabel: "sentinel"}, full, "", Report{
			Protocol: thar, Interface: "x", Wanted: "reboot-update", State: "error", Version: "1.20.3", Target: "1.21.0",
			Error: "no space", BootID: "now", RebootingFrom: "old", Attempts: 2, Checked: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		}, true},
		{"the kubelet tells the version", map[string]string{bottlerocket.InterfaceLabel: "1.0.0"}, nil, "Bottlerocket OS 1.19.2 (aws-k8s-1.31)",
			Report{Protocol: bottlerocket, Interface: "1.0.0", Version: "1.19.2", Booted: "1.19.2", BootID: "now"}, true},
		{"what is no number and no time", map[string]string{own.InterfaceLabel: ""}, map[string]string{v1alpha1.AnnotationHostAttempts: "x", v1alpha1.AnnotationHostChecked: "y"},
			"Bottlerocket OS (unknown)", Report{Protocol: own, BootID: "now"}, true},
		{"what is too long for a status", map[string]string{own.InterfaceLabel: ""}, map[string]string{
			v1alpha1.AnnotationHostVersion: strings.Repeat("1", 65), v1alpha1.AnnotationHostTarget: strings.Repeat("1", 65), v1alpha1.AnnotationHostError: strings.Repeat("x", 1025),
		}, "", Report{Protocol: own, Error: strings.Repeat("x", 1021) + "…", BootID: "now"}, true},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
		n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "now", OSImage: tc.image}
		got, ok := Read(n)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, ok, diff)
		}
	}
}

func TestReportAsks(t *testing.T) {
	for _, tc := range []struct {
		wanted, active v1alpha1.HostAction
		state          v1alpha1.HostState
		asked          bool
		answers        bool
		knows          bool
	}{
		{"", "", "", true, false, false},
		{"unknown", "unknown", "unknown", true, false, false},
		{"unknown", "stabilize", "ready", true, false, false},
		{"nonsense", "", "", true, false, false},
		{"stabilize", "unknown", "unknown", false, false, false},
		{"stabilize", "", "", false, false, false},
		{"stabilize", "stabilize", "unknown", true, false, false},
		{"stabilize", "stabilize", "", true, false, false},
		{"stabilize", "stabilize", "busy", false, false, false},
		{"stabilize", "stabilize", "up-to-date", true, false, false},
		{"stabilize", "stabilize", "ready", false, true, true},
		{"stabilize", "stabilize", "error", false, true, false},
		{"prepare-update", "stabilize", "ready", false, false, false},
		{"prepare-update", "prepare-update", "", true, false, false},
		{"prepare-update", "prepare-update", "ready", false, true, false},
		{"perform-update", "perform-update", "nonsense", true, false, false},
		{"reboot-update", "perform-update", "ready", false, false, false},
		{"reboot-update", "reboot-update", "busy", false, false, false},
		{"reboot-update", "reboot-update", "unknown", true, false, false},
		{"reboot-update", "reboot-update", "rebooting", true, false, false},
		{"reset-state", "", "", false, false, false},
		{"reset-state", "reset-state", "busy", false, false, false},
		{"reset-state", "reset-state", "ready", true, true, false},
		{"reset-state", "reset-state", "error", false, true, false},
	} {
		r := Report{Wanted: tc.wanted, Active: tc.active, State: tc.state, Update: v1alpha1.HostUpdateTrue}
		if got := [3]bool{r.MustBeAsked(), r.Answers(tc.wanted), r.Knows()}; got != [3]bool{tc.asked, tc.answers, tc.knows} {
			t.Errorf("%s,%s,%s: asked, answers, knows are %v", tc.wanted, tc.active, tc.state, got)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	ascending := []string{"", "latest", "newest", "0.4.1", "v1.0.0-rc.1", "1.0.0", "1.2.3", "v1.10.0", "2.0.0"}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := CompareVersions(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%q to %q is %d", a, b, got)
			}
		}
	}
	if CompareVersions("v1.2.3", "1.2.3") != 0 || CompareVersions("1.2.3+a", "1.2.3+b") != 0 {
		t.Error("v and builds count")
	}
}
