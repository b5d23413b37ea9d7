// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// labelNodes adds the label that names the interface of the host to selected Nodes that have none, where spec.hostUpdate.labelNodes asks for it.
// The write fails with a conflict if the Node has changed since it was read, so a label that a person adds meanwhile stays.
func labelNodes(ctx context.Context, c client.Writer, w *world, nodes []*corev1.Node) error {
	if !w.host.LabelNodes {
		return nil
	}
	return turn.Each(nodes, func(n *corev1.Node) error {
		key, value, ok := hostupdate.InterfaceLabel(n)
		if !ok || n.Labels[w.optOut] == v1alpha1.LabelNodeRolloutDisabled || !w.selector.Matches(labels.Set(n.Labels)) {
			return nil
		}
		label := node.Labelling(map[string]*string{key: &value})
		return node.Write(ctx, c, n, node.Step{Unclaimed: true, Claim: v1alpha1.Claim{Rollout: w.holder}, Also: []node.Also{label}})
	})
}
