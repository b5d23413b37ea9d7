// SPDX-License-Identifier: Apache-2.0

//go:build all

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// TestAPIFieldManagers applies an ExtendedDaemonSet as GitOps tools do, while the controller writes its status: no apply conflicts, the history names
// the tool, and the controller manages nothing but the status.
func TestAPIFieldManagers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), edsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Shared(t, apiNodes).Config()
	cfg.QPS = -1
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd"}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "managers-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), ns) })
	runController(t, cfg, scheme, ns.Name)

	apply := func(manager string, content map[string]any) {
		t.Helper()
		o := &unstructured.Unstructured{Object: content}
		o.SetGroupVersionKind(edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))
		o.SetNamespace(ns.Name)
		o.SetName("agent")
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
	}
	var eds edsv1.ExtendedDaemonSet
	for i := range 2 {
		apply("argocd-controller", map[string]any{"spec": map[string]any{
			"template": map[string]any{
				// A status is written once a second.
				"metadata": map[string]any{"labels": map[string]any{"app": "agent"}, "annotations": map[string]any{"test.moult.dev/start-seconds": "2"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": fmt.Sprint("image:", i)}}},
			},
			"strategy": map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": "100%"}},
		}})
		apply("labeller", map[string]any{"metadata": map[string]any{"labels": map[string]any{"version": fmt.Sprint(i)}}})
		if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: "agent"}, &eds)
			h := eds.Status.History
			return len(h) == i+1 && h[0].Result == v1alpha1.RunComplete, err
		}); err != nil {
			t.Fatalf("%v, %+v", err, eds.Status)
		}
		if by := eds.Status.History[0].CreatedBy; by != "argocd-controller" {
			t.Errorf("the run was created by %q", by)
		}
	}
	for _, e := range eds.ManagedFields {
		isTool := e.Manager == "argocd-controller" || e.Manager == "labeller"
		if isTool != (e.Operation == metav1.ManagedFieldsOperationApply) || isTool == (e.Subresource == "status") {
			t.Errorf("%s of %q manages %s", e.Operation, e.Manager, e.FieldsV1)
		}
	}
	if n := len(eds.ManagedFields); n != 3 {
		t.Errorf("there are %d field managers: %+v", n, eds.ManagedFields)
	}
}
