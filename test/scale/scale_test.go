// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		tally := newNodeTally(test.concurrency, 2, stepReleased)
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

// Whoever waits for a node looks again at each change there, and at no other.
func TestOnlooker(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	}
	l := newOnlooker()
	l.see(watch.Added, pod("p", ""))
	l.see(watch.Modified, pod("p", "a"))
	l.see(watch.Added, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node"}})
	looks, ended := make(chan int), make(chan error, 1)
	go func() {
		ended <- l.until(t.Context(), "a", func(objects []client.Object) (bool, error) {
			looks <- len(objects)
			return len(objects) == 1, nil
		})
	}()
	look := func(want int) {
		t.Helper()
		if got := <-looks; got != want {
			t.Errorf("got %d objects, want %d", got, want)
		}
	}
	look(2)
	l.see(watch.Added, pod("elsewhere", "b"))
	l.see(watch.Added, pod("q", "a"))
	look(3)
	l.see(watch.Deleted, pod("p", "a"))
	look(2)
	l.see(watch.Deleted, pod("q", "a"))
	look(1)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The bare loop evicts each pod once, also one that comes while it drains, and is done when all are gone.
func TestDrain(t *testing.T) {
	pods := []*corev1.Pod{}
	for _, name := range []string{"p", "q", "late"} {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "a"},
		})
	}
	cluster := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	evicted := make(chan string, 10)
	cluster.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		evicted <- action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		return true, nil, nil
	})
	l := newOnlooker()
	l.see(watch.Added, pods[0])
	l.see(watch.Added, pods[1])
	ended := make(chan error, 1)
	go func() { ended <- (&bench{raw: cluster}).drain(t.Context(), l, "a") }()
	names := []string{<-evicted, <-evicted}
	l.see(watch.Added, pods[2])
	names = append(names, <-evicted)
	for _, pod := range pods {
		l.see(watch.Deleted, pod)
	}
	if err := <-ended; err != nil || len(evicted) > 0 {
		t.Errorf("got %v, and %d more evictions", err, len(evicted))
	}
	if slices.Sort(names[:2]); !slices.Equal(names, []string{"p", "q", "late"}) {
		t.Errorf("%q were evicted", names)
	}
	if n, err := cluster.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}); err != nil || !n.Spec.Unschedulable {
		t.Errorf("the node is not cordoned, %v", err)
	}
}

func TestPeerKinds(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string
	}{
		{"--nodes 40", nil},
		{"--suc dir", []string{"plan"}},
		{"--eds dir --kruise dir", []string{"daemonset"}},
		{"--suc dir --kruise dir", []string{"daemonset", "plan"}},
	} {
		o, err := parse(strings.Fields(test.args))
		if got := o.peerKinds(); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, %v, want %q", test.args, got, err, test.want)
		}
	}
}

// The table of peers has a line for the bare loop, for Moult and for each peer, but none for a stage that is compared with nothing.
func TestPrintBeside(t *testing.T) {
	phases := func(seconds float64) []*phase {
		programs := []usage{{CPUSeconds: 0.2, All: 80}}
		return []*phase{
			{Name: "operator start", Units: 40, Seconds: 1, Programs: programs},
			{Name: "rollout", Units: 40, Seconds: seconds, compared: true, Programs: programs},
		}
	}
	r := &report{Kind: "plan", BareSeconds: 8, Subjects: []*result{
		{Name: "plain", ours: true, PeakRSS: 60, Stages: phases(10)}, {Name: "peer", PeakRSS: 50, Stages: phases(24)},
	}}
	r.compare()
	var out strings.Builder
	w := newSheet(&out)
	r.printBeside(w)
	w.Flush()
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"plan rollout bare loop 8.00 1.00", "plan rollout Moult 10.00 1.25 2.00 5.00 60.00", "plan rollout peer 24.00 3.00 2.00 5.00 50.00"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
