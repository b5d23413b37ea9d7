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
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// clear removes what a Plan that is gone has left, or an earlier one of the same name: its taint, its Jobs, and, when they and their pods are
// gone, its claims. It also deletes Jobs whose node is gone. The live Plan's UID is empty when there is none.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s snapshot) error {
	holder, taint := plan.HolderOf(key.Namespace, key.Name), plan.TaintOf(key.Name)
	var errs []error
	for _, n := range s.Objects {
		known := s.Nodes[n.Name]
		left := slices.IndexFunc(known.Claims, func(claim v1alpha1.Claim) bool { return claim.Rollout == holder && claim.UID != live })
		marked := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case live == "" && node.Tainted(n, taint):
			errs = append(errs, node.Untaint(ctx, c.Client, n, taint)) // The change of the node wakes the Plan, which then releases the claim.
		case left >= 0:
			errs = append(errs, c.clearNode(ctx, n, known.Claims[left], live, s))
		case live == "" && marked && known.ClaimError == "" && len(s.pods[n.Name]) == 0 && len(unfinished(s.jobs[n.Name])) == 0:
			// A person has removed the claim, or it could not be read when it was to be released.
			errs = append(errs, c.release(ctx, n, v1alpha1.Claim{Rollout: holder}))
		}
	}
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

func (c *Controller) clearNode(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim, live types.UID, s snapshot) error {
	left := slices.DeleteFunc(unfinished(s.jobs[n.Name]), func(j *batchv1.Job) bool { return ownerOf(j) == live })
	if len(left) > 0 {
		return c.deleteJobs(ctx, left)
	}
	for _, pod := range s.pods[n.Name] {
		ofLive := slices.ContainsFunc(s.jobs[n.Name], func(j *batchv1.Job) bool { return metav1.IsControlledBy(pod, j) && ownerOf(j) == live })
		if !ofLive {
			return nil // The end of the pod wakes the Plan.
		}
	}
	return c.release(ctx, n, claim)
}

func ownerOf(o metav1.Object) types.UID {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.UID
	}
	return ""
}

func (c *Controller) release(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim) error {
	return turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), nil)
}
