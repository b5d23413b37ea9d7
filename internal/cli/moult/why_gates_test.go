// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
)

// TestExplainPodGates reads the pods on the node where a gate goes by them, and says where they are not to be seen.
func TestExplainPodGates(t *testing.T) {
	for name, tc := range map[string]struct {
		denied string
		want   string
	}{
		"seen":                       {want: "✗ gates: PodsBlock: budget workers: pod ci/build-17 is on it"},
		"pods may not be seen":       {denied: "pods", want: source.NoGated},
		"namespaces may not be seen": {denied: "namespaces", want: source.NoGated},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := map[schema.GroupVersionResource]string{
				source.Plan.Resource: "PlanList", source.Budget.Resource: "NodeDisruptionBudgetList", source.DaemonSet.Resource: "ExtendedDaemonSetList",
				source.NodeRollout.Resource: "NodeRolloutList",
			}
			nr := whyNodeRollout()
			rollout := object(t, "NodeRollout", &nr)
			rollout.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeRollout"))
			budget := object(t, "NodeDisruptionBudget", &v1alpha1.NodeDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Name: "workers"},
				Spec: v1alpha1.NodeDisruptionBudgetSpec{Gates: &v1alpha1.Gates{Pods: []v1alpha1.PodsGate{{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ci"}},
				}}}},
			})
			budget.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeDisruptionBudget"))
			dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, rollout, budget)
			node := whyNode("worker-1", whyHost())
			core := fake.NewClientset(&node, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ci", Labels: map[string]string{"team": "ci"}}})
			core.PrependReactor("list", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				where := a.(ktesting.ListAction).GetListRestrictions()
				if !where.Labels.Empty() {
					return true, &corev1.PodList{}, nil // Those of the operator.
				}
				if by := where.Fields.String(); by != "spec.nodeName=worker-1" {
					t.Errorf("pods are asked for by %q", by)
				}
				return true, &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "build-17"}, Spec: corev1.PodSpec{NodeName: "worker-1"}}}}, nil
			})
			if tc.denied != "" {
				core.PrependReactor("list", tc.denied, func(ktesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(corev1.Resource(tc.denied), "", errors.New("no"))
				})
			}
			var out bytes.Buffer
			c := &command{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, clock: clocktesting.NewFakeClock(now)}
			src := &source.Source{Client: dynamic, Core: core.CoreV1(), Namespace: "ns"}
			if err := c.why(t.Context(), src, source.Target{Name: "worker-1"}, &flags.Output{}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("it does not say %q:\n%s", tc.want, out.String())
			}
		})
	}
}
