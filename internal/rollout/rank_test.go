// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// The first eight bytes of `printf %s node-uid plan-uid hash | sha256sum`.
func TestRank(t *testing.T) {
	for _, tc := range []struct {
		node, rollout types.UID
		revision      string
		want          uint64
	}{
		{"", "", "", 0xe3b0c44298fc1c14},
		{"a", "b", "c", 0xba7816bf8f01cfea},
		{"0b7c5a4e-9f0e-4a1c-8a52-6f3f2f1f0e11", "5d1c2b3a-1111-4222-8333-944455566677", "dabbc96620fa1303f22294cca31c036c1ff35c727238bde988f622dd", 0x22d5e6586f0fd09c},
	} {
		if got := Rank(tc.node, tc.rollout, tc.revision); got != tc.want {
			t.Errorf("Rank(%q, %q, %q) = %#x, want %#x", tc.node, tc.rollout, tc.revision, got, tc.want)
		}
	}
}

// system-upgrade-controller sorts by the hexadecimal text of sha256(node uid, plan uid, hash).
func TestRankOrder(t *testing.T) {
	for _, rollout := range []types.UID{"5d1c2b3a-1111-4222-8333-944455566677", "8e0f6a55-0000-4222-8333-000000000001"} {
		for _, revision := range []string{"", "v1", strings.Repeat("f", 200)} {
			nodes := make([]types.UID, 500)
			for i := range nodes {
				nodes[i] = types.UID(fmt.Sprintf("0b7c5a4e-9f0e-4a1c-8a52-%012d", i))
			}
			want := slices.SortedFunc(slices.Values(nodes), func(a, b types.UID) int {
				hash := func(node types.UID) string {
					return fmt.Sprintf("%x", sha256.Sum256([]byte(string(node)+string(rollout)+revision)))
				}
				return cmp.Compare(hash(a), hash(b))
			})
			got := slices.SortedFunc(slices.Values(nodes), func(a, b types.UID) int {
				return cmp.Compare(Rank(a, rollout, revision), Rank(b, rollout, revision))
			})
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s at %q (-want +got):\n%s", rollout, revision, diff)
			}
		}
	}
}
