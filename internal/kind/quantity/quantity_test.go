// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What resource.ParseQuantity reads quickly is accepted, and what could hang it is not.
func TestCheckQuantity(t *testing.T) {
	for _, text := range []string{"0", "-1", "100m", "1.5", ".5", "1Gi", "12e6", "1E", "1e-3", "1e999", strings.Repeat("9", 64)} {
		if err := Check(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := resource.ParseQuantity(text); err != nil {
			t.Errorf("ParseQuantity does not read %q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", "x", "1e1000", "1111111111111111111e3999999", "1e-999999999", "1e+0001", strings.Repeat("9", 65), strings.Repeat("0", 1<<20), "1e3.5", " 1", "1\n",
	} {
		if Check(text) == nil {
			t.Errorf("%.80q is accepted", text)
		}
	}
}

// The error names the field. Other fields may have the same names.
func TestCheckAll(t *testing.T) {
	const long = "1e3999999"
	for want, spec := range map[string]map[string]any{
		"spec.env[1].valueFrom.resourceFieldRef.divisor": {"env": []any{
			map[string]any{"value": long},
			map[string]any{"valueFrom": map[string]any{"resourceFieldRef": map[string]any{"divisor": long}}},
		}},
		"spec.resources.limits.cpu": {"resources": map[string]any{"limits": map[string]any{"cpu": long}, "requests": map[string]any{"cpu": "1"}}},
		"": {
			"annotations": map[string]any{"limits": "none", "requests.example.com": long}, "divisor": int64(1),
			"limits": map[string]any{"names": map[string]any{"a": long}},
		},
	} {
		err := CheckAll("spec", spec)
		if got, _, _ := strings.Cut(fmt.Sprint(err), ":"); got != want && (want != "" || err != nil) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// FuzzBounded finds text that is accepted and then can't be written again.
func FuzzBounded(f *testing.F) {
	for _, text := range []string{`"1Gi"`, `5`, `null`, `"1e999"`, `"1e3999999"`, `"\u0031"`, `-1.5e-3`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b Bounded
		if json.Unmarshal(text, &b) != nil {
			return
		}
		if _, err := json.Marshal(b); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
