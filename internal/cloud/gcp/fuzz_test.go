// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"strings"
	"testing"
)

// FuzzNames finds names of groups and machines, and provider ids, which a kubelet writes, that lead elsewhere than to what they name.
func FuzzNames(f *testing.F) {
	for _, text := range []string{
		"zones/a/b", "regions/a/b", "zones//", "projects/1/zones/z/instanceGroupManagers/g", "https://x/zones/z/instances/m", "zones/../instances/..",
		"gce://p/z/m", "gce://p/../x", "gce://p/z/m\n", "gce://p/z/" + strings.Repeat("m", 99), "gce://p/z/?x=y",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if g, ok := groupOf(text, groupName); ok && g.String() != text {
			t.Errorf("%q is group %s", text, g)
		}
		if g, ok := groupOf(text, groupPath); ok {
			if again, ok := groupOf(g.String(), groupName); !ok || again != g {
				t.Errorf("%q is group %s", text, g)
			}
		}
		if m, ok := machineOf(text); ok {
			if again, ok := machineOf(m.String()); !ok || again != m {
				t.Errorf("%q is machine %s", text, m)
			}
		}
		if match := machineProviderID.FindStringSubmatch(text); match != nil {
			for _, part := range match[2:] {
				if len(part) > 63 || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
					t.Errorf("%q is asked for", part)
				}
			}
		}
	})
}

// FuzzNewNames finds base names from which names are made that are too long, or twice the same.
func FuzzNewNames(f *testing.F) {
	f.Add("base", "token", 3)
	f.Add("base-####[10]", "", 100)
	f.Add(strings.Repeat("a-", 60), "t", 1)
	f.Fuzz(func(t *testing.T, base, token string, n int) {
		seen := map[string]bool{}
		for _, name := range newNames(base, token, min(max(n, 0), 100)) {
			if len(name) > 63 || seen[name] {
				t.Errorf("%q", name)
			}
			seen[name] = true
		}
	})
}
