// SPDX-License-Identifier: Apache-2.0

// Package gitops tests what Argo CD and Flux make of the status of Moult's kinds: the former by the Lua of examples/argocd, with the interpreter that
// Argo CD has, the latter by kstatus.
package gitops

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

const prefix = "resource.customizations.health."

// groups are those of the kinds.
var groups = map[string]string{
	"Plan": "upgrade.cattle.io/v1", "NodeRollout": "moult.dev/v1alpha1", "NodeDisruptionBudget": "moult.dev/v1alpha1", "ExtendedDaemonSet": "datadoghq.com/v1alpha1",
}

// toLua converts what JSON has.
func toLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		t := l.NewTable()
		for key, of := range v {
			t.RawSetString(key, toLua(l, of))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, of := range v {
			t.Append(toLua(l, of))
		}
		return t
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

// health runs the script as Argo CD does: with the object as obj, and without libraries that reach outside.
func health(t *testing.T, script string, object map[string]any) (of, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenTable, lua.OpenString} {
		l.Push(l.NewFunction(open))
		l.Call(0, 0)
	}
	l.SetGlobal("obj", toLua(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns %v", l.Get(-1))
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String()
}

// kstatus returns the three conditions, of which one is True.
func kstatus(holds string) []any {
	var all []any
	for _, kind := range []string{"Ready", "Reconciling", "Stalled"} {
		is := "False"
		if kind == holds {
			is = "True"
		}
		all = append(all, map[string]any{"type": kind, "status": is, "reason": "Because", "message": "words of " + kind})
	}
	return all
}

func TestHealth(t *testing.T) {
	data, err := os.ReadFile("../../examples/argocd/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch struct{ Data map[string]string }
	if err := yaml.Unmarshal(data, &patch); err != nil || len(patch.Data) != len(groups) {
		t.Fatalf("%d scripts, %v", len(patch.Data), err)
	}
	wave := map[string]any{"name": "canary", "state": "WaitingForApproval"}
	budget, eds := []string{"NodeDisruptionBudget"}, []string{"ExtendedDaemonSet"}
	rollouts, all := []string{"Plan", "NodeRollout", "ExtendedDaemonSet"}, slices.Sorted(maps.Keys(groups))
	for name, tc := range map[string]struct {
		kinds        []string
		holds        string
		spec, status map[string]any
		argo         string
		flux         status.Status
		message      string
	}{
		"done":                     {all, "Ready", nil, nil, "Healthy", status.CurrentStatus, "words of Ready"},
		"at work":                  {all, "Reconciling", nil, nil, "Progressing", status.InProgressStatus, "words of Ready"},
		"failed":                   {all, "Stalled", nil, nil, "Degraded", status.FailedStatus, "words of Stalled"},
		"paused":                   {rollouts, "Reconciling", map[string]any{"strategy": map[string]any{"paused": true}}, nil, "Suspended", status.InProgressStatus, "it is paused"},
		"paused and done":          {rollouts, "Ready", map[string]any{"strategy": map[string]any{"paused": true}}, nil, "Healthy", status.CurrentStatus, ""},
		"waits for approval":       {rollouts, "Reconciling", nil, map[string]any{"wave": wave}, "Suspended", status.InProgressStatus, "wave canary waits"},
		"a canary is paused":       {eds, "Reconciling", nil, map[string]any{"state": "Canary Paused"}, "Suspended", status.InProgressStatus, "Canary Paused"},
		"a canary has failed":      {eds, "Stalled", nil, map[string]any{"state": "Canary Failed"}, "Degraded", status.FailedStatus, "words of Stalled"},
		"a rolling update paused":  {eds, "Reconciling", nil, map[string]any{"state": "RollingUpdate Paused"}, "Suspended", status.InProgressStatus, ""},
		"a budget is paused":       {budget, "Ready", nil, map[string]any{"Paused": true}, "Suspended", status.CurrentStatus, "it is paused"},
		"not looked at":            {all, "", nil, nil, "Progressing", status.CurrentStatus, ""},
		"the change is not looked": {[]string{"Plan", "NodeRollout", "NodeDisruptionBudget"}, "Ready", nil, map[string]any{"old": true}, "Progressing", status.CurrentStatus, "has not looked"},
	} {
		for _, kind := range tc.kinds {
			t.Run(kind+" "+name, func(t *testing.T) {
				conditions := []any{}
				if tc.holds != "" {
					conditions = kstatus(tc.holds)
				}
				of := map[string]any{}
				maps.Copy(of, tc.status)
				if of["Paused"] == true {
					conditions = append(conditions, map[string]any{"type": "Paused", "status": "True", "reason": "Paused", "message": ""})
				}
				if of["old"] == true {
					conditions[0].(map[string]any)["observedGeneration"] = int64(1)
				}
				delete(of, "Paused")
				delete(of, "old")
				of["conditions"] = conditions
				object := map[string]any{
					"apiVersion": groups[kind], "kind": kind, "metadata": map[string]any{"name": "x", "generation": int64(2)}, "spec": tc.spec, "status": of,
				}
				group, _, _ := strings.Cut(groups[kind], "/")
				got, message := health(t, patch.Data[prefix+group+"_"+kind], object)
				if got != tc.argo || !strings.Contains(message, tc.message) {
					t.Errorf("Argo CD: %s, %q, want %s, %q", got, message, tc.argo, tc.message)
				}
				result, err := status.Compute(&unstructured.Unstructured{Object: object})
				if err != nil || result.Status != tc.flux {
					t.Errorf("Flux: %v, %v, want %s", result, err, tc.flux)
				}
			})
		}
	}
}
