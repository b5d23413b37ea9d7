// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// simulated marks nodes whose kubelet is played.
const simulated = "kwok.x-k8s.io/node"

// churn deletes nodes, spread evenly, and makes as many others at the same time. It returns the names of the nodes there
// are then.
func (b *bench) churn(ctx context.Context, n int) ([]string, error) {
	list, err := b.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	var names []string
	for i := range list.Items {
		node := &list.Items[i]
		if !goes(i, n, len(list.Items)) {
			names = append(names, node.Name)
			continue
		}
		b.newNodes++
		other := nodeLike(node, fmt.Sprintf("new-%04d", b.newNodes))
		names = append(names, other.Name)
		group.Go(func() error {
			return b.raw.CoreV1().Nodes().Delete(groupCtx, node.Name, metav1.DeleteOptions{})
		})
		group.Go(func() error {
			_, err := b.raw.CoreV1().Nodes().Create(groupCtx, other, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("replacing nodes, %w", err)
	}
	return names, nil
}

// goes reports whether number i is one of n that are spread evenly over so many.
func goes(i, n, of int) bool { return i*n/of != (i+1)*n/of }

// nodeLike is a node as another one is, which says that it is ready.
func nodeLike(n *corev1.Node, name string) *corev1.Node {
	labels := maps.Clone(n.Labels)
	labels[corev1.LabelHostname] = name
	status := n.Status.DeepCopy()
	now := metav1.Now()
	for i := range status.Conditions {
		status.Conditions[i].LastHeartbeatTime, status.Conditions[i].LastTransitionTime = now, now
	}
	for i := range status.Addresses {
		if status.Addresses[i].Type == corev1.NodeHostName {
			status.Addresses[i].Address = name
		}
	}
	status.Images, status.VolumesInUse, status.VolumesAttached = nil, nil, nil
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{simulated: n.Annotations[simulated]}},
		Spec:       corev1.NodeSpec{ProviderID: "simulated://" + name},
		Status:     *status,
	}
}
