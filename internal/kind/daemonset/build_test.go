// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// world is what the caches show, to be changed by a test.
type world struct {
	eds      *edsv1.ExtendedDaemonSet
	sets     []*edsv1.ExtendedDaemonSetReplicaSet
	nodes    []*corev1.Node
	pods     []*corev1.Pod
	settings []*edsv1.ExtendedDaemonsetSetting
	kept     map[types.UID]bool
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
		rs.Spec.TemplateGeneration = TemplateHash(&rs.Spec.Template)
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
		pod := NewPod(w.sets[i], "foo", w.nodes[n], Overrides{}, PodOptions{})
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

// unreadyLater is a pod that was ready for longer than suspectTime.
func unreadyLater(p *corev1.Pod) {
	unready(p)
	p.Status.Conditions[0].LastTransitionTime = ago(15 * time.Minute)
}

func unscheduled(p *corev1.Pod) { unready(p); p.Spec.NodeName = "" }

func starting(p *corev1.Pod) { unready(p); p.CreationTimestamp = ago(2 * time.Second) }

func going(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(ago(time.Second)), ptr.To[int64](30)
}

func ended(p *corev1.Pod) { unready(p); p.Status.Phase = corev1.PodFailed }

func orphan(p *corev1.Pod) { p.OwnerReferences = nil }

// keeps lets a DaemonSet keep all the pods that are there.
func (w *world) keeps() *world {
	w.kept = map[types.UID]bool{}
	for _, pod := range w.pods {
		w.kept[pod.UID] = true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
	}
	return w
}

// down makes nodes not ready.
func (w *world) down(nodes ...int) *world {
	for _, n := range nodes {
		w.nodes[n].Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return w
}

// breaks makes nodes not ready, since a while after their pods were created.
func (w *world) breaks(nodes ...int) *world {
	for _, n := range nodes {
		w.down(n).nodes[n].Status.Conditions[0].LastTransitionTime = ago(10 * time.Minute)
	}
	return w
}

// facts are those of the world.
func (w *world) facts(t testing.TB) Facts {
	t.Helper()
	f := Facts{EDS: w.eds.DeepCopy(), ValidationMode: edsv1.ValidationModeAuto, Pods: w.pods, Recreated: w.kept, Nodes: w.nodes}
	for _, rs := range w.sets {
		f.ReplicaSets = append(f.ReplicaSets, *rs)
	}
	for _, s := range w.settings {
		f.Settings = append(f.Settings, *s)
	}
	f.Fleet.Nodes = map[string]*rollout.Node{}
	for _, n := range w.nodes {
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		f.Fleet.Nodes[n.Name] = &rollout.Node{
			Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Conditions: n.Status.Conditions, Unschedulable: n.Spec.Unschedulable, Claims: claims,
		}
	}
	return f
}

// begin surveys the world.
func (w *world) begin(t *testing.T, how ...func(*Facts)) *Judge {
	t.Helper()
	f := w.facts(t)
	for _, change := range how {
		change(&f)
	}
	j, err := New(f, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Survey(j.CanaryNodes()); err != nil {
		t.Fatal(err)
	}
	return j
}

// look judges the world, up to what is decided.
func (w *world) look(t *testing.T, how ...func(*Facts)) *Judge {
	t.Helper()
	j := w.begin(t, how...)
	j.Decide()
	return j
}

// show is what was decided, in a few words.
func (j *Judge) show() string {
	var parts []string
	list := func(what string, nodes []string) {
		if slices.Sort(nodes); len(nodes) > 0 {
			parts = append(parts, what+" "+strings.Join(nodes, ","))
		}
	}
	of := func(pods []*corev1.Pod) []string {
		var nodes []string
		for _, pod := range pods {
			nodes = append(nodes, NodeOf(pod)+"/"+strings.TrimPrefix(cmp.Or(ReplicaSetOf(pod), "foo-orphan"), "foo-"))
		}
		return nodes
	}
	list("clean", of(j.Actions.Clean))
	list("done", of(j.Actions.Superseded))
	list("replace", of(j.Actions.Replace))
	var create []string
	for _, s := range j.Actions.Create {
		create = append(create, s.Node.Name)
	}
	list("create", create)
	waits := map[v1alpha1.Reason][]string{}
	for _, w := range j.Decision.Waiting {
		waits[w.Reason] = append(waits[w.Reason], w.Node)
	}
	var reasons []string
	for reason, nodes := range waits {
		slices.Sort(nodes)
		reasons = append(reasons, string(reason)+" "+strings.Join(nodes, ","))
	}
	slices.Sort(reasons)
	return strings.Join(append(parts, reasons...), "; ")
}
