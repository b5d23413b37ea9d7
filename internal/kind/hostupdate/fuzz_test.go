// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// FuzzRead finds reports whose parts are larger than a status may have.
func FuzzRead(f *testing.F) {
	f.Add("stabilize", "1.2.3", "1.2.2", "failed", "3", "2026-01-02T03:04:05Z", "Bottlerocket OS 1.20.3 (aws)", "true")
	f.Add("reboot-update", strings.Repeat("9", 65), "\xff", strings.Repeat("é", 600), "99999999999999999999", "x", "Bottlerocket OS  ", "")
	f.Add("", "", "", "", "-1", "", "Bottlerocket OS 1.2.3-"+strings.Repeat("a", 1<<10), "maybe")
	f.Fuzz(func(t *testing.T, active, target, version, why, attempts, checked, image, update string) {
		protocol, _, ok := v1alpha1.HostProtocolOf(map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: "updog"})
		if !ok {
			t.Fatal("no protocol")
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: "updog"}, Annotations: map[string]string{
			protocol.Active: active, protocol.Wanted: active, protocol.State: "ready", protocol.Update: update, v1alpha1.AnnotationHostTarget: target,
			v1alpha1.AnnotationHostVersion: version, v1alpha1.AnnotationHostError: why, v1alpha1.AnnotationHostAttempts: attempts,
			v1alpha1.AnnotationHostChecked: checked,
		}}}
		n.Status.NodeInfo.OSImage = image
		r, ok := Read(n)
		if !ok {
			t.Fatal("no report")
		}
		for _, text := range []string{r.Target, r.Version, r.Booted, string(r.Active)} {
			if len(text) > longestName {
				t.Errorf("%q has %d bytes", text, len(text))
			}
		}
		if len(r.Error) > 1024 || utf8.ValidString(why) && !utf8.ValidString(r.Error) {
			t.Errorf("the error has %d bytes: %q", len(r.Error), r.Error)
		}
		if n, err := strconv.Atoi(attempts); r.Attempts < 0 || err == nil && n >= 0 && n != r.Attempts {
			t.Errorf("attempts %q are %d", attempts, r.Attempts)
		}
		if r.Knows() && update != v1alpha1.HostUpdateTrue && update != v1alpha1.HostUpdateFalse {
			t.Errorf("it knows %q", update)
		}
	})
}

// FuzzCompareVersions finds versions that have no order.
func FuzzCompareVersions(f *testing.F) {
	f.Add("1.2.3", "v1.2.3", "1.2.4")
	f.Add("1.2.3-rc.1", "1.2.3-rc.99999999999999999999", "1.2.3-rc.a")
	f.Add("", "x", "1.2.3+b")
	f.Add("v", "vv1.2.3", "99999999999999999999.0.0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		all := []string{a, b, c}
		slices.SortFunc(all, CompareVersions)
		for i, low := range all {
			for j, high := range all {
				got := CompareVersions(low, high)
				if i < j && got > 0 || cmp.Compare(got, 0) != -cmp.Compare(CompareVersions(high, low), 0) || i == j && got != 0 {
					t.Errorf("%q and %q compare as %d, of %q", low, high, got, all)
				}
			}
		}
	})
}

// FuzzRevision finds a revision that does not come after those before it: hosts would count as updated that are not.
func FuzzRevision(f *testing.F) {
	f.Add("reboot-1", "reboot-2", true)
	f.Add("", "", false)
	f.Add("reboot-9223372036854775807", "reboot-x", true)
	f.Add("1.2.3", "reboot--1", true)
	f.Fuzz(func(t *testing.T, before, turn string, complete bool) {
		asks := Report{
			Wanted: v1alpha1.HostActionStabilize, Active: v1alpha1.HostActionStabilize, State: v1alpha1.HostStateReady, Update: v1alpha1.HostUpdateTrue,
		}
		reports := []*Report{&asks}
		got := revisionOf(reports, before, true, complete, []string{turn})
		text, ok := strings.CutPrefix(got, numbered)
		n, err := strconv.Atoi(text)
		if !ok || err != nil || n < 1 {
			t.Fatalf("after %q and %q comes %q", before, turn, got)
		}
		if next := revisionOf(reports, got, true, true, nil); next == got {
			t.Errorf("%s comes after itself", got)
		}
	})
}
