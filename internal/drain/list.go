// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeNameField is the field by which a pass lists pods. A client that reads from a cache needs an index of this name.
const NodeNameField = "spec.nodeName"

// list returns the node's pods.
func (d *Drainer) list(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := d.client.List(ctx, &pods, client.MatchingFields{NodeNameField: node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s, %w", node, err)
	}
	return pods.Items, nil
}

// daemonSets reads the DaemonSets of pods, and returns the errors of those that could not be read.
func (d *Drainer) daemonSets(ctx context.Context, pods []corev1.Pod) map[types.NamespacedName]error {
	failed := map[types.NamespacedName]error{}
	for i := range pods {
		owner, uid, ok := daemonSetOf(&pods[i])
		if !ok {
			continue
		}
		if _, ok := d.found.Load(uid); ok {
			continue
		}
		if _, ok := failed[owner]; ok {
			continue
		}
		if err := d.client.Get(ctx, owner, &appsv1.DaemonSet{}); err != nil {
			failed[owner] = err
			continue
		}
		d.found.Store(uid, nil)
	}
	return failed
}
