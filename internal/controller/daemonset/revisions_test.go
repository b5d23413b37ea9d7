// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Of the revisions that are not needed those stay that were active last.
func TestPrune(t *testing.T) {
	until := func(d time.Duration) []edsv1.Condition {
		return []edsv1.Condition{{Type: edsv1.ConditionActive, Status: metav1.ConditionFalse, LastTransitionTime: ago(d)}}
	}
	// They are made one after the other, "a" first, and "new" is active.
	for name, tc := range map[string]struct {
		a, b, c []edsv1.Condition
		limit   int32
		want    []string
	}{
		"the youngest":                         {until(3 * time.Hour), until(2 * time.Hour), until(time.Minute), 1, []string{"foo-c", "foo-new"}},
		"one that was gone back to":            {until(time.Minute), until(2 * time.Hour), until(3 * time.Hour), 1, []string{"foo-a", "foo-new"}},
		"one that was never active by its age": {until(time.Minute), nil, until(time.Hour), 2, []string{"foo-a", "foo-c", "foo-new"}},
		"one that never was active goes first": {until(3 * time.Hour), nil, nil, 1, []string{"foo-a", "foo-new"}},
		"all that there is room for":           {until(time.Minute), nil, until(time.Hour), 3, []string{"foo-a", "foo-b", "foo-c", "foo-new"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1).has("new", nil, 0)
			w.sets = w.sets[1:]
			for i, conditions := range [][]edsv1.Condition{tc.a, tc.b, tc.c} {
				rs := w.sets[0].DeepCopy()
				rs.Name = "foo-" + string(rune('a'+i))
				rs.UID, rs.Spec.TemplateGeneration, rs.CreationTimestamp = "", rs.Name, ago(9*time.Hour-time.Duration(i)*time.Hour)
				rs.Status.Conditions = conditions
				w.sets = slices.Insert(w.sets, i, rs)
			}
			w.eds.Spec.RevisionHistoryLimit = ptr.To(tc.limit)
			p := w.begin(t, w.serve(t))
			if err := p.deleteIdleRevisions(t.Context()); err != nil {
				t.Fatal(err)
			}
			var left edsv1.ExtendedDaemonSetReplicaSetList
			if err := p.client.List(t.Context(), &left); err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range left.Items {
				got = append(got, left.Items[i].Name)
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("left are %v, want %v", got, tc.want)
			}
		})
	}
}

// The first status tells that nothing has been counted yet: counts of 0 alone look as if there were nothing to do.
func TestFirstStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		observed int64
		said     bool
	}{
		"of a new one":          {0, true},
		"of one that was there": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			p := w.begin(t, w.serve(t))
			p.EDS.Status = edsv1.ExtendedDaemonSetStatus{ObservedGeneration: tc.observed}
			if err := p.activate(t.Context(), w.sets[1]); err != nil {
				t.Fatal(err)
			}
			var eds edsv1.ExtendedDaemonSet
			if err := p.client.Get(t.Context(), p.key, &eds); err != nil {
				t.Fatal(err)
			}
			s := &eds.Status
			if s.ActiveReplicaSet != "foo-new" || s.State != edsv1.StateRunning || s.ObservedGeneration != tc.observed {
				t.Errorf("the status is %+v", s)
			}
			ready := edsv1.FindCondition(s.Conditions, edsv1.ConditionReady)
			if edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReconciling) != tc.said || (ready != nil) != tc.said || ready != nil && ready.Status != metav1.ConditionFalse {
				t.Errorf("conditions are %+v", s.Conditions)
			}
		})
	}
}
