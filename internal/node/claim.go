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

// Held returns the rollout's own claim on the node, or nil.
func Held(claims []v1alpha1.Claim, rollout types.UID) *v1alpha1.Claim {
	for i := range claims {
		if claims[i].UID == rollout {
			return &claims[i]
		}
	}
	return nil
}

// Hold writes the rollout's claim on the node, in place of one that it has there already.
func Hold(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	if err := change(ctx, c, n, claim.UID, &claim, nil, false); err != nil {
		return fmt.Errorf("claiming node %s, %w", n.Name, err)
	}
	return nil
}

// Soak writes the claim of a turn that is done but for its soak, and makes the node schedulable if this turn had made it
// unschedulable.
func Soak(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim) error {
	if err := change(ctx, c, n, claim.UID, &claim, nil, CordonedFor(n, claim)); err != nil {
		return fmt.Errorf("soaking node %s, %w", n.Name, err)
	}
	return nil
}

// Release takes the claim back, puts labels on the node, and makes it schedulable if this turn had made it
// unschedulable, all in one write.
func Release(ctx context.Context, c client.Writer, n *corev1.Node, claim v1alpha1.Claim, labels map[string]string) error {
	if err := change(ctx, c, n, claim.UID, nil, labels, CordonedFor(n, claim)); err != nil {
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
	Labels          map[string]string  `json:"labels,omitempty"`
}

func change(ctx context.Context, c client.Writer, n *corev1.Node, holder types.UID, claim *v1alpha1.Claim, labels map[string]string, uncordon bool) error {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(other v1alpha1.Claim) bool { return other.UID == holder })
	if claim != nil {
		for _, other := range claims {
			if !claim.Shared || !other.Shared {
				return fmt.Errorf("%s has it since %s", other.Rollout, other.Since.UTC())
			}
		}
		claims = append(claims, *claim)
	}
	p := patch{Metadata: patchMetadata{
		ResourceVersion: n.ResourceVersion,
		Annotations:     map[string]*string{v1alpha1.AnnotationClaims: nil},
		Labels:          labels,
	}}
	if len(claims) > 0 {
		value, err := v1alpha1.FormatClaims(claims)
		if err != nil {
			return err
		}
		p.Metadata.Annotations[v1alpha1.AnnotationClaims] = &value
	}
	_, marked := n.Annotations[v1alpha1.AnnotationCordonedBy]
	if uncordon || marked && !n.Spec.Unschedulable {
		// A mark outlives the cordon it stands for when a person has lifted that.
		p.Metadata.Annotations[v1alpha1.AnnotationCordonedBy] = nil
	}
	if uncordon {
		p.Spec = map[string]any{"unschedulable": nil}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	return c.Patch(ctx, written, client.RawPatch(types.MergePatchType, body))
}
