// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"strings"
	"testing"
)

// FuzzProviderID finds provider ids, which a kubelet writes, that name a scale set in another resource group, or a path.
func FuzzProviderID(f *testing.F) {
	const prefix = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute"
	for _, id := range []string{
		prefix + "/virtualMachineScaleSets/workers/virtualMachines/3", prefix + "/virtualMachines/m", strings.ToUpper(prefix) + "/virtualMachines/m",
		"azure:///subscriptions/other/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/1",
		prefix + "/virtualMachineScaleSets/../virtualMachines/1", prefix + "/virtualMachineScaleSets/a?b/virtualMachines/1", prefix + "//",
	} {
		f.Add(id)
	}
	c := &Cloud{subscription: "s", group: "g"}
	f.Fuzz(func(t *testing.T, id string) {
		if !uniformID.MatchString(id) {
			return // It would be listed.
		}
		found, err := c.Find(t.Context(), []string{id})
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range found {
			own := strings.HasPrefix(strings.ToLower(id), strings.ToLower(prefix))
			if !own || set == "" || len(set) > 80 || strings.ContainsAny(set, "/?#%\n") || strings.Trim(set, ".") == "" {
				t.Errorf("%q names scale set %q", id, set)
			}
		}
	})
}
