// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// writers bounds how many writes of one Plan are under way at once.
const writers = 16

// each does something for many turns at once. What fails for one keeps no other back.
func each[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, item := range items {
		group.Go(func() error {
			errs[i] = do(item)
			return nil
		})
	}
	_ = group.Wait()
	return first(errs)
}

// settle takes each turn its next step.
func (p *pass) settle(ctx context.Context) error {
	var due []*turn
	for i := range p.turns {
		t := &p.turns[i]
		p.at(t.wake)
		if t.step != stepNone {
			due = append(due, t)
		}
	}
	return each(due, func(t *turn) error { return p.step(ctx, t) })
}

func (p *pass) step(ctx context.Context, t *turn) error {
	switch t.step {
	case stepAdopt:
		return p.hold(ctx, t, t.newClaim(p.world))
	case stepStop:
		return p.stop(ctx, t)
	case stepFail:
		return p.fail(ctx, t)
	case stepSoak:
		return p.soak(ctx, t)
	case stepFinish:
		return p.finish(ctx, t)
	case stepAbandon:
		return p.abandon(ctx, t)
	case stepUnmark:
		return node.Hold(ctx, p.client, t.node, *t.claim)
	case stepNone:
	}
	return nil
}

// start claims the nodes that the decision names, and makes their Jobs.
func (p *pass) start(ctx context.Context) error {
	chosen := make(map[string]bool, len(p.decision.Start))
	for _, name := range p.decision.Start {
		chosen[name] = true
	}
	var next, back []*turn
	for i := range p.turns {
		t := &p.turns[i]
		switch {
		case chosen[t.node.Name]:
			next = append(next, t)
		case t.pending && !t.unreadable && !t.interrupted(p.world):
			// Claimed, and nothing has been done to it: it is given back until it may start.
			back = append(back, t)
		}
	}
	last, refused := p.refusals.get(p.plan.UID, p.plan.Generation, p.now)
	if refused && len(next) > 0 {
		p.at(last.until)
	}
	err := each(next, func(t *turn) error {
		if refused {
			p.waits(t, v1alpha1.ReasonJobRefused, last.why)
			return nil
		}
		return p.begin(ctx, t)
	})
	return first([]error{err, each(back, func(t *turn) error { return p.abandon(ctx, t) })})
}

// begin starts one turn, or starts it over.
func (p *pass) begin(ctx context.Context, t *turn) error {
	switch {
	case t.unit.InTurn && !t.pending:
		// An older change runs: it is stopped, and the turn starts over when it is gone.
		return p.stop(ctx, t)
	case t.pending && !t.interrupted(p.world):
		t.unit.State, t.unit.InTurn = v1alpha1.UnitUpdating, false
		return p.create(ctx, t)
	}
	if err := p.hold(ctx, t, t.newClaim(p.world)); err != nil {
		p.waits(t, v1alpha1.ReasonClaimLost, err)
		return err
	}
	p.world.seen.promise(t.key(p.world))
	log.FromContext(ctx).Info("node claimed", "node", t.node.Name, "version", p.plan.Status.LatestVersion)
	t.job = nil
	return p.create(ctx, t)
}

// waits notes why a unit that was to start did not.
func (p *pass) waits(t *turn, reason v1alpha1.Reason, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decision.Waiting = append([]rollout.Wait{{Node: t.node.Name, Reason: reason, Message: err.Error()}}, p.decision.Waiting...)
}

func (p *pass) hold(ctx context.Context, t *turn, claim v1alpha1.Claim) error {
	if err := node.Hold(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	if t.claim != nil {
		p.world.seen.forget(t.key(p.world))
	}
	t.claim = &claim
	t.unit.State, t.unit.Since, t.unit.Reason, t.unit.Message = v1alpha1.UnitUpdating, claim.Since.Time, "", ""
	t.unit.InTurn, t.pending = false, false
	return nil
}

// create makes the Job of a claimed node. Its name is the turn's own, so that to make it twice makes one.
func (p *pass) create(ctx context.Context, t *turn) error {
	job := newJob(p.plan, t.node, t.claim.Turn, p.world.options)
	err := p.client.Create(ctx, job)
	switch {
	case err == nil:
		t.job = job
	case apierrors.IsAlreadyExists(err):
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
		return p.refused(ctx, t, fmt.Errorf("the Job for Node %s was refused, %w", t.node.Name, err))
	default:
		t.unit.Message = "its Job can't be created: " + err.Error()
		return fmt.Errorf("creating job for node %s, %w", t.node.Name, err)
	}
	p.refusals.forget(p.plan.UID)
	p.world.seen.made(t.key(p.world))
	p.reports.start(p.plan.UID, t.node.Labels[corev1.LabelHostname])
	return nil
}

// refused gives back a node whose Job the API server will not have, by a quota, a policy, or because it is not valid:
// nothing was done to the node, and others may want it. It is tried again, more and more seldom.
func (p *pass) refused(ctx context.Context, t *turn, why error) error {
	var n corev1.Node
	if err := p.client.Get(ctx, types.NamespacedName{Name: t.node.Name}, &n); err != nil {
		return fmt.Errorf("reading node %s, %w", t.node.Name, err)
	}
	t.node = &n
	if err := p.abandon(ctx, t); err != nil {
		return err
	}
	p.waits(t, v1alpha1.ReasonJobRefused, why)
	p.refusals.add(p.plan.UID, p.plan.Generation, why, p.now)
	return why
}

// stop deletes the Jobs that still run on the node, with their pods: a Job is gone only after these.
func (p *pass) stop(ctx context.Context, t *turn) error {
	t.unit.State, t.unit.InTurn = v1alpha1.UnitUpdating, false
	jobs := slices.Clone(t.stray)
	if t.job != nil && finished(t.job) == nil {
		jobs = append(jobs, t.job)
	}
	return p.deleteJobs(ctx, jobs)
}

func (c *Controller) deleteJobs(ctx context.Context, jobs []*batchv1.Job) error {
	for _, j := range jobs {
		if j.DeletionTimestamp != nil {
			continue
		}
		object := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}}
		err := c.client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground),
			client.Preconditions{UID: &j.UID}, client.DisableReadYourWritesConsistency)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting job %s, %w", j.Name, err)
		}
	}
	return nil
}

func (p *pass) fail(ctx context.Context, t *turn) error {
	claim := *t.claim
	claim.Failed = &t.failure
	if err := node.Hold(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	t.claim = &claim
	t.unit.State, t.unit.Reason, t.unit.Message = v1alpha1.UnitFailed, t.failure.Reason, t.failure.Message
	log.FromContext(ctx).Info("node failed", "node", t.node.Name, "reason", t.failure.Reason, "message", t.failure.Message)
	metrics.ObserveTurn(p.name(), metrics.TurnFailed, t.failure.Time.Sub(claim.Since.Time))
	p.happens(events.PlanJobFailed(p.plan, t.failure.Message))
	return nil
}

func (p *pass) soak(ctx context.Context, t *turn) error {
	claim := *t.claim
	claim.Soaking = &metav1.Time{Time: t.unit.Since}
	if err := node.Soak(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	t.claim = &claim
	p.happens(events.PlanJobCompleteWaiting(p.plan, t.node.Name, p.plan.Spec.PostCompleteDelay.Duration))
	return nil
}

func (p *pass) finish(ctx context.Context, t *turn) error {
	// The version and hash are those of the Job, which may not be the Plan's any more.
	done := p.plan.DeepCopy()
	done.Status.LatestHash = t.claim.Revision
	if t.job != nil {
		done.Status.LatestVersion, done.Status.LatestHash = t.job.Labels[upgradev1.LabelVersion], hashOf(p.world, t.job)
	}
	labels, _ := postCompleteLabels(done) // What is wrong with others stands in the condition Validated.
	if !t.unit.OptedOut {
		labels[upgradev1.LabelPlanHash(p.plan.Name)] = done.Status.LatestHash
	}
	if err := node.Release(ctx, p.client, t.node, *t.claim, labels); err != nil {
		return err
	}
	took := p.now.Sub(t.claim.Since.Time)
	log.FromContext(ctx).Info("node updated", "node", t.node.Name, "version", done.Status.LatestVersion, "took", took.String())
	metrics.ObserveTurn(p.name(), metrics.TurnUpdated, took)
	p.happens(events.PlanJobComplete(p.plan, t.node.Name))
	p.world.seen.forget(t.key(p.world))
	t.claim = nil
	t.unit.State = v1alpha1.UnitUpdated
	if t.unit.OptedOut || p.ready && done.Status.LatestHash != p.plan.Status.LatestHash {
		t.outdated(p.world)
	}
	return nil
}

func (p *pass) abandon(ctx context.Context, t *turn) error {
	if err := node.Release(ctx, p.client, t.node, *t.claim, nil); err != nil {
		return err
	}
	log.FromContext(ctx).Info("node released", "node", t.node.Name)
	p.world.seen.forget(t.key(p.world))
	t.claim, t.pending, t.unit.InTurn = nil, false, false
	t.unit.State = v1alpha1.UnitOutdated
	if t.node.Labels[upgradev1.LabelPlanHash(p.plan.Name)] == p.plan.Status.LatestHash {
		t.unit.State = v1alpha1.UnitUpdated
	}
	return nil
}

// clear takes away what a Plan that is gone has left, or one of the same name before the present one: its Jobs, and when
// they and their pods are gone, its claims. It also deletes Jobs whose node is gone.
func (c *Controller) clear(ctx context.Context, plan types.NamespacedName, live types.UID, s snapshot) error {
	known := make(map[string]bool, len(s.jobs))
	var errs []error
	for i := range s.nodes {
		n := &s.nodes[i]
		if len(s.jobs[n.Name]) > 0 {
			known[n.Name] = true
		}
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil {
			continue
		}
		for _, claim := range claims {
			if claim.Rollout == node.Holder(kind, plan) && claim.UID != live {
				errs = append(errs, c.clearNode(ctx, n, claim, live, s))
			}
		}
	}
	for name, jobs := range s.jobs {
		if !known[name] {
			errs = append(errs, c.deleteJobs(ctx, slices.DeleteFunc(slices.Clone(jobs), func(j *batchv1.Job) bool { return finished(j) != nil })))
		}
	}
	return first(errs)
}

func (c *Controller) clearNode(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim, live types.UID, s snapshot) error {
	var left []*batchv1.Job
	for _, j := range s.jobs[n.Name] {
		if finished(j) == nil && ownerOf(j) != live {
			left = append(left, j)
		}
	}
	if len(left) > 0 {
		return c.deleteJobs(ctx, left)
	}
	for _, pod := range s.pods[n.Name] {
		ofLive := slices.ContainsFunc(s.jobs[n.Name], func(j *batchv1.Job) bool { return metav1.IsControlledBy(pod, j) && ownerOf(j) == live })
		if !ofLive {
			return nil // Its end wakes the Plan.
		}
	}
	return node.Release(ctx, c.client, n, claim, nil)
}

func ownerOf(o metav1.Object) types.UID {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return owner.UID
	}
	return ""
}

func (p *pass) name() metrics.Rollout { return named(client.ObjectKeyFromObject(p.plan)) }

// happens notes an Event, to be written after the status.
func (p *pass) happens(e events.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.happened = append(p.happened, e)
}
