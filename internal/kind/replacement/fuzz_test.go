// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"strconv"
	"testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// FuzzDucklett finds annotations by which a machine counts as added that Ducklett has not added: another machine would be deleted.
func FuzzDucklett(f *testing.F) {
	for _, status := range []string{v1alpha1.DucklettUpgradeReady, v1alpha1.DucklettUpgradeStarted, "", "UPGRADE"} {
		for _, count := range []string{"3", "4", "-1", "0", "", "+3", "99999999999999999999"} {
			f.Add(status, count, 3)
		}
	}
	f.Fuzz(func(t *testing.T, status, count string, capacity int) {
		s := &Set{Set: cloud.Set{Capacity: capacity}}
		got := hasDucklettAdded(s, map[string]string{v1alpha1.AnnotationDucklettStatus: status, v1alpha1.AnnotationDucklettCount: count})
		switch status {
		case v1alpha1.DucklettUpgradeStarted, v1alpha1.DucklettUpgradeDrainReady, v1alpha1.DucklettUpgradeDrainStarted, v1alpha1.DucklettUpgradeDeleteReady:
			if !got {
				t.Errorf("%s is not read", status)
			}
		case v1alpha1.DucklettUpgradeReady:
			n, err := strconv.Atoi(count)
			if want := err == nil && 0 < n && n <= capacity; got != want {
				t.Errorf("%s with %q, capacity %d: %t", status, count, capacity, got)
			}
		default:
			if got {
				t.Errorf("%q counts", status)
			}
		}
	})
}
