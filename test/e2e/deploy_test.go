// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// The manifests run as they are shipped: in a Pod of the level "restricted", with their own rights, behind their probes.
func TestDeployed(t *testing.T) {
	// Not parallel: it takes the place of the operator that the other tests watch.
	machine := takeMachines(t, 1)[0]
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
		defer cancel()
		if out, err := kubectl(ctx, "scale", "-n", namespace, "deployment/moult", "--replicas=0"); err != nil {
			t.Error(err, out)
		}
		if err := undeployed(ctx); err != nil {
			t.Error(err)
		}
		if err := startOperator(); err != nil {
			t.Error(err)
		}
	})
	if err := world.operator.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl(t.Context(), "scale", "-n", namespace, "deployment/moult", "--replicas=1"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := kubectl(t.Context(), "rollout", "status", "-n", namespace, "deployment/moult", "--timeout=60s"); err != nil {
		logs, _ := kubectl(t.Context(), "describe", "pods", "-n", namespace)
		t.Fatal(err, out, logs)
	}
	p := newPlan(t, "deployed", `echo ran >> /host/var/deployed`)
	p.Spec.Drain = &upgradev1.DrainSpec{}
	create(t, p)
	complete(t, p.Name)
	released(t, machine.Name(), false)
	if diff := cmp.Diff([]string{"ran"}, lines(t, machine, "/var/deployed")); diff != "" {
		t.Errorf("what ran (-want +got)\n%s", diff)
	}
	logs, err := kubectl(t.Context(), "logs", "-n", namespace, "deployment/moult")
	if err != nil {
		t.Fatal(err, logs)
	}
	for line := range strings.Lines(logs) {
		if strings.Contains(line, `"level":"error"`) || strings.Contains(line, "forbidden") {
			t.Errorf("the operator logs %s", line)
		}
	}

	// The level "restricted" would admit the Pod.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-restricted-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := world.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), ns) })
	var pods corev1.PodList
	if err := world.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "moult"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 {
		t.Fatalf("%d pods of the operator, want 1", len(pods.Items))
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "moult", Namespace: ns.Name}, Spec: pods.Items[0].Spec}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount, pod.Spec.PriorityClassName, pod.Spec.Priority = "", "", "", "", nil
	eventually(t, "the restricted namespace admits the pod", func(ctx context.Context) (string, bool) {
		err := world.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "PodSecurity") {
			t.Fatal(err)
		}
		return fmt.Sprint(err), err == nil
	})
}
