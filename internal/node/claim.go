// SPDX-License-Identifier: Apache-2.0

// Package node writes what Moult writes on Nodes: claims, the cordon, and labels. Each write is one small patch with the
// resourceVersion that the decision was made on as its precondition: whoever loses decides again.
package node

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// CordonedFor reports whether the node is unschedulable because of this claim, and so is to be made schedulable at the end
// of its turn: it carries the rollout's mark, or it was schedulable before and the tool that cordons leaves no mark. What
// a person had cordoned has neither.
func CordonedFor(n *corev1.Node, claim v1alpha1.Claim) bool {
	return n.Spec.Unschedulable && (n.Annotations[v1alpha1.AnnotationCordonedBy] == claim.Rollout || claim.Uncordon)
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
