// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
)

func TestMunge(t *testing.T) {
	for version, want := range map[string]string{
		"v1.31.2+k3s1": "v1.31.2-k3s1",
		"v1.31.2-k3s1": "v1.31.2-k3s1",
		"a+b+c":        "a-b-c",
		"+":            "-",
		"":             "",
	} {
		if got := munge(version); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}

func TestIsDowngrade(t *testing.T) {
	// Each pair goes up. The way back is a downgrade, and the way up is none.
	for _, pair := range [][2]string{
		{"v1.30.1-k3s1", "v1.31.0-k3s1"},
		{"v1.30.1-k3s1", "v1.30.2-k3s1"},
		{"v1.30.9-k3s1", "v1.30.10-k3s1"},
		{"v1.30.1-k3s1", "v1.30.1-k3s2"},
		{"v1.30.1-k3s1", "v1.30.1-k3s10"},
		{"v1.30.1-k3s9", "v1.30.1-k3s10"},
		{"v1.30.1-rc1-k3s1", "v1.30.1-rc2-k3s1"},
		{"v1.30.1-rc9-k3s2", "v1.30.1-rc10-k3s1"},
		{"v1.30.1-rke2r1", "v1.30.1-rke2r2"},
		{"v1.9", "v1.10"},
		{"v1.9-rke2r3", "v1.10-rke2r1"},
		{"1.30.1", "v1.31.0"},
		{"v1.30", "v1.30.1"},
		{"v1.30.1-20260101", "v1.30.1-20260102"},
		{"v1.30.1-009", "v1.30.1-10"},
		{"v1.30.1-k3s1", "v2.0.0"},
		{"v1.30.1-99999999999999999999998", "v1.30.1-99999999999999999999999"},
	} {
		if isDowngrade(pair[0], pair[1]) {
			t.Errorf("%s to %s is taken for a downgrade", pair[0], pair[1])
		}
		if !isDowngrade(pair[1], pair[0]) {
			t.Errorf("%s to %s is not taken for a downgrade", pair[1], pair[0])
		}
	}
	// What can't be told apart is no downgrade, either way.
	for _, pair := range [][2]string{
		{"v1.30.1-k3s1", "v1.30.1-k3s1"},
		{"v1.30.1-k3s1", "v1.30.1-k3s01"},
		{"v1.30.1-rc1-k3s1", "v1.30.1-k3s1"},
		{"v1.30.1-k3s1", "v1.30.1-rke2r2"},
		{"v1.30.1", "v1.30.1-k3s1"},
		{"v1.30.1", "1.30.1"},
		{"v1.30", "v1.30.0"},
		{"latest", "v1.30.1"},
		{"bionic", "focal"},
		{"", "v1.30.1"},
		{"v1", "v2"},
		{"2026-01-02", "2026-01-01"},
	} {
		if isDowngrade(pair[0], pair[1]) || isDowngrade(pair[1], pair[0]) {
			t.Errorf("%s and %s: one is taken for a downgrade of the other", pair[0], pair[1])
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for _, good := range []string{"v1.31.2-k3s1", "bionic", "1", "A_b.c", strings.Repeat("x", 63)} {
		if err := checkVersion(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-k3s1", "v1.", "v1+k3s1", "a/b", "a b", "a:b", "é", strings.Repeat("x", 64)} {
		want := `version "` + bad + `" can't serve as a label value and image tag: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends`
		if err := checkVersion(bad); err == nil || err.Error() != want {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}
