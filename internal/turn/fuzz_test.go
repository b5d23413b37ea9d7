// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// FuzzDecode finds Plans and NodeRollouts that are read differently than they are stored. Of a malformed one only metadata and status are read.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"spec":{"hostUpdate":{}}}`, `{"spec":{"concurrency":"x"}}`, `{"spec":null,"status":{"conditions":[{"type":1}]}}`, `{"spec":{"drain":{"timeout":"5m"}}}`,
		`{"spec":{"upgrade":{"resources":{"limits":{"cpu":"1e3999999"}}}}}`, `{"metadata":{"name":1}}`, `{"metadata":{"annotations":{"a":null}},"spec":[]}`,
		`{"spec":{"concurrency":9223372036854775807}}`, `{"spec":{"window":{"days":["mon",1]}}}`, `{"status":{"units":[null]},"spec":{"drain":{"timeout":1e99}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fields := map[string]any{}
		if len(text) > 1<<16 || strings.Count(string(text), "{") > 1000 {
			return // The API server bounds the depth.
		}
		stored := Object()
		if json.Unmarshal(text, &fields) != nil {
			return
		}
		delete(fields, "kind")
		delete(fields, "apiVersion")
		maps.Copy(stored.Object, fields)
		// A stored object is read by a decoder that keeps integers.
		whole, err := stored.MarshalJSON()
		if err != nil || stored.UnmarshalJSON(whole) != nil {
			return
		}
		StatusOf(stored)
		Replaces(stored)
		r, malformed, err := Decode(stored)
		if err == nil && malformed != nil && !reflect.ValueOf(r.Spec).IsZero() {
			t.Errorf("%v, and its spec is read: %+v", malformed, r.Spec)
		}
		if err == nil && malformed == nil {
			isStable(t, r, &v1alpha1.NodeRollout{}, func(u *unstructured.Unstructured) (any, error, error) { return Decode(u) })
		}
		p := &upgradev1.Plan{}
		malformed, err = DecodeInto(stored, p, &p.Spec, &p.Status)
		if err == nil && malformed != nil && !reflect.ValueOf(p.Spec).IsZero() {
			t.Errorf("%v, and its spec is read: %+v", malformed, p.Spec)
		}
		if err == nil && malformed == nil {
			isStable(t, p, nil, func(u *unstructured.Unstructured) (any, error, error) {
				p := &upgradev1.Plan{}
				malformed, err := DecodeInto(u, p, &p.Spec, &p.Status)
				return p, malformed, err
			})
		}
	})
}

// isStable checks that what is read and written is read again as the same.
func isStable(t *testing.T, o, _ any, decode func(*unstructured.Unstructured) (any, error, error)) {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	u := Object()
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	again, malformed, err := decode(u)
	if malformed != nil || err != nil {
		t.Fatalf("%s: %v, %v", text, malformed, err)
	}
	if same, err := json.Marshal(again); err != nil || string(same) != string(text) {
		t.Errorf("%s became %s, %v", text, same, err)
	}
}
