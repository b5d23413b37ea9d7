// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	fakeclientset "k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// world is what the caches show, to be changed by a test.
type world struct {
	eds   *edsv1.ExtendedDaemonSet
	sets  []*edsv1.ExtendedDaemonSetReplicaSet
	nodes []*corev1.Node
	pods  []*corev1.Pod
}

// newWorld has so many nodes and two revisions, "old" and "new", of which the new one is active since an hour ago. There are
// no pods.
func newWorld(nodes int) *world {
	w := &world{eds: &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", UID: "eds"}}}
	w.eds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "new"}}
	w.eds.Spec.Strategy.RollingUpdate = edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
		MaxUnavailable: ptr.To(intstr.FromInt32(2)), SlowStartAdditiveIncrease: ptr.To(intstr.FromInt32(100)),
	}
	w.eds.Status.ActiveReplicaSet = "foo-new"
	for i := range nodes {
		w.nodes = append(w.nodes, newNode(i))
	}
	for i, name := range []string{"old", "new"} {
		rs := &edsv1.ExtendedDaemonSetReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo-" + name, Labels: map[string]string{edsv1.LabelName: "foo"}, UID: types.UID(name), CreationTimestamp: ago(2*time.Hour - time.Duration(i)*time.Hour)},
		}
		rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: name}}
		rs.Spec.TemplateGeneration = daemonset.TemplateHash(&rs.Spec.Template)
		w.sets = append(w.sets, rs)
	}
	w.sets[1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionActive, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	return w
}

func newNode(i int) *corev1.Node {
	name := fmt.Sprintf("n%d", i)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(24 * time.Hour)}}},
	}
}

// has puts pods of a revision on nodes.
func (w *world) has(revision string, how func(*corev1.Pod), nodes ...int) *world {
	i := slices.IndexFunc(w.sets, func(rs *edsv1.ExtendedDaemonSetReplicaSet) bool { return rs.Name == "foo-"+revision })
	for _, n := range nodes {
		pod := daemonset.NewPod(w.sets[i], "foo", w.nodes[n], daemonset.Overrides{}, daemonset.PodOptions{})
		pod.UID, pod.CreationTimestamp = types.UID(pod.Name), ago(30*time.Minute)
		pod.Spec.NodeName = w.nodes[n].Name
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: ptr.To(ago(30 * time.Minute)),
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(29 * time.Minute)}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(29 * time.Minute)}}}},
		}
		if how != nil {
			how(pod)
		}
		w.pods = append(w.pods, pod)
	}
	return w
}

func unready(p *corev1.Pod) {
	p.Status.Conditions[0].Status, p.Status.ContainerStatuses[0].Ready = corev1.ConditionFalse, false
}

// serve is a controller of which a client has what is in the world. What there is of it in the world is as that has it.
func (w *world) serve(t *testing.T) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), edsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	all := []client.Object{w.eds}
	for _, rs := range w.sets {
		all = append(all, rs)
	}
	for _, pod := range w.pods {
		all = append(all, pod)
	}
	c := &Controller{
		clock: testingclock.NewFakePassiveClock(now), reports: fleet.NewReports(0), queued: &fleet.Waiters{},
	}
	c.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithIndex(&corev1.Pod{}, indexName, indexedByName).
		WithIndex(&edsv1.ExtendedDaemonSetReplicaSet{}, indexName, indexedByName).
		WithIndex(&edsv1.ExtendedDaemonsetSetting{}, indexName, indexedByName).
		WithStatusSubresource(&edsv1.ExtendedDaemonSet{}, &edsv1.ExtendedDaemonSetReplicaSet{}).Build()
	c.live, c.daemonPods, c.fleet = c.client, c.client, fleet.New(c.clock, c.client, nil)
	c.events = events.NewRecorder(t.Context(), testingclock.NewFakeClock(now), fakeclientset.NewClientset().CoreV1().Events(""), scheme, "moult", "n1")
	for _, o := range all {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// begin makes a pass over the world, up to the state of its nodes.
func (w *world) begin(t *testing.T, c *Controller) *pass {
	t.Helper()
	p := &pass{Controller: c, key: client.ObjectKeyFromObject(w.eds), stored: w.eds, now: now, pods: c.daemonPods}
	f := daemonset.Facts{
		EDS: w.eds.DeepCopy(), ValidationMode: edsv1.ValidationModeAuto, Pods: w.pods, Nodes: w.nodes,
		Fleet: rollout.Fleet{Nodes: map[string]*rollout.Node{}}, Memory: c.remembered(p.key),
	}
	for _, rs := range w.sets {
		f.ReplicaSets = append(f.ReplicaSets, *rs)
	}
	for _, n := range w.nodes {
		f.Fleet.Nodes[n.Name] = rollout.NewNode(n)
	}
	var err error
	if p.Judge, err = daemonset.New(f, now); err != nil {
		t.Fatal(err)
	}
	if err := p.Survey(p.CanaryNodes()); err != nil {
		t.Fatal(err)
	}
	return p
}
