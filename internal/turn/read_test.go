// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// A quantity that would take minutes and gigabytes to read makes its object malformed, and is not read.
func TestHostileQuantity(t *testing.T) {
	variable := map[string]any{"name": "CPU", "valueFrom": map[string]any{"resourceFieldRef": map[string]any{"resource": "limits.cpu", "divisor": "1e999999999"}}}
	stored := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": map[string]any{"name": "hostile", "uid": "uid"},
		"spec":   map[string]any{"upgrade": map[string]any{"image": "img", "envs": []any{variable}}},
		"status": map[string]any{"latestVersion": "v1"},
	}}
	plan := &upgradev1.Plan{}
	malformed, err := DecodeInto(stored, plan, &plan.Spec, &plan.Status)
	if err != nil || malformed == nil || !strings.Contains(malformed.Error(), "spec.upgrade.envs[0].valueFrom.resourceFieldRef.divisor: ") {
		t.Errorf("malformed is %v, %v", malformed, err)
	}
	if plan.Name != "hostile" || plan.Status.LatestVersion != "v1" || plan.Spec.Upgrade != nil {
		t.Errorf("read %+v", plan)
	}
}
