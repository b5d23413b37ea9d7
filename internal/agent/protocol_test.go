// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

var (
	bottlerocketKeys = v1alpha1.HostProtocols[0]
	dogswatchKeys    = v1alpha1.HostProtocols[1]
)

// nodeSaying is a Node on which that is said: "wanted,active,state,update" of a protocol, and other annotations.
func nodeSaying(p v1alpha1.HostProtocol, intent [4]string, others map[string]string) *metav1.PartialObjectMetadata {
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", ResourceVersion: "7", Labels: map[string]string{p.InterfaceLabel: "2.0.0"}, Annotations: map[string]string{},
	}}
	for i, key := range []string{p.Wanted, p.Active, p.State, p.Update} {
		if intent[i] != "" {
			n.Annotations[key] = intent[i]
		}
	}
	if intent[3] != "" {
		n.Labels[p.Update] = intent[3]
	}
	maps.Copy(n.Annotations, others)
	return n
}

func TestNext(t *testing.T) {
	for intent, want := range map[[4]string]step{
		// Before the operator has spoken.
		{}:                                    idle,
		{"", "unknown", "unknown", "unknown"}: idle,
		// The rows of an update, in order. All but a check is acknowledged first.
		{"stabilize", "unknown", "unknown", "unknown"}:        act,
		{"stabilize", "stabilize", "busy", "unknown"}:         act,
		{"stabilize", "stabilize", "ready", "true"}:           idle,
		{"prepare-update", "stabilize", "ready", "true"}:      acknowledge,
		{"prepare-update", "prepare-update", "busy", "true"}:  act,
		{"prepare-update", "prepare-update", "ready", "true"}: idle,
		{"perform-update", "prepare-update", "ready", "true"}: acknowledge,
		{"perform-update", "perform-update", "busy", "true"}:  act,
		{"perform-update", "perform-update", "ready", "true"}: idle,
		{"reboot-update", "perform-update", "ready", "true"}:  acknowledge,
		{"rollback-update", "stabilize", "ready", "true"}:     acknowledge,
		{"rollback-update", "rollback-update", "busy", ""}:    act,
		{"reboot-update", "reboot-update", "busy", "true"}:    act,
		{"reboot-update", "reboot-update", "ready", "true"}:   idle,
		{"stabilize", "stabilize", "ready", "false"}:          idle,
		// What has failed is the operator's.
		{"stabilize", "stabilize", "error", "unknown"}:        idle,
		{"prepare-update", "prepare-update", "error", "true"}: idle,
		{"reboot-update", "reboot-update", "error", "true"}:   idle,
		{"stabilize", "prepare-update", "error", "true"}:      act,
		// Given up in the middle.
		{"stabilize", "prepare-update", "busy", "true"}: act,
		{"stabilize", "reboot-update", "busy", "true"}:  act,
		// What the peer's operator may say.
		{"unknown", "unknown", "unknown", "unknown"}:      idle,
		{"unknown", "stabilize", "ready", "true"}:         act,
		{"reset-state", "prepare-update", "busy", "true"}: acknowledge,
		{"reset-state", "reset-state", "busy", "true"}:    act,
		// Keys wiped by a person, and words that are none.
		{"", "reboot-update", "busy", "true"}:                   idle,
		{"reboot-update", "reboot-update", "", "true"}:          idle,
		{"reboot-update", "reboot-update", "rebooting", "true"}: idle,
		{"reboot-update", "", "", ""}:                           acknowledge,
		{"format-disk", "stabilize", "ready", "true"}:           idle,
		{"format-disk", "format-disk", "busy", "true"}:          idle,
	} {
		for _, p := range v1alpha1.HostProtocols {
			s, ok := readNode(nodeSaying(p, intent, nil))
			if !ok {
				t.Fatalf("%s is not heard", p.InterfaceLabel)
			}
			if got := s.next(); got != want {
				t.Errorf("%s: next is %d, want %d", s.intent(), got, want)
			}
		}
	}
}

func TestMayCheck(t *testing.T) {
	for intent, want := range map[[4]string]bool{
		{}: false,
		{"stabilize", "unknown", "unknown", "unknown"}:        false,
		{"stabilize", "stabilize", "busy", "unknown"}:         false,
		{"stabilize", "stabilize", "ready", "false"}:          true,
		{"stabilize", "stabilize", "error", "unknown"}:        true,
		{"prepare-update", "prepare-update", "ready", "true"}: false,
		{"perform-update", "perform-update", "error", "true"}: false,
		{"reboot-update", "reboot-update", "ready", "true"}:   false,
	} {
		s, _ := readNode(nodeSaying(bottlerocketKeys, intent, nil))
		if got := s.mayCheck(); got != want {
			t.Errorf("%s: may check: %t, want %t", s.intent(), got, want)
		}
	}
}

// TestAcknowledgement is what the agent writes when it takes something up.
func TestAcknowledgement(t *testing.T) {
	claim := func(boot, rest string) map[string]string {
		const before = `[{"rollout":"NodeRollout/r","uid":"u","revision":"2","turn":"t","since":null,"bootID":"`
		return map[string]string{v1alpha1.AnnotationClaims: before + boot + `"` + rest + `}]`}
	}
	for name, tc := range map[string]struct {
		wanted string
		others map[string]string
		want   map[string]string
	}{
		"perform":       {"perform-update", nil, nil},
		"first attempt": {"prepare-update", nil, map[string]string{v1alpha1.AnnotationHostAttempts: "1"}},
		"third attempt": {"prepare-update", map[string]string{v1alpha1.AnnotationHostAttempts: "2"}, map[string]string{v1alpha1.AnnotationHostAttempts: "3"}},
		"attempts that are no number": {
			"prepare-update", map[string]string{v1alpha1.AnnotationHostAttempts: "many"}, map[string]string{v1alpha1.AnnotationHostAttempts: "1"},
		},
		"reboot":                        {"reboot-update", nil, map[string]string{v1alpha1.AnnotationHostBoot: "boot-2"}},
		"reboot ordered in this boot":   {"reboot-update", claim("boot-2", ""), map[string]string{v1alpha1.AnnotationHostBoot: "boot-2"}},
		"reboot ordered in another one": {"reboot-update", claim("boot-1", ""), map[string]string{v1alpha1.AnnotationHostBoot: "boot-1"}},
		"a turn failed in another boot": {
			"reboot-update", claim("boot-1", `,"failed":{"reason":"NotRebooted","time":null}`), map[string]string{v1alpha1.AnnotationHostBoot: "boot-2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{bottlerocketKeys.Active: tc.wanted, bottlerocketKeys.State: "busy"}
			maps.Copy(want, tc.want)
			s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{tc.wanted, "unknown", "unknown", "true"}, tc.others))
			expectChange(t, s.acknowledgement("boot-2"), want)
		})
	}
}

// expectChange compares a change; a key that is removed is "-".
func expectChange(t *testing.T, got change, want map[string]string) {
	t.Helper()
	plain := map[string]string{}
	for key, value := range got {
		if plain[key] = "-"; value != nil {
			plain[key] = *value
		}
	}
	if want == nil {
		want = map[string]string{}
	}
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClaimsThatCannotBeRead: no one can tell then whether the host has rebooted since the order.
func TestClaimsThatCannotBeRead(t *testing.T) {
	s, _ := readNode(nodeSaying(bottlerocketKeys, [4]string{"reboot-update", "reboot-update", "busy", "true"}, map[string]string{
		v1alpha1.AnnotationClaims: "{", v1alpha1.AnnotationHostBoot: "boot-1",
	}))
	m := &machine{boots: 1}
	a := &Agent{host: m}
	if err := a.reboot(t.Context(), s, false); err == nil || m.calls["reboot"] != 0 {
		t.Errorf("rebooted %d times, error %v", m.calls["reboot"], err)
	}
}
