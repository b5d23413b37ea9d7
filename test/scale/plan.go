// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/follow"
)

// The stages that several kinds have.
const (
	stageRollout = "rollout"
	stageFind    = "finding out"
	stageUpdate  = "update"
	stageIdle    = "idle"
)

const (
	plainName   = "plain"
	guardedName = "guarded"
	manyName    = "many"
)

// planRun is the measurement of Plans.
type planRun struct {
	*bench
	nodes []string
}

func setupPlan(ctx context.Context, b *bench) (*setup, error) {
	nodes, err := b.nodes(ctx)
	if err != nil {
		return nil, err
	}
	r := &planRun{bench: b, nodes: names(nodes)}
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	s := &setup{bare: r.bare, subjects: []*subject{r.subject(plainName, []int{b.size}, nil)}, stop: func() {}}
	if b.rollouts > 1 {
		s.subjects = append(s.subjects, r.many())
	}
	if b.guarded {
		if err := b.deploy(ctx, 100, 2); err != nil {
			return nil, err
		}
		asked := &atomic.Int64{}
		alerts := startPrometheus(asked)
		s.stop = alerts.Close
		s.subjects = append(s.subjects, r.guards(alerts.URL, asked))
	}
	return s, nil
}

func newPlan(name string, concurrency int, selector *metav1.LabelSelector) *upgradev1.Plan {
	return &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: upgradev1.PlanSpec{
			Concurrency: int64(concurrency), NodeSelector: selector, Version: "v1", Cordon: true,
			Upgrade: &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
		},
	}
}

// complete reports whether a Plan says that so many nodes are updated.
func complete(p *upgradev1.Plan, nodes int) bool {
	c, counts := p.Status.Condition(upgradev1.ConditionComplete), p.Status.Counts
	return p.Status.ObservedGeneration == p.Generation && c != nil && c.Status == metav1.ConditionTrue && counts != nil && int(counts.Updated) == nodes
}

// subject is a Plan over all nodes, parts of which are updated one after the other.
func (r *planRun) subject(name string, parts []int, strategy *v1alpha1.Strategy) *subject {
	plan := newPlan(name, r.concurrency, &metav1.LabelSelector{})
	plan.Spec.Strategy = strategy
	limit := 0
	if strategy != nil {
		limit = r.concurrency
	}
	times := newTurnTimes(stepJobDone, stepClaimed, stepJobCreated, stepJobDone, stepReleased)
	tally := newNodeTally(r.concurrency, limit, times)
	ideal := time.Duration(0)
	for _, nodes := range parts {
		ideal += inRounds(nodes, r.concurrency, r.podSeconds)
	}
	s := &subject{
		name: name, namespace: namespace, object: plan, watches: []watched{tally.watch(r.bench), r.watchJobs(times)}, progress: tally.progress,
		meters: []*meter{operatorMeter()},
		stages: []*stage{{
			name: stageRollout, units: r.size, ideal: ideal, compared: true,
			start: func(ctx context.Context) error { return r.create(ctx, plan) },
			done: func(ctx context.Context, _ *phase) (bool, error) {
				if tally.released() < r.size {
					return false, nil
				}
				err := r.client.Get(ctx, client.ObjectKeyFromObject(plan), plan)
				return complete(plan, r.size), err
			},
			check: func(p *phase, result *result) {
				p.figure("nodes unavailable at once", float64(tally.mostUnavailable))
				times.report(p, r.concurrency)
				if made := p.Programs[0].created("jobs"); made != r.size {
					result.wrong("the operator created %d Jobs", made)
				}
			},
		}},
		check: func(ctx context.Context, result *result) error {
			result.add(tally.verify(r.nodes, nodeState{claims: 1})...)
			return r.check(ctx, plan, result)
		},
	}
	if r.idle > 0 {
		s.stages = append(s.stages, &stage{name: stageIdle, units: r.size})
	}
	return s
}

// many is as many Plans as --rollouts says, each over its own part of the nodes, and one budget that allows all together what the
// one Plan may.
func (r *planRun) many() *subject {
	times := newTurnTimes(stepJobDone, stepClaimed, stepJobCreated, stepJobDone, stepReleased)
	tally := newNodeTally(r.concurrency, r.concurrency, times)
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: manyName}}
	budget.Spec.MaxUnavailable = ptr.To(intstr.FromInt(r.concurrency))
	s := &subject{
		name: manyName, namespace: namespace, object: budget,
		watches: []watched{tally.watch(r.bench), r.watchJobs(times)}, progress: tally.progress, meters: []*meter{operatorMeter()},
	}
	plans := map[string]*upgradev1.Plan{} // by node
	parts := slices.Collect(slices.Chunk(r.nodes, rounds(r.size, r.rollouts)))
	for i, part := range parts {
		plan := newPlan(fmt.Sprintf("%s-%02d", manyName, i+1), r.concurrency, &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: part}},
		})
		for _, node := range part {
			plans[node] = plan
		}
		s.created = append(s.created, plan)
	}
	ended := make([]time.Duration, len(parts))
	var began time.Time
	s.stages = []*stage{{
		name: stageRollout, units: r.size, ideal: inRounds(r.size, r.concurrency, r.podSeconds), compared: true,
		start: func(ctx context.Context) error {
			began = time.Now()
			if err := r.create(ctx, budget); err != nil {
				return err
			}
			_, err := each(ctx, len(parts), writers, func(ctx context.Context, i int) error { return r.create(ctx, s.created[i]) })
			return err
		},
		done: func(ctx context.Context, _ *phase) (bool, error) {
			for i, object := range s.created {
				plan := object.(*upgradev1.Plan)
				if ended[i] > 0 {
					continue
				}
				if err := r.client.Get(ctx, client.ObjectKeyFromObject(plan), plan); err != nil {
					return false, err
				}
				if complete(plan, len(parts[i])) {
					ended[i] = time.Since(began)
				}
			}
			return !slices.Contains(ended, 0), nil
		},
		check: func(p *phase, _ *result) {
			p.figure("seconds until the first rollout was complete", inSeconds(slices.Min(ended)))
			p.figure("nodes unavailable at once", float64(tally.mostUnavailable))
			times.report(p, r.concurrency)
		},
	}}
	s.check = func(ctx context.Context, result *result) error {
		result.add(tally.verify(r.nodes, nodeState{claims: 1})...)
		return r.checkNodes(ctx, result, func(n *corev1.Node) string {
			plan := plans[n.Name]
			if n.Labels[upgradev1.LabelPlanHash(plan.Name)] != plan.Status.LatestHash || plan.Status.LatestHash == "" {
				return "was not updated by " + plan.Name
			}
			return ""
		})
	}
	return s
}

// check checks that every node was updated once, by one Job, and that there is an Event of each.
func (r *planRun) check(ctx context.Context, plan *upgradev1.Plan, result *result) error {
	jobs, err := r.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: upgradev1.LabelPlan + "=" + plan.Name})
	if err != nil {
		return err
	}
	events, err := r.raw.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + plan.Name + ",reason=JobComplete"})
	if err != nil {
		return err
	}
	if n := len(events.Items); n != r.size {
		result.wrong("there are %d Events of nodes that were updated", n)
	}
	byNode := map[string]int{}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		byNode[j.Labels[upgradev1.LabelNode]]++
		if !jobHas(j, batchv1.JobComplete) || j.Status.Succeeded != 1 || j.Status.Failed != 0 {
			result.wrong("Job %s has %d pods that succeeded and %d that failed", j.Name, j.Status.Succeeded, j.Status.Failed)
		}
	}
	return r.checkNodes(ctx, result, func(n *corev1.Node) string {
		if got := byNode[n.Name]; got != 1 {
			return fmt.Sprintf("had %d Jobs", got)
		}
		if got := n.Labels[upgradev1.LabelPlanHash(plan.Name)]; got != plan.Status.LatestHash || got == "" {
			return fmt.Sprintf("is labelled %q, and the Plan's hash is %q", got, plan.Status.LatestHash)
		}
		return ""
	})
}

// watchJobs notes when each node's Job was created and when it completed.
func (r *planRun) watchJobs(times *turnTimes) watched {
	return watched{begin: r.raw.BatchV1().Jobs(namespace).Watch, list: &batchv1.JobList{}, namespace: namespace, see: func(_ watch.EventType, o any) {
		j, ok := o.(*batchv1.Job)
		if !ok {
			return
		}
		times.mark(j.Labels[upgradev1.LabelNode], stepJobCreated)
		if jobHas(j, batchv1.JobComplete) {
			times.mark(j.Labels[upgradev1.LabelNode], stepJobDone)
		}
	}}
}

func jobHas(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// bare keeps so many Jobs in flight until one has completed on every node. They are copies of one of the operator's, so
// that scheduler and Job controller have the same work as in the rollout. They have a namespace of their own, so that they
// keep no pods of the rollout from any node.
func (r *planRun) bare(ctx context.Context) (time.Duration, error) {
	const namespace = "bare"
	if err := r.makeNamespace(ctx, namespace); err != nil {
		return 0, err
	}
	shape, err := r.operatorJob(ctx, r.nodes[0])
	if err != nil {
		return 0, fmt.Errorf("getting a Job of the operator, %w", err)
	}
	jobs := r.raw.BatchV1().Jobs(namespace)
	none, err := jobs.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	completed := map[string]chan struct{}{}
	for _, node := range r.nodes {
		completed["bare-on-"+node] = make(chan struct{})
	}
	watchCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	changes := make(chan follow.Change, 1000)
	go func() { cancel(follow.Changes(watchCtx, jobs.Watch, none.ResourceVersion, changes)) }()
	go func() {
		done := map[string]bool{}
		for {
			select {
			case change := <-changes:
				if j, ok := change.Object.(*batchv1.Job); ok && jobHas(j, batchv1.JobComplete) && !done[j.Name] {
					done[j.Name] = true
					close(completed[j.Name])
				}
			case <-watchCtx.Done():
				return
			}
		}
	}()
	boundCtx, stop := context.WithTimeout(watchCtx, r.patience(inRounds(r.size, r.concurrency, r.podSeconds)))
	defer stop()
	took, err := each(boundCtx, len(r.nodes), r.concurrency, func(ctx context.Context, i int) error {
		job := &batchv1.Job{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(shape, r.nodes[0], r.nodes[i])), job); err != nil {
			return err
		}
		job.Name = "bare-on-" + r.nodes[i]
		if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return err
		}
		select {
		case <-completed[job.Name]:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("waiting for Job %s, %w", job.Name, context.Cause(ctx))
		}
	})
	return took, errors.Join(err, r.clear(ctx, namespace))
}

// operatorJob is the JSON of a Job as the operator creates it for a node.
func (r *planRun) operatorJob(ctx context.Context, node string) (_ string, err error) {
	p, err := r.startOperator(ctx)
	if err != nil {
		return "", err
	}
	defer p.Kill()
	plan := newPlan("shape", 1, &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}})
	if err := r.create(ctx, plan); err != nil {
		return "", err
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, r.patience(0), true, func(ctx context.Context) (bool, error) {
		err := r.client.Get(ctx, client.ObjectKeyFromObject(plan), plan)
		return complete(plan, 1), err
	})
	if err != nil {
		return "", r.stuck(ctx, plan, "", err)
	}
	jobs, err := r.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(jobs.Items) != 1 {
		return "", errors.Join(err, fmt.Errorf("there are %d Jobs", len(jobs.Items)))
	}
	if err := errors.Join(p.Stop(patience), r.clear(ctx, namespace, plan)); err != nil {
		return "", err
	}
	// What the API server has added is left out.
	j := &jobs.Items[0]
	pod := j.Spec.Template
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool {
		return strings.HasPrefix(key, "batch.kubernetes.io/") || key == "controller-uid" || key == "job-name"
	})
	spec := j.Spec
	spec.Selector, spec.Template = nil, pod
	text, err := json.Marshal(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: j.Annotations}, Spec: spec})
	return string(text), err
}
