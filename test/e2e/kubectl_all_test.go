// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// An image with kubectl in it cordons and drains as well, where the operator has a flag for it. A second operator has it here,
// with another name and namespace, beside the first.
func TestPlanDrainsWithKubectl(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	const own, tag = "e2e-kubectl", "moult.dev/kubectl:e2e"
	programs, err := cluster.Binaries(t.Context(), t.Output(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	tar := filepath.Join(t.TempDir(), "kubectl.tar")
	spec := image.Spec{Tags: []string{tag}, Entrypoint: []string{"/kubectl"}, Files: map[string]image.File{
		"/kubectl": {Source: programs["kubectl"]}, "/tmp": {Dir: true, Mode: 0o777},
	}}
	if err := image.Build(t.Context(), spec, tar); err != nil {
		t.Fatal(err)
	}
	if err := world.LoadImage(t.Context(), tar); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "system-upgrade", Namespace: own}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: own},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system-upgrade-controller-drainer"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "system-upgrade", Namespace: own}},
		},
	} {
		if err := world.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteNow(t, o) })
	}
	second, err := operator.Start(world.program, world.Kubeconfig(), filepath.Join(t.TempDir(), "operator.log"), nil,
		"--name=second", "--namespace="+own, "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--job-kubectl-image="+tag, "--job-image-pull-policy=Never", "--job-backoff-limit=0", "--install-crds=false")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(patience); err != nil {
			t.Error(err)
		}
	})
	p := newPlan(t, "with-kubectl", "true")
	p.Namespace = own
	p.Spec.Drain = &upgradev1.DrainSpec{Force: true}
	if err := world.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plan of the second operator is complete", func(ctx context.Context) (string, bool) {
		if err := world.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err.Error(), false
		}
		c := p.Status.Condition(upgradev1.ConditionComplete)
		return describe(p), c != nil && c.Status == metav1.ConditionTrue && p.Status.Counts.Updated == 1
	})
	// kubectl leaves no mark of its own. The node is uncordoned all the same.
	released(t, m.Name(), false)
}
