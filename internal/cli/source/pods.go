// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
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
