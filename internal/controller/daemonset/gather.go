// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// gather reads the input of the judge from the caches.
func (p *pass) gather(ctx context.Context) (daemonset.Facts, error) {
	facts := daemonset.Facts{EDS: p.stored.DeepCopy(), ValidationMode: p.options.ValidationMode, Memory: p.remembered(p.key)}
	snapshot, err := p.fleet.SnapshotFor(ctx, p.workload())
	if err != nil {
		return facts, err
	}
	facts.Fleet, facts.Nodes = snapshot.Fleet, snapshot.Objects
	own := []client.ListOption{client.InNamespace(p.key.Namespace), client.MatchingFields{indexName: p.key.Name}, client.UnsafeDisableDeepCopy}
	var sets edsv1.ExtendedDaemonSetReplicaSetList
	if err := p.client.List(ctx, &sets, own...); err != nil {
		return facts, fmt.Errorf("listing revisions, %w", err)
	}
	facts.ReplicaSets = sets.Items
	var settings edsv1.ExtendedDaemonsetSettingList
	if err := p.client.List(ctx, &settings, append(own, client.DisableReadYourWritesConsistency)...); err != nil {
		return facts, fmt.Errorf("listing settings, %w", err)
	}
	facts.Settings = settings.Items
	if p.stored.Annotations[edsv1.AnnotationOldDaemonset] != "" {
		return facts, p.gatherLegacy(ctx, &facts)
	}
	var pods corev1.PodList
	if err := p.pods.List(ctx, &pods, own...); err != nil {
		return facts, fmt.Errorf("listing pods, %w", err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; daemonset.IsDaemonPod(pod) {
			facts.Pods = append(facts.Pods, pod)
		}
	}
	return facts, nil
}

// workload is how workloads gates name the ExtendedDaemonSet.
func (p *pass) workload() string { return edsKind + "/" + p.key.String() }

// remembered returns what this process remembers of an ExtendedDaemonSet. Only one reconcile at a time may use it.
func (c *Controller) remembered(key types.NamespacedName) daemonset.Memory {
	m, _ := c.memory.LoadOrStore(key, daemonset.Memory{
		Refused: map[string]daemonset.Refusal{}, Batches: map[string]time.Time{}, Slow: &daemonset.SlowPod{},
	})
	return m.(daemonset.Memory)
}
