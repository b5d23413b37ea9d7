// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// pass is one reconcile of a Plan that exists. It is the mechanism of its turns: a node is changed by a Job.
type pass struct {
	*turn.Pass[*unit]
	*world
	controller *Controller
	window     *rollout.Window
}

var _ turn.Mechanism[*unit] = jobs{}

// jobs is the pass as the engine sees it.
type jobs struct{ *pass }

// Strategy of the Plan.
func (j jobs) Strategy(total int) rollout.Strategy {
	j.now = j.Now // A claim begins when the rollout is admitted.
	p := j.plan
	s := rollout.New(p.Spec.Strategy, int(min(p.Spec.Concurrency, math.MaxInt32)), total)
	s.UID, s.Revision, s.Shared = p.UID, p.Status.LatestHash, shared(p)
	s.Drains = p.Spec.Drain != nil
	s.Window, s.OwnNode = j.window, j.options.NodeName
	s.Wave = j.Waves.Latest(j.Key, p.UID, p.Status.Wave)
	s.Approved = p.Annotations[v1alpha1.AnnotationApprove]
	return s
}

// Start claims a node that has no claim for what the Plan asks for now. A node whose older Job still runs keeps its claim until that Job is gone.
func (j jobs) Start(t *unit) *turn.Write {
	if (t.Unit.InTurn && !t.pending) || (t.pending && !t.interrupted(j.world)) {
		return nil
	}
	claim := t.newClaim(j.world)
	return &turn.Write{Step: node.Step{Claim: claim}, Then: func() { t.job, t.pending = nil, true }}
}

// Take takes a step that only Plans have.
func (j jobs) Take(ctx context.Context, t *unit) error {
	switch t.Step {
	case turn.StepAdopt:
		return j.adopt(ctx, t)
	case stepStop:
		return j.stop(ctx, t)
	case stepVerify:
		claim := *t.Claim
		claim.Changed = &metav1.Time{Time: t.Unit.Since} // The Job may be gone before the node is healthy.
		return j.Hold(ctx, t, claim, node.Step{})
	case stepCordon:
		return j.cordon(ctx, t)
	case stepDrain:
		return j.drainNode(ctx, t)
	case stepUnmark:
		return j.Hold(ctx, t, *t.Claim, node.Step{}) // Every write drops a mark whose cordon is gone.
	default:
		return nil
	}
}

// Soak of a node whose Job has succeeded.
func (j jobs) Soak(t *unit) turn.Write {
	return turn.Write{Then: func() {
		j.Happened(events.PlanJobCompleteWaiting(j.plan, t.Node.Name, t.SoakEnd.Sub(t.Unit.Since)))
	}}
}

// Finish labels the node with the version and hash of its Job, which may not be the Plan's any more.
func (j jobs) Finish(t *unit) turn.Write {
	done := j.plan.DeepCopy()
	done.Status.LatestHash = t.Claim.Revision
	if t.job != nil {
		done.Status.LatestVersion, done.Status.LatestHash = t.job.Labels[upgradev1.LabelVersion], hashOf(j.world, t.job)
	}
	labels, _ := postCompleteLabels(done) // The condition Validated says what is wrong with others.
	if !t.Unit.OptedOut {
		labels[j.label] = done.Status.LatestHash
	}
	values := map[string]*string{}
	for label, value := range labels {
		values[label] = &value
	}
	return turn.Write{Step: node.Step{Also: []node.Also{node.Labelling(values)}}, Then: func() {
		j.Happened(events.PlanJobComplete(j.plan, t.Node.Name))
		if t.Unit.OptedOut || j.ready && done.Status.LatestHash != j.plan.Status.LatestHash {
			t.outdated(j.world)
		}
	}}
}

// Fail leaves the node cordoned for a person to look at it, except when its drain was not over: then it is unchanged.
func (j jobs) Fail(t *unit) turn.Write {
	undrained := t.Claim.Drains && t.Claim.Cordoned != nil && t.Claim.Drained == nil
	return turn.Write{Step: node.Step{Restore: undrained}, Then: func() {
		j.Happened(events.PlanJobFailed(j.plan, t.Failure.Message))
	}}
}

// Release of a node that the Plan does not want to change any more.
func (j jobs) Release(t *unit) turn.Write {
	return turn.Write{Then: func() {
		t.pending = false
		if t.Node.Labels[j.label] == j.plan.Status.LatestHash {
			t.Unit.State = v1alpha1.UnitUpdated
		}
	}}
}

// adopt claims a node on which a Job without a claim runs.
func (p *pass) adopt(ctx context.Context, t *unit) error {
	claim := t.newClaim(p.world)
	if err := p.Hold(ctx, t, claim, node.Step{}); err != nil {
		return err
	}
	t.Unit.State, t.Unit.Since, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitUpdating, claim.Since.Time, "", ""
	t.Unit.InTurn, t.pending = false, false
	return nil
}

// start claims the nodes that go next, and makes their Jobs. It stops Jobs that are out of date, and releases nodes that were claimed and may
// not start yet.
func (p *pass) start(ctx context.Context) error {
	next, err := p.Start(ctx)
	p.plan.Status.Wave = p.Waves.Keep(p.Key, p.UID, p.Decision.Wave)
	var back []*unit
	for _, t := range p.Turns {
		if t.pending && !t.Unreadable && !t.interrupted(p.world) && !slices.Contains(next, t) {
			back = append(back, t)
		}
	}
	return turn.First([]error{
		err,
		turn.Each(next, func(t *unit) error { return p.launch(ctx, t) }),
		turn.Each(back, func(t *unit) error { return p.Release(ctx, t) }),
	})
}

func (p *pass) launch(ctx context.Context, t *unit) error {
	switch {
	case t.Unreadable:
		return nil
	case t.Unit.InTurn && !t.pending:
		return p.stop(ctx, t) // The turn starts over when the older Job is gone.
	case t.pending && !t.interrupted(p.world):
		t.Unit.State, t.Unit.InTurn, t.pending = v1alpha1.UnitUpdating, false, false
		return p.create(ctx, t)
	}
	return nil
}

// create makes the Job of a claimed node. The turn names the Job, so making it twice makes one.
func (p *pass) create(ctx context.Context, t *unit) error {
	job := newJob(p.plan, t.Node, t.Claim.Turn, p.options)
	err := p.Client.Create(ctx, job)
	if err == nil || apierrors.IsAlreadyExists(err) {
		if err == nil {
			t.job = job
		}
		p.Reports.Start(p.UID, t.Node.Labels[corev1.LabelHostname])
		return nil
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		t.Unit.Reason = v1alpha1.ReasonJobRefused
	}
	t.Unit.Message = "its Job can't be created: " + err.Error()
	err = fmt.Errorf("creating job for node %s, %w", t.Node.Name, err)
	if claim := *t.Claim; p.now.Sub(claim.Since.Time) > time.Duration(claim.KeptSeconds)*time.Second/2 {
		claim.Since = metav1.Time{Time: p.now} // There has been no Job until now. An older claim would count as one whose Job is lost.
		err = turn.First([]error{p.Hold(ctx, t, claim, node.Step{}), err})
	}
	return err
}

// stop deletes the Jobs that still run on the node, with their pods: a Job is gone only after these.
func (p *pass) stop(ctx context.Context, t *unit) error {
	if t.Unit.State != v1alpha1.UnitFailed {
		t.Unit.State, t.Unit.InTurn = v1alpha1.UnitUpdating, false
	}
	jobs := slices.Clone(t.unowned)
	if t.job != nil && finished(t.job) == nil {
		jobs = append(jobs, t.job)
	}
	return p.controller.deleteJobs(ctx, jobs)
}

func (c *Controller) deleteJobs(ctx context.Context, jobs []*batchv1.Job) error {
	for _, j := range jobs {
		if j.DeletionTimestamp != nil {
			continue
		}
		object := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
		err := c.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground),
			client.Preconditions{UID: &j.UID}, client.DisableReadYourWritesConsistency)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting job %s, %w", j.Name, err)
		}
		log.FromContext(ctx).V(1).Info("job deleted", "job", j.Name)
	}
	return nil
}
