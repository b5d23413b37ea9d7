// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

var at = time.Date(2026, 5, 4, 3, 2, 1, 0, time.FixedZone("", 7200))

const checkedAt = "2026-05-04T01:02:01Z"

func TestSucceeded(t *testing.T) {
	const version, target, previous = v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostPrevious
	const attempts, failure = v1alpha1.AnnotationHostAttempts, v1alpha1.AnnotationHostError
	const checked, boot = v1alpha1.AnnotationHostChecked, v1alpha1.AnnotationHostBoot
	p := bottlerocketKeys
	for name, tc := range map[string]struct {
		action string
		others map[string]string
		found  outcome
		want   map[string]string
	}{
		"an update is found": {
			"stabilize", nil, outcome{runs: "1.0.0", offer: &host.Offer{Available: true, Version: "1.1.0"}},
			map[string]string{p.Update: "true", version: "1.0.0", target: "1.1.0", checked: checkedAt},
		},
		"the same one is found again after an attempt": {
			"stabilize", map[string]string{version: "1.0.0", target: "1.1.0", attempts: "2", failure: "bad", boot: "boot-1", checked: "before"},
			outcome{runs: "1.0.0", offer: &host.Offer{Available: true, Version: "1.1.0"}},
			map[string]string{p.Update: "true", checked: checkedAt, failure: "-", boot: "-"},
		},
		"another one is found": {
			"stabilize", map[string]string{version: "1.0.0", target: "1.1.0", attempts: "2"},
			outcome{runs: "1.0.0", offer: &host.Offer{Available: true, Version: "1.2.0"}},
			map[string]string{p.Update: "true", checked: checkedAt, target: "1.2.0", attempts: "-"},
		},
		"an update without a name": {
			"stabilize", map[string]string{attempts: "1"}, outcome{runs: "", offer: &host.Offer{Available: true}},
			map[string]string{p.Update: "true", checked: checkedAt},
		},
		"there is none any more": {
			"stabilize", map[string]string{version: "1.0.0", target: "1.1.0", attempts: "2"}, outcome{runs: "1.1.0", offer: &host.Offer{}},
			map[string]string{p.Update: "false", version: "1.1.0", previous: "1.0.0", target: "-", attempts: "-", checked: checkedAt},
		},
		"it is prepared":  {"prepare-update", map[string]string{attempts: "1", failure: "bad"}, outcome{}, map[string]string{failure: "-"}},
		"it is performed": {"perform-update", map[string]string{attempts: "1"}, outcome{}, nil},
		"it has rebooted": {
			"reboot-update", map[string]string{version: "1.0.0", target: "1.1.0", attempts: "1", boot: "boot-1"}, outcome{runs: "1.1.0"},
			map[string]string{version: "1.1.0", previous: "1.0.0", attempts: "-", boot: "-"},
		},
		"it has rebooted, and has looked": {
			"reboot-update", map[string]string{version: "1.0.0", target: "1.1.0", attempts: "1", boot: "boot-1"}, outcome{runs: "1.1.0", offer: &host.Offer{}},
			map[string]string{p.Update: "false", version: "1.1.0", previous: "1.0.0", target: "-", attempts: "-", boot: "-", checked: checkedAt},
		},
		"it has rebooted, and another one is found": {
			"reboot-update", map[string]string{version: "1.0.0", target: "1.1.0", attempts: "1", boot: "boot-1"},
			outcome{runs: "1.1.0", offer: &host.Offer{Available: true, Version: "1.2.0"}},
			map[string]string{p.Update: "true", version: "1.1.0", previous: "1.0.0", target: "1.2.0", attempts: "-", boot: "-", checked: checkedAt},
		},
		"it has rebooted, and the target is still there": {
			"reboot-update", map[string]string{version: "1.0.0", target: "1.2.0", attempts: "1", boot: "boot-1"},
			outcome{runs: "1.1.0", offer: &host.Offer{Available: true, Version: "1.2.0"}},
			map[string]string{p.Update: "true", version: "1.1.0", previous: "1.0.0", attempts: "-", boot: "-", checked: checkedAt},
		},
		"it has rebooted, without names": {
			"reboot-update", map[string]string{attempts: "1", boot: "boot-1"}, outcome{}, map[string]string{attempts: "-", boot: "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := readNode(nodeSaying(p, [4]string{tc.action, tc.action, "busy", "unknown"}, tc.others))
			want := map[string]string{p.State: "ready"}
			maps.Copy(want, tc.want)
			expectChange(t, s.missing(s.success(v1alpha1.HostAction(tc.action), tc.found, at)), want)
		})
	}
}

func TestChecked(t *testing.T) {
	const version, target, checked = v1alpha1.AnnotationHostVersion, v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostChecked
	p := dogswatchKeys
	before := map[string]string{version: "1.0.0", target: "1.1.0", checked: "before"}
	known := outcome{runs: "1.0.0", offer: &host.Offer{Available: true, Version: "1.1.0"}}

	s, _ := readNode(nodeSaying(p, [4]string{"stabilize", "stabilize", "ready", "true"}, before))
	expectChange(t, s.success("", known, at), nil)
	expectChange(t, s.success("", outcome{runs: "1.0.0", offer: &host.Offer{Available: true, Version: "1.2.0"}}, at), map[string]string{target: "1.2.0", checked: checkedAt})
	expectChange(t, s.success("", outcome{runs: "1.0.0", offer: &host.Offer{}}, at), map[string]string{p.Update: "false", target: "-", checked: checkedAt})

	delete(s.meta.Labels, p.Update)
	expectChange(t, s.success("", known, at), map[string]string{checked: checkedAt, p.Update: "true"})

	s, _ = readNode(nodeSaying(p, [4]string{"stabilize", "stabilize", "error", "true"}, map[string]string{
		version: "1.0.0", target: "1.1.0", v1alpha1.AnnotationHostError: "bad",
	}))
	expectChange(t, s.success("", known, at), map[string]string{p.State: "ready", v1alpha1.AnnotationHostError: "-", checked: checkedAt})
}

// TestOwnKeys: whatever happens, the agent writes no key but its own.
func TestOwnKeys(t *testing.T) {
	for _, p := range v1alpha1.HostProtocols {
		annotations := []string{
			p.Active, p.State, p.Update, "moult.dev/host-version", "moult.dev/host-target", "moult.dev/host-previous", "moult.dev/host-attempts",
			"moult.dev/host-error", "moult.dev/host-checked", "moult.dev/host-boot",
		}
		for _, action := range []string{"stabilize", "unknown", "reset-state", "prepare-update", "perform-update", "reboot-update"} {
			s, _ := readNode(nodeSaying(p, [4]string{action, action, "busy", "unknown"}, map[string]string{v1alpha1.AnnotationHostWanted: "1.2.0"}))
			f := outcome{runs: "1.0.0", offer: &host.Offer{Available: true, Version: "1.1.0"}}
			for _, w := range []change{s.acknowledgement("boot"), s.success(v1alpha1.HostAction(action), f, at), s.report(v1alpha1.HostAction(action), v1alpha1.HostStateError, "bad")} {
				for key := range w {
					if !slices.Contains(annotations, key) {
						t.Errorf("%s writes the annotation %s", action, key)
					}
				}
				var patch struct{ Metadata map[string]any }
				if err := json.Unmarshal(s.patch(w), &patch); err != nil {
					t.Fatal(err)
				}
				for key := range patch.Metadata {
					if !slices.Contains([]string{"resourceVersion", "annotations", "labels"}, key) {
						t.Errorf("%s writes metadata.%s", action, key)
					}
				}
				update, labelled := patch.Metadata["annotations"].(map[string]any)[p.Update]
				var want any
				if labelled {
					want = map[string]any{p.Update: update}
				}
				if diff := cmp.Diff(want, patch.Metadata["labels"]); diff != "" {
					t.Errorf("%s writes other labels (-want +got):\n%s", action, diff)
				}
				if patch.Metadata["resourceVersion"] != "7" {
					t.Errorf("the precondition is %v", patch.Metadata["resourceVersion"])
				}
			}
		}
	}
}

func TestErrorsFit(t *testing.T) {
	for _, text := range []string{
		"short", strings.Repeat("long ", 1000), strings.Repeat("ü", 1000), strings.Repeat("a", 1019) + "üüüüü", "not \xff UTF-8",
	} {
		got := shorten(text)
		if len(got) > maxError || got == "" || !utf8.ValidString(got) {
			t.Errorf("%.20q becomes %d bytes: %q", text, len(got), got)
		}
		if len(text) < 100 && utf8.ValidString(text) && got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
