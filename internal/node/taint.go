// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// TaintedBy returns the rollouts of a kind that have tainted the node as outdated.
func TaintedBy(o client.Object, kind string) []string {
	n, ok := o.(*corev1.Node)
	if !ok {
		return nil
	}
	var names []string
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if name, ok := strings.CutPrefix(t.Key, strings.ToLower(kind)+v1alpha1.TaintOutdatedSuffix+"/"); ok && t.Effect == corev1.TaintEffectPreferNoSchedule {
			names = append(names, name)
		}
	}
	return names
}

// Taint adds the taint key:PreferNoSchedule to the node, or removes it. It writes nothing if nothing changes. It fails with a conflict if the
// node changed since it was read; the caller decides again.
func Taint(ctx context.Context, c client.Writer, n *corev1.Node, key string, on bool) error {
	return write(ctx, c, n, func(n *corev1.Node) error {
		taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}
		switch i := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }); {
		case on && i < 0:
			n.Spec.Taints = append(n.Spec.Taints, taint)
		case !on && i >= 0:
			n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
		}
		return nil
	})
}
