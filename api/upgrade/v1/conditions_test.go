// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	past  = "2026-11-20T11:00:00Z"
	stamp = "2026-11-20T12:00:00Z"
)

var now = time.Date(2026, 11, 20, 13, 0, 0, 999, time.FixedZone("CET", 3600))

// ready is a condition as it was stored an hour ago.
func ready(change ...func(*Condition)) Condition {
	c := Condition{
		Type: ConditionReady, Status: metav1.ConditionFalse, Reason: "SyncJob", Message: "1 of 2", ObservedGeneration: 1,
		LastUpdateTime: past, LastTransitionTime: past,
	}
	for _, how := range change {
		how(&c)
	}
	return c
}

func TestSetCondition(t *testing.T) {
	complete := Condition{Type: ConditionComplete, Status: metav1.ConditionTrue, LastUpdateTime: past, LastTransitionTime: past}
	for name, tc := range map[string]struct {
		before []Condition
		set    Condition
		want   []Condition
	}{
		"the first": {
			nil,
			Condition{Type: ConditionReady, Status: metav1.ConditionUnknown},
			[]Condition{{Type: ConditionReady, Status: metav1.ConditionUnknown, LastUpdateTime: stamp, LastTransitionTime: stamp}},
		},
		"another": {
			[]Condition{complete},
			Condition{Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Complete"},
			[]Condition{complete, {Type: ConditionReady, Status: metav1.ConditionTrue, Reason: "Complete", LastUpdateTime: stamp, LastTransitionTime: stamp}},
		},
		"the same": {
			[]Condition{ready(), complete},
			ready(),
			[]Condition{ready(), complete},
		},
		"the same, of a later generation": {
			[]Condition{ready()},
			ready(func(c *Condition) { c.ObservedGeneration = 2 }),
			[]Condition{ready(func(c *Condition) { c.ObservedGeneration = 2 })},
		},
		"another message": {
			[]Condition{ready()},
			ready(func(c *Condition) { c.Message = "2 of 2" }),
			[]Condition{ready(func(c *Condition) { c.Message, c.LastUpdateTime = "2 of 2", stamp })},
		},
		"another reason": {
			[]Condition{ready()},
			ready(func(c *Condition) { c.Reason = "Waiting" }),
			[]Condition{ready(func(c *Condition) { c.Reason, c.LastUpdateTime = "Waiting", stamp })},
		},
		"another status": {
			[]Condition{complete, ready()},
			ready(func(c *Condition) { c.Status = metav1.ConditionTrue }),
			[]Condition{complete, ready(func(c *Condition) {
				c.Status, c.LastUpdateTime, c.LastTransitionTime = metav1.ConditionTrue, stamp, stamp
			})},
		},
		// system-upgrade-controller writes no transition times.
		"the same, without times": {
			[]Condition{ready(func(c *Condition) { c.LastUpdateTime, c.LastTransitionTime = "", "" })},
			ready(),
			[]Condition{ready(func(c *Condition) { c.LastUpdateTime, c.LastTransitionTime = stamp, "" })},
		},
		"times that are given do not count": {
			[]Condition{ready()},
			ready(func(c *Condition) { c.LastUpdateTime, c.LastTransitionTime = "never", "never" }),
			[]Condition{ready()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := PlanStatus{Conditions: tc.before}
			s.SetCondition(tc.set, now)
			if diff := cmp.Diff(tc.want, s.Conditions); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCondition(t *testing.T) {
	s := PlanStatus{Conditions: []Condition{{Type: ConditionComplete}, ready()}}
	if got := s.Condition(ConditionReady); got != &s.Conditions[1] {
		t.Errorf("got %+v", got)
	}
	if got := s.Condition(ConditionStalled); got != nil {
		t.Errorf("got %+v", got)
	}
}

// The keys and words that system-upgrade-controller's users rely on.
func TestKeys(t *testing.T) {
	for got, want := range map[string]string{
		LabelController:       "upgrade.cattle.io/controller",
		LabelExclusive:        "upgrade.cattle.io/exclusive",
		LabelNode:             "upgrade.cattle.io/node",
		LabelPlan:             "upgrade.cattle.io/plan",
		LabelVersion:          "upgrade.cattle.io/version",
		AnnotationTTL:         "upgrade.cattle.io/ttl-seconds-after-finished",
		AnnotationDigest:      "upgrade.cattle.io/digest",
		LabelDisabled:         "disabled",
		LabelPlanHash("k3s"):  "plan.upgrade.cattle.io/k3s",
		GroupVersion.String(): "upgrade.cattle.io/v1",

		ConditionValidated:      "Validated",
		ConditionLatestResolved: "LatestResolved",
		ConditionComplete:       "Complete",
		ReasonError:             "Error",
		ReasonPlanIsValid:       "PlanIsValid",
		ReasonVersion:           "Version",
		ReasonChannel:           "Channel",
		ReasonNotReady:          "NotReady",
		ReasonResolved:          "Resolved",
		ReasonSyncJob:           "SyncJob",
		ReasonWaiting:           "Waiting",
		ReasonJobFailed:         "JobFailed",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
