// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// FuzzReadNode finds Nodes on which the agent would write what it can't read, or too much.
func FuzzReadNode(f *testing.F) {
	f.Add("prepare-update", "", "", "1", "[]", "no space left")
	f.Add("prepare-update", "stabilize", "busy", "9223372036854775807", "{", "\xff"+strings.Repeat("é", maxError))
	f.Add("reset", "reset", "error", "-1", `[{"rollout":"Plan/a/b","uid":"u","bootID":"b"}]`, "")
	f.Fuzz(func(t *testing.T, wanted, active, state, attempts, claims, why string) {
		protocol, _, _ := v1alpha1.HostProtocolOf(map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: "updog"})
		n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{v1alpha1.HostProtocols[0].InterfaceLabel: "updog"},
			Annotations: map[string]string{
				protocol.Wanted: wanted, protocol.Active: active, protocol.State: state,
				v1alpha1.AnnotationHostAttempts: attempts, v1alpha1.AnnotationClaims: claims,
			},
		}}
		s, ok := readNode(n)
		if !ok {
			t.Fatal("no state")
		}
		if s.attempts < 0 {
			t.Errorf("%d attempts", s.attempts)
		}
		if next := s.next(); next != idle && !isKnown(s.wanted) {
			t.Errorf("%v for %q", next, wanted)
		}
		if written := s.acknowledgement("boot")[v1alpha1.AnnotationHostAttempts]; written != nil {
			if n, err := strconv.Atoi(*written); err != nil || n <= s.attempts {
				t.Errorf("after %d attempts come %s, %v", s.attempts, *written, err)
			}
		}
		c := s.report(s.wanted, v1alpha1.HostStateError, why)
		if text := c[v1alpha1.AnnotationHostError]; text != nil && (len(*text) > maxError || !utf8.ValidString(*text)) {
			t.Errorf("the error has %d bytes: %q", len(*text), *text)
		}
		if !json.Valid(s.patch(c)) {
			t.Errorf("%s is no JSON", s.patch(c))
		}
	})
}
