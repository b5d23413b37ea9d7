// SPDX-License-Identifier: Apache-2.0

//go:build all

package daemonset

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// TestAPIFieldManagers applies an ExtendedDaemonSet as GitOps tools do, while the controller writes its status: no apply conflicts, the history names
// the tool, and the controller manages nothing but the status.
func TestAPIFieldManagers(t *testing.T) {
	c, ns := startController(t)
	apply := func(manager string, content map[string]any) {
		t.Helper()
		o := &unstructured.Unstructured{Object: content}
		o.SetGroupVersionKind(edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))
		o.SetNamespace(ns)
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
			err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "agent"}, &eds)
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
