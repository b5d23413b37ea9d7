// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
)

// excludedBy makes a holding node one that is kept from load balancers.
func excludedBy(by string, n *corev1.Node) *corev1.Node {
	set(&n.Labels, map[string]*string{corev1.LabelNodeExcludeBalancers: ptr.To("")})
	n.Annotations[v1alpha1.AnnotationExcludedBy] = by
	return n
}

func TestWrite(t *testing.T) {
	saying := Annotating(map[string]*string{"x/wanted": ptr.To("stabilize"), "x/gone": nil})
	for _, tc := range []struct {
		name string
		node *corev1.Node
		edit Edit
		want string // what the patch says beside the resourceVersion; empty: nothing is sent
		err  string
	}{
		{name: "claim", node: holding(false, ""), edit: Edit{Claim: own(), Also: []Also{saying}},
			want: `{"metadata":{"annotations":{"moult.dev/claims":"[` + strings.ReplaceAll(ownText, `"`, `\"`) + `]","x/wanted":"stabilize"}}}`},
		{name: "nothing changes", node: holding(false, "", ownText), edit: Edit{Claim: own(), Also: []Also{Annotating(map[string]*string{"x": nil}), Labelling(map[string]*string{"y": nil})}}},
		{name: "another has it", node: holding(false, "", otherText), edit: Edit{Claim: own()}, err: "writing node n1, claimed by Plan/system-upgrade/other since 2026-11-20 11:00:00 +0000 UTC"},
		{name: "another has it, and the claims are ignored", node: holding(false, "", otherText), edit: Edit{Claim: v1alpha1.Claim{Rollout: plan}, KeepClaims: true, Also: []Also{saying}},
			want: `{"metadata":{"annotations":{"x/wanted":"stabilize"}}}`},
		{name: "cordon", node: holding(false, "", ownText), edit: Edit{Claim: own(), Cordon: true, Also: []Also{Excluding, Evicting(v1alpha1.Workload{Kind: "ReplicaSet", Namespace: "shop", Name: "cart"})}},
			want: `{"metadata":{"annotations":{"moult.dev/cordoned-by":"Plan/system-upgrade/k3s","moult.dev/evicted":"[\"ReplicaSet/shop/cart\"]","moult.dev/excluded-by":"Plan/system-upgrade/k3s"},` +
				`"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":""}},"spec":{"unschedulable":true}}`},
		{name: "cordon what a person had cordoned", node: holding(true, "", ownText), edit: Edit{Claim: own(), Cordon: true}},
		{name: "release", node: excludedBy(plan, holding(true, plan, ownText)), edit: Edit{Claim: own(soaking), Restore: true, Also: []Also{Labelling(map[string]*string{"called": ptr.To("true")})}},
			want: `{"metadata":{"annotations":{"moult.dev/claims":"[` + strings.ReplaceAll(ownSoaking, `"`, `\"`) + `]","moult.dev/cordoned-by":null,"moult.dev/excluded-by":null},` +
				`"labels":{"called":"true","node.kubernetes.io/exclude-from-external-load-balancers":null}},"spec":{"unschedulable":false}}`},
		{name: "release", node: excludedBy(plan, holding(true, plan, ownText)), edit: Edit{Claim: own(), Release: true, Restore: true},
			want: `{"metadata":{"annotations":{"moult.dev/claims":null,"moult.dev/cordoned-by":null,"moult.dev/excluded-by":null},` +
				`"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}},"spec":{"unschedulable":false}}`},
		{name: "what others did stays", node: excludedBy(other, holding(true, other, ownText)), edit: Edit{Claim: own(), Release: true, Restore: true},
			want: `{"metadata":{"annotations":{"moult.dev/claims":null}}}`},
		{name: "what a person did stays", node: holding(true, "", ownText), edit: Edit{Claim: own(), Release: true, Restore: true},
			want: `{"metadata":{"annotations":{"moult.dev/claims":null}}}`},
		{name: "a cordon that another operator had left", node: holding(true, "", ownFlagged), edit: Edit{Claim: own(flagged), Release: true, Restore: true},
			want: `{"metadata":{"annotations":{"moult.dev/claims":null}},"spec":{"unschedulable":false}}`},
		{name: "a mark outlives its cordon", node: holding(false, plan, ownText), edit: Edit{Claim: own(), Also: []Also{saying}},
			want: `{"metadata":{"annotations":{"moult.dev/cordoned-by":null,"x/wanted":"stabilize"}}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sent := ""
			c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					body, err := p.Data(o)
					sent = strings.NewReplacer(`"resourceVersion":"7",`, "").Replace(string(body))
					return err
				},
			}).Build()
			before := tc.node.DeepCopy()
			err := Write(t.Context(), c, tc.node, tc.edit)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if sent != tc.want || text != tc.err {
				t.Errorf("it sends\n%s\nwant\n%s\nand says %q", sent, tc.want, text)
			}
			if tc.node.String() != before.String() {
				t.Error("the node was changed")
			}
		})
	}
}

// A taint is added or removed with all others as they are.
func TestTaint(t *testing.T) {
	const key = "noderollout.moult.dev/os"
	dead := corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: now.Time}}
	ours := corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}
	for name, tc := range map[string]struct {
		before, after []corev1.Taint
		on            bool
	}{
		"add":             {[]corev1.Taint{dead}, []corev1.Taint{dead, ours}, true},
		"add the first":   {nil, []corev1.Taint{ours}, true},
		"it is there":     {[]corev1.Taint{ours, dead}, []corev1.Taint{ours, dead}, true},
		"remove":          {[]corev1.Taint{dead, ours}, []corev1.Taint{dead}, false},
		"remove the last": {[]corev1.Taint{ours}, nil, false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: tc.before}}
		c := fake.NewClientBuilder().WithObjects(n).Build()
		var got corev1.Node
		err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(n), n), Taint(t.Context(), c, n, key, tc.on), c.Get(t.Context(), client.ObjectKeyFromObject(n), &got))
		if err != nil || !equality.Semantic.DeepEqual(got.Spec.Taints, tc.after) {
			t.Errorf("%s: %v, %v", name, got.Spec.Taints, err)
		}
	}
}
