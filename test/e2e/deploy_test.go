// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/test/cluster"
)

// The Deployment runs as it is shipped: in a Pod of the level "restricted", with its own rights, behind its probes. Its Pod
// does not lead: the operator that the other tests use holds the Lease, and has the same rights.
func TestDeployed(t *testing.T) {
	t.Parallel()
	takeMachines(t, 1)
	inNamespace := client.InNamespace(operators)
	pods := func(ctx context.Context) []corev1.Pod {
		var all corev1.PodList
		if err := persistently(ctx, func(ctx context.Context) error {
			return world.List(ctx, &all, inNamespace, client.MatchingLabels{"app.kubernetes.io/name": "moult"})
		}); err != nil {
			t.Fatal(err)
		}
		return all.Items
	}
	scale := func(ctx context.Context, replicas int) {
		patch := fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"spec":{"nodeSelector":{%q:%q}}}}}`, replicas, target, labelOf(t))
		if out, err := kubectl(ctx, "patch", "-n", operators, "deployment/moult", "-p", patch); err != nil {
			t.Error(err, out)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			out, _ := kubectl(ctx, "describe", "pods", "-n", operators, "-l", "app.kubernetes.io/name=moult")
			t.Log(out)
		}
		scale(ctx, 0)
	})
	holder := func(ctx context.Context) string {
		var l coordinationv1.Lease
		if err := persistently(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "system-upgrade-controller"}, &l))
		}); err != nil {
			t.Fatal(err)
		}
		return ptr.Deref(l.Spec.HolderIdentity, "")
	}
	var leader string
	eventually(t, "the tests' operator holds the Lease", func(ctx context.Context) (string, bool) {
		leader = holder(ctx)
		return leader, leader != ""
	})
	scale(t.Context(), 1)
	var pod corev1.Pod
	eventually(t, "the Deployment's pod is ready", func(ctx context.Context) (string, bool) {
		all := pods(ctx)
		if len(all) != 1 {
			return fmt.Sprintf("%d pods", len(all)), false
		}
		pod = all[0]
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return "", true
			}
		}
		return fmt.Sprintf("%+v", pod.Status), false
	})
	logs, err := kubectl(t.Context(), "logs", "-n", operators, pod.Name)
	if err != nil {
		t.Fatal(err, logs)
	}
	for line := range strings.Lines(logs) {
		if strings.Contains(line, `"level":"error"`) || strings.Contains(line, "forbidden") {
			t.Errorf("the operator logs %s", line)
		}
	}
	if now := holder(t.Context()); now != leader {
		t.Errorf("%s holds the Lease, that was %s's", now, leader)
	}

	metricsOf(t, &pod)

	// The namespace takes nothing above the level "restricted", and so the Pod is not above it.
	var ns corev1.Namespace
	if err := persistently(t.Context(), func(ctx context.Context) error { return world.Get(ctx, client.ObjectKey{Name: operators}, &ns) }); err != nil {
		t.Fatal(err)
	}
	if level := ns.Labels["pod-security.kubernetes.io/enforce"]; level != "restricted" {
		t.Errorf("the operator's namespace has the level %q", level)
	}
}

// metricsOf reads the metrics of the operator's pod by the account that is bound to the role for it, and is refused by another account.
func metricsOf(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	const reader = "e2e-reads-metrics"
	out, err := kubectl(t.Context(), "create", "clusterrolebinding", reader, "--clusterrole=moult-metrics-reader", "--serviceaccount=default:"+reader)
	if err != nil {
		t.Fatal(err, out)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: reader}}
	if err := world.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if out, err := kubectl(ctx, "delete", "clusterrolebinding", reader); err != nil {
			t.Error(err, out)
		}
		if err := world.Delete(ctx, account); err != nil {
			t.Error(err)
		}
	})

	programs, err := cluster.Binaries(t.Context(), os.Stderr, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	forward := exec.CommandContext(t.Context(), programs["kubectl"],
		"--kubeconfig", world.Kubeconfig(), "port-forward", "-n", pod.Namespace, pod.Name, ":8080")
	forwarded, err := forward.StdoutPipe()
	if err == nil {
		err = forward.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = forward.Process.Kill(); _ = forward.Wait() })
	var port int
	if _, err := fmt.Fscanf(forwarded, "Forwarding from 127.0.0.1:%d ", &port); err != nil {
		t.Fatalf("forwarding a port, %v", err)
	}
	// A request that the forwarded port loses is sent again.
	certified := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(certified.CloseIdleConnections)
	accounts := world.clientset.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	for name, want := range map[string]int{reader: http.StatusOK, "default": http.StatusForbidden} {
		token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("%s gets %d", name, want), func(ctx context.Context) (string, bool) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), http.NoBody)
			if err != nil {
				return err.Error(), false
			}
			r.Header.Set("Authorization", "Bearer "+token.Status.Token)
			answer, err := certified.Do(r)
			if err != nil {
				return err.Error(), false
			}
			defer answer.Body.Close()
			return answer.Status, answer.StatusCode == want
		})
	}
}
