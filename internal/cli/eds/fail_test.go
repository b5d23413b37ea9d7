// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// A canary that passes in the same moment has not failed, and no one is told that it has.
func TestFailComesTooLate(t *testing.T) {
	for name, tc := range map[string]struct {
		passes   bool
		out, err string
	}{
		"in time":  {out: "ExtendedDaemonSetReplicaSet 'ns/foo' canary deployment set to failed\n"},
		"too late": {passes: true, err: "canary replicaset 'foo-b' has just become active; cannot fail it: see kubectl eds rollback"},
	} {
		t.Run(name, func(t *testing.T) {
			eds := &edsv1.ExtendedDaemonSet{
				TypeMeta:   metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: source.DaemonSet.Name},
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"},
				Status:     edsv1.ExtendedDaemonSetStatus{ActiveReplicaSet: "foo-a", Canary: &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "foo-b"}},
			}
			eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
			ers := revision("b")
			ers.TypeMeta, ers.Namespace = metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: source.ReplicaSet.Name}, "ns"
			ers.Status.Status = edsv1.ReplicaSetCanary
			kinds := map[schema.GroupVersionResource]string{source.DaemonSet.Resource: "ExtendedDaemonSetList", source.ReplicaSet.Resource: "ExtendedDaemonSetReplicaSetList"}
			dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, asIs(t, eds), asIs(t, &ers))
			dynamic.PrependReactor("patch", source.ReplicaSet.Resource.Resource, func(ktesting.Action) (bool, runtime.Object, error) {
				if tc.passes {
					eds.Status.ActiveReplicaSet, eds.Status.Canary = "foo-b", nil
				}
				return false, nil, dynamic.Tracker().Update(source.DaemonSet.Resource, asIs(t, eds), "ns")
			})
			var out bytes.Buffer
			c := &command{
				IOStreams: genericiooptions.IOStreams{Out: &out}, clock: clocktesting.NewFakeClock(now),
			}
			err := c.fail(t.Context(), &source.Source{Client: dynamic, Namespace: "ns"}, eds.DeepCopy())
			if err == nil && tc.err != "" || err != nil && err.Error() != tc.err || out.String() != tc.out {
				t.Errorf("it says %q, and %v", out.String(), err)
			}
		})
	}
}

func asIs(t *testing.T, o any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}
