// SPDX-License-Identifier: Apache-2.0

package moult

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
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
	metav1.TypeMeta `json:",inline"`
	Metadata        metadata `json:"metadata"`
	*view.Budget
}

// statusObject is what status prints for programs.
type statusObject struct {
	metav1.TypeMeta `json:",inline"`
	Needs           []need          `json:"needs"`
	Items           []rolloutObject `json:"items"`
	Budgets         []budgetObject  `json:"budgets"`
}

// outputType identifies what is printed and is no object of the API.
func outputType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: flags.Version, Kind: kind}
}

func newRolloutObject(r *view.Rollout) rolloutObject {
	return rolloutObject{source.KindOf(r.Kind).Resource.GroupVersion().String(), metadata{r.Namespace, r.Name}, r, r.Reason()}
}

func rolloutObjects(rollouts []view.Rollout) []rolloutObject {
	all := make([]rolloutObject, len(rollouts))
	for i := range rollouts {
		all[i] = newRolloutObject(&rollouts[i])
	}
	return all
}

func newStatusObject(s *shown) statusObject {
	o := statusObject{TypeMeta: outputType("RolloutStatusList"), Needs: needs(s), Items: rolloutObjects(s.rollouts), Budgets: make([]budgetObject, len(s.budgets))}
	for i := range s.budgets {
		b := &s.budgets[i]
		o.Budgets[i] = budgetObject{
			metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: source.Budget.Name}, metadata{Name: b.Name}, b,
		}
	}
	return o
}
