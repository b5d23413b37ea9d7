// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestLeaseHolder(t *testing.T) {
	holder := func(pod string) string {
		t.Helper()
		name, err := leaseHolder(pod)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	if got := holder("moult-5d4f-x"); got != "moult-5d4f-x" {
		t.Errorf("a Pod's container is %q", got)
	}
	if a, b := holder(""), holder(""); a == b {
		t.Errorf("two processes outside of Pods are both %q", a)
	}
}
