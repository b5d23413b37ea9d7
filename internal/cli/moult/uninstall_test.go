// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// Whatever is left is listed, each with the command that removes it. What people have set is not.
func TestUninstallCheck(t *testing.T) {
	claim, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: "Plan/ns/p", UID: "u", Revision: "r", Turn: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n",
			Labels: map[string]string{
				corev1.LabelHostname: "n", upgradev1.LabelPlanHash("p"): "h", corev1.LabelNodeExcludeBalancers: "",
				"bottlerocket.aws/updater-interface-version": "2.0.0", "bottlerocket.aws/update-available": "true",
			},
			Annotations: map[string]string{
				"example.com/a": "b", v1alpha1.AnnotationClaims: claim, v1alpha1.AnnotationCordonedBy: "Plan/ns/p", v1alpha1.AnnotationExcludedBy: "Plan/ns/p",
				"bottlerocket.aws/action-state": "ready",
			},
		},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
			{Key: "plan.outdated.moult.dev/p", Effect: corev1.TaintEffectPreferNoSchedule},
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
			{Type: corev1.NodeDrained, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonMaintenance},
			{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonMaintenance, Message: "Plan/ns/p: one pod is left"},
		}},
	}
	plain := corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{corev1.LabelNodeExcludeBalancers: "", "bottlerocket.aws/updater-interface-version": "2.0.0"},
	}, Spec: corev1.NodeSpec{Unschedulable: true}}
	rollout := &v1alpha1.NodeRollout{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeRollout"},
		ObjectMeta: metav1.ObjectMeta{Name: "r", Finalizers: []string{"example.com/other", v1alpha1.FinalizerReplacement}},
		Status:     v1alpha1.NodeRolloutStatus{Turns: []v1alpha1.MachineTurn{{}}},
	}
	plan := &upgradev1.Plan{
		TypeMeta:   metav1.TypeMeta{APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Status: upgradev1.PlanStatus{Applying: []string{"n"}},
	}
	for name, tc := range map[string]struct {
		node     corev1.Node
		rollouts []runtime.Object
		want     string
		left     string
	}{
		"nothing": {node: plain, want: "Nothing of Moult is left on nodes, and no rollout is in progress.\n"},
		"all": {node: node, rollouts: []runtime.Object{plan, rollout}, left: "9 things of Moult are left: while the operator runs, let rollouts end; " +
			"after that run the commands above", want: `plan.upgrade.cattle.io/p -n ns changes n
  kubectl delete plan -n ns p
noderollout.moult.dev/r replaces 1 machines: look in the cloud for what it has added
  kubectl delete noderollout r
noderollout.moult.dev/r has the finalizer moult.dev/replacement, which only the operator removes
  kubectl patch noderollout r --type=json -p '[{"op":"test","path":"/metadata/finalizers/1","value":"moult.dev/replacement"},{"op":"remove","path":"/metadata/finalizers/1"}]'
node/n is cordoned by Moult
  kubectl uncordon n
node/n has the taint plan.outdated.moult.dev/p
  kubectl taint node n plan.outdated.moult.dev/p:PreferNoSchedule-
node/n has the condition DrainInProgress, with the message "Plan/ns/p: one pod is left"
  kubectl patch node n --subresource=status -p '{"status":{"conditions":[{"type":"DrainInProgress","status":"False"}]}}'
node/n is kept from load balancers by Moult
  kubectl label node n node.kubernetes.io/exclude-from-external-load-balancers-
node/n has the labels bottlerocket.aws/update-available, plan.upgrade.cattle.io/p
  kubectl label node n bottlerocket.aws/update-available- plan.upgrade.cattle.io/p-
node/n has the annotations bottlerocket.aws/action-state, moult.dev/claims, moult.dev/cordoned-by, moult.dev/excluded-by, with a claim of Plan/ns/p
  kubectl annotate node n bottlerocket.aws/action-state- moult.dev/claims- moult.dev/cordoned-by- moult.dev/excluded-by-
`},
	} {
		t.Run(name, func(t *testing.T) {
			var rollouts []runtime.Object
			for _, r := range tc.rollouts {
				u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
				if err != nil {
					t.Fatal(err)
				}
				rollouts = append(rollouts, &unstructured.Unstructured{Object: u})
			}
			src, _, core := fakes(t, rollouts...)
			if err := core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node"); err != nil {
				t.Fatal(err)
			}
			if err := core.Tracker().Add(&tc.node); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := (&command{IOStreams: genericiooptions.IOStreams{Out: &out}}).uninstallCheck(t.Context(), src)
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("printed (-want +got)\n%s", diff)
			}
			if got := errorText(err); got != tc.left {
				t.Errorf("error %q, want %q", got, tc.left)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
