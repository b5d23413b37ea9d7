// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestClaims(t *testing.T) {
	noon := metav1.Time{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	for name, tc := range map[string]struct {
		claims []Claim
		text   string
	}{
		"none": {nil, "null"},
		"one with the least": {
			[]Claim{{Rollout: "Plan/a/b", UID: "u", Revision: "r", Turn: "t", Since: noon}},
			`[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-11-20T12:00:00Z"}]`,
		},
		"one with everything": {
			[]Claim{{
				Rollout: "Plan/a/b", UID: "u", Shared: true, Revision: "r", Attempt: "x", Turn: "t", Since: noon, KeptSeconds: 900, Uncordon: true, Soaking: &noon,
				Failed: &ClaimFailure{Reason: ReasonJobLost, Message: `it "broke"`, Time: noon},
			}},
			`[{"rollout":"Plan/a/b","uid":"u","shared":true,"revision":"r","attempt":"x","turn":"t","since":"2026-11-20T12:00:00Z","keptSeconds":900,"uncordon":true,` +
				`"soaking":"2026-11-20T12:00:00Z","failed":{"reason":"JobLost","message":"it \"broke\"","time":"2026-11-20T12:00:00Z"}}]`,
		},
		"two": {
			[]Claim{{Rollout: "Plan/a/b", UID: "u", Since: noon}, {Rollout: "Plan/a/c", UID: "v", Since: noon}},
			`[{"rollout":"Plan/a/b","uid":"u","revision":"","turn":"","since":"2026-11-20T12:00:00Z"},{"rollout":"Plan/a/c","uid":"v","revision":"","turn":"","since":"2026-11-20T12:00:00Z"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := FormatClaims(tc.claims)
			if err != nil || text != tc.text {
				t.Errorf("got %s, %v; want %s", text, err, tc.text)
			}
			claims, err := ParseClaims(map[string]string{AnnotationClaims: tc.text, "other": "{"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.claims, claims); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		claims      int
		want        string // how the error begins
	}{
		"no annotations":       {nil, 0, ""},
		"no such annotation":   {map[string]string{"other": "{"}, 0, ""},
		"an empty one":         {map[string]string{AnnotationClaims: ""}, 0, ""},
		"an empty list":        {map[string]string{AnnotationClaims: "[]"}, 0, ""},
		"fields of the future": {map[string]string{AnnotationClaims: `[{"rollout":"Plan/a/b","uid":"u","colour":"red"}]`}, 1, ""},
		"no JSON":              {map[string]string{AnnotationClaims: "{"}, 0, "reading annotation moult.dev/claims, unexpected end of JSON input"},
		"no list":              {map[string]string{AnnotationClaims: "{}"}, 0, "reading annotation moult.dev/claims, json: cannot unmarshal object"},
		"a word in the list":   {map[string]string{AnnotationClaims: `["x"]`}, 0, "reading annotation moult.dev/claims, json: cannot unmarshal string"},
		"a time that is none":  {map[string]string{AnnotationClaims: `[{"rollout":"Plan/a/b","uid":"u","since":"noon"}]`}, 0, "reading annotation moult.dev/claims, parsing time"},
		"no holder":            {map[string]string{AnnotationClaims: `[{"uid":"u"}]`}, 0, "reading annotation moult.dev/claims, a claim has no rollout or uid, or a year of more than four digits"},
		"no uid":               {map[string]string{AnnotationClaims: `[{"rollout":"Plan/a/b","uid":"u"},{"rollout":"Plan/a/b"}]`}, 0, "reading annotation moult.dev/claims, a claim has no rollout or uid, or a year of more than four digits"},
		"an empty claim":       {map[string]string{AnnotationClaims: `[{}]`}, 0, "reading annotation moult.dev/claims, a claim has no rollout or uid, or a year of more than four digits"},
		"a claim that is null": {map[string]string{AnnotationClaims: `[null]`}, 0, "reading annotation moult.dev/claims, a claim has no rollout or uid, or a year of more than four digits"},
	} {
		t.Run(name, func(t *testing.T) {
			claims, err := ParseClaims(tc.annotations)
			if len(claims) != tc.claims {
				t.Errorf("got %+v", claims)
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestRecordsResult(t *testing.T) {
	for what, tc := range map[string]struct {
		claim            Claim
		records, skipped bool
	}{
		"at work":                     {Claim{}, false, false},
		"failed":                      {Claim{Failed: &ClaimFailure{}}, false, false},
		"skipped":                     {Claim{Failed: &ClaimFailure{Skipped: true}}, true, true},
		"replaced":                    {Claim{Machine: "m"}, false, false},
		"could not be replaced":       {Claim{Machine: "m", Failed: &ClaimFailure{}}, true, false},
		"replaced, its drain skipped": {Claim{Machine: "m", Failed: &ClaimFailure{Skipped: true}}, true, true},
	} {
		if c := tc.claim; c.RecordsResult() != tc.records || c.Skipped() != tc.skipped {
			t.Errorf("%s: records a result %v, skipped %v", what, c.RecordsResult(), c.Skipped())
		}
	}
}
