// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestFilter(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "ds")
	ds := types.NamespacedName{Namespace: "web", Name: "ds"}
	everything := Options{Force: true, IgnoreDaemonSets: true, DeleteEmptyDirData: true}
	selector, err := labels.Parse("!upgrade.cattle.io/controller")
	if err != nil {
		t.Fatal(err)
	}
	evict := Verdict{}

	for name, tc := range map[string]struct {
		pod   corev1.Pod
		o     Options
		facts Facts
		want  Verdict
	}{
		"a ReplicaSet's pod goes":                {pod: pod("a"), want: evict},
		"a StatefulSet's pod goes":               {pod: pod("a", of("apps/v1", "StatefulSet", "db")), want: evict},
		"a Job's pod goes":                       {pod: pod("a", of("batch/v1", "Job", "once")), want: evict},
		"a custom controller's pod goes":         {pod: pod("a", of("example.org/v1", "Thing", "x")), want: evict},
		"another kind of DaemonSet is no daemon": {pod: pod("a", of("example.org/v1", "DaemonSet", "ds")), want: evict},

		"daemon pod blocks": {
			pod:  pod("a", ofDaemonSet),
			want: Verdict{State: Refused, Reason: ReasonDaemonSet, Message: "belongs to DaemonSet ds"},
		},
		"daemon pod blocks even with force": {
			pod: pod("a", ofDaemonSet), o: Options{Force: true, DeleteEmptyDirData: true},
			want: Verdict{State: Refused, Reason: ReasonDaemonSet, Message: "belongs to DaemonSet ds"},
		},
		"daemon pod is left, with its emptyDir": {
			pod: pod("a", ofDaemonSet, withEmptyDir), o: Options{IgnoreDaemonSets: true},
			want: Verdict{State: Skipped, Reason: ReasonDaemonSet, Message: "belongs to DaemonSet ds"},
		},
		"finished daemon pod goes": {pod: pod("a", ofDaemonSet, inPhase(corev1.PodFailed)), want: evict},
		"orphaned daemon pod blocks": {
			pod: pod("a", ofDaemonSet), o: Options{IgnoreDaemonSets: true},
			facts: Facts{DaemonSets: map[types.NamespacedName]error{ds: notFound}},
			want: Verdict{
				State: Refused, Reason: ReasonDaemonSetUnread,
				Message: `belongs to DaemonSet ds, which can't be read: daemonsets.apps "ds" not found`,
			},
		},
		"orphaned daemon pod goes with force": {
			pod: pod("a", ofDaemonSet), o: Options{Force: true},
			facts: Facts{DaemonSets: map[types.NamespacedName]error{ds: notFound}},
			want:  evict,
		},
		"daemon pod whose DaemonSet can't be read blocks even with force": {
			pod: pod("a", ofDaemonSet), o: everything,
			facts: Facts{DaemonSets: map[types.NamespacedName]error{ds: errors.New("forbidden")}},
			want: Verdict{
				State: Refused, Reason: ReasonDaemonSetUnread,
				Message: "belongs to DaemonSet ds, which can't be read: forbidden",
			},
		},

		"mirror pod is left": {
			pod:  pod("a", static, withEmptyDir),
			want: Verdict{State: Skipped, Reason: ReasonMirrorPod, Message: "mirrors a static pod"},
		},
		"finished mirror pod is left": {
			pod: pod("a", static, inPhase(corev1.PodSucceeded)), o: everything,
			want: Verdict{State: Skipped, Reason: ReasonMirrorPod, Message: "mirrors a static pod"},
		},

		"unowned pod blocks": {
			pod:  pod("a", unowned),
			want: Verdict{State: Refused, Reason: ReasonUnmanaged, Message: "has no controller"},
		},
		"terminating pod is waited for whatever it has": {pod: pod("a", unowned, withEmptyDir, terminating(20*time.Second)), want: evict},
		"unowned pod goes with force": {
			pod: pod("a", unowned), o: Options{Force: true},
			want: evict,
		},
		"owner that is no controller does not count": {
			pod:  pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }),
			want: Verdict{State: Refused, Reason: ReasonUnmanaged, Message: "has no controller"},
		},

		"local data blocks": {
			pod: pod("a", withEmptyDir), o: Options{Force: true},
			want: Verdict{State: Refused, Reason: ReasonLocalStorage, Message: "has local data in emptyDir volume scratch"},
		},
		"local data goes with leave": {
			pod: pod("a", withEmptyDir), o: Options{DeleteEmptyDirData: true},
			want: evict,
		},
		"local data of an unowned pod goes with both options": {
			pod: pod("a", withEmptyDir, unowned), o: everything,
			want: evict,
		},
		"one leave of two is not enough": {
			pod: pod("a", withEmptyDir, unowned), o: Options{DeleteEmptyDirData: true},
			want: Verdict{State: Refused, Reason: ReasonUnmanaged, Message: "has no controller"},
		},

		"finished pod goes whatever it has": {pod: pod("a", unowned, withEmptyDir, inPhase(corev1.PodSucceeded)), want: evict},

		"pod that is not selected is left": {
			pod: pod("a", unowned, labelled("upgrade.cattle.io/controller", "x")), o: Options{PodSelector: selector},
			want: Verdict{State: Skipped, Reason: ReasonNotSelected, Message: "is not selected"},
		},
		"pod that is selected goes": {pod: pod("a"), o: Options{PodSelector: selector}, want: evict},

		"pod in its grace period is waited for": {
			pod: pod("a", terminating(20*time.Second)), o: Options{SkipWaitForDelete: time.Minute}, want: evict,
		},
		"pod that is not overdue enough is waited for": {
			pod: pod("a", terminating(-time.Minute)), o: Options{SkipWaitForDelete: time.Minute}, want: evict,
		},
		"overdue pod is left": {
			pod: pod("a", unowned, terminating(-61*time.Second)), o: Options{SkipWaitForDelete: time.Minute},
			want: Verdict{State: Skipped, Reason: ReasonDeletionOverdue, Message: "should have ended more than 1m0s ago"},
		},
		"overdue pod that is not selected is not spoken of": {
			pod:  pod("a", terminating(-time.Hour), labelled("upgrade.cattle.io/controller", "x")),
			o:    Options{PodSelector: selector, SkipWaitForDelete: time.Minute},
			want: Verdict{State: Skipped, Reason: ReasonNotSelected, Message: "is not selected"},
		},
		"overdue pod is waited for without leave": {pod: pod("a", terminating(-time.Hour)), want: evict},

		"pod from before the drain goes": {
			pod:   pod("a", made(-time.Second), tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})),
			facts: Facts{Since: start}, want: evict,
		},
		"pod that slipped past the cordon goes": {
			pod: pod("a", made(5*time.Second)), facts: Facts{Since: start}, want: evict,
		},
		"pod that tolerates everything and came back is left": {
			pod:   pod("a", made(0), tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})),
			facts: Facts{Since: start},
			want:  Verdict{State: Skipped, Reason: ReasonReturned, Message: "came after the drain began"},
		},
		"pod that tolerates the cordon and came back is left": {
			pod: pod("a", made(0), tolerating(corev1.Toleration{
				Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			})),
			facts: Facts{Since: start},
			want:  Verdict{State: Skipped, Reason: ReasonReturned, Message: "came after the drain began"},
		},
		"pod that tolerates something else and came late goes": {
			pod:   pod("a", made(0), tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists})),
			facts: Facts{Since: start}, want: evict,
		},
		"pod that goes round the scheduler is left in the end": {
			pod: pod("a", made(30*time.Second)), facts: Facts{Since: start},
			want: Verdict{State: Skipped, Reason: ReasonReturned, Message: "came after the drain began"},
		},
		"nothing comes late in a drain that begins now": {
			pod: pod("a", made(time.Hour), tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), want: evict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.Now = start
			got := Filter([]corev1.Pod{tc.pod}, tc.facts, tc.o)
			if len(got) != 1 {
				t.Fatalf("got %d verdicts", len(got))
			}
			tc.want.Pod = &tc.pod
			if diff := cmp.Diff(tc.want, got[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}
