// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

func TestDaemonSetEvents(t *testing.T) {
	d := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "d"},
		Status:     edsv1.ExtendedDaemonSetStatus{ActiveReplicaSet: "d-1"},
	}
	s := &edsv1.ExtendedDaemonsetSetting{}
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("n%d", i))
	}
	for name, tc := range map[string]struct {
		got                   Event
		object                runtime.Object
		kind, reason, message string
	}{
		"created":        {ReplicaSetCreated(d, "d-1"), d, "Normal", "Create ExtendedDaemonSetReplicaSet", "a/d-1"},
		"deleted":        {ReplicaSetDeleted(d, "d-1"), d, "Normal", "Delete ExtendedDaemonSetReplicaSet", "a/d-1"},
		"activated":      {ReplicaSetActivated(d, "d-1"), d, "Normal", "Activated", "All nodes are brought to d-1"},
		"started":        {CanaryStarted(d, "d-2", many[:2]), d, "Normal", "CanaryStarted", "Canary d-2 runs on n0,n1"},
		"started, many":  {CanaryStarted(d, "d-2", many), d, "Normal", "CanaryStarted", "Canary d-2 runs on n0,n1,n2,n3,n4,n5,n6,n7,n8,n9 and 2 more"},
		"started, none":  {CanaryStarted(d, "d-2", nil), d, "Normal", "CanaryStarted", "Canary d-2 has no node to run on"},
		"promoted":       {CanaryPromoted(d, "d-2"), d, "Normal", "CanaryPromoted", "Canary d-2 has passed"},
		"validated":      {CanaryValidated(d, "d-2"), d, "Normal", "CanaryValidated", "Canary d-2 was validated"},
		"paused":         {CanaryPaused(d, "d-2", "OOMKilled", "on n1"), d, "Warning", "CanaryPaused", "Canary d-2 is paused: OOMKilled: on n1"},
		"paused, no why": {CanaryPaused(d, "d-2", "", ""), d, "Warning", "CanaryPaused", "Canary d-2 is paused"},
		"unpaused":       {CanaryUnpaused(d, "d-2"), d, "Normal", "CanaryUnpaused", "Canary d-2 goes on"},
		"failed":         {CanaryFailed(d, "d-2", "Unknown", ""), d, "Warning", "CanaryFailed", "Canary d-2 has failed: Unknown"},
		"reset":          {CanaryReset(d, "d-2"), d, "Normal", "CanaryReset", "Canary d-2 is tried again"},
		"pod":            {PodCreateFailed(d, "no"), d, "Warning", "FailedCreate", "Pods can't be created: no"},
		"complete":       {RolloutComplete(d), d, "Normal", "Complete", "All nodes have d-1"},
		"stalled":        {RolloutStalled(d, "no"), d, "Warning", "Stalled", "No more pods are replaced: no"},
		"setting":        {SettingInvalid(s, "no"), s, "Warning", "Invalid", "The setting has no effect: no"},
		"template":       {PodTemplateCreated(d), d, "Normal", "Create PodTemplate", "a/d"},
		"template again": {PodTemplateUpdated(d), d, "Normal", "Update PodTemplate", "a/d"},
		"template, foreign": {
			PodTemplateForeign(d), d, "Warning", "PodTemplateForeign",
			"PodTemplate a/d belongs to another owner and is not changed: the cluster autoscaler does not see these pods",
		},
		"template, refused": {
			PodTemplateInvalid(d, errors.New("no")), d, "Warning", "PodTemplateInvalid", "The cluster autoscaler does not see these pods: no",
		},
	} {
		if diff := cmp.Diff(Event{tc.object, tc.kind, tc.reason, tc.message}, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
