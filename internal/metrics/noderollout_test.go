// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

func TestHostVersions(t *testing.T) {
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { SetHostVersions("os", []v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 3}}) }, "name=os version=1.0.0 3"},
		{func() { SetHostVersions("b", []v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 1}}) }, "name=b version=1.0.0 1; name=os version=1.0.0 3"},
		{func() {
			SetHostVersions("os", []v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 1}, {Version: "1.1.0", Nodes: 2}})
		}, "name=b version=1.0.0 1; name=os version=1.0.0 1; name=os version=1.1.0 2"},
		{func() { ForgetNodeRollout(types.NamespacedName{Name: "os"}) }, "name=b version=1.0.0 1"},
		{func() { SetHostVersions("b", nil) }, ""},
	} {
		step.do()
		if got := told(t, "moult_host_versions"); got != step.want {
			t.Errorf("step %d tells %s, want %s", i+1, got, step.want)
		}
	}
}
