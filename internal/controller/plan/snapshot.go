// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/plan"
)

// snapshot is what the caches show of one Plan. Its objects belong to the caches and must not be changed.
type snapshot struct {
	fleet.Snapshot
	// jobs and pods of the Plan, by the name of their node. For a node without a claim of the Plan, jobs has only the Jobs of
	// indexPlan.
	jobs map[string][]*batchv1.Job
	pods map[string][]*corev1.Pod
}

func (c *Controller) gather(ctx context.Context, key types.NamespacedName) (snapshot, error) {
	holder := plan.HolderOf(key.Namespace, key.Name)
	nodes, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return snapshot{}, err
	}
	ofPlan := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{indexPlan: key.Name}, client.UnsafeDisableDeepCopy}
	var jobs batchv1.JobList
	var pods corev1.PodList
	if err := errors.Join(c.Client.List(ctx, &jobs, ofPlan...), c.Client.List(ctx, &pods, ofPlan...)); err != nil {
		return snapshot{}, fmt.Errorf("listing jobs and pods, %w", err)
	}
	s := snapshot{Snapshot: nodes, jobs: byNode(jobs.Items, (*batchv1.Job).GetLabels), pods: byNode(pods.Items, (*corev1.Pod).GetLabels)}
	for _, name := range s.Claimed {
		if !slices.ContainsFunc(s.Nodes[name].Claims, func(c v1alpha1.Claim) bool { return c.Rollout == holder }) {
			continue
		}
		var all batchv1.JobList
		err := c.Client.List(ctx, &all, client.InNamespace(key.Namespace), client.MatchingFields{indexNode: onNode(key.Name, name)},
			client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency) // The list above has waited for own writes.
		if err != nil {
			return snapshot{}, fmt.Errorf("listing jobs of node %s, %w", name, err)
		}
		s.jobs[name] = byNode(all.Items, (*batchv1.Job).GetLabels)[name]
	}
	return s, nil
}

func byNode[T any](objects []T, labelsOf func(*T) map[string]string) map[string][]*T {
	by := map[string][]*T{}
	for i := range objects {
		name := labelsOf(&objects[i])[upgradev1.LabelNode]
		by[name] = append(by[name], &objects[i])
	}
	return by
}
