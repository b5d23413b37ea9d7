// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

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
	p.settled = len(due) > 0
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
	case stepVerify:
		return p.verify(ctx, t)
	case stepSoak:
		return p.soak(ctx, t)
	case stepFinish:
		return p.finish(ctx, t)
	case stepAbandon:
		return p.abandon(ctx, t)
	case stepUnmark:
		return node.Hold(ctx, p.client, t.node, *t.claim)
	case stepDrained:
		return p.drained(ctx, t)
	case stepTaint:
		return node.Taint(ctx, p.client, t.node, p.world.taint)
	case stepUntaint:
		return node.Untaint(ctx, p.client, t.node, p.world.taint)
	case stepNone:
	}
	return nil
}

// launch makes the Jobs of those that start, stops what is to start over, and gives back what was claimed in vain.
func (p *pass) launch(ctx context.Context) error {
	next := p.chosen(func(t *turn, w *world) bool {
		return !t.unreadable && (t.unit.InTurn && !t.pending || t.pending && !t.interrupted(w))
	})
	var back []*turn
	for i := range p.turns {
		// Claimed, and nothing has been done to it: it is given back until it may start.
		if t := &p.turns[i]; t.pending && !t.unreadable && !t.interrupted(p.world) && !slices.Contains(next, t) {
			back = append(back, t)
		}
	}
	last, refused := p.refusals.get(p.plan.UID, p.plan.Generation, p.now)
	err := each(next, func(t *turn) error {
		switch {
		case !t.pending:
			// An older change runs: it is stopped, and the turn starts over when it is gone.
			return p.stop(ctx, t)
		case refused:
			p.at(last.until)
			p.waits(t, v1alpha1.ReasonJobRefused, last.why)
			return nil
		}
		t.unit.State, t.unit.InTurn, t.pending = v1alpha1.UnitUpdating, false, false
		return p.create(ctx, t)
	})
	return first([]error{err, each(back, func(t *turn) error { return p.abandon(ctx, t) })})
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
	p.reports.Start(p.plan.UID, t.node.Labels[corev1.LabelHostname])
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
	if t.unit.State != v1alpha1.UnitFailed {
		t.unit.State, t.unit.InTurn = v1alpha1.UnitUpdating, false
	}
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
	claim.Failures++
	write := node.Hold
	if t.failure.Skipped {
		write = node.Park
		if err := p.endMaintenance(ctx, t.node, claim.Rollout); err != nil {
			return err
		}
	}
	if err := write(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	t.claim = &claim
	t.unit.Claimed = !claim.Parked()
	if s := p.plan.Spec.Strategy; s != nil && !t.failure.Skipped {
		t.unit.RetryAt = rollout.RetryAt(s.Retries, claim.Failures, t.failure.Time.Time)
	}
	t.unit.State, t.unit.Reason, t.unit.Message = v1alpha1.UnitFailed, t.failure.Reason, t.failure.Message
	log.FromContext(ctx).Info("node failed", "node", t.node.Name, "reason", t.failure.Reason, "message", t.failure.Message)
	metrics.ObserveTurn(p.name(), metrics.TurnFailed, t.failure.Time.Sub(claim.Since.Time))
	p.happens(events.PlanJobFailed(p.plan, t.failure.Message))
	return nil
}

// drained keeps that the drain is over.
func (p *pass) drained(ctx context.Context, t *turn) error {
	claim := *t.claim
	claim.Drained = &metav1.Time{Time: p.now}
	if err := node.Hold(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	t.claim = &claim
	return nil
}

// verify keeps what the Job has come to, which may be gone before the node is healthy.
func (p *pass) verify(ctx context.Context, t *turn) error {
	claim := *t.claim
	claim.Changed = &metav1.Time{Time: t.unit.Since}
	if err := node.Hold(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	t.claim = &claim
	return nil
}

func (p *pass) soak(ctx context.Context, t *turn) error {
	claim := *t.claim
	claim.Soaking = &metav1.Time{Time: t.unit.Since}
	if err := p.endMaintenance(ctx, t.node, claim.Rollout); err != nil {
		return err
	}
	if err := node.Soak(ctx, p.client, t.node, claim); err != nil {
		return err
	}
	t.claim = &claim
	p.happens(events.PlanJobCompleteWaiting(p.plan, t.node.Name, t.soakEnd.Sub(t.unit.Since)))
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
	if err := p.release(ctx, t, labels); err != nil {
		return err
	}
	took := p.now.Sub(t.claim.Since.Time)
	p.measure(took)
	log.FromContext(ctx).Info("node updated", "node", t.node.Name, "version", done.Status.LatestVersion, "took", took.String())
	metrics.ObserveTurn(p.name(), metrics.TurnUpdated, took)
	p.happens(events.PlanJobComplete(p.plan, t.node.Name))
	p.world.seen.forget(t.key(p.world))
	t.claim = nil
	t.unit.State, t.unit.Claimed = v1alpha1.UnitUpdated, false
	if t.unit.OptedOut || p.ready && done.Status.LatestHash != p.plan.Status.LatestHash {
		t.outdated(p.world)
	}
	return nil
}

// release gives the node back, and says on it that its maintenance is over.
func (p *pass) release(ctx context.Context, t *turn, labels map[string]string) error {
	return p.Controller.release(ctx, t.node, *t.claim, labels)
}

func (c *Controller) release(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim, labels map[string]string) error {
	if err := c.endMaintenance(ctx, n, claim.Rollout); err != nil {
		return err
	}
	return node.Release(ctx, c.client, n, claim, labels)
}

// endMaintenance says on the node that this rollout is no longer at work there. That comes before the node is given back:
// once the claim is gone, nobody would come back for it. The node is another one then, and its turn is looked at again.
func (c *Controller) endMaintenance(ctx context.Context, n *corev1.Node, rollout string) error {
	if !node.InMaintenance(n, rollout) {
		return nil
	}
	if err := node.ClearConditions(ctx, c.client, n, rollout, c.clock.Now()); err != nil {
		return err
	}
	return apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("its conditions have been cleared"))
}

// measure keeps an average of how long turns take, in which the latest count most.
func (p *pass) measure(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.plan.Status
	seconds := int32(min(max(1, took.Round(time.Second)/time.Second), math.MaxInt32))
	if s.TurnSeconds > 0 {
		seconds = int32((int64(s.TurnSeconds)*3 + int64(seconds) + 2) / 4)
	}
	s.TurnSeconds = seconds
}

func (p *pass) abandon(ctx context.Context, t *turn) error {
	if err := p.release(ctx, t, nil); err != nil {
		return err
	}
	log.FromContext(ctx).Info("node released", "node", t.node.Name)
	p.world.seen.forget(t.key(p.world))
	t.claim, t.pending, t.unit.InTurn, t.unit.Claimed, t.unit.Skipped = nil, false, false, false, false
	t.unit.State = v1alpha1.UnitOutdated
	if t.node.Labels[upgradev1.LabelPlanHash(p.plan.Name)] == p.plan.Status.LatestHash {
		t.unit.State = v1alpha1.UnitUpdated
	}
	return nil
}

// clear takes away what a Plan that is gone has left, or one of the same name before the present one: its Jobs, and when
// they and their pods are gone, its claims. It also deletes Jobs whose node is gone.
func (c *Controller) clear(ctx context.Context, plan types.NamespacedName, live types.UID, s snapshot) error {
	holder := node.Holder(kind, plan)
	left := func(claim v1alpha1.Claim) bool { return claim.Rollout == holder && claim.UID != live }
	var errs []error
	for _, n := range s.Objects {
		if live != "" {
			break
		}
		marked := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		known := s.Nodes[n.Name]
		switch {
		case node.Tainted(n, taintOf(plan.Name)):
			errs = append(errs, node.Untaint(ctx, c.client, n, taintOf(plan.Name)))
		case marked && known.ClaimError == "" && !slices.ContainsFunc(known.Claims, left) && len(s.pods[n.Name]) == 0 &&
			!slices.ContainsFunc(s.jobs[n.Name], func(j *batchv1.Job) bool { return finished(j) == nil }):
			// Its claim could not be read when it was to be given back, or somebody has taken it away.
			errs = append(errs, c.release(ctx, n, v1alpha1.Claim{Rollout: holder}, nil))
		}
	}
	for _, name := range s.Claimed {
		known := s.Nodes[name]
		at := slices.IndexFunc(known.Claims, left)
		if at < 0 {
			continue
		}
		i := slices.IndexFunc(s.Objects, func(n *corev1.Node) bool { return n.Name == name })
		if live == "" && node.Tainted(s.Objects[i], taintOf(plan.Name)) {
			continue // It comes back when it is to be seen that the taint is gone.
		}
		for _, claim := range known.Claims[at:] {
			if left(claim) {
				errs = append(errs, c.clearNode(ctx, s.Objects[i], claim, live, s))
			}
		}
	}
	for name, jobs := range s.jobs {
		if s.Nodes[name] == nil {
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
	return c.release(ctx, n, claim, nil)
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
