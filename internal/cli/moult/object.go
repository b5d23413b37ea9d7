// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// metadata names an object of the API.
type metadata struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// rolloutObject is a rollout as it is printed for programs, under the kind and name of its object.
type rolloutObject struct {
	APIVersion string   `json:"apiVersion"`
	Metadata   metadata `json:"metadata"`
	*view.Rollout
	// Reason says in one word why no node starts, or why the next one waits.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
}

// budgetObject is a NodeDisruptionBudget as it is printed for programs.
type budgetObject struct {
	identified
	Metadata metadata `json:"metadata"`
	*view.Budget
}

// statusObject is what status prints for programs.
type statusObject struct {
	identified
	Needs   []need          `json:"needs"`
	Items   []rolloutObject `json:"items"`
	Budgets []budgetObject  `json:"budgets"`
}

func newStatusObject(s *shown) statusObject {
	o := statusObject{identify("RolloutStatusList"), needs(s), []rolloutObject{}, []budgetObject{}}
	for i := range s.rollouts {
		r := &s.rollouts[i]
		o.Items = append(o.Items, rolloutObject{source.KindOf(r.Kind).Resource.GroupVersion().String(), metadata{r.Namespace, r.Name}, r, r.Reason()})
	}
	for i := range s.budgets {
		b := &s.budgets[i]
		o.Budgets = append(o.Budgets, budgetObject{identified{v1alpha1.GroupVersion.String(), source.Budget.Name}, metadata{Name: b.Name}, b})
	}
	return o
}
