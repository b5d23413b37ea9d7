// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "testing"

// FuzzParseClaims finds claims that are read, and can't be read again once they are written.
func FuzzParseClaims(f *testing.F) {
	for _, value := range []string{
		"", "null", "[]", "{}", "[null]", `[{"rollout":"Plan/a/b","uid":"u","since":null}]`,
		`[{"rollout":"Plan/a/b","uid":"u","shared":true,"revision":"r","turn":"t","since":"2026-01-02T03:04:05Z","failed":{"reason":"x","time":null}}]`,
		`[{"rollout":"Plan/a/b","uid":"u","since":"9999-12-31T23:59:59-23:59"}]`, `[{"rollout":"Plan/a/b","uid":"u","keptSeconds":2147483648}]`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		claims, err := ParseClaims(map[string]string{AnnotationClaims: value})
		if err != nil {
			return
		}
		written, err := FormatClaims(claims)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseClaims(map[string]string{AnnotationClaims: written})
		if err != nil || len(again) != len(claims) {
			t.Fatalf("%s: %d of %d claims, %v", written, len(again), len(claims), err)
		}
		if same, err := FormatClaims(again); err != nil || same != written {
			t.Errorf("%s became %s, %v", written, same, err)
		}
	})
}
