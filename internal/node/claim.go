// SPDX-License-Identifier: Apache-2.0

// Package node has all writes to Nodes: claims, the cordon, labels, taints and conditions. Each write is one small patch.
// Its precondition is the Node's resourceVersion. After a conflict the caller decides again; conditions and RecordEvicted retry.
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

// cordonedFor reports whether the node is unschedulable because of this claim, so that the end of the turn uncordons it.
// Such a node has the rollout's mark, or it was schedulable at the claim and the tool that cordons sets no mark. A node
// that a person cordoned has neither.
func cordonedFor(n *corev1.Node, claim v1alpha1.Claim) bool {
	return n.Spec.Unschedulable && (n.Annotations[v1alpha1.AnnotationCordonedBy] == claim.Rollout || claim.Uncordon)
}

// claimsWith returns the annotation's value with or without the rollout's own claim; nil if none remains. It fails if another claim conflicts.
func claimsWith(n *corev1.Node, own v1alpha1.Claim, keep bool) (*string, error) {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return nil, err
	}
	claims = slices.DeleteFunc(claims, func(other v1alpha1.Claim) bool { return other.UID == own.UID })
	if keep {
		for _, other := range claims {
			if !own.RecordsResult() && !other.RecordsResult() && (!own.Shared || !other.Shared) {
				return nil, fmt.Errorf("claimed by %s since %s", other.Rollout, other.Since.UTC())
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
