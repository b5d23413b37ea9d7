// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"

	"moult.dev/moult/internal/view"
)

// shown is what a status shows.
type shown struct {
	rollouts []view.Rollout
	budgets  []view.Budget
}

// show takes from a cluster what belongs to the scope: where a rollout is named, the budgets that select its nodes.
func show(c *view.Cluster, named bool) *shown {
	s := &shown{rollouts: c.Rollouts(), budgets: c.Budgets()}
	if named {
		s.budgets = slices.DeleteFunc(s.budgets, func(b view.Budget) bool {
			return !slices.ContainsFunc(s.rollouts, func(r view.Rollout) bool { return slices.Contains(r.Budgets, b.Name) })
		})
	}
	return s
}
