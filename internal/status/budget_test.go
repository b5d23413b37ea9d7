// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func TestSetBudgetConditions(t *testing.T) {
	morning := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	blocked := func(gates ...v1alpha1.Reason) v1alpha1.NodeDisruptionBudgetStatus {
		s := v1alpha1.NodeDisruptionBudgetStatus{Matched: 5, Unavailable: 1}
		for _, g := range gates {
			s.BlockedBy = append(s.BlockedBy, v1alpha1.BudgetBlock{Gate: g, Message: "by " + string(g)})
		}
		return s
	}
	for name, tc := range map[string]struct {
		status  v1alpha1.NodeDisruptionBudgetStatus
		problem string
		limit   int
		notes   []string
		// The conditions as "status reason message".
		ready, open, stalled string
	}{
		"room": {
			v1alpha1.NodeDisruptionBudgetStatus{Matched: 5, Unavailable: 1}, "", 2, nil,
			"True Governs 1 of 5 nodes unavailable; 1 node may be taken", "True Open 1 node may be taken", "False Governs ",
		},
		"much room": {
			v1alpha1.NodeDisruptionBudgetStatus{Matched: 1}, "", 3, nil,
			"True Governs 0 of 1 node unavailable; 1 node may be taken", "True Open 1 node may be taken", "False Governs ",
		},
		"nothing selected": {
			v1alpha1.NodeDisruptionBudgetStatus{}, "", 3, nil,
			"True Governs 0 of 0 nodes unavailable; it selects no node", "True Open it selects no node", "False Governs ",
		},
		"no limit": {
			v1alpha1.NodeDisruptionBudgetStatus{Matched: 5}, "", -1, []string{"a note", "another"},
			"True Governs 0 of 5 nodes unavailable; nodes may be taken, there is no limit by number; a note; another",
			"True Open nodes may be taken, there is no limit by number; a note; another", "False Governs ",
		},
		"full": {
			v1alpha1.NodeDisruptionBudgetStatus{Matched: 5, Unavailable: 2}, "", 2, nil,
			"True Governs 2 of 5 nodes unavailable; no node may be taken: at most 2 may be unavailable",
			"False BudgetExhausted no node may be taken: at most 2 may be unavailable", "False Governs ",
		},
		"none": {
			v1alpha1.NodeDisruptionBudgetStatus{Matched: 5}, "", 0, nil,
			"True Governs 0 of 5 nodes unavailable; no node may be taken: at most 0 may be unavailable",
			"False BudgetExhausted no node may be taken: at most 0 may be unavailable", "False Governs ",
		},
		"blocked": {
			blocked(v1alpha1.ReasonAlertsActive, v1alpha1.ReasonPodsBlock), "", 3, nil,
			"True Governs 1 of 5 nodes unavailable; no node may be taken: by AlertsActive; by PodsBlock",
			"False AlertsActive no node may be taken: by AlertsActive; by PodsBlock", "False Governs ",
		},
		"invalid": {
			blocked(v1alpha1.ReasonBudgetInvalid), "spec.windows[0]: no", 3, nil,
			"False BudgetInvalid spec.windows[0]: no", "False BudgetInvalid no node may be taken: by BudgetInvalid", "True BudgetInvalid spec.windows[0]: no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: tc.status}
			SetBudgetConditions(b, tc.problem, tc.limit, tc.notes, morning)
			SetBudgetConditions(b, tc.problem, tc.limit, tc.notes, morning.Add(time.Hour))
			for kind, want := range map[string]string{
				v1alpha1.ConditionReady: tc.ready, v1alpha1.ConditionOpen: tc.open, v1alpha1.ConditionStalled: tc.stalled,
			} {
				c := meta.FindStatusCondition(b.Status.Conditions, kind)
				if got := string(c.Status) + " " + c.Reason + " " + c.Message; got != want {
					t.Errorf("%s is %q, want %q", kind, got, want)
				}
				if c.ObservedGeneration != 3 || !c.LastTransitionTime.Time.Equal(morning) {
					t.Errorf("%s is of generation %d, since %s", kind, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReconciling) || len(b.Status.Conditions) != 6 {
				t.Errorf("got %v", b.Status.Conditions)
			}
		})
	}
}

// A budget is in use while a rollout takes a node from it, not when a node is down by itself.
func TestBudgetInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		by     string
		paused bool
		want   string
	}{
		"claimed": {"NodeRollout/os", false, "Progressing True InUse, Paused False NotPaused"},
		"down":    {"", true, "Progressing False Unused, Paused True Paused"},
	} {
		b := &v1alpha1.NodeDisruptionBudget{Spec: v1alpha1.NodeDisruptionBudgetSpec{Paused: tc.paused}}
		b.Status.Holders = []v1alpha1.BudgetHolder{{Node: "a", By: tc.by}}
		SetBudgetConditions(b, "", 1, nil, time.Time{})
		var got []string
		for _, kind := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionPaused} {
			c := meta.FindStatusCondition(b.Status.Conditions, kind)
			got = append(got, kind+" "+string(c.Status)+" "+c.Reason)
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: %s", name, text)
		}
	}
}
