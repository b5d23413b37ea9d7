// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"moult.dev/moult/test/follow"
)

// namespaceBare is the bare loop's own, so that its Jobs keep no pods of the rollout from any node.
const namespaceBare = "bare"

// bare keeps so many Jobs in flight until one has completed on every node, and says how long that took.
func (b *bench) bare(ctx context.Context, shape template) (time.Duration, error) {
	nodes, err := b.nodes(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.makeNamespace(ctx, namespaceBare); err != nil {
		return 0, err
	}
	took, err := b.loop(ctx, shape, nodes)
	if err != nil {
		return 0, err
	}
	say("bare loop: %d Jobs in %.1f s; clearing up", len(nodes), took.Seconds())
	return took, b.clearBare(ctx)
}

func (b *bench) loop(ctx context.Context, shape template, nodes []string) (time.Duration, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	jobs := b.raw.BatchV1().Jobs(namespaceBare)
	none, err := jobs.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	// Room for every failure, so that nothing outlives the loop and waits.
	failures := make(chan error, len(nodes)+1)
	changes := make(chan follow.Change, 10*b.concurrency)
	go func() { failures <- follow.Changes(ctx, jobs.Watch, none.ResourceVersion, changes) }()
	created := 0
	create := func() {
		if created == len(nodes) {
			return
		}
		node := nodes[created]
		created++
		go func() {
			job, err := shape.on(node)
			if err == nil {
				_, err = jobs.Create(ctx, job, metav1.CreateOptions{})
			}
			if err != nil {
				failures <- err
			}
		}()
	}
	progress := time.NewTicker(5 * time.Second)
	defer progress.Stop()

	started := time.Now()
	for range b.concurrency {
		create()
	}
	done := make(map[string]bool, len(nodes))
	for len(done) < len(nodes) {
		select {
		case change := <-changes:
			job, ok := change.Object.(*batchv1.Job)
			if !ok {
				return 0, fmt.Errorf("a watch of Jobs shows a %T", change.Object)
			}
			if failed := condition(job, batchv1.JobFailed); failed != nil {
				return 0, fmt.Errorf("job %s failed: %s", job.Name, failed.Message)
			}
			if condition(job, batchv1.JobComplete) != nil && !done[job.Name] {
				done[job.Name] = true
				create()
			}
		case err := <-failures:
			return 0, b.stuck(ctx, namespaceBare, err)
		case <-progress.C:
			say("bare loop: %d of %d Jobs done", len(done), len(nodes))
		}
	}
	return time.Since(started), nil
}

func condition(j *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// clearBare returns when nothing of the bare loop is left.
func (b *bench) clearBare(ctx context.Context) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	namespaces := b.raw.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, namespaceBare, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, namespaceBare, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignore(err, apierrors.IsNotFound)
	})
	if err != nil {
		return b.stuck(ctx, namespaceBare, fmt.Errorf("waiting until namespace %s is gone, %w", namespaceBare, err))
	}
	return nil
}

// waitUntilEmpty returns when a namespace has neither Jobs nor pods.
func (b *bench) waitUntilEmpty(ctx context.Context, namespace string) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		one := metav1.ListOptions{Limit: 1}
		jobs, err := b.raw.BatchV1().Jobs(namespace).List(ctx, one)
		if err != nil || len(jobs.Items) > 0 {
			return false, err
		}
		pods, err := b.raw.CoreV1().Pods(namespace).List(ctx, one)
		return err == nil && len(pods.Items) == 0, err
	})
}

// nodes lists the names of all nodes.
func (b *bench) nodes(ctx context.Context) ([]string, error) {
	list, err := b.raw.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
