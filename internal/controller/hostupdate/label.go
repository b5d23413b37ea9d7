// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// labelNodes adds the label that names the interface of the host to selected Nodes that have none, where spec.hostUpdate.labelNodes asks for it.
// The write fails with a conflict if the Node has changed since it was read, so a label that a person adds meanwhile stays.
func (c *Controller) labelNodes(ctx context.Context, w *world, nodes []*corev1.Node) error {
	if !w.host.LabelNodes {
		return nil
	}
	var outstanding []*corev1.Node
	for _, n := range nodes {
		optedOut := n.Labels[w.optOut] == v1alpha1.LabelNodeRolloutDisabled
		if _, _, ok := hostupdate.InterfaceLabel(n); ok && !optedOut && w.selector.Matches(labels.Set(n.Labels)) {
			outstanding = append(outstanding, n)
		}
	}
	return turn.Each(outstanding, func(n *corev1.Node) error {
		key, value, _ := hostupdate.InterfaceLabel(n)
		label := node.Labelling(map[string]*string{key: &value})
		return node.Write(ctx, c.Client, n, node.Step{Unclaimed: true, Claim: v1alpha1.Claim{Rollout: w.holder}, Also: []node.Also{label}})
	})
}
