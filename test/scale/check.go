// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// check looks whether every node was upgraded, once, and left as it was: by the nodes, by the Jobs, and by what the API
// server has logged. It returns what is wrong.
func (b *bench) check(ctx context.Context, plan *upgradev1.Plan, r *requests) (problems []error, err error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	nodes, err := b.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	jobs, err := b.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	// An operator wants to read of every node.
	events, err := b.raw.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + plan.Name + ",reason=JobComplete",
	})
	if err != nil {
		return nil, err
	}
	if n := len(events.Items); n != b.options.nodes {
		wrong("there are %d Events of nodes that were updated", n)
	}
	byNode := map[string]int{}
	names := make([]string, 0, len(jobs.Items))
	for i := range jobs.Items {
		j := &jobs.Items[i]
		names = append(names, j.Name)
		byNode[j.Labels[upgradev1.LabelNode]]++
		if condition(j, batchv1.JobComplete) == nil || j.Status.Succeeded != 1 || j.Status.Failed != 0 {
			wrong("job %s has %d pods that succeeded and %d that failed", j.Name, j.Status.Succeeded, j.Status.Failed)
		}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if got := byNode[n.Name]; got != 1 {
			wrong("node %s had %d Jobs", n.Name, got)
		}
		if got := n.Labels[upgradev1.LabelPlanHash(plan.Name)]; got != plan.Status.LatestHash || got == "" {
			wrong("node %s is labelled %q, and the Plan's hash is %q", n.Name, got, plan.Status.LatestHash)
		}
		if claims, ok := n.Annotations[v1alpha1.AnnotationClaims]; ok {
			wrong("node %s is still claimed: %s", n.Name, claims)
		}
		if n.Spec.Unschedulable {
			wrong("node %s is unschedulable", n.Name)
		}
	}
	if len(nodes.Items) != b.options.nodes {
		wrong("there are %d nodes", len(nodes.Items))
	}
	slices.Sort(names)
	slices.Sort(r.jobs)
	if !slices.Equal(names, r.jobs) {
		wrong("there are %d Jobs, and %d were made", len(names), len(r.jobs))
	}
	return problems, nil
}

// verify returns what was wrong, in short.
func (r *result) verify() error {
	const most = 10
	if n := len(r.problems); n > most {
		r.problems = append(r.problems[:most], fmt.Errorf("and %d problems more", n-most))
	}
	return errors.Join(r.problems...)
}
