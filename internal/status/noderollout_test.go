// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func TestSetNodeRolloutProgress(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 500, time.UTC)
	for name, tc := range map[string]struct {
		progress Progress
		want     []string // type status reason: message
	}{
		"complete": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Updated: 2}},
			[]string{
				"Ready True Complete: 2 of 2 nodes updated",
				"Reconciling False Complete: ",
				"Stalled False Complete: ", "Progressing False Complete: ", "Paused False NotPaused: ",
			},
		},
		"no host": {
			Progress{Ready: true, Note: "3 selected nodes have no label"},
			[]string{
				"Ready True Complete: 0 of 0 nodes updated; 3 selected nodes have no label",
				"Reconciling False Complete: ",
				"Stalled False Complete: ", "Progressing False Complete: ", "Paused False NotPaused: ",
			},
		},
		"updating": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 3, Updated: 1, Updating: 1, Waiting: 1}, Wait: v1alpha1.ReasonMaxConcurrent, WaitMessage: "1 of 1 slots taken (a)"},
			[]string{
				"Ready False Updating: 1 of 3 nodes updated, 1 updating, 1 waiting",
				"Reconciling True Updating: ",
				"Stalled False Updating: ", "Progressing True Updating: ", "Paused False NotPaused: ",
			},
		},
		"updating beside a failure": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Updating: 1}, Failure: "it broke"},
			[]string{
				"Ready False Failed: 0 of 2 nodes updated, 1 updating, 1 failed: it broke", "Reconciling True Failed: ", "Stalled False Failed: ",
				"Progressing True Updating: ", "Paused False NotPaused: ",
			},
		},
		"waiting": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1}, Wait: v1alpha1.ReasonHostSilent, WaitMessage: "its agent is silent"},
			[]string{
				"Ready False HostSilent: 0 of 1 nodes updated, 1 waiting: its agent is silent",
				"Reconciling True HostSilent: ",
				"Stalled False HostSilent: ", "Progressing False HostSilent: ", "Paused False NotPaused: ",
			},
		},
		"about to start": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1}},
			[]string{
				"Ready False Waiting: 0 of 1 nodes updated, 1 waiting",
				"Reconciling True Waiting: ",
				"Stalled False Waiting: ", "Progressing False Waiting: ", "Paused False NotPaused: ",
			},
		},
		"failed": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Waiting: 1}, Failure: "it broke", Stuck: true},
			[]string{
				"Ready False Failed: 0 of 2 nodes updated, 1 failed, 1 waiting: it broke",
				"Reconciling False Failed: ",
				"Stalled True Failed: 0 of 2 nodes updated, 1 failed, 1 waiting: it broke", "Progressing False Failed: ", "Paused False NotPaused: ",
			},
		},
		"invalid": {
			Progress{Problem: "spec.nodeSelector is invalid", Note: "x"},
			[]string{
				"Ready False Invalid: spec.nodeSelector is invalid",
				"Reconciling False Invalid: ",
				"Stalled True Invalid: spec.nodeSelector is invalid", "Progressing False Invalid: ", "Paused False NotPaused: ",
			},
		},
	} {
		r := &v1alpha1.NodeRollout{}
		r.Generation = 4
		SetNodeRolloutProgress(r, tc.progress, now)
		var got []string
		for _, c := range r.Status.Conditions {
			got = append(got, c.Type+" "+string(c.Status)+" "+c.Reason+": "+c.Message)
			if c.ObservedGeneration != 4 || c.LastTransitionTime.Nanosecond() != 0 {
				t.Errorf("%s: %+v", name, c)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPaused(t *testing.T) {
	r := &v1alpha1.NodeRollout{Spec: v1alpha1.NodeRolloutSpec{Strategy: &v1alpha1.Strategy{Paused: true}}}
	SetNodeRolloutProgress(r, Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1}, Wait: v1alpha1.ReasonPaused}, time.Time{})
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionPaused); c.Status != metav1.ConditionTrue || c.Reason != "Paused" {
		t.Errorf("%+v", c)
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionProgressing); c.Status != metav1.ConditionFalse || c.Reason != "Paused" {
		t.Errorf("%+v", c)
	}
}

// While it is not known what must be done, nothing is complete, and it is said why.
func TestBlind(t *testing.T) {
	for name, tc := range map[string]struct {
		progress Progress
		want     string
	}{
		"nothing known": {Progress{Ready: true, Unknown: v1alpha1.ReasonCloudDenied, UnknownMessage: "no right", Note: "x"}, "0 of 0 nodes updated; no right; x"},
		"some known": {
			Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Updated: 2}, Unknown: v1alpha1.ReasonCloudDenied, UnknownMessage: "no right"},
			"2 of 2 nodes updated; no right",
		},
	} {
		r := &v1alpha1.NodeRollout{}
		SetNodeRolloutProgress(r, tc.progress, time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady)
		if c.Status != metav1.ConditionFalse || c.Reason != "CloudDenied" || c.Message != tc.want {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
