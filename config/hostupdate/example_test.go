// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"

	"moult.dev/moult/api/v1alpha1"
)

// What the pages on Bottlerocket's operators and Dogswatch have people apply is without the four limits that these name in their READMEs,
// and nothing has to be chosen for that.
func TestExampleHasNoneOfTheLimits(t *testing.T) {
	all, err := resource.NewLocalBuilder().Unstructured().FilenameParam(false, &resource.FilenameOptions{Kustomize: "../../examples/bottlerocket"}).Flatten().Do().Infos()
	if err != nil {
		t.Fatal(err)
	}
	var hosts v1alpha1.NodeRollout
	var operator appsv1.Deployment
	var budgets []v1alpha1.NodeDisruptionBudget
	read := func(o *unstructured.Unstructured, into any) {
		t.Helper()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range all {
		switch o := one.Object.(*unstructured.Unstructured); o.GetKind() {
		case "NodeRollout":
			read(o, &hosts)
		case "Deployment":
			read(o, &operator)
		case "NodeDisruptionBudget":
			budgets = append(budgets, v1alpha1.NodeDisruptionBudget{})
			read(o, &budgets[len(budgets)-1])
		}
	}
	for _, p := range v1alpha1.HostProtocols[:2] {
		if !slices.ContainsFunc(budgets, func(b v1alpha1.NodeDisruptionBudget) bool {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			return err == nil && selector.Matches(labels.Set{p.InterfaceLabel: "1.0.0"}) && b.Spec.Gates != nil && b.Spec.Gates.Workloads != nil
		}) {
			t.Errorf("replicas: no budget looks at workloads before a node with the label %s is taken", p.InterfaceLabel)
		}
	}
	if s := hosts.Spec.Strategy; s == nil || s.Soak == nil || s.Soak.Duration < time.Minute || s.MaxConcurrent.IntValue() != 1 {
		t.Errorf("pause between nodes: the strategy is %+v", s)
	}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(operator.Spec.Template.Spec.Tolerations, func(o corev1.Toleration) bool {
		return o.Key == cordon.Key && o.Operator == corev1.TolerationOpExists && (o.Effect == "" || o.Effect == cordon.Effect)
	}) {
		t.Error("a cluster of one node: the operator can't come back to the node that it has cordoned")
	}
	if hosts.Spec.HostUpdate == nil || !hosts.Spec.HostUpdate.LabelNodes {
		t.Error("labels: nodes are not labelled")
	}
}
