// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/internal/view"
)

// PodGates is what gates by pods go by, which no status lists: the pods of nodes, and the labels of namespaces.
type PodGates struct {
	pods       map[string][]corev1.Pod
	namespaces map[string]labels.Set
}

// ReadPodGates reads what the gates by pods of these nodes go by. Where it cannot all be listed, there is nothing.
func (src *Source) ReadPodGates(ctx context.Context, cluster *view.Cluster, nodes ...string) (PodGates, error) {
	g := PodGates{pods: map[string][]corev1.Pod{}}
	byNamespace := false
	for _, name := range nodes {
		byPods, byLabels := cluster.PodGates(name)
		if byPods {
			g.pods[name] = nil
		}
		byNamespace = byNamespace || byLabels
	}
	if len(g.pods) == 0 {
		return g, nil
	}
	var o metav1.ListOptions
	if len(nodes) == 1 {
		o.FieldSelector = onNode(nodes[0])
	}
	pods, err := src.ReadPods(ctx, metav1.NamespaceAll, o)
	if err == nil && byNamespace {
		err = g.readNamespaces(ctx, src)
	}
	switch {
	case apierrors.IsForbidden(err):
		src.Notes = append(src.Notes, NoGated)
		return PodGates{}, nil
	case err != nil:
		return PodGates{}, fmt.Errorf("reading the pods on nodes, %w", err)
	}
	for i := range pods {
		on := pods[i].Spec.NodeName
		if len(nodes) == 1 {
			on = nodes[0]
		}
		if _, gated := g.pods[on]; gated {
			g.pods[on] = append(g.pods[on], pods[i])
		}
	}
	return g, nil
}

func (g *PodGates) readNamespaces(ctx context.Context, src *Source) error {
	namespaces, err := List[corev1.Namespace](ctx, src.Core.Namespaces(), metav1.ListOptions{})
	g.namespaces = map[string]labels.Set{}
	for i := range namespaces {
		g.namespaces[namespaces[i].Name] = namespaces[i].Labels
	}
	return err
}

// Tell closes the gates of a view that go by them.
func (g *PodGates) Tell(cluster *view.Cluster) {
	for node, pods := range g.pods {
		cluster.PodsOn(node, pods, g.namespaces)
	}
}
