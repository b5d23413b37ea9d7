// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

func container(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
}

// daemons is an ExtendedDaemonSet, monitoring/agent, in the middle of an update from revision agent-old to agent-new, which all nodes
// but the canary's wait for.
func daemons(pods []corev1.Pod, change ...func(*edsv1.ExtendedDaemonSet, *edsv1.ExtendedDaemonSetReplicaSet)) view.Daemons {
	eds := edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "agent", UID: "agent", Annotations: map[string]string{}},
		Spec:       edsv1.ExtendedDaemonSetSpec{Template: container("new")},
		Status: edsv1.ExtendedDaemonSetStatus{
			ActiveReplicaSet: "agent-new", State: edsv1.StateRunning,
			Conditions: []edsv1.Condition{{Type: edsv1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: before(time.Hour)}},
		},
	}
	d := view.Daemons{Pods: map[types.NamespacedName][]corev1.Pod{{Namespace: "monitoring", Name: "agent"}: pods}}
	for _, image := range []string{"old", "new"} {
		of := edsv1.ExtendedDaemonSet{Spec: edsv1.ExtendedDaemonSetSpec{Template: container(image)}}
		d.Revisions = append(d.Revisions, edsv1.ExtendedDaemonSetReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "agent-" + image, Labels: map[string]string{edsv1.LabelName: "agent"}},
			Spec:       edsv1.ExtendedDaemonSetReplicaSetSpec{Template: container(image), TemplateGeneration: view.RevisionOf(&of)},
			Status: edsv1.ExtendedDaemonSetReplicaSetStatus{
				Conditions: []edsv1.Condition{{Type: edsv1.ConditionActive, Status: metav1.ConditionTrue, LastTransitionTime: before(time.Hour)}},
			},
		})
	}
	for _, f := range change {
		f(&eds, &d.Revisions[1])
	}
	d.Sets = []edsv1.ExtendedDaemonSet{eds}
	return d
}

func canaryOn(nodes ...string) func(*edsv1.ExtendedDaemonSet, *edsv1.ExtendedDaemonSetReplicaSet) {
	return func(eds *edsv1.ExtendedDaemonSet, _ *edsv1.ExtendedDaemonSetReplicaSet) {
		eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
		eds.Status.ActiveReplicaSet, eds.Status.State = "agent-old", edsv1.StateCanary
		eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "agent-new", Nodes: nodes}
	}
}

// aPod is one of a revision, ready for three minutes.
func whyPod(revision, node string, change ...func(*corev1.Pod)) corev1.Pod {
	of := edsv1.ExtendedDaemonSet{Spec: edsv1.ExtendedDaemonSetSpec{Template: container(revision)}}
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "monitoring", Name: "agent-" + revision + "-on-" + node, CreationTimestamp: before(4 * time.Minute),
			Labels: map[string]string{edsv1.LabelName: "agent"}, Annotations: map[string]string{edsv1.AnnotationTemplateHash: view.RevisionOf(&of)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ExtendedDaemonSetReplicaSet", Name: "agent-" + revision, Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: before(3 * time.Minute)}},
		},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func cannotPull(p *corev1.Pod) {
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
}

func TestDrawDaemons(t *testing.T) {
	three := []corev1.Node{whyNode("worker-1"), whyNode("worker-2"), whyNode("worker-3")}
	paused := func(eds *edsv1.ExtendedDaemonSet, rs *edsv1.ExtendedDaemonSetReplicaSet) {
		eds.Status.State, eds.Status.Reason = edsv1.StateCanaryPaused, "ImagePullBackOff"
		rs.Status.Conditions = append(rs.Status.Conditions, edsv1.Condition{Type: edsv1.ConditionCanaryPaused, Status: metav1.ConditionTrue, Message: "pod on node worker-1: container c can't start"})
	}
	failed := func(eds *edsv1.ExtendedDaemonSet, rs *edsv1.ExtendedDaemonSetReplicaSet) {
		eds.Status.Canary, eds.Status.State = nil, edsv1.StateCanaryFailed
		const message = "canary failed with ers: agent-new: OOMKilled: pod on node worker-1: container c has restarted 6 times"
		eds.Status.Conditions = append(eds.Status.Conditions,
			edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Message: message},
			edsv1.Condition{Type: edsv1.ConditionStalled, Status: metav1.ConditionTrue, Message: message, LastTransitionTime: before(time.Minute)})
		rs.Status.Conditions = append(rs.Status.Conditions, edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: "OOMKilled"})
	}
	for name, tc := range map[string]struct {
		daemons view.Daemons
		nodes   []corev1.Node
	}{
		"daemon-updated": {daemons: daemons([]corev1.Pod{whyPod("new", "worker-1", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 2}}
		})})},
		"daemon-waits": {daemons: daemons([]corev1.Pod{whyPod("old", "worker-1"), whyPod("old", "worker-2"), whyPod("new", "worker-3", cannotPull)},
			func(eds *edsv1.ExtendedDaemonSet, _ *edsv1.ExtendedDaemonSetReplicaSet) {
				eds.Annotations[edsv1.AnnotationRollingUpdatePaused] = edsv1.True
			}), nodes: three},
		"daemon-turn":          {daemons: daemons([]corev1.Pod{whyPod("new", "worker-1", cannotPull)})},
		"daemon-canary":        {daemons: daemons([]corev1.Pod{whyPod("new", "worker-1"), whyPod("old", "worker-2")}, canaryOn("worker-1")), nodes: three[:2]},
		"daemon-behind-canary": {daemons: daemons([]corev1.Pod{whyPod("old", "worker-1"), whyPod("new", "worker-2")}, canaryOn("worker-2")), nodes: three[:2]},
		"daemon-canary-paused": {daemons: daemons([]corev1.Pod{whyPod("new", "worker-1", cannotPull), whyPod("old", "worker-2")}, canaryOn("worker-1"), paused), nodes: three[:2]},
		"daemon-canary-failed": {daemons: daemons([]corev1.Pod{whyPod("new", "worker-1")}, canaryOn("worker-1"), failed)},
		"daemon-on-delete": {daemons: daemons([]corev1.Pod{whyPod("old", "worker-1")}, func(eds *edsv1.ExtendedDaemonSet, _ *edsv1.ExtendedDaemonSetReplicaSet) {
			eds.Spec.Strategy.Type = edsv1.StrategyOnDelete
		})},
		"daemon-unselected": {daemons: daemons(nil, func(eds *edsv1.ExtendedDaemonSet, _ *edsv1.ExtendedDaemonSetReplicaSet) {
			eds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue"}}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.nodes == nil {
				tc.nodes = []corev1.Node{whyNode("worker-1")}
			}
			w, ok := view.See(nil, tc.nodes, nil, now).Daemons(tc.daemons).Why("worker-1")
			if !ok {
				t.Fatal("there is no such node")
			}
			golden(t, "why/"+name, explain(&w, now).Text(0, false))
		})
	}
}

func object(t *testing.T, kind string, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(edsv1.GroupVersion.WithKind(kind))
	return u
}

// TestExplain reads what there is, and says what is not to be read.
func TestExplain(t *testing.T) {
	plans, sets := source.Plan.Resource.GroupResource(), source.DaemonSet.Resource.GroupResource()
	denied := func(of schema.GroupResource) error { return apierrors.NewForbidden(of, "", errors.New("no")) }
	atRest := func(eds *edsv1.ExtendedDaemonSet, _ *edsv1.ExtendedDaemonSetReplicaSet) {
		eds.Status.Conditions[0].Status = metav1.ConditionTrue
	}
	elsewhere := func(eds *edsv1.ExtendedDaemonSet, _ *edsv1.ExtendedDaemonSetReplicaSet) {
		eds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue"}}
	}
	for name, tc := range map[string]struct {
		daemons view.Daemons
		fails   map[string]error
		want    []string
		err     string
	}{
		"in the middle": {daemons: daemons([]corev1.Pod{whyPod("old", "worker-1")}), want: []string{"Outdated, next", "pod agent-old-on-worker-1 of revision agent-old  ready for 3m"}},
		"at rest":       {daemons: daemons([]corev1.Pod{whyPod("new", "worker-1")}, atRest), want: []string{"Updated for 3m", "pod agent-new-on-worker-1  ready"}},
		"elsewhere":     {daemons: daemons(nil, elsewhere), want: []string{"ExtendedDaemonSet monitoring/agent: no pod is created there: spec.selector does not select it"}},
		"pods may not be seen": {
			daemons: daemons(nil), fails: map[string]error{"pods": denied(corev1.Resource("pods"))}, want: []string{source.NoPodsSeen, "the rollout is Waiting"},
		},
		"they may not be seen": {
			daemons: daemons(nil), fails: map[string]error{"extendeddaemonsets": denied(sets)}, want: []string{"ExtendedDaemonSets are not shown: ", "There is no rollout."},
		},
		"there are no such kinds": {
			fails: map[string]error{
				"extendeddaemonsets": apierrors.NewNotFound(sets, ""), "plans": apierrors.NewNotFound(plans, ""), "noderollouts": apierrors.NewNotFound(plans, ""),
			},
			err: "this cluster does not know Plans",
		},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := map[schema.GroupVersionResource]string{
				source.Plan.Resource: "PlanList", source.Budget.Resource: "NodeDisruptionBudgetList", source.DaemonSet.Resource: "ExtendedDaemonSetList",
				source.NodeRollout.Resource:                                     "NodeRolloutList",
				edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"): "ExtendedDaemonSetReplicaSetList",
				edsv1.GroupVersion.WithResource("extendeddaemonsetsettings"):    "ExtendedDaemonsetSettingList",
			}
			var objects []runtime.Object
			for i := range tc.daemons.Sets {
				objects = append(objects, object(t, "ExtendedDaemonSet", &tc.daemons.Sets[i]))
			}
			for i := range tc.daemons.Revisions {
				objects = append(objects, object(t, "ExtendedDaemonSetReplicaSet", &tc.daemons.Revisions[i]))
			}
			dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
			node := whyNode("worker-1")
			core := fake.NewClientset(&node)
			core.PrependReactor("list", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				where := a.(ktesting.ListAction).GetListRestrictions()
				list := &corev1.PodList{}
				for _, of := range tc.daemons.Pods {
					for _, p := range of {
						if where.Labels.Matches(labels.Set(p.Labels)) {
							list.Items = append(list.Items, p)
						}
					}
				}
				return true, list, nil
			})
			for resource, err := range tc.fails {
				fail := func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err }
				dynamic.PrependReactor("list", resource, fail)
				core.PrependReactor("list", resource, fail)
			}
			var out bytes.Buffer
			c := &command{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, clock: clocktesting.NewFakeClock(now)}
			err := c.why(t.Context(), &source.Source{Client: dynamic, Core: core.CoreV1(), Namespace: "monitoring"}, source.Target{Name: "worker-1"}, &flags.Output{})
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("%v, want %q", err, tc.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}
