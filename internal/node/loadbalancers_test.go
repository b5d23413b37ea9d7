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
	for name, tc := range map[string]struct{ node, want *corev1.Node }{
		"a rollout":                         {cordonable(false, ""), excluded(true, plan, plan)},
		"a rollout again":                   {excluded(true, plan, plan), excluded(true, plan, plan)},
		"a label that was there stays":      {excluded(false, "", ""), excluded(true, plan, "")},
		"another's label stays":             {excluded(false, "", other), excluded(true, plan, other)},
		"a mark that is left over":          {leftover(false, "", other), excluded(true, plan, plan)},
		"a node that a person has cordoned": {cordonable(true, ""), excluded(true, "", plan)},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(tc.node).Build()
			if err := Write(t.Context(), c, read(t, c), Edit{Claim: own(), Cordon: true, Also: []Also{Excluding}}); err != nil {
				t.Fatal(err)
			}
			n := read(t, c)
			delete(n.Annotations, v1alpha1.AnnotationClaims)
			expectSame(t, tc.want, n)
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
	return Write(ctx, c, n, Edit{Claim: claim, Release: true, Restore: true, Also: []Also{Labelling(map[string]*string{corev1.LabelNodeExcludeBalancers: ptr.To("")})}})
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
