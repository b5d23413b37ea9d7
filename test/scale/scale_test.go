// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
)

// A node that is claimed beyond a limit, or twice, is a problem.
func TestNodeTally(t *testing.T) {
	node := func(name string, claimed bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if claimed {
			n.Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"plan/system-upgrade/a"}]`
			n.Spec.Unschedulable = true
		}
		return n
	}
	broken := node("broken", false)
	broken.Status.Conditions = nil
	a, b := node("a", true), node("b", true)
	for _, test := range []struct {
		name        string
		concurrency int
		changes     []*corev1.Node
		good        bool
	}{
		{"one after the other", 1, []*corev1.Node{a, node("a", false), b, node("b", false)}, true},
		{"two at once", 1, []*corev1.Node{a, b, node("a", false), node("b", false)}, false},
		{"beside a node that is not ready", 3, []*corev1.Node{broken, a, node("a", false), b, node("b", false)}, true},
		{"beyond the limit", 3, []*corev1.Node{broken, a, b, node("a", false), node("b", false)}, false},
		{"twice", 1, []*corev1.Node{a, node("a", false), a, node("a", false), b, node("b", false)}, false},
		{"never", 1, []*corev1.Node{a, node("a", false), node("b", false)}, false},
	} {
		tally := newNodeTally(test.concurrency, 2, newTurnTimes(stepReleased))
		for _, n := range test.changes {
			tally.see(watch.Modified, n)
		}
		if err := tally.verify([]string{"a", "b"}, nodeState{claims: 1, cordons: 1}); (len(err) == 0) != test.good {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
}

func TestPodTally(t *testing.T) {
	pod := func(name, node, image string, ready corev1.ConditionStatus) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: image}}},
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	tally := newPodTally()
	tally.see(watch.Added, pod("a1", "a", "v1", corev1.ConditionTrue))
	tally.see(watch.Added, pod("b1", "b", "v1", corev1.ConditionTrue))
	tally.expect("v2", []string{"a", "b"})
	for i, step := range []struct {
		kind watch.EventType
		pod  *corev1.Pod
		want string
	}{
		{watch.Deleted, pod("a1", "a", "v1", corev1.ConditionTrue), "0 done, 1 available, 1 lost, 0 creating"},
		{watch.Added, pod("a2", "a", "v2", corev1.ConditionFalse), "0 done, 1 available, 1 lost, 1 creating"},
		{watch.Modified, pod("a2", "a", "v2", corev1.ConditionTrue), "1 done, 2 available, 1 lost, 1 creating"},
		{watch.Deleted, pod("b1", "b", "v1", corev1.ConditionTrue), "1 done, 1 available, 1 lost, 1 creating"},
		{watch.Added, pod("b2", "b", "v2", corev1.ConditionTrue), "2 done, 2 available, 1 lost, 1 creating"},
	} {
		tally.see(step.kind, step.pod)
		c := tally.counts()
		if got := fmt.Sprintf("%d done, %d available, %d lost, %d creating", c.done, c.available, c.mostLost, c.mostCreating); got != step.want {
			t.Errorf("step %d: got %s, want %s", i+1, got, step.want)
		}
	}
	if len(tally.problems) > 0 || tally.counts().since.IsZero() {
		t.Errorf("got %v, done since %s", tally.problems, tally.counts().since)
	}
	tally.see(watch.Added, pod("a3", "a", "v2", corev1.ConditionTrue))
	if len(tally.problems) != 1 {
		t.Errorf("a node with two pods: got %v", tally.problems)
	}
}

func TestMachinesEnd(t *testing.T) {
	add := func(names string) clouds.Call { return clouds.Call{Name: "Add", Detail: "pool " + names} }
	remove := func(names string) clouds.Call { return clouds.Call{Name: "Delete", Detail: "pool " + names} }
	for _, test := range []struct {
		name    string
		journal []clouds.Call
		zones   map[string]int
		good    bool
	}{
		{"one by one", []clouds.Call{add("3"), remove("1"), add("4"), remove("2")}, map[string]int{"a": 1, "b": 1}, true},
		{"two at once", []clouds.Call{add("3 4"), remove("1 2")}, map[string]int{"a": 1, "b": 1}, false},
		{"deleted before", []clouds.Call{remove("1"), add("3"), add("4"), remove("2")}, map[string]int{"a": 1, "b": 1}, false},
		{"one more", []clouds.Call{add("3"), remove("1"), add("4"), remove("2"), add("5"), remove("4")}, map[string]int{"a": 1, "b": 1}, false},
		{"one zone", []clouds.Call{add("3"), remove("1"), add("4"), remove("2")}, map[string]int{"a": 2, "b": 0}, false},
	} {
		end := machinesEnd{size: 2, surge: 1, unevenness: 1, zones: test.zones}
		end.follow("pool", test.journal)
		if problems := end.verify(); (len(problems) == 0) != test.good {
			t.Errorf("%s: got %v", test.name, problems)
		}
	}
}
