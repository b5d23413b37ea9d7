// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

type revisions = []edsv1.ExtendedDaemonSetReplicaSet

// templated is an ExtendedDaemonSet with the template of this image.
func templated(image, active string) *edsv1.ExtendedDaemonSet {
	eds := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "foo"}}
	eds.Spec.Template = template(image)
	eds.Spec.Template.Name = "ignored"
	eds.Status.ActiveReplicaSet = active
	return eds
}

func revision(name string, conditions ...edsv1.Condition) edsv1.ExtendedDaemonSetReplicaSet {
	ers := edsv1.ExtendedDaemonSetReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "foo-" + name}}
	ers.Spec.Template = template(name)
	ers.Status.Conditions = conditions
	return ers
}

func was(kind string, is metav1.ConditionStatus, reason string, ago time.Duration) edsv1.Condition {
	return edsv1.Condition{Type: kind, Status: is, Reason: reason, LastTransitionTime: metav1.Time{Time: now.Add(-ago)}}
}

func active(is metav1.ConditionStatus, ago time.Duration) edsv1.Condition {
	return was(edsv1.ConditionActive, is, "", ago)
}

var (
	failure = was(edsv1.ConditionCanaryFailed, metav1.ConditionTrue, edsv1.ReasonManuallyFailed, time.Hour)
	reset   = was(edsv1.ConditionCanaryFailed, metav1.ConditionFalse, edsv1.ReasonReset, time.Hour)

	wasCanary = was(edsv1.ConditionCanary, metav1.ConditionFalse, "", time.Hour)
)

func TestEarlier(t *testing.T) {
	const none = "the ExtendedDaemonset has no earlier revision to go back to: see kubectl eds history"
	deleted := revision("a")
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	gone := templated("b", "foo-b")
	gone.DeletionTimestamp = &metav1.Time{Time: now}
	rolled := revisions{
		revision("a", active(metav1.ConditionFalse, 3*time.Hour)),
		revision("b", active(metav1.ConditionFalse, time.Hour)),
		revision("c", active(metav1.ConditionTrue, time.Hour)),
	}
	// From c back to a: b has not been active since longer.
	returned := revisions{
		revision("a", active(metav1.ConditionTrue, time.Minute)),
		revision("b", active(metav1.ConditionFalse, time.Hour)),
		revision("c", active(metav1.ConditionFalse, time.Minute)),
	}
	failed := revisions{
		revision("a", active(metav1.ConditionFalse, 3*time.Hour)), revision("b", active(metav1.ConditionTrue, 3*time.Hour)), revision("c", failure),
	}
	for name, tc := range map[string]struct {
		eds       *edsv1.ExtendedDaemonSet
		revisions revisions
		to        string
		want, err string
	}{
		"the one before":                 {eds: templated("c", "foo-c"), revisions: rolled, want: "foo-b"},
		"the one that was active before": {eds: templated("a", "foo-a"), revisions: returned, want: "foo-c"},
		"while a canary goes on":         {eds: templated("c", "foo-a"), revisions: revisions{revision("a"), revision("b"), revision("c")}, want: "foo-a"},
		"after a canary has failed":      {eds: templated("c", "foo-b"), revisions: failed, want: "foo-b"},
		"past a canary that has failed":  {eds: templated("b", "foo-b"), revisions: failed, want: "foo-a"},
		"before the operator has seen it": {
			eds: templated("new", "foo-c"), revisions: rolled, want: "foo-c",
		},
		"never active":      {eds: templated("a", "foo-a"), revisions: revisions{revision("a", active(metav1.ConditionTrue, time.Hour)), revision("b", wasCanary)}, err: none},
		"none before":       {eds: templated("a", "foo-a"), revisions: revisions{revision("a")}, err: none},
		"none at all":       {eds: templated("a", ""), err: none},
		"not one that goes": {eds: templated("b", "foo-b"), revisions: revisions{deleted, revision("b")}, err: none},
		"by name":           {eds: templated("c", "foo-c"), revisions: rolled, to: "foo-a", want: "foo-a"},
		"by kind and name":  {eds: templated("c", "foo-c"), revisions: rolled, to: "ers/foo-a", want: "foo-a"},
		"by number":         {eds: templated("c", "foo-c"), revisions: rolled, to: "1", want: "foo-a"},
		"of another name":   {eds: templated("c", "foo-c"), revisions: rolled, to: "bar-a", err: "the ExtendedDaemonset has no revision 'bar-a': see kubectl eds history"},
		"of another kind": {
			eds: templated("c", "foo-c"), revisions: rolled, to: "eds/foo-a",
			err: `"eds/foo-a" names no ExtendedDaemonSetReplicaSet: the word before the slash must be extendeddaemonsetreplicaset`,
		},
		"number 0": {
			eds: templated("c", "foo-c"), revisions: rolled, to: "0",
			err: "the ExtendedDaemonset has no revision '0': see kubectl eds history",
		},
		"number 4": {
			eds: templated("c", "foo-c"), revisions: rolled, to: "4",
			err: "the ExtendedDaemonset has no revision '4': see kubectl eds history",
		},
		"to what it has": {eds: templated("c", "foo-c"), revisions: rolled, to: "3", err: "the ExtendedDaemonset has the template of 'foo-c' already"},
		"to what has failed": {
			eds: templated("b", "foo-b"), revisions: failed, to: "foo-c", err: "the canary of 'foo-c' has failed (Manually failed); cannot roll back to it",
		},
		"to what goes": {
			eds: templated("b", "foo-b"), revisions: revisions{deleted, revision("b")}, to: "foo-a",
			err: "'foo-a' is being deleted; cannot roll back to it",
		},
		"of one that goes":  {eds: gone, revisions: rolled, err: "the ExtendedDaemonset is being deleted; cannot roll back"},
		"to what was reset": {eds: templated("b", "foo-b"), revisions: revisions{revision("b"), revision("c", reset)}, to: "2", want: "foo-c"},
		"to the active one": {eds: templated("c", "foo-b"), revisions: failed, to: "foo-b", want: "foo-b"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := chooseRevision(tc.eds, tc.revisions, tc.to)
			if err == nil && tc.err != "" || err != nil && err.Error() != tc.err {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			if err == nil && r.Name != tc.want {
				t.Errorf("%s, want %s", r.Name, tc.want)
			}
		})
	}
}

func TestResettable(t *testing.T) {
	const none = "no canary deployment of the ExtendedDaemonset's template has failed; cannot reset"
	for name, tc := range map[string]struct {
		eds       *edsv1.ExtendedDaemonSet
		revisions revisions
		want, err string
	}{
		"that of the template":                     {eds: templated("c", "foo-a"), revisions: revisions{revision("a"), revision("b", failure), revision("c", failure)}, want: "foo-c"},
		"nothing has failed":                       {eds: templated("b", "foo-a"), revisions: revisions{revision("a"), revision("b")}, err: none},
		"it was reset":                             {eds: templated("b", "foo-a"), revisions: revisions{revision("a"), revision("b", reset)}, err: none},
		"the template is another":                  {eds: templated("a", "foo-a"), revisions: revisions{revision("a"), revision("b", failure)}, err: none},
		"there is no revision of the template yet": {eds: templated("c", "foo-a"), revisions: revisions{revision("a"), revision("b", failure)}, err: none},
		"it was validated all the same":            {eds: templated("b", "foo-b"), revisions: revisions{revision("a"), revision("b", failure)}, err: none},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := revisionToReset(tc.eds, tc.revisions)
			if err == nil && tc.err != "" || err != nil && err.Error() != tc.err {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
