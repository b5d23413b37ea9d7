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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
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
	s := &setup{
		bare: r.bare, ideal: inRounds(b.size, b.concurrency, b.podSeconds),
		subjects: []*subject{r.subject(plainName, nil, 0, r.newPlan(plainName, r.nodes))},
	}
	for _, p := range b.peers {
		s.subjects = append(s.subjects, r.subject(p.name, p, 0, r.newPlan(p.name, r.nodes)))
	}
	if b.rollouts > 1 {
		s.subjects = append(s.subjects, r.many())
	}
	if b.guarded {
		if err := b.deploy(ctx, 100, 2); err != nil {
			return nil, err
		}
		s.subjects = append(s.subjects, r.guards())
	}
	return s, nil
}

// plan is a Plan over some nodes.
type plan struct {
	*upgradev1.Plan
	nodes []string
}

func (r *planRun) newPlan(name string, nodes []string) plan {
	selector := &metav1.LabelSelector{}
	if len(nodes) < r.size {
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes}}
	}
	return plan{nodes: nodes, Plan: &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: upgradev1.PlanSpec{
			Concurrency: int64(r.concurrency), NodeSelector: selector, Version: "v1", Cordon: true,
			Upgrade: &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
		},
	}}
}

// complete reports whether a Plan says that its nodes are updated. A peer says neither how many there are nor of which generation it speaks.
func (r *planRun) complete(ctx context.Context, p plan, peer *peer) (bool, error) {
	err := r.client.Get(ctx, client.ObjectKeyFromObject(p.Plan), p.Plan)
	is := &p.Status
	c := is.Condition(upgradev1.ConditionComplete)
	return c != nil && c.Status == metav1.ConditionTrue &&
		(peer != nil || is.ObservedGeneration == p.Generation && is.Counts != nil && int(is.Counts.Updated) == len(p.nodes)), err
}

// subject is one or several Plans, which together have all nodes. limit is how many nodes may be unavailable when one is claimed; 0 is no limit.
func (r *planRun) subject(name string, p *peer, limit int, plans ...plan) *subject {
	var nodes []string
	objects := make([]client.Object, 0, len(plans))
	for _, plan := range plans {
		nodes, objects = append(nodes, plan.nodes...), append(objects, plan.Plan)
	}
	tally := newNodeTally(r.concurrency, limit, stepJobDone, stepClaimed, stepJobCreated, stepJobDone, stepReleased)
	updated := tally.released
	if p != nil {
		tally.state = func(n *corev1.Node) string { return n.Labels[upgradev1.LabelPlanHash(name)] }
		updated = func() int { return r.size - tally.at("") }
	}
	return &subject{
		name: name, namespace: namespace, peer: p, objects: objects, meters: []*meter{controllerMeter(p)},
		watches: []watched{tally.watch(r.bench), r.watchJobs(tally)}, progress: tally.progress,
		stages: []*stage{{
			name: stageRollout, units: len(nodes), ideal: inRounds(len(nodes), r.concurrency, r.podSeconds), compared: true,
			start: func(ctx context.Context) error {
				_, err := each(ctx, len(objects), writers, func(ctx context.Context, i int) error { return r.create(ctx, objects[i]) })
				return err
			},
			done: func(ctx context.Context, _ *phase) (done bool, err error) {
				done = updated() == len(nodes)
				for i := 0; done && err == nil && i < len(plans); i++ {
					done, err = r.complete(ctx, plans[i], p)
				}
				return done, err
			},
			check: func(p *phase, result *result) {
				p.figure("nodes unavailable at once", float64(tally.mostUnavailable))
				tally.report(p, r.concurrency)
				if made := p.Programs[0].Requests["create jobs"]; made != len(nodes) {
					result.wrong("the operator created %d Jobs", made)
				}
			},
		}},
		check: func(ctx context.Context, result *result) error {
			result.add(tally.verify(nodes, nodeState{claims: 1})...)
			return r.check(ctx, plans, result)
		},
	}
}

// many is as many Plans as --rollouts says, each over its own part of the nodes, and one budget that allows all together what the
// one Plan may.
func (r *planRun) many() *subject {
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: manyName}}
	budget.Spec.MaxUnavailable = ptr.To(intstr.FromInt(r.concurrency))
	var plans []plan
	for part := range slices.Chunk(r.nodes, rounds(r.size, r.rollouts)) {
		plans = append(plans, r.newPlan(fmt.Sprintf("%s-%02d", manyName, len(plans)+1), part))
	}
	s := r.subject(manyName, nil, r.concurrency, plans...)
	s.others = []client.Object{budget}
	return s
}

// check checks that every node was updated once, by one Job of its Plan, and that there is an Event of each.
func (r *planRun) check(ctx context.Context, plans []plan, result *result) error {
	jobs, err := r.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	byNode, hashes := map[string]int{}, map[string]string{}
	for _, plan := range plans {
		events, err := r.raw.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=NodeUpdated"})
		if err != nil {
			return err
		}
		ofPlan := slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.Related == nil || e.Related.Name != plan.Name })
		if n := len(ofPlan); n != len(plan.nodes) {
			result.wrong("there are %d Events of %d nodes that %s updated", n, len(plan.nodes), plan.Name)
		}
		for _, node := range plan.nodes {
			hashes[node] = upgradev1.LabelPlanHash(plan.Name) + "=" + plan.Status.LatestHash
		}
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		byNode[j.Labels[upgradev1.LabelNode]]++
		if !isComplete(j) || j.Status.Succeeded != 1 || j.Status.Failed != 0 {
			result.wrong("Job %s has %d pods that succeeded and %d that failed", j.Name, j.Status.Succeeded, j.Status.Failed)
		}
	}
	return r.checkNodes(ctx, result, func(n *corev1.Node) string {
		if got := byNode[n.Name]; got != 1 {
			return fmt.Sprintf("had %d Jobs", got)
		}
		if key, hash, _ := strings.Cut(hashes[n.Name], "="); hash == "" || n.Labels[key] != hash {
			return fmt.Sprintf("has %q in label %s, and the Plan's hash is %q", n.Labels[key], key, hash)
		}
		return ""
	})
}

// watchJobs notes when each node's Job was created and when it completed.
func (r *planRun) watchJobs(t *nodeTally) watched {
	see := func(_ watch.EventType, object any) {
		j := object.(*batchv1.Job)
		t.mark(j.Labels[upgradev1.LabelNode], stepJobCreated)
		if isComplete(j) {
			t.mark(j.Labels[upgradev1.LabelNode], stepJobDone)
		}
	}
	return watched{begin: r.raw.BatchV1().Jobs(namespace).Watch, list: &batchv1.JobList{}, namespace: namespace, see: see}
}

func isComplete(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

// bare keeps so many Jobs in flight until one has completed on every node. They are copies of one of the operator's, so
// that scheduler and Job controller have the same work as in the rollout. They have a namespace of their own, so that they
// keep no pods of the rollout from any node.
func (r *planRun) bare(ctx context.Context) (time.Duration, error) {
	const namespace = "bare"
	if err := r.makeNamespace(ctx, namespace); err != nil {
		return 0, err
	}
	shape, err := r.operatorJob(ctx)
	if err != nil {
		return 0, fmt.Errorf("getting a Job of the operator, %w", err)
	}
	jobs, l := r.raw.BatchV1().Jobs(namespace), newOnlooker()
	watching, stop, err := r.follow(ctx, watched{begin: jobs.Watch, list: &batchv1.JobList{}, namespace: namespace, see: l.see})
	if err != nil {
		return 0, err
	}
	defer stop()
	took, err := each(watching, r.size, r.concurrency, func(ctx context.Context, i int) error {
		node, job := r.nodes[i], &batchv1.Job{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(shape, r.nodes[0], node)), job); err != nil {
			return err
		}
		job.Name = "bare-on-" + node
		if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return err
		}
		return l.until(ctx, node, func(objects []client.Object) (bool, error) {
			return len(objects) > 0 && isComplete(objects[0].(*batchv1.Job)), nil
		})
	})
	return took, errors.Join(err, r.clear(ctx, namespace))
}

// operatorJob is the JSON of a Job as the operator creates it for the first node.
func (r *planRun) operatorJob(ctx context.Context) (string, error) {
	shape, bench := r.subject("shape", nil, 0, r.newPlan("shape", r.nodes[:1])), *r.bench
	bench.idle = 0
	if _, err := bench.measureSubject(ctx, shape); err != nil {
		return "", err
	}
	jobs, err := r.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(jobs.Items) != 1 {
		return "", errors.Join(err, fmt.Errorf("there are %d Jobs", len(jobs.Items)))
	}
	if err := r.clear(ctx, namespace, shape.objects...); err != nil {
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
