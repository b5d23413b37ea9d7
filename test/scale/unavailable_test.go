// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
)

// nodeThat is ready, but for what changes say.
func nodeThat(t *testing.T, name, is string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	ready := corev1.ConditionTrue
	claim := v1alpha1.Claim{Rollout: "Plan/a/b", UID: "u"}
	switch is {
	case "available":
	case "not ready":
		ready = corev1.ConditionFalse
	case "cordoned":
		n.Spec.Unschedulable = true
	case "unreadable":
		n.Annotations[v1alpha1.AnnotationClaims] = "?"
	case "claimed", "parked":
		if is == "parked" {
			claim.Failed = &v1alpha1.ClaimFailure{Skipped: true}
		}
		text, err := v1alpha1.FormatClaims([]v1alpha1.Claim{claim})
		if err != nil {
			t.Fatal(err)
		}
		n.Annotations[v1alpha1.AnnotationClaims] = text
	default:
		t.Fatalf("what is %q?", is)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func TestTally(t *testing.T) {
	for _, test := range []struct {
		name               string
		concurrency, limit int
		// changes are "node is".
		changes []string
		most    int
		wrong   string
	}{
		{"nothing", 2, 2, nil, 0, ""},
		{"in turn", 1, 1, []string{"a claimed", "a available", "b claimed", "b available"}, 1, ""},
		{"as many as may be", 2, 2, []string{"a claimed", "b claimed", "a available", "c claimed"}, 2, ""},
		{"one more than may be", 2, 2, []string{"a claimed", "b claimed", "c claimed"}, 3, "node c was claimed, as number 3 of at most 2\n" +
			"node c was claimed when with it 3 nodes were unavailable (3 of them claimed), and 2 may be"},
		{"a claimed node changes", 1, 1, []string{"a claimed", "a claimed"}, 1, ""},
		{"a person's cordon counts", 2, 2, []string{"p cordoned", "a claimed", "b claimed"}, 3,
			"node b was claimed when with it 3 nodes were unavailable (2 of them claimed), and 2 may be"},
		{"one that is not ready counts", 2, 1, []string{"p not ready", "a claimed"}, 2,
			"node a was claimed when with it 2 nodes were unavailable (1 of them claimed), and 1 may be"},
		{"not where there is no limit", 2, 0, []string{"p not ready", "q cordoned", "a claimed", "b claimed"}, 4, ""},
		{"what breaks later is nobody's fault", 1, 1, []string{"a claimed", "p not ready", "q cordoned"}, 3, ""},
		{"a node that was unavailable before takes up no more", 2, 1, []string{"a not ready", "b cordoned", "a claimed"}, 2, ""},
		{"parked takes up nothing", 1, 1, []string{"a claimed", "a parked", "b claimed"}, 1, ""},
		{"unreadable takes up one", 1, 1, []string{"a unreadable", "b claimed"}, 2, "node b was claimed, as number 2 of at most 1\n" +
			"node b was claimed when with it 2 nodes were unavailable (2 of them claimed), and 1 may be"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tally := newTally(test.concurrency, test.limit)
			for _, change := range test.changes {
				name, is, _ := strings.Cut(change, " ")
				tally.see(watch.Modified, nodeThat(t, name, is))
			}
			if tally.most != test.most {
				t.Errorf("%d were unavailable at once, want %d", tally.most, test.most)
			}
			var texts []string
			for _, problem := range tally.problems {
				texts = append(texts, problem.Error())
			}
			if got := strings.Join(texts, "\n"); got != test.wrong {
				t.Errorf("got\n%s\nwant\n%s", got, test.wrong)
			}
		})
	}
}

func TestTallyVerify(t *testing.T) {
	tally := newTally(10, 10)
	for i := range 3 {
		name := fmt.Sprint(i)
		tally.see(watch.Modified, nodeThat(t, name, "claimed"))
		tally.see(watch.Deleted, nodeThat(t, name, "claimed"))
	}
	if problems := tally.verify(3); len(problems) > 0 || tally.most != 1 {
		t.Errorf("got %v, and %d at once", problems, tally.most)
	}
	if problems := tally.verify(4); len(problems) != 1 {
		t.Errorf("a node that was never claimed: %v", problems)
	}
}
