// SPDX-License-Identifier: Apache-2.0

// Package turn is the engine of turns, which all rollouts of nodes share. It reads and wakes rollouts. It claims, cordons, drains and
// releases nodes, and reports. Each controller adds the mechanism that changes a node.
package turn

import (
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// writers bounds how many writes of one call of Each run at once.
const writers = 64

// Each calls do for all turns, several at a time. An error of one turn does not stop the others. It returns First of the errors.
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

// First returns the first error that is not a conflict; otherwise a conflict. A conflict needs no report.
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
