// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Manifests of system-upgrade-controller's users run to completion. The plan controller's golden files show the whole Jobs.
func TestPlanManifests(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 3)
	for i, labels := range []map[string]any{
		{"rke-upgrade": "yes", "node-role.kubernetes.io/control-plane": ""}, {"rke-upgrade": "yes"}, {"example.com/security-fixes": "wanted"},
	} {
		patchNode(t, names[i], map[string]any{"metadata": map[string]any{"labels": labels}})
		t.Cleanup(func() {
			for key := range labels {
				labels[key] = nil
			}
			patchNode(t, names[i], map[string]any{"metadata": map[string]any{"labels": labels}})
		})
	}
	t.Cleanup(func() {
		_, _ = kubectl(context.WithoutCancel(t.Context()), "delete", "--ignore-not-found", "-f", "testdata/plans.yaml")
	})
	if out, err := kubectl(t.Context(), "apply", "-f", "testdata/plans.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for plan, want := range map[string][]string{
		"rke-servers":    {names[0], "cordon", "upgrade", "registry.example.com/rke-upgrade:v1.33.4-rke2r1"},
		"rke-workers":    {names[1], "prepare", "drain", "upgrade", "registry.example.com/rke-upgrade:v1.33.4-rke2r1"},
		"security-fixes": {names[2], "drain", "upgrade", "alpine:3.22"},
	} {
		t.Cleanup(func() { remove(t, plan) })
		complete(t, plan)
		for _, job := range jobsOf(t, plan) {
			got := []string{job.Labels["upgrade.cattle.io/node"]}
			for _, c := range job.Spec.Template.Spec.InitContainers {
				got = append(got, c.Name)
			}
			c := job.Spec.Template.Spec.Containers[0]
			if diff := cmp.Diff(want, append(got, c.Name, c.Image)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", plan, diff)
			}
		}
	}
}
