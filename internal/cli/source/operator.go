// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"slices"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// ReadLabelled returns the objects of a kind that have this label app.kubernetes.io/name, of all namespaces.
func ReadLabelled[T any](ctx context.Context, src *Source, k *Kind, name string) ([]T, error) {
	return ReadIn[T](ctx, src, metav1.NamespaceAll, k, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
}

// OperatorVersion is the version that an operator runs: the tag of its image, or without one the label of its Deployment.
func OperatorVersion(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		image, err := reference.ParseAnyReference(c.Image)
		if tagged, ok := image.(reference.Tagged); ok && err == nil && c.Name == "moult" {
			return tagged.Tag()
		}
	}
	return cmp.Or(d.Labels["app.kubernetes.io/version"], "unknown")
}

// PlansNamespace is where the Lease of an operator is that runs in a namespace of its own.
const PlansNamespace = "system-upgrade"

// ReadOperatorNode returns the node that the operator runs on. If it has several pods, the Lease holder's node counts. It is empty if
// unknown, or if the operator runs elsewhere.
func (src *Source) ReadOperatorNode(ctx context.Context) string {
	// The pods of Plans' Jobs have the first label, too.
	pods, err := src.readPods(ctx, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: upgradev1.LabelController + ",!" + upgradev1.LabelPlan})
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
	for _, p := range pods {
		if len(pods) == 1 {
			return p.Spec.NodeName
		}
		for _, namespace := range []string{p.Namespace, PlansNamespace} {
			lease, err := src.In(namespace, Lease).Get(ctx, p.Labels[upgradev1.LabelController], metav1.GetOptions{})
			if err == nil && ptr.Deref(As[coordinationv1.Lease](lease).Spec.HolderIdentity, "") == p.Name {
				return p.Spec.NodeName
			}
		}
	}
	if err != nil || len(pods) > 0 {
		src.Notes = append(src.Notes, NoOperator)
	}
	return ""
}
