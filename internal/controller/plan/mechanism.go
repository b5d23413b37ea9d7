// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// pass is one reconcile of a Plan that exists. It is the mechanism of its turns: a node is changed by a Job.
type pass struct {
	*turn.Pass[*plan.Unit]
	w          *plan.World
	controller *Controller
	problem    error // why the Plan is not valid and resolved
	asking     bool  // the channel is asked for the first time, and may answer within a second
}

var _ turn.Mechanism[*plan.Unit] = jobs{}

// jobs is the pass as the engine sees it.
type jobs struct{ *pass }

// Strategy of the Plan.
func (j jobs) Strategy(total int) rollout.Strategy {
	j.w.Now = j.Now // A claim begins when the rollout is admitted.
	return j.w.Strategy(total, j.w.Plan.Status.Wave)
}

// Start claims the node for the Plan's current attempt, or for a Job that has no claim. It writes nothing if the claim is current, or while an
// older Job still runs.
func (j jobs) Start(t *plan.Unit) *turn.Write {
	if (t.Unit.InTurn && !t.Pending) || (t.Pending && !j.w.WantsNewAttempt(t)) {
		return nil
	}
	write := &turn.Write{Claim: j.w.NewClaim(t)}
	if t.Step != nodeturn.StepAdopt {
		write.Then = func() { t.Job, t.Pending = nil, true }
		// The new claim does not say that the turn before may have changed the node. A selector may want the label to exist, or not to exist.
		if _, labelled := t.Node.Labels[j.w.Label]; labelled && plan.MayHaveChanged(t.Claim) {
			write.Also = []node.Also{node.Labelling(map[string]*string{j.w.Label: ptr.To("")})}
		}
	}
	return write
}

// Take takes a step that only Plans have.
func (j jobs) Take(ctx context.Context, t *plan.Unit) error {
	switch t.Step {
	case plan.StepStop:
		return j.stop(ctx, t)
	case plan.StepVerify:
		claim := *t.Claim
		claim.Changed = &metav1.Time{Time: t.Unit.Since} // The Job may be gone before the node is healthy.
		return j.Hold(ctx, t, claim)
	case plan.StepCordon:
		spec := j.w.Plan.Spec.Drain
		var also []node.Also
		if t.Claim.Drains && spec != nil && ptr.Deref(spec.ExcludeFromLoadBalancers, true) {
			also = append(also, node.Excluding)
		}
		return j.Cordon(ctx, t, t.Claim.Drains && spec != nil, also...)
	case plan.StepDrain:
		return j.drainNode(ctx, t)
	default:
		return nil
	}
}

// Soak of a node whose Job has succeeded.
func (j jobs) Soak(t *plan.Unit) turn.Write {
	return turn.Write{Then: func() {
		j.Happened(events.PlanJobCompleteWaiting(j.w.Plan, t.Node.Name, t.SoakEnd.Sub(t.Unit.Since)))
	}}
}

// Finish labels the node with the version and hash of its Job, which may not be the Plan's any more.
func (j jobs) Finish(t *plan.Unit) turn.Write {
	done := j.w.Plan.DeepCopy()
	done.Status.LatestHash = t.Claim.Revision
	if t.Job != nil {
		done.Status.LatestVersion, done.Status.LatestHash = t.Job.Labels[upgradev1.LabelVersion], t.Job.Labels[j.w.Label]
	}
	labels, _ := postCompleteLabels(done) // The condition Validated says what is wrong with others.
	if !t.Unit.OptedOut {
		labels[j.w.Label] = done.Status.LatestHash
	}
	values := map[string]*string{}
	for label, value := range labels {
		values[label] = &value
	}
	return turn.Write{Also: []node.Also{node.Labelling(values)}, Version: done.Status.LatestVersion, Then: func() {
		j.Mention(events.PlanJobComplete(j.w.Plan), t.Node.Name)
		if t.Unit.OptedOut || j.w.Ready && done.Status.LatestHash != j.w.Plan.Status.LatestHash {
			j.w.MarkOutdated(t)
		}
	}}
}

// Fail leaves the node cordoned, so that a person can inspect it. If the drain was not complete, the node is unchanged and is uncordoned.
func (j jobs) Fail(t *plan.Unit) turn.Write {
	return turn.Write{Restore: plan.Undrained(t.Claim), Then: func() {
		j.Happened(events.PlanJobFailed(j.w.Plan, t.Failure.Message))
	}}
}

// Release of a node that the Plan does not want to change any more.
func (j jobs) Release(t *plan.Unit) turn.Write {
	return turn.Write{Then: func() {
		t.Pending = false
		if t.Node.Labels[j.w.Label] == j.w.Plan.Status.LatestHash {
			t.Unit.State = v1alpha1.UnitUpdated
		}
	}}
}

// drainNode runs one pass of the node's drain, if the Plan still asks for a drain. It records the end of the drain in the claim, for which the
// Job's pod waits.
func (p *pass) drainNode(ctx context.Context, t *plan.Unit) error {
	if p.w.Plan.Spec.Drain != nil {
		if over, err := p.DrainNode(ctx, t, t.Claim.Cordoned.Time); err != nil || !over {
			return err
		}
	}
	claim := *t.Claim
	claim.Drained = &metav1.Time{Time: p.Now}
	return p.Hold(ctx, t, claim)
}

// start claims the next nodes, deletes the Jobs that failed before, and creates new ones. It stops outdated Jobs. It releases claimed nodes
// without a Job that may not start yet.
func (p *pass) start(ctx context.Context) error {
	next, err := p.Start(ctx)
	p.w.Plan.Status.Wave = p.Decision.Wave
	p.rollBack()
	back := slices.DeleteFunc(slices.Clone(p.Turns), func(t *plan.Unit) bool {
		return !t.Pending || p.w.WantsNewAttempt(t) || slices.Contains(next, t)
	})
	var superseded []*batchv1.Job
	for _, t := range p.Turns {
		superseded = append(superseded, t.Superseded...)
	}
	return turn.First([]error{
		err,
		p.controller.deleteJobs(ctx, superseded),
		turn.Each(next, func(t *plan.Unit) error { return p.launch(ctx, t) }),
		turn.Each(back, func(t *plan.Unit) error { return p.Release(ctx, t) }),
	})
}

func (p *pass) launch(ctx context.Context, t *plan.Unit) error {
	switch {
	case t.Unit.InTurn && !t.Pending:
		return p.stop(ctx, t) // The turn starts over when the older Job is gone.
	case t.Pending && !p.w.WantsNewAttempt(t):
		t.Unit.State, t.Unit.InTurn, t.Pending = v1alpha1.UnitUpdating, false, false
		return p.create(ctx, t)
	}
	return nil
}

// create makes the Job of a claimed node. The turn names the Job, so making it twice makes one.
func (p *pass) create(ctx context.Context, t *plan.Unit) error {
	job := newJob(p.w.Plan, t.Node, t.Claim.Turn, &p.controller.options)
	err := p.Client.Create(ctx, job)
	if err == nil || apierrors.IsAlreadyExists(err) {
		if err == nil {
			t.Job = job
		}
		p.Mention(events.PlanSyncJob(p.w.Plan), t.Node.Labels[corev1.LabelHostname])
		return nil
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		t.Unit.Reason = v1alpha1.ReasonJobRefused
	}
	t.Unit.Message = "its Job can't be created: " + err.Error()
	err = fmt.Errorf("creating job for node %s, %w", t.Node.Name, err)
	if claim := *t.Claim; p.w.Now.Sub(claim.Since.Time) > time.Duration(claim.KeptSeconds)*time.Second/2 {
		claim.Since = metav1.Time{Time: p.w.Now} // There has been no Job yet. With an older claim, judgeWithoutJob would report the Job as lost.
		err = turn.First([]error{p.Hold(ctx, t, claim), err})
	}
	return err
}

// stop deletes the Jobs that still run on the node. A Job is gone only after its pods.
func (p *pass) stop(ctx context.Context, t *plan.Unit) error {
	if t.Unit.State != v1alpha1.UnitFailed {
		t.Unit.State, t.Unit.InTurn = v1alpha1.UnitUpdating, false
	}
	jobs := slices.Clone(t.OtherJobs)
	if t.Job != nil && plan.Finished(t.Job) == nil {
		jobs = append(jobs, t.Job)
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
