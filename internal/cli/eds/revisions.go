// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// readRevisions reads the ExtendedDaemonSetReplicaSets of an ExtendedDaemonSet, and returns the oldest first. One without an owner belongs
// to it by its label.
func readRevisions(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) ([]edsv1.ExtendedDaemonSetReplicaSet, error) {
	o := metav1.ListOptions{LabelSelector: labels.Set{edsv1.LabelName: eds.Name}.String()}
	all, err := source.Read[edsv1.ExtendedDaemonSetReplicaSet](ctx, src, source.ReplicaSet, o)
	if err != nil {
		return nil, source.Explain(source.ReplicaSet, err)
	}
	all = slices.DeleteFunc(all, func(ers edsv1.ExtendedDaemonSetReplicaSet) bool {
		owner := metav1.GetControllerOf(&ers)
		return owner != nil && owner.UID != eds.UID
	})
	slices.SortFunc(all, func(a, b edsv1.ExtendedDaemonSetReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// revisionInSpec returns the newest revision with the template of the spec, or nil.
func revisionInSpec(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) *edsv1.ExtendedDaemonSetReplicaSet {
	for i := len(revisions) - 1; i >= 0; i-- {
		if sameTemplate(&eds.Spec.Template, &revisions[i].Spec.Template) {
			return &revisions[i]
		}
	}
	return nil
}

// sameTemplate reports whether two templates make the same revision. Their names do not count.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.Name, b.Name = "", ""
	return equality.Semantic.DeepEqual(a, b)
}

// canaryFailure returns the condition that the canary of a revision has failed, or nil.
func canaryFailure(ers *edsv1.ExtendedDaemonSetReplicaSet) *edsv1.Condition {
	return edsv1.TrueCondition(ers.Status.Conditions, edsv1.ConditionCanaryFailed)
}
