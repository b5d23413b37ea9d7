// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/retry"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// TestWriteAgain writes when others were faster: it reads the object anew, and asks again what to write.
func TestWriteAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		conflicts, reads int
		err              string
	}{
		"at once":           {conflicts: 0, reads: 1},
		"after others":      {conflicts: 2, reads: 3},
		"others never stop": {conflicts: 100, reads: retry.DefaultRetry.Steps, err: "writing extendeddaemonset.datadoghq.com/foo, "},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := map[schema.GroupVersionResource]string{DaemonSet.Resource: "ExtendedDaemonSetList"}
			foo := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": edsv1.GroupVersion.String(), "kind": DaemonSet.Name,
				"metadata": map[string]any{"namespace": "ns", "name": "foo", "resourceVersion": "7"},
			}}
			dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, foo)
			conflicts := tc.conflicts
			dynamic.PrependReactor("patch", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
				var patch metav1.PartialObjectMetadata
				if err := json.Unmarshal(a.(ktesting.PatchAction).GetPatch(), &patch); err != nil || patch.ResourceVersion != "7" {
					t.Errorf("it writes %s, %v, without the precondition", a.(ktesting.PatchAction).GetPatch(), err)
				}
				if conflicts--; conflicts >= 0 {
					return true, nil, apierrors.NewConflict(DaemonSet.Resource.GroupResource(), "foo", errors.New("others were faster"))
				}
				return false, nil, nil
			})
			c := &Source{Client: dynamic, Namespace: "ns"}
			reads := 0
			err := c.Write(t.Context(), DaemonSet, "foo", metav1.PatchOptions{}, func(*unstructured.Unstructured) (*Change, error) {
				reads++
				return Annotate(map[string]any{"key": "value"}), nil
			})
			if err == nil && tc.err != "" || err != nil && (tc.err == "" || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			if reads != tc.reads {
				t.Errorf("it was read %d times, want %d", reads, tc.reads)
			}
		})
	}
}

// TestRefusalWritesNothing when the object says no.
func TestRefusalWritesNothing(t *testing.T) {
	kinds := map[schema.GroupVersionResource]string{DaemonSet.Resource: "ExtendedDaemonSetList"}
	foo := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": edsv1.GroupVersion.String(), "kind": DaemonSet.Name, "metadata": map[string]any{"namespace": "ns", "name": "foo"},
	}}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, foo)
	c := &Source{Client: dynamic, Namespace: "ns"}
	refused := errors.New("no")
	err := c.Write(t.Context(), DaemonSet, "foo", metav1.PatchOptions{}, func(*unstructured.Unstructured) (*Change, error) { return nil, refused })
	if !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
	for _, a := range dynamic.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("it may not %s", a.GetVerb())
		}
	}
}
