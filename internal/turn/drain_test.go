// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// drained is a drain of node a, whose API server is a double.
type drained struct {
	*Pass[*nodeturn.Turn]
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	node  *corev1.Node
	turn  *nodeturn.Turn
}

func newDrain(t *testing.T, n *corev1.Node, pods ...client.Object) *drained {
	t.Helper()
	byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	c := fake.NewClientBuilder().WithObjects(n).WithObjects(pods...).WithStatusSubresource(n).WithIndex(&corev1.Pod{}, drain.NodeNameField, byNode).Build()
	d := &drained{t: t, clock: clocktesting.NewFakePassiveClock(now), node: n}
	d.turn = &nodeturn.Turn{Node: n, Claim: &v1alpha1.Claim{Turn: "1"}}
	d.Pass = &Pass[*nodeturn.Turn]{
		Engine: &Engine{Client: c, Drainer: drain.New(d.clock, c), Works: NewWorks(followed{map[string]bool{}})},
		Key:    types.NamespacedName{Name: "os"}, Generation: 1, Holder: "NodeRollout/os", Now: now,
	}
	d.reread()
	return d
}

// gate makes a budget have a workloads gate, or none.
func (d *drained) gate(has bool) { d.Seen.Budgets = []rollout.Budget{{Workloads: has}} }

// onNode is a pod of a ReplicaSet on node a.
func onNode(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Time{Time: now.Add(-time.Minute)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: "rs", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "a"},
	}
	for _, how := range change {
		how(p)
	}
	return p
}

func nodeA(ready corev1.ConditionStatus, since time.Time) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Time{Time: since}}}
	return n
}

func (d *drained) reread() {
	d.t.Helper()
	if err := d.Client.Get(d.t.Context(), client.ObjectKeyFromObject(d.node), d.node); err != nil {
		d.t.Fatal(err)
	}
}

// comes lets a pod come to the node.
func (d *drained) comes(p *corev1.Pod) {
	d.t.Helper()
	if err := d.Client.Create(d.t.Context(), p); err != nil {
		d.t.Fatal(err)
	}
}

// at sets the time.
func (d *drained) at(now time.Time) {
	d.clock.SetTime(now)
	d.Now = now
}

func (d *drained) begin() {
	d.t.Helper()
	if _, failure, err := d.beginDrain(d.t.Context(), d.turn); err != nil || failure != nil {
		d.t.Fatal(failure, err)
	}
}

func (d *drained) pass(since time.Time) Outcome {
	d.t.Helper()
	o, err := d.passDrain(d.t.Context(), d.turn, since)
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

// left are the pods that are there.
func (d *drained) left() []string {
	d.t.Helper()
	var pods corev1.PodList
	if err := d.Client.List(d.t.Context(), &pods); err != nil {
		d.t.Fatal(err)
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// A node that is cordoned again is drained again, though no one has said that a pod of it has changed.
func TestDrainAgain(t *testing.T) {
	d := newDrain(t, nodeA(corev1.ConditionTrue, now))
	d.begin()
	if o := d.pass(now); !o.Done {
		t.Fatalf("%+v", o)
	}
	d.comes(onNode("landed"))
	d.begin()
	if o := d.pass(now); o.Done || len(d.left()) > 0 {
		t.Errorf("%+v, and %v are left", o, d.left())
	}
	d.Works.Changed("a")
	if o := d.pass(now); !o.Done {
		t.Errorf("%+v", o)
	}
}

// A pod that the scheduler had bound before it saw the cordon, and that comes when the drain is done, is evicted too.
func TestDrainOfLatePod(t *testing.T) {
	d := newDrain(t, nodeA(corev1.ConditionTrue, now))
	d.begin()
	if o := d.pass(now); !o.Done {
		t.Fatalf("%+v", o)
	}
	d.comes(onNode("late"))
	d.Works.Changed("a")
	if o := d.pass(now); o.Done || len(d.left()) > 0 {
		t.Errorf("%+v, and %v are left", o, d.left())
	}
	d.Works.Changed("a")
	if o := d.pass(now); !o.Done {
		t.Errorf("%+v", o)
	}
}

// watched are the pods that a watch shows.
type watched struct {
	followed
	pods []corev1.Pod
}

func (w *watched) Pods(string) ([]corev1.Pod, bool) { return w.pods, true }

// The pods of a watch are enough to evict them. That none is left, only a list shows: the watch may be late.
func TestDrainLists(t *testing.T) {
	d := newDrain(t, nodeA(corev1.ConditionTrue, now), onNode("first"), onNode("unseen"))
	lists := 0
	d.Drainer = drain.New(d.clock, interceptor.NewClient(d.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, all client.ObjectList, o ...client.ListOption) error {
			lists++
			return c.List(ctx, all, o...)
		},
	}))
	w := &watched{followed{map[string]bool{}}, []corev1.Pod{*onNode("first")}}
	d.Works = NewWorks(w)
	d.begin()
	if o := d.pass(now); o.Done || lists > 0 || !slices.Equal(d.left(), []string{"unseen"}) {
		t.Fatalf("%+v after %d lists, and %v are left", o, lists, d.left())
	}
	w.pods = nil
	for _, done := range []bool{false, true} {
		d.Works.Changed("a")
		if o := d.pass(now); o.Done != done || len(d.left()) > 0 {
			t.Errorf("%+v, and %v are left", o, d.left())
		}
	}
	if lists != 2 {
		t.Errorf("%d lists", lists)
	}
}

// A drain that can't be done is looked at again once a pod of the node has changed.
func TestDrainGoesOn(t *testing.T) {
	d := newDrain(t, nodeA(corev1.ConditionTrue, now))
	d.begin()
	d.comes(onNode("alone", func(p *corev1.Pod) { p.OwnerReferences = nil }))
	for range 2 {
		if o := d.pass(now); o.Failure == nil {
			t.Fatalf("%+v", o)
		}
	}
	if err := d.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("web")); err != nil {
		t.Fatal(err)
	}
	d.Works.Changed("a")
	if o := d.pass(now); !o.Done || o.Failure != nil {
		t.Errorf("%+v", o)
	}
}

// A drain that is done soon is not reported, unless a budget has a workloads gate. One that lasts is reported to its end.
func TestReportsLastingDrains(t *testing.T) {
	for name, tc := range map[string]struct {
		gated             bool
		after             time.Duration
		reported, drained bool // The conditions then, and once it is done.
	}{
		"short":   {false, reportEvery - 1, false, false},
		"lasting": {false, reportEvery, true, true},
		"gated":   {true, 0, true, true},
	} {
		d := newDrain(t, nodeA(corev1.ConditionTrue, now))
		d.gate(tc.gated)
		d.at(now.Add(tc.after))
		over, wake, err := d.reportDrain(t.Context(), d.turn, now, false)
		d.reread()
		if over || err != nil || hasCondition(d.node, corev1.NodeDrainInProgress) != tc.reported ||
			hasCondition(d.node, corev1.NodeMaintenancePlanned) != tc.reported || !tc.reported && !wake.Equal(now.Add(reportEvery)) {
			t.Errorf("%s: over %t, wake %s, %v, %+v", name, over, wake, err, d.node.Status.Conditions)
		}
		over, _, err = d.reportDrain(t.Context(), d.turn, now, true)
		d.reread()
		if over == tc.drained || err != nil || hasCondition(d.node, corev1.NodeDrained) != tc.drained || hasCondition(d.node, corev1.NodeDrainInProgress) ||
			hasCondition(d.node, corev1.NodeMaintenancePlanned) {
			t.Errorf("%s, done: over %t, %v, %+v", name, over, err, d.node.Status.Conditions)
		}
		if over, wake, err = d.reportDrain(t.Context(), d.turn, now, true); !over || !wake.IsZero() || err != nil {
			t.Errorf("%s, done and reported: over %t, wake %s, %v", name, over, wake, err)
		}
	}
}

// Evicted workloads are recorded only where a workloads gate reads the record.
func TestRecordsEvictionsForGate(t *testing.T) {
	for _, gated := range []bool{false, true} {
		d := newDrain(t, nodeA(corev1.ConditionTrue, now), onNode("first"))
		d.gate(gated)
		d.pass(now)
		d.reread()
		if got := d.node.Annotations[v1alpha1.AnnotationEvicted]; (got != "") != gated {
			t.Errorf("gated %t: recorded %q", gated, got)
		}
	}
}

// A node that waits for its drain to begin again is not said to be drained.
func TestTellOfDrainToCome(t *testing.T) {
	d := newDrain(t, nodeA(corev1.ConditionTrue, now))
	d.gate(true)
	for _, done := range []bool{false, true, false} {
		if _, _, err := d.reportDrain(t.Context(), d.turn, now, done); err != nil {
			t.Fatal(err)
		}
		d.reread()
		for _, c := range d.node.Status.Conditions {
			if c.Type == corev1.NodeDrained && (c.Status == corev1.ConditionTrue) != done {
				t.Errorf("done %t: %+v", done, c)
			}
		}
	}
}

// What no one is there to end is waited for until a while after its grace period, if the machine is deleted afterwards, and else for ever.
func TestDrainOfDeadNode(t *testing.T) {
	end := now.Add(-40 * time.Second)
	terminating := onNode("db-0", func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: end}, ptr.To[int64](30)
		p.Finalizers = []string{"moult.dev/test"} // A fake client keeps no terminating object without one.
	})
	for name, tc := range map[string]struct {
		ready   corev1.ConditionStatus
		deletes bool
		end     time.Duration
		done    bool
	}{
		"ready":                     {corev1.ConditionTrue, true, 0, false},
		"dead":                      {corev1.ConditionUnknown, true, 0, true},
		"not ready":                 {corev1.ConditionFalse, true, 0, true},
		"dead, in its grace period": {corev1.ConditionUnknown, true, 20 * time.Second, false},
		"dead, and stays":           {corev1.ConditionUnknown, false, 0, false},
	} {
		p := terminating.DeepCopy()
		p.DeletionTimestamp.Time = end.Add(tc.end)
		d := newDrain(t, nodeA(tc.ready, now.Add(-2*time.Minute)), p)
		d.Deletes = tc.deletes
		d.begin()
		o := d.pass(now)
		if o.Done != tc.done {
			t.Errorf("%s: %+v", name, o)
		}
		if tc.end > 0 { // It comes back by itself.
			d.at(o.Wake)
			if o = d.pass(now); !o.Done || o.Wake.After(now.Add(time.Minute)) {
				t.Errorf("%s: then %+v", name, o)
			}
		}
	}

	// One that has just stopped to answer may come back.
	d := newDrain(t, nodeA(corev1.ConditionUnknown, now.Add(-time.Second)), terminating)
	d.Deletes = true
	d.begin()
	o := d.pass(now)
	if o.Done || !o.Wake.Equal(now.Add(deadAfter-time.Second)) {
		t.Fatalf("%+v", o)
	}
	back := d.node.DeepCopy()
	back.Status.Conditions[0].Status = corev1.ConditionTrue
	d.at(o.Wake)
	if o, err := d.passDrain(t.Context(), &nodeturn.Turn{Node: back, Claim: d.turn.Claim}, now); err != nil || o.Done {
		t.Errorf("%+v, %v", o, err)
	}
	if o := d.pass(now); !o.Done {
		t.Errorf("%+v", o)
	}

	// A drain whose time is over is done as well, once nothing is left but what does not end.
	p := terminating.DeepCopy()
	p.DeletionTimestamp.Time = now
	d = newDrain(t, nodeA(corev1.ConditionUnknown, now.Add(-2*time.Minute)), p)
	d.Deletes, d.Options.Timeout = true, time.Minute
	d.begin()
	if o = d.pass(now.Add(-time.Minute)); o.Failure == nil || o.Wake.IsZero() {
		t.Fatalf("%+v", o)
	}
	d.at(o.Wake.Add(time.Second))
	if o = d.pass(now.Add(-time.Minute)); !o.Done || o.Failure != nil {
		t.Errorf("%+v", o)
	}
}
