// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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
	facts.Pods, err = p.ownPods(ctx)
	return facts, err
}

// ownPods returns the pods of the ExtendedDaemonSet in the cache, with all writes of this process.
func (p *pass) ownPods(ctx context.Context) (own []*corev1.Pod, err error) {
	only := client.ListOption(client.Limit(1)) // The list only waits for the writes: a copy of thousands of pods takes longer than a decision.
	if p.podIndex == nil {
		only = client.MatchingFields{indexName: p.key.Name}
	}
	var list corev1.PodList
	if err = p.pods.List(ctx, &list, client.InNamespace(p.key.Namespace), client.UnsafeDisableDeepCopy, only); err != nil {
		return nil, fmt.Errorf("listing pods, %w", err)
	}
	var all []any
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	if p.podIndex != nil {
		all, err = p.podIndex.ByIndex(indexName, p.key.String())
	}
	for _, o := range all {
		if pod, ok := o.(*corev1.Pod); ok && daemonset.IsDaemonPod(pod) {
			own = append(own, pod)
		}
	}
	return own, err
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

const (
	// askAfter is how long a pod is in creation before its Events are read.
	askAfter = 10 * time.Second
	// askAgain is the least time between two such reads for an ExtendedDaemonSet. They need a pass that another change or the resync causes.
	askAgain = 20 * time.Second
)

// explainStart finds why the first pod that has been in creation for long does not start. That a volume can't be mounted shows only in the
// pod's Events.
func (p *pass) explainStart(ctx context.Context) {
	for _, s := range p.States {
		pod := s.Current
		if pod == nil || pod.State.Creating.IsZero() || pod.State.Message != "" || pod.Spec.NodeName == "" || s.NodeProblem != "" ||
			!p.HasPassed(pod.State.Creating.Add(askAfter)) {
			continue
		}
		if !p.now.Before(p.Slow.At.Add(askAgain)) {
			*p.Slow = daemonset.SlowPod{Pod: pod.UID, At: p.now}
			p.Slow.Reason, p.Slow.Message = p.lastWarning(ctx, pod)
		}
		if p.Slow.Pod == pod.UID && p.Slow.Reason != "" {
			pod.State.Explain(p.Slow.Reason, p.Slow.Message)
		}
		return
	}
}

// lastWarning returns reason and message of the newest warning about a pod. They are empty if there is none, or Events may not be listed.
func (p *pass) lastWarning(ctx context.Context, pod *daemonset.Pod) (reason, message string) {
	var list corev1.EventList
	if err := p.live.List(ctx, &list, client.InNamespace(p.key.Namespace), client.MatchingFields{
		"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning,
	}); err != nil {
		log.FromContext(ctx).V(1).Info("events of a pod can't be read", "pod", pod.Name, "error", err.Error())
	}
	if len(list.Items) == 0 {
		return "", ""
	}
	newest := slices.MaxFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return newest.Reason, newest.Message
}
