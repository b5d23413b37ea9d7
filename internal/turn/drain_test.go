// SPDX-License-Identifier: Apache-2.0

package turn

import (
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

	"moult.dev/moult/internal/drain"
)

// drained is a drain of node a, whose API server is a double.
type drained struct {
	*Drain
	t    *testing.T
	node *corev1.Node
}

func newDrain(t *testing.T, change ...func(*corev1.Node)) *drained {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	for _, how := range change {
		how(n)
	}
	byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	c := fake.NewClientBuilder().WithObjects(n).WithStatusSubresource(n).WithIndex(&corev1.Pod{}, drain.NodeNameField, byNode).Build()
	d := &drained{t: t, node: n, Drain: &Drain{
		Client: c, Drainer: drain.New(clocktesting.NewFakePassiveClock(now), c), Works: NewWorks(followed{map[string]bool{}}),
		Of: Of{Rollout: types.NamespacedName{Name: "os"}, Node: "a", Turn: "1"}, Generation: 1, Holder: "NodeRollout/os", Now: now,
	}}
	d.reread()
	return d
}

func (d *drained) reread() {
	d.t.Helper()
	if err := d.Client.Get(d.t.Context(), client.ObjectKeyFromObject(d.node), d.node); err != nil {
		d.t.Fatal(err)
	}
}

// pod lets a pod of a ReplicaSet come to the node.
func (d *drained) pod(name string, change ...func(*corev1.Pod)) {
	d.t.Helper()
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
	if err := d.Client.Create(d.t.Context(), p); err != nil {
		d.t.Fatal(err)
	}
}

func (d *drained) begin() {
	d.t.Helper()
	_, written, failure, err := d.Begin(d.t.Context())
	if err != nil || failure != nil {
		d.t.Fatal(failure, err)
	}
	written()
}

func (d *drained) pass(since time.Time) Outcome {
	d.t.Helper()
	o, err := d.Pass(d.t.Context(), d.node, since)
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

// A node that is cordoned again is drained again, though nobody has said that a pod of it has changed.
func TestDrainAgain(t *testing.T) {
	d := newDrain(t)
	d.begin()
	if o := d.pass(now); !o.Done {
		t.Fatalf("%+v", o)
	}
	d.pod("landed")
	d.begin()
	if o := d.pass(now); o.Done || len(d.left()) > 0 {
		t.Errorf("%+v, and %v are left", o, d.left())
	}
	d.Works.Changed("a")
	if o := d.pass(now); !o.Done {
		t.Errorf("%+v", o)
	}
}

// A drain that can't be done is looked at again once a pod of the node has changed.
func TestDrainGoesOn(t *testing.T) {
	d := newDrain(t)
	d.begin()
	d.pod("alone", func(p *corev1.Pod) { p.OwnerReferences = nil })
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

// A node that waits for its drain to begin again is not said to be drained.
func TestTellOfDrainToCome(t *testing.T) {
	d := newDrain(t)
	for _, stage := range []Stage{Draining, Drained, Maintained} {
		if _, err := d.Tell(t.Context(), d.node, stage); err != nil {
			t.Fatal(err)
		}
		d.reread()
		for _, c := range d.node.Status.Conditions {
			if c.Type == corev1.NodeDrained && (c.Status == corev1.ConditionTrue) != (stage == Drained) {
				t.Errorf("stage %d: %+v", stage, c)
			}
		}
	}
}
