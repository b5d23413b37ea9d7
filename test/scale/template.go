// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// newPlan is the Plan whose rollout is measured, under another name too.
func newPlan(name string, concurrency int, selector *metav1.LabelSelector) *upgradev1.Plan {
	return &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: upgradev1.PlanSpec{
			Concurrency:  int64(concurrency),
			NodeSelector: selector,
			Version:      "v1",
			Cordon:       true,
			Upgrade:      &upgradev1.ContainerSpec{Image: "example.com/upgrade"},
		},
	}
}

// template is a Job that the operator has made for one node, in JSON, to be copied for others.
type template struct{ job, node string }

// template lets the operator carry out a Plan on one node, and takes that away again but for its Job.
func (b *bench) template(ctx context.Context) (_ template, err error) {
	nodes, err := b.nodes(ctx)
	if err != nil {
		return template{}, err
	}
	p, err := b.startOperator(ctx)
	if err != nil {
		return template{}, err
	}
	defer func() {
		if stopErr := p.Stop(patience); err == nil {
			err = stopErr
		}
	}()
	plan := newPlan("shape", 1, &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: nodes[0]}})
	if err := b.plans.Create(ctx, plan); err != nil {
		return template{}, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := b.waitForPlan(waitCtx, plan, 1, p); err != nil {
		return template{}, b.stuck(ctx, namespace, err)
	}
	jobs, err := b.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: upgradev1.LabelPlan + "=" + plan.Name})
	if err != nil {
		return template{}, err
	}
	if len(jobs.Items) != 1 {
		return template{}, fmt.Errorf("it has made %d Jobs", len(jobs.Items))
	}
	// Its Job would go with it, once the garbage collector has learnt what a Plan is, which takes it half a minute.
	if err := b.plans.Delete(ctx, plan); err != nil {
		return template{}, err
	}
	background := metav1.DeletePropagationBackground
	if err := b.raw.BatchV1().Jobs(namespace).Delete(ctx, jobs.Items[0].Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		return template{}, err
	}
	if err := b.waitUntilEmpty(waitCtx, namespace); err != nil {
		return template{}, err
	}
	text, err := json.Marshal(asAsked(&jobs.Items[0]))
	return template{job: string(text), node: nodes[0]}, err
}

// asAsked is the Job as it was when it was sent, without what the API server has added.
func asAsked(j *batchv1.Job) *batchv1.Job {
	pod := j.Spec.Template.DeepCopy()
	maps.DeleteFunc(pod.Labels, func(key, _ string) bool {
		return strings.HasPrefix(key, "batch.kubernetes.io/") || key == "controller-uid" || key == "job-name"
	})
	spec := j.Spec.DeepCopy()
	spec.Selector, spec.Template = nil, *pod
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: j.Annotations},
		Spec:       *spec,
	}
}

// on is the same Job for another node.
func (t template) on(node string) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(t.job, t.node, node)), job); err != nil {
		return nil, err
	}
	job.Name = "bare-on-" + node
	return job, nil
}
