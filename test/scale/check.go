// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	jobs, err := b.raw.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{LabelSelector: upgradev1.LabelPlan + "=" + plan.Name})
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
	if n := len(events.Items); n != b.size {
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
	if len(nodes.Items) != b.size {
		wrong("there are %d nodes", len(nodes.Items))
	}
	for _, fault := range slices.Sorted(maps.Keys(r.faults)) {
		wrong("the API server refused %s, %d times", fault, r.faults[fault])
	}
	slices.Sort(names)
	slices.Sort(r.jobs)
	if !slices.Equal(names, r.jobs) {
		wrong("there are %d Jobs, and %d were made", len(names), len(r.jobs))
	}
	return problems, nil
}

// checkGuards looks whether strategy and budgets have governed a rollout: whether it went through all its waves, the budgets
// were understood, and Prometheus was asked.
func (b *bench) checkGuards(ctx context.Context, plan *upgradev1.Plan, s *subject) (problems []error, err error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	if w := plan.Status.Wave; w == nil {
		wrong("the Plan has had no waves")
	} else if w.State != v1alpha1.WaveComplete || w.Number != w.Of || int(w.Of) != len(s.parts) {
		wrong("the Plan's wave %d of %d is %s, and there should be %d", w.Number, w.Of, w.State, len(s.parts))
	}
	for _, budget := range s.budgets {
		now := &v1alpha1.NodeDisruptionBudget{}
		if err := b.plans.Get(ctx, client.ObjectKeyFromObject(budget), now); err != nil {
			return nil, fmt.Errorf("reading a budget, %w", err)
		}
		is := &now.Status
		if is.ObservedGeneration != now.Generation || !meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady) {
			wrong("budget %s does not govern: %+v", now.Name, is.Conditions)
		}
		if int(is.Matched) != b.size || is.Unavailable != 0 || len(is.BlockedBy) > 0 {
			wrong("budget %s matches %d nodes, of which %d are unavailable, and is blocked by %+v", now.Name, is.Matched, is.Unavailable, is.BlockedBy)
		}
	}
	if s.alerts.asked.Load() == 0 {
		wrong("nobody has asked for alerts")
	}
	return problems, nil
}

// verify returns what was wrong, in short.
func (m *measured) verify() error {
	const most = 10
	var errs []error
	for _, r := range m.rollouts() {
		problems := r.problems
		if n := len(problems); n > most {
			problems = append(slices.Clip(problems[:most]), fmt.Errorf("and %d problems more", n-most))
		}
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("%d nodes, %s rollout: %w", m.size, r.subject.name, problem))
		}
	}
	return errors.Join(errs...)
}
