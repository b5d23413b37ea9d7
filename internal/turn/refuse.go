// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/metrics"
)

// Refuses reports whether rollouts of this kind are not carried out. Then the conditions of the rollout say why. They are written once, and
// alone, because its CustomResourceDefinition lacks other fields.
func (e *Engine) Refuses(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) (bool, error) {
	why := e.Fleet.Refused(e.Kind)
	if why == nil {
		return false, nil
	}
	metrics.SetStalled(metrics.Rollout{Kind: e.Kind, NamespacedName: key}, true)
	e.Waiting.Set(key, true) // A change of the definition wakes it.
	present := map[string]any{}
	_ = ReadField(stored, "status", &present) // What can't be read is as if it was missing.
	before, _ := present["conditions"].([]any)
	conditions := slices.Clone(before)
	for _, want := range [][2]string{{v1alpha1.ConditionReady, "False"}, {v1alpha1.ConditionReconciling, "False"}, {v1alpha1.ConditionStalled, "True"}} {
		i := slices.IndexFunc(conditions, func(c any) bool {
			fields, _ := c.(map[string]any)
			return fields["type"] == want[0]
		})
		c := map[string]any{"type": want[0]}
		if i < 0 {
			i, conditions = len(conditions), append(conditions, c)
		}
		old, _ := conditions[i].(map[string]any)
		maps.Copy(c, old)
		if c["status"] != want[1] {
			c["status"], c["lastTransitionTime"] = want[1], e.Clock.Now().UTC().Format(time.RFC3339)
		}
		c["reason"], c["message"] = v1alpha1.ReasonDefinitionIncomplete, why.Error()
		conditions[i] = c
	}
	if equality.Semantic.DeepEqual(before, conditions) {
		return true, nil
	}
	changed := Copy(stored)
	present["conditions"], changed.Object["status"] = conditions, present
	if err := e.Client.Status().Patch(ctx, changed, PatchFrom(stored)); err != nil {
		return true, client.IgnoreNotFound(fmt.Errorf("writing conditions, %w", err))
	}
	return true, nil
}
