// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		{name: "a node that a person has uncordoned serves load balancers", node: excludedBy(plan, holding(false, plan, ownText)), edit: Edit{Claim: own()},
			want: `{"metadata":{"annotations":{"moult.dev/cordoned-by":null,"moult.dev/excluded-by":null},"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}}}`},
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

const other = "Plan/system-upgrade/other"

var noon = metav1.Time{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}

// The claims of the tests, and how they stand in the annotation.
const (
	ownText      = `{"rollout":"Plan/system-upgrade/k3s","uid":"u1","revision":"h1","attempt":"a1","turn":"t1","since":"2026-11-20T12:00:00Z"}`
	ownSharing   = `{"rollout":"Plan/system-upgrade/k3s","uid":"u1","shared":true,"revision":"h1","attempt":"a1","turn":"t1","since":"2026-11-20T12:00:00Z"}`
	ownFlagged   = `{"rollout":"Plan/system-upgrade/k3s","uid":"u1","revision":"h1","attempt":"a1","turn":"t1","since":"2026-11-20T12:00:00Z","uncordon":true}`
	ownSoaking   = `{"rollout":"Plan/system-upgrade/k3s","uid":"u1","revision":"h1","attempt":"a1","turn":"t1","since":"2026-11-20T12:00:00Z","soaking":"2026-11-20T12:00:00Z"}`
	ownFailed    = `{"rollout":"Plan/system-upgrade/k3s","uid":"u1","revision":"h1","attempt":"a1","turn":"t1","since":"2026-11-20T12:00:00Z","failed":{"reason":"JobFailed","message":"it broke","time":"2026-11-20T12:00:00Z"}}`
	otherSkipped = `{"rollout":"Plan/system-upgrade/other","uid":"u2","revision":"h9","turn":"t9","since":"2026-11-20T11:00:00Z","failed":{"reason":"DrainTimeout","time":"2026-11-20T11:00:00Z","skipped":true}}`
	ownBefore    = `{"rollout":"Plan/system-upgrade/k3s","uid":"u1","revision":"h0","turn":"t0","since":"2026-11-19T12:00:00Z"}`
	otherText    = `{"rollout":"Plan/system-upgrade/other","uid":"u2","revision":"h9","turn":"t9","since":"2026-11-20T11:00:00Z"}`
	otherSharing = `{"rollout":"Plan/system-upgrade/other","uid":"u2","shared":true,"revision":"h9","turn":"t9","since":"2026-11-20T11:00:00Z"}`
	thirdSharing = `{"rollout":"Plan/system-upgrade/third","uid":"u3","shared":true,"revision":"h9","turn":"t9","since":"2026-11-20T11:00:00Z"}`
)

func own(change ...func(*v1alpha1.Claim)) v1alpha1.Claim {
	c := v1alpha1.Claim{Rollout: plan, UID: "u1", Revision: "h1", Attempt: "a1", Turn: "t1", Since: noon}
	for _, how := range change {
		how(&c)
	}
	return c
}

func sharing(c *v1alpha1.Claim) { c.Shared = true }
func flagged(c *v1alpha1.Claim) { c.Uncordon = true }
func soaking(c *v1alpha1.Claim) { c.Soaking = noon.DeepCopy() }
func broken(c *v1alpha1.Claim) {
	c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Time: noon}
}

// holding makes a cordonable node, with claims on it.
func holding(unschedulable bool, by string, claims ...string) *corev1.Node {
	n := cordonable(unschedulable, by)
	n.ResourceVersion = "7"
	if len(claims) > 0 {
		n.Annotations[v1alpha1.AnnotationClaims] = "[" + strings.Join(claims, ",") + "]"
	}
	return n
}

// body is what a patch sends, byte by byte: the claims that it leaves, and what it does besides.
type body struct {
	claims                   []string
	unmark, labels, uncordon bool
}

func (b body) String() string {
	claims := "null"
	if len(b.claims) > 0 {
		claims = strconv.Quote("[" + strings.Join(b.claims, ",") + "]")
	}
	text := `{"metadata":{"resourceVersion":"7","annotations":{"moult.dev/claims":` + claims
	if b.unmark {
		text += `,"moult.dev/cordoned-by":null`
	}
	text += "}"
	if b.labels {
		text += `,"labels":{"kept":"yes","plan":"h1"}`
	}
	text += "}"
	if b.uncordon {
		text += `,"spec":{"unschedulable":false}`
	}
	return text + "}"
}

type writes func(context.Context, client.Writer, *corev1.Node, v1alpha1.Claim) error

func hold(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	return Write(ctx, c, n, Edit{Claim: claim})
}

func soak(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	return Write(ctx, c, n, Edit{Claim: claim, Restore: true})
}

// releases puts labels on.
func releases(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	return Write(ctx, c, n, Edit{Claim: claim, Release: true, Restore: true, Also: []Also{Labelling(map[string]*string{"plan": ptr.To("h1"), "kept": ptr.To("yes")})}})
}

func releasesBare(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	return Write(ctx, c, n, Edit{Claim: claim, Release: true, Restore: true})
}

func TestClaimPatches(t *testing.T) {
	list := func(claims ...string) []string { return claims }
	for name, tc := range map[string]struct {
		do    writes
		claim v1alpha1.Claim
		node  *corev1.Node
		want  body
	}{
		"hold":                           {hold, own(), holding(false, ""), body{claims: list(ownText)}},
		"hold over an earlier turn":      {hold, own(), holding(false, "", ownBefore), body{claims: list(ownText)}},
		"hold, failed":                   {hold, own(broken), holding(false, "", ownText), body{claims: list(ownFailed)}},
		"hold beside another":            {hold, own(sharing), holding(false, "", otherSharing), body{claims: list(otherSharing, ownSharing)}},
		"hold beside others, again":      {hold, own(sharing), holding(false, "", ownBefore, otherSharing, thirdSharing), body{claims: list(otherSharing, thirdSharing, ownSharing)}},
		"hold what a person cordoned":    {hold, own(), holding(true, ""), body{claims: list(ownText)}},
		"hold leaves a marked cordon":    {hold, own(broken), holding(true, plan, ownText), body{claims: list(ownFailed)}},
		"hold leaves a flagged cordon":   {hold, own(flagged), holding(true, "", ownText), body{claims: list(ownFlagged)}},
		"hold leaves another's cordon":   {hold, own(), holding(true, other), body{claims: list(ownText)}},
		"hold takes an old mark off":     {hold, own(), holding(false, plan), body{claims: list(ownText), unmark: true}},
		"hold takes another's off":       {hold, own(), holding(false, other), body{claims: list(ownText), unmark: true}},
		"hold beside a skipped one":      {hold, own(), holding(false, "", otherSkipped), body{claims: list(otherSkipped, ownText)}},
		"soak":                           {soak, own(soaking), holding(false, "", ownText), body{claims: list(ownSoaking)}},
		"soak beside another":            {soak, own(sharing), holding(false, "", otherSharing, ownBefore), body{claims: list(otherSharing, ownSharing)}},
		"soak uncordons what is marked":  {soak, own(soaking), holding(true, plan, ownText), body{claims: list(ownSoaking), unmark: true, uncordon: true}},
		"soak uncordons what is flagged": {soak, own(flagged), holding(true, "", ownText), body{claims: list(ownFlagged), uncordon: true}},
		"soak leaves a person's cordon":  {soak, own(soaking), holding(true, "", ownText), body{claims: list(ownSoaking)}},
		"soak leaves another's cordon":   {soak, own(soaking), holding(true, other, ownText), body{claims: list(ownSoaking)}},
		"soak takes an old mark off":     {soak, own(soaking), holding(false, plan, ownText), body{claims: list(ownSoaking), unmark: true}},

		"release":                           {releases, own(), holding(false, "", ownText), body{labels: true}},
		"release beside others":             {releases, own(sharing), holding(false, "", otherSharing, ownSharing, thirdSharing), body{claims: list(otherSharing, thirdSharing), labels: true}},
		"release uncordons what is marked":  {releases, own(), holding(true, plan, ownText), body{labels: true, unmark: true, uncordon: true}},
		"release uncordons what is flagged": {releases, own(flagged), holding(true, "", ownText), body{labels: true, uncordon: true}},
		"release leaves a person's cordon":  {releases, own(), holding(true, "", ownText), body{labels: true}},
		"release leaves another's cordon":   {releases, own(), holding(true, other, ownText), body{labels: true}},
		// A person has lifted the rollout's cordon, and may cordon the node again later: that must not be taken for the rollout's.
		"release takes an old mark off":          {releases, own(), holding(false, plan, ownText), body{labels: true, unmark: true}},
		"release takes an old mark off, flagged": {releases, own(flagged), holding(false, plan, ownText), body{labels: true, unmark: true}},
		"release without labels":                 {releasesBare, own(), holding(true, plan, ownText), body{unmark: true, uncordon: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			c := fake.NewClientBuilder().WithObjects(tc.node).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					sent, err := patch.Data(obj)
					if err != nil {
						return err
					}
					if patch.Type() != types.MergePatchType || obj.GetName() != "n1" {
						t.Errorf("a %s of %s", patch.Type(), obj.GetName())
					}
					got = append(got, string(sent))
					return c.Patch(ctx, obj, patch, opts...)
				},
			}).Build()
			given := read(t, c)
			before := given.DeepCopy()
			if err := tc.do(t.Context(), c, given, tc.claim); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want.String()}, got); diff != "" {
				t.Errorf("patches (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("changed the object that it was given:\n%s", diff)
			}
			after := read(t, c)
			if after.Annotations["kept"] != "yes" {
				t.Error("lost what others have written")
			}
			if after.Spec.Unschedulable != (before.Spec.Unschedulable && !tc.want.uncordon) {
				t.Errorf("unschedulable: %v", after.Spec.Unschedulable)
			}
		})
	}
}

func TestClaimRefused(t *testing.T) {
	since := " since 2026-11-20 11:00:00 +0000 UTC"
	for name, tc := range map[string]struct {
		do    writes
		claim v1alpha1.Claim
		node  *corev1.Node
		want  string
	}{
		"exclusive beside exclusive": {hold, own(), holding(false, "", otherText), "writing node n1, claimed by Plan/system-upgrade/other" + since},
		"exclusive beside shared":    {hold, own(), holding(false, "", otherSharing), "writing node n1, claimed by Plan/system-upgrade/other" + since},
		"shared beside exclusive":    {hold, own(sharing), holding(false, "", otherText), "writing node n1, claimed by Plan/system-upgrade/other" + since},
		"shared beside both":         {hold, own(sharing), holding(false, "", thirdSharing, otherText), "writing node n1, claimed by Plan/system-upgrade/other" + since},
		"soaking beside exclusive":   {soak, own(), holding(false, "", otherText), "writing node n1, claimed by Plan/system-upgrade/other" + since},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.node).WithInterceptorFuncs(unwritten(t)).Build()
			if err := tc.do(t.Context(), c, read(t, c), tc.claim); err == nil || err.Error() != tc.want || apierrors.IsConflict(err) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestClaimUnreadable(t *testing.T) {
	for _, do := range map[string]writes{"hold": hold, "soak": soak, "release": releases} {
		for _, value := range []string{"{", `{"rollout":"x"}`, `[{"uid":"u1"}]`} {
			n := holding(true, plan)
			n.Annotations[v1alpha1.AnnotationClaims] = value
			c := fake.NewClientBuilder().WithObjects(n).WithInterceptorFuncs(unwritten(t)).Build()
			if err := do(t.Context(), c, read(t, c), own()); err == nil || !strings.HasPrefix(err.Error(), "writing node n1, reading annotation moult.dev/claims, ") {
				t.Errorf("%s: got %v", value, err)
			}
		}
	}
}

// unwritten lets nothing be written.
func unwritten(t *testing.T) interceptor.Funcs {
	return interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
		sent, err := patch.Data(obj)
		t.Errorf("wrote %s, %v", sent, err)
		return nil
	}}
}

// Whoever has seen an older node loses, and so does whoever claims one that is gone.
func TestClaimLoses(t *testing.T) {
	for name, do := range map[string]writes{"hold": hold, "soak": soak, "release": releases} {
		c := fake.NewClientBuilder().WithObjects(holding(true, plan, ownText)).Build()
		stale := read(t, c)
		if err := hold(t.Context(), c, read(t, c), own(broken)); err != nil {
			t.Fatal(err)
		}
		before := read(t, c)
		if err := do(t.Context(), c, stale, own(soaking)); !apierrors.IsConflict(err) || !strings.HasPrefix(err.Error(), "writing node n1, ") {
			t.Errorf("%s: got %v, want a conflict", name, err)
		}
		if diff := cmp.Diff(before, read(t, c)); diff != "" {
			t.Errorf("%s: changed the node:\n%s", name, diff)
		}
		if err := c.Delete(t.Context(), before.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		if err := do(t.Context(), c, before, own(soaking)); !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want that the node is gone", name, err)
		}
	}
}

func TestCordonedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		node  *corev1.Node
		claim v1alpha1.Claim
		want  bool
	}{
		"schedulable":                       {holding(false, ""), own(), false},
		"schedulable, flagged":              {holding(false, ""), own(flagged), false},
		"schedulable, with an old mark":     {holding(false, plan), own(), false},
		"cordoned by no one known":          {holding(true, ""), own(), false},
		"cordoned by no one known, flagged": {holding(true, ""), own(flagged), true},
		"cordoned by this one":              {holding(true, plan), own(), true},
		"cordoned by another":               {holding(true, other), own(), false},
	} {
		if got := cordonedFor(tc.node, tc.claim); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestHolder(t *testing.T) {
	for want, key := range map[string]types.NamespacedName{
		"Plan/system-upgrade/k3s": {Namespace: "system-upgrade", Name: "k3s"},
		"Plan/k3s":                {Name: "k3s"},
	} {
		if got := Holder("Plan", key); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
