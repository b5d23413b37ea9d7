// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
)

// NoGated is said to those who may not see what gates of nodes go by.
const NoGated = "Pods and namespaces can't all be listed: whether a pod on a node closes a gate is known only where a rollout's status says so."

// Gated is what gates of nodes go by that no status lists.
type Gated struct {
	Pods []corev1.Pod
	// Namespaces has the labels of each; nil where they don't matter.
	Namespaces map[string]labels.Set
}

// ReadGated returns the pods that are on a node, or where none is named all there are, and where they matter the labels of namespaces. Where
// these can't all be listed there is nothing, and a note says so.
func (src *Source) ReadGated(ctx context.Context, node string, namespaces bool) (g Gated, note string, err error) {
	g.Pods, err = src.readPodsOn(ctx, node)
	if err == nil && namespaces {
		g.Namespaces, err = src.ReadNamespaces(ctx)
	}
	if apierrors.IsForbidden(err) {
		return Gated{}, NoGated, nil
	}
	return g, "", err
}
