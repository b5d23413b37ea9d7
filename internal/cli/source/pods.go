// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/distribution/reference"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/view"
)

// ReadDaemons returns ExtendedDaemonSets with their revisions, settings and pods. It reads nothing of those that skip selects.
// If any of these may not be read, it returns none of them.
func (src *Source) ReadDaemons(
	ctx context.Context, sets []edsv1.ExtendedDaemonSet, skip func(*edsv1.ExtendedDaemonSet) bool,
) (view.Daemons, error) {
	d := view.Daemons{Sets: sets, Pods: map[types.NamespacedName][]corev1.Pod{}}
	var namespace string
	var err error
	for i := range sets {
		eds := &sets[i]
		if skip != nil && skip(eds) || err != nil {
			continue
		}
		if len(d.Pods) == 0 {
			namespace = eds.Namespace
		} else if namespace != eds.Namespace {
			namespace = ""
		}
		d.Pods[types.NamespacedName{Namespace: eds.Namespace, Name: eds.Name}], err = src.podsOf(ctx, eds)
	}
	if len(d.Pods) == 0 {
		return d, nil
	}
	if err == nil {
		d.Revisions, err = ReadIn[edsv1.ExtendedDaemonSetReplicaSet](ctx, src, namespace, ReplicaSet, metav1.ListOptions{})
	}
	if err == nil {
		d.Settings, err = ReadIn[edsv1.ExtendedDaemonsetSetting](ctx, src, namespace, Setting, metav1.ListOptions{})
	}
	switch {
	case err == nil:
		return d, nil
	case isHidden(err):
		src.Notes = append(src.Notes, NoPodsSeen)
		return view.Daemons{Sets: sets}, nil
	}
	return d, fmt.Errorf("reading what belongs to ExtendedDaemonSets, %w", err)
}

// podsOf returns the pods of an ExtendedDaemonSet, and of the DaemonSet that it replaces.
func (src *Source) podsOf(ctx context.Context, eds *edsv1.ExtendedDaemonSet) ([]corev1.Pod, error) {
	pods, err := src.readPods(ctx, eds.Namespace, metav1.ListOptions{LabelSelector: edsv1.LabelName + "=" + eds.Name})
	if err != nil || eds.Annotations[edsv1.AnnotationOldDaemonset] == "" {
		return pods, err
	}
	others, err := src.readPods(ctx, eds.Namespace, metav1.ListOptions{LabelSelector: "!" + edsv1.LabelName})
	others = slices.DeleteFunc(others, func(p corev1.Pod) bool { return !view.TakesOver(eds, &p) })
	return append(pods, others...), err
}

// OnNode selects the pods on a node; all pods if it is empty.
func OnNode(node string) metav1.ListOptions { return FieldIs("spec.nodeName", node) }

// readPods returns pods with only the fields that view reads.
func (src *Source) readPods(ctx context.Context, namespace string, o metav1.ListOptions) ([]corev1.Pod, error) {
	trim := func(p *corev1.Pod) { _, _ = view.TrimPod(p) } // It never fails for a pod.
	return read(ctx, src, src.Core.Pods(namespace), o, namespace+"/Pod", trim)
}

// ReadPods returns pods as they are.
func (src *Source) ReadPods(ctx context.Context, namespace string, o metav1.ListOptions) ([]corev1.Pod, error) {
	pods, err := read(ctx, src, src.Core.Pods(namespace), o, namespace+"/Pod", func(*corev1.Pod) {})
	if err != nil {
		return nil, fmt.Errorf("listing pods, %w", err)
	}
	return pods, nil
}

// ReadPodGates closes the gates that depend on pods on the node, which no status lists. An empty name means all nodes.
func (src *Source) ReadPodGates(ctx context.Context, cluster *view.Cluster, node string) error {
	byPods, byNamespaces := cluster.PodGates(node)
	if !byPods {
		return nil
	}
	known := map[string]labels.Set{}
	pods, err := src.readPods(ctx, metav1.NamespaceAll, OnNode(node))
	if err == nil && byNamespaces {
		err = Each(ctx, src.Core.Namespaces(), metav1.ListOptions{}, func(n *corev1.Namespace) { known[n.Name] = n.Labels })
	}
	switch {
	case apierrors.IsForbidden(err):
		src.Notes = append(src.Notes, NoGated)
	case err != nil:
		return fmt.Errorf("reading the pods on nodes, %w", err)
	default:
		cluster.PodsOnNodes(pods, known)
	}
	return nil
}

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
