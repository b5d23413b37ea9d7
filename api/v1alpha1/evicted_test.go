// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEvicted(t *testing.T) {
	for value, want := range map[string][]Workload{
		"":   nil,
		"[]": {},
		`["ReplicaSet/shop/cart-5d4f","StatefulSet/shop/db"]`: {{"ReplicaSet", "shop", "cart-5d4f"}, {"StatefulSet", "shop", "db"}},
	} {
		got, err := ParseEvicted(map[string]string{AnnotationEvicted: value})
		if err != nil {
			t.Errorf("%s: %v", value, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", value, diff)
		}
	}
	for _, value := range []string{"{", `["a"]`, `["a/b"]`, `["a/b/c/d"]`, `["a//c"]`, `[1]`, `"ReplicaSet/shop/cart"`} {
		if got, err := ParseEvicted(map[string]string{AnnotationEvicted: value}); got != nil || err == nil ||
			!strings.HasPrefix(err.Error(), "reading annotation moult.dev/evicted, ") {
			t.Errorf("%s: got %v, %v", value, got, err)
		}
	}
}
