// SPDX-License-Identifier: Apache-2.0

// Package turn is the engine of a node's turn, for all rollouts of nodes: it reads and wakes rollouts, claims, cordons and drains nodes,
// releases them, and reports. Each controller is the mechanism that changes a node.
package turn

import (
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// writers bounds how many nodes of one rollout are written at once.
const writers = 16

// Each does something for many turns at once. What fails for one keeps no other back. The error is the First.
func Each[T any](turns []T, do func(T) error) error {
	errs := make([]error, len(turns))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, t := range turns {
		group.Go(func() error {
			errs[i] = do(t)
			return nil
		})
	}
	_ = group.Wait()
	return First(errs)
}

// First of some errors, one that is no conflict before those that are: a conflict needs no report.
func First(errs []error) error {
	var conflict error
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
		if err != nil {
			conflict = err
		}
	}
	return conflict
}
