// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/api/v1alpha1"
)

// excluded makes a cordonable node with the label and, if by is not empty, its mark.
func excluded(unschedulable bool, cordonedBy, by string) *corev1.Node {
	n := leftover(unschedulable, cordonedBy, by)
	n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	return n
}

// leftover has the mark without the label.
func leftover(unschedulable bool, cordonedBy, by string) *corev1.Node {
	n := cordonable(unschedulable, cordonedBy)
	if by != "" {
		n.Annotations[v1alpha1.AnnotationExcludedBy] = by
	}
	return n
}

func TestExcluding(t *testing.T) {
	for name, tc := range map[string]struct {
		by             string
		node, want     *corev1.Node
		cordoned, done bool
	}{
		"a rollout":                         {plan, cordonable(false, ""), excluded(true, plan, plan), true, true},
		"a rollout again":                   {plan, excluded(true, plan, plan), excluded(true, plan, plan), false, false},
		"by hand":                           {"", cordonable(false, ""), excluded(true, "", ByHand), true, true},
		"a label that was there stays":      {plan, excluded(false, "", ""), excluded(true, plan, ""), true, false},
		"another's label stays":             {plan, excluded(false, "", other), excluded(true, plan, other), true, false},
		"a mark that is left over":          {plan, leftover(false, "", other), excluded(true, plan, plan), true, true},
		"a node that a person has cordoned": {plan, cordonable(true, ""), excluded(true, "", plan), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.node).Build()
			var done bool
			cordoned, err := Cordon(t.Context(), c, read(t, c), tc.by, Excluding(&done))
			if err != nil || cordoned != tc.cordoned || done != tc.done {
				t.Errorf("cordoned is %v, excluded is %v, %v", cordoned, done, err)
			}
			expectNode(t, tc.want, c)
		})
	}
}

func TestGiveBack(t *testing.T) {
	both := Done{Cordoned: true, Excluded: true}
	for name, tc := range map[string]struct {
		by         string
		done       Done
		node, want *corev1.Node
		uncordoned bool
	}{
		"a rollout's":                               {plan, both, excluded(true, plan, plan), cordonable(false, ""), true},
		"a rollout's, from an earlier attempt":      {plan, Done{}, excluded(true, plan, plan), cordonable(false, ""), true},
		"a rollout leaves a person's cordon":        {plan, Done{Excluded: true}, excluded(true, "", plan), cordonable(true, ""), false},
		"a rollout leaves what a person took over":  {plan, both, excluded(true, "", ""), excluded(true, "", ""), false},
		"a rollout leaves another's":                {plan, Done{}, excluded(true, other, other), excluded(true, other, other), false},
		"a rollout leaves a label without mark":     {plan, Done{Cordoned: true}, excluded(true, plan, ""), excluded(false, "", ""), true},
		"what a person has given back already":      {plan, both, leftover(false, plan, plan), cordonable(false, ""), false},
		"by hand":                                   {"", both, excluded(true, "", ByHand), cordonable(false, ""), true},
		"by hand, not cordoned by this":             {"", Done{Excluded: true}, excluded(true, "", ByHand), cordonable(true, ""), false},
		"by hand, not excluded by this":             {"", Done{Cordoned: true}, excluded(true, "", ByHand), excluded(false, "", ByHand), true},
		"by hand, nothing of it by this":            {"", Done{}, excluded(true, "", ByHand), excluded(true, "", ByHand), false},
		"by hand, and a rollout has it by now":      {"", both, excluded(true, plan, plan), excluded(true, plan, plan), false},
		"by hand, and a rollout has excluded it":    {"", both, excluded(true, "", plan), excluded(false, "", plan), true},
		"by hand, a mark of the rollout left over":  {"", both, leftover(false, plan, ""), cordonable(false, ""), false},
		"by hand, given back by a person meanwhile": {"", both, cordonable(false, ""), cordonable(false, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.node).Build()
			uncordoned, err := GiveBack(t.Context(), c, read(t, c), tc.by, tc.done)
			if err != nil || uncordoned != tc.uncordoned {
				t.Errorf("uncordoned is %v, %v", uncordoned, err)
			}
			expectNode(t, tc.want, c)
		})
	}
}

func TestUncordonIncludes(t *testing.T) {
	for name, tc := range map[string]struct {
		node, want *corev1.Node
		changed    bool
	}{
		"a rollout's":               {excluded(true, plan, plan), cordonable(false, ""), true},
		"by hand":                   {excluded(true, "", ByHand), cordonable(false, ""), true},
		"a label without mark":      {excluded(true, "", ""), excluded(false, "", ""), true},
		"schedulable, and excluded": {excluded(false, "", plan), cordonable(false, ""), true},
		"a mark that is left over":  {leftover(false, "", plan), cordonable(false, ""), true},
		"nothing":                   {excluded(false, "", ""), excluded(false, "", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.node).Build()
			if changed, err := Uncordon(t.Context(), c, read(t, c)); err != nil || changed != tc.changed {
				t.Errorf("changed is %v, %v", changed, err)
			}
			expectNode(t, tc.want, c)
		})
	}
}

// What a turn ends with takes the rollout's own label off, and no other; what it goes on with takes none.
func TestClaimIncludes(t *testing.T) {
	for name, tc := range map[string]struct {
		do         writes
		node, want *corev1.Node
	}{
		"release":                         {releasesBare, excluded(true, plan, plan), cordonable(false, "")},
		"release leaves another's":        {releasesBare, excluded(false, "", other), excluded(false, "", other)},
		"release leaves one by hand":      {releasesBare, excluded(false, "", ByHand), excluded(false, "", ByHand)},
		"release leaves a user's":         {releasesBare, excluded(false, "", ""), excluded(false, "", "")},
		"release takes an old mark off":   {releasesBare, leftover(false, "", other), cordonable(false, "")},
		"release of a person's cordon":    {releasesBare, excluded(true, "", plan), cordonable(true, "")},
		"release with the label as asked": {releasesExcluded, excluded(false, "", plan), excluded(false, "", "")},
		"soak":                            {soak, excluded(true, plan, plan), cordonable(false, "")},
		"hold":                            {hold, excluded(true, plan, plan), excluded(true, plan, plan)},
		"hold takes an old mark off":      {hold, leftover(true, plan, plan), cordonable(true, plan)},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.node).Build()
			if err := tc.do(t.Context(), c, read(t, c), own()); err != nil {
				t.Fatal(err)
			}
			n := read(t, c)
			delete(n.Annotations, v1alpha1.AnnotationClaims)
			expectSame(t, tc.want, n)
		})
	}
}

// releasesExcluded releases a node that the rollout itself wants labelled.
func releasesExcluded(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	return Write(ctx, c, n, Step{Claim: claim, Release: true, GiveBack: true, Also: []Also{Labelling(map[string]*string{corev1.LabelNodeExcludeBalancers: ptr.To("")})}})
}

func expectNode(t *testing.T, want *corev1.Node, c client.Reader) {
	t.Helper()
	expectSame(t, want, read(t, c))
}

func expectSame(t *testing.T, want, got *corev1.Node) {
	t.Helper()
	want, got = want.DeepCopy(), got.DeepCopy()
	want.ResourceVersion, got.ResourceVersion = "", ""
	if len(got.Labels) == 0 {
		got.Labels = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}
