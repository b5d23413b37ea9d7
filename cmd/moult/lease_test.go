// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"k8s.io/client-go/rest"
)

func TestLeaseHolder(t *testing.T) {
	holder := func(pod string) string {
		t.Helper()
		t.Setenv("POD_NAME", pod)
		lease, err := (&settings{leaderElect: true, nodeName: "n"}).lease(&rest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Identity()
	}
	if got := holder("moult-5d4f-x"); got != "moult-5d4f-x" {
		t.Errorf("a Pod's container is %q", got)
	}
	if a, b := holder(""), holder(""); a == b {
		t.Errorf("two processes outside of Pods are both %q", a)
	}
}
