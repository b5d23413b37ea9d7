// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// planFrom is a Plan as somebody may write it, well-typed or not. It selects no node.
func planFrom(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     fields,
	}}
}

func TestPlanAdmission(t *testing.T) {
	t.Parallel()
	const ok = "upgrade: {image: x}\nversion: v1\n"
	for _, tc := range []struct{ name, spec, want string }{
		{"minimal", "upgrade: {image: x}", ""},
		{"no-upgrade", "version: v1", "spec.upgrade: Required value"},
		{"no-image", "upgrade: {}", "spec.upgrade.image: Required value"},
		{"negative-concurrency", ok + "concurrency: -1", "spec.concurrency: Invalid value: -1: must be 0 or more"},
		{"operator", ok + "nodeSelector: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}", "operator must be In, NotIn, Exists or DoesNotExist"},
		{"in-without-values", ok + "nodeSelector: {matchExpressions: [{key: a, operator: In}]}", "values must be given for the operators In and NotIn"},
		{"exists-with-values", ok + "nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", "left out for Exists and DoesNotExist"},
		{"window-without-days", ok + "window: {startTime: '1:00', endTime: '2:00'}", "days must name at least one day of the week"},
		{"window-empty-days", ok + "window: {days: [], startTime: '1:00', endTime: '2:00'}", "spec.window.days"},
		{"window-bad-day", ok + "window: {days: [Monday], startTime: '1:00', endTime: '2:00'}", `Unsupported value: "Monday"`},
		// What system-upgrade-controller reports in a condition is admitted, so that a stored Plan stays editable.
		{"both-delete-flags", ok + "drain: {deleteLocalData: true, deleteEmptydirData: true}", ""},
		{"bad-pod-selector", ok + "drain: {podSelector: {matchExpressions: [{key: a, operator: Equals}]}}", ""},
		{"window-bad-time", ok + "window: {days: [mo], startTime: noon, endTime: '2:00'}", ""},
		{"negative-delay", ok + "postCompleteDelay: -1s", ""},
		{"no-version", "upgrade: {image: x}", ""},
		{"timeout-number", ok + "drain: {timeout: 60}", ""},
		{"timeout-string", ok + "drain: {timeout: 60s}", ""},
		{"all-days", ok + "window: {days: ['0', su, sun, sunday, sat, '6'], startTime: 9pm, endTime: '04:00:30', timeZone: Europe/Berlin}", ""},
		{"grace-too-great", ok + "drain: {gracePeriod: 99999999999}", "must be of type integer with format int32 in spec.drain.gracePeriod"},
		{"deadline-negative", ok + "jobActiveDeadlineSecs: -1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := world.Create(t.Context(), planFrom(t, "admission-"+tc.name, tc.spec), client.DryRunAll)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error is %v, want one with %q", err, tc.want)
			}
		})
	}
}

// What is admitted and wrong is said in the condition, in system-upgrade-controller's words.
func TestPlanProblemsAreReported(t *testing.T) {
	t.Parallel()
	const ok = "upgrade: {image: x}\nversion: v1\n"
	for _, tc := range []struct{ name, spec, kind, want string }{
		{"both-delete-flags", ok + "drain: {deleteLocalData: true, deleteEmptydirData: true}", upgradev1.ConditionValidated, "spec.drain cannot specify both deleteEmptydirData and deleteLocalData"},
		{"bad-pod-selector", ok + "drain: {podSelector: {matchExpressions: [{key: a, operator: Equals}]}}", upgradev1.ConditionValidated, `"Equals" is not a valid label selector operator`},
		{"window-bad-time", ok + "window: {days: [mo], startTime: noon, endTime: '2:00'}", upgradev1.ConditionValidated, "spec.window is invalid, invalid time format: noon"},
		{"window-no-end", ok + "window: {days: [mo], startTime: '1:00'}", upgradev1.ConditionValidated, "spec.window is invalid"},
		{"negative-delay", ok + "postCompleteDelay: -1s", upgradev1.ConditionValidated, "spec.postCompleteDelay is negative"},
		{"no-version", "upgrade: {image: x}", upgradev1.ConditionLatestResolved, "cannot resolve plan: missing channel and version"},
		{"version", "upgrade: {image: x}\nversion: a b", upgradev1.ConditionLatestResolved, "can't serve as a label value"},
		{"label", ok + "postCompleteLabels: {a: 'x y'}", upgradev1.ConditionValidated, "spec.postCompleteLabels[a]"},
		// Such text would stop a controller that reads all Plans at once.
		{"malformed-delay", ok + "postCompleteDelay: soon", upgradev1.ConditionValidated, `time: invalid duration "soon"`},
		{"malformed-timeout", ok + "drain: {timeout: 300000000000}", upgradev1.ConditionValidated, "spec.drain.timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := planFrom(t, "problem-"+tc.name, tc.spec)
			if err := world.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := world.Delete(context.WithoutCancel(t.Context()), p); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			})
			key := client.ObjectKeyFromObject(p)
			var last string
			eventually(t, "the condition tells", func(t2 context.Context) (string, bool) {
				if err := world.Get(t2, key, p); err != nil {
					return err.Error(), false
				}
				conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
				for _, c := range conditions {
					fields, _ := c.(map[string]any)
					if fields["type"] == tc.kind {
						last, _ = fields["message"].(string)
						return last, fields["status"] == string(metav1.ConditionFalse) && fields["reason"] == upgradev1.ReasonError && strings.Contains(last, tc.want)
					}
				}
				return "no such condition", false
			})
		})
	}
	p := newPlan(t, "problem-none", "true")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{target: "nowhere"}}
	create(t, p)
	complete(t, p.Name)
}
