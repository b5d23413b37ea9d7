// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/status"
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

// A packed rollout is read like any other, and a patch of its copy has only what is new, and its version.
func TestPack(t *testing.T) {
	stored := Object()
	stored.Object["metadata"] = map[string]any{"name": "r", "resourceVersion": "7", "generation": int64(2)}
	stored.Object["spec"] = map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "a"}}, "replacement": map[string]any{}}
	stored.Object["status"] = map[string]any{"revision": "v1", "conditions": []any{map[string]any{
		"type": v1alpha1.ConditionStalled, "status": "True", "reason": status.ReasonInvalid, "observedGeneration": int64(2),
		"message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	plain, malformed, err := Decode(stored)
	if err != nil || malformed != nil {
		t.Fatal(err, malformed)
	}
	if _, err := Pack(stored); err != nil {
		t.Fatal(err)
	}
	packed, malformed, err := Decode(stored)
	if err != nil || malformed != nil || !reflect.DeepEqual(packed, plain) || !Replaces(stored) || !IsInvalid(stored) {
		t.Errorf("read %+v, want %+v; %v, %v", packed, plain, malformed, err)
	}
	changed := Copy(stored)
	packed.Status.Revision = "v2"
	changed.Object["status"] = &packed.Status
	changed.SetFinalizers([]string{"a.b/c"})
	body, err := PatchFrom(stored).Data(changed)
	if want := `{"metadata":{"finalizers":["a.b/c"],"resourceVersion":"7"},"status":{"revision":"v2"}}`; err != nil || string(body) != want {
		t.Errorf("patch %s, want %s: %v", body, want, err)
	}
	if StatusOf(stored).Revision != "v1" || stored.GetFinalizers() != nil || stored.GetResourceVersion() != "7" {
		t.Errorf("the stored rollout has changed: %v", stored)
	}
}
