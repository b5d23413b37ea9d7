// SPDX-License-Identifier: Apache-2.0

// Package node writes what Moult writes on Nodes: claims, the cordon, and labels. Each write is one small patch with the
// resourceVersion that the decision was made on as its precondition: whoever loses decides again.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// Holder is the name of a rollout in claims and marks: "Kind/namespace/name".
func Holder(kind string, key types.NamespacedName) string {
	if key.Namespace == "" {
		return kind + "/" + key.Name
	}
	return kind + "/" + key.Namespace + "/" + key.Name
}

// Held returns a copy of the rollout's own claim on the node, or nil.
func Held(claims []v1alpha1.Claim, rollout types.UID) *v1alpha1.Claim {
	for _, c := range claims {
		if c.UID == rollout {
			return &c
		}
	}
	return nil
}

// Hold writes the rollout's claim on the node, in place of one that it has there already. It fails if another claim, that is
// neither shared with this one nor parked, is there.
func Hold(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	if err := change(ctx, c, n, claim, true, false, nil); err != nil {
		return fmt.Errorf("claiming node %s, %w", n.Name, err)
	}
	return nil
}

// Soak writes the claim of a turn that is done but for its soak, makes the node schedulable if this turn had made it
// unschedulable, and lets external load balancers have it again if this rollout had kept it from them.
func Soak(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	if err := change(ctx, c, n, claim, true, true, nil); err != nil {
		return fmt.Errorf("soaking node %s, %w", n.Name, err)
	}
	return nil
}

// Park writes the claim of a turn that was given up, which only remembers why (Claim.Parked), and gives the node back as
// Soak does. It may stand beside every other claim.
func Park(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	if err := change(ctx, c, n, claim, true, true, nil); err != nil {
		return fmt.Errorf("parking node %s, %w", n.Name, err)
	}
	return nil
}

// Release takes the claim back, puts labels on the node, makes it schedulable if this turn had made it unschedulable, and
// lets external load balancers have it again if this rollout had kept it from them, all in one write.
func Release(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim, labels map[string]string) error {
	if err := change(ctx, c, n, claim, false, true, labels); err != nil {
		return fmt.Errorf("releasing node %s, %w", n.Name, err)
	}
	return nil
}

// CordonedFor reports whether the node is unschedulable because of this claim, and so is to be made schedulable at the end
// of its turn: it carries the rollout's mark, or it was schedulable before and the tool that cordons leaves no mark. What
// a person had cordoned has neither.
func CordonedFor(n *corev1.Node, claim v1alpha1.Claim) bool {
	return n.Spec.Unschedulable && (n.Annotations[v1alpha1.AnnotationCordonedBy] == claim.Rollout || claim.Uncordon)
}

type patch struct {
	Metadata patchMetadata  `json:"metadata"`
	Spec     map[string]any `json:"spec,omitempty"`
}

type patchMetadata struct {
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
	Labels          map[string]*string `json:"labels,omitempty"`
}

// change writes or removes the rollout's own claim, puts labels on the node, and, at the end of a turn, undoes what the
// turn had done to it.
func change(ctx context.Context, c client.Writer, n *corev1.Node, own v1alpha1.Claim, keep, end bool, labels map[string]string) error {
	annotation, err := claimsWith(n, own, keep)
	if err != nil {
		return err
	}
	p := patch{Metadata: patchMetadata{
		ResourceVersion: n.ResourceVersion,
		Annotations:     map[string]*string{v1alpha1.AnnotationClaims: annotation},
		Labels:          map[string]*string{},
	}}
	if end && CordonedFor(n, own) {
		p.Metadata.Annotations[v1alpha1.AnnotationCordonedBy] = nil
		p.Spec = map[string]any{"unschedulable": nil}
	} else if _, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]; marked && !n.Spec.Unschedulable {
		// A mark outlives the cordon it stands for when a person has lifted that.
		p.Metadata.Annotations[v1alpha1.AnnotationCordonedBy] = nil
	}
	if excluded, by, marked := exclusion(n); marked && (!excluded || end && by == own.Rollout) {
		p.Metadata.Annotations[v1alpha1.AnnotationExcludedBy] = nil
		if excluded {
			p.Metadata.Labels[corev1.LabelNodeExcludeBalancers] = nil
		}
	}
	for key, value := range labels {
		p.Metadata.Labels[key] = &value
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	return c.Patch(ctx, written, client.RawPatch(types.MergePatchType, body))
}

// claimsWith is the annotation's value with the rollout's own claim or without it, or nil when no claim is left.
func claimsWith(n *corev1.Node, own v1alpha1.Claim, keep bool) (*string, error) {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return nil, err
	}
	claims = slices.DeleteFunc(claims, func(other v1alpha1.Claim) bool { return other.UID == own.UID })
	if keep {
		for _, other := range claims {
			if !own.Parked() && !other.Parked() && (!own.Shared || !other.Shared) {
				return nil, fmt.Errorf("%s has it since %s", other.Rollout, other.Since.UTC())
			}
		}
		claims = append(claims, own)
	}
	if len(claims) == 0 {
		return nil, nil
	}
	value, err := v1alpha1.FormatClaims(claims)
	return &value, err
}
