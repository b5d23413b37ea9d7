// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// clear takes away what a rollout has left, so that the next one begins as it did, and returns when nothing is left of it
// but a label on each node, and Events.
func (b *bench) clear(ctx context.Context, s subject, r *result) error {
	say("clearing up after the %s rollout", s.name)
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	objects := []client.Object{&upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name}}}
	for _, budget := range s.budgets {
		objects = append(objects, budget)
	}
	for _, object := range objects {
		if err := b.plans.Delete(ctx, object); err != nil {
			return err
		}
	}
	background := metav1.DeletePropagationBackground
	jobs := b.raw.BatchV1().Jobs(namespace)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for _, name := range r.requests.jobs {
		group.Go(func() error {
			// The garbage collector may be quicker, as their Plan is gone.
			return ignore(jobs.Delete(groupCtx, name, metav1.DeleteOptions{PropagationPolicy: &background}), apierrors.IsNotFound)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := b.waitUntilEmpty(ctx, namespace); err != nil {
		return b.stuck(ctx, namespace, fmt.Errorf("waiting until namespace %s is empty, %w", namespace, err))
	}
	return nil
}
