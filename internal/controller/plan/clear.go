// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/turn"
)

// clear removes the taint, Jobs and claims of a deleted Plan of this name. It removes a claim only when the Jobs and their pods are gone. It
// also deletes Jobs whose node is gone. live is the UID of the present Plan, or "" if there is none.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s snapshot) error {
	errs := c.Clear(ctx, plan.HolderOf(key.Namespace, key.Name), plan.TaintOf(key.Name), live, &s.Snapshot, func(n *corev1.Node, claim v1alpha1.Claim) error {
		isOfLive := func(j *batchv1.Job) bool {
			owner := metav1.GetControllerOf(j)
			return live != "" && owner != nil && owner.UID == live
		}
		jobs := s.jobs[n.Name]
		if left := slices.DeleteFunc(unfinished(jobs), isOfLive); len(left) > 0 {
			return c.deleteJobs(ctx, left)
		}
		for _, pod := range s.pods[n.Name] {
			if !slices.ContainsFunc(jobs, func(j *batchv1.Job) bool { return metav1.IsControlledBy(pod, j) && isOfLive(j) }) {
				return nil // The end of the pod wakes the Plan.
			}
		}
		return turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), nil)
	})
	for name, jobs := range s.jobs {
		if s.Nodes[name] == nil {
			errs = append(errs, c.deleteJobs(ctx, unfinished(jobs)))
		}
	}
	return turn.First(errs)
}

func unfinished(jobs []*batchv1.Job) []*batchv1.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *batchv1.Job) bool { return plan.Finished(j) != nil })
}
