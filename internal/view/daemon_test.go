// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// farm is an ExtendedDaemonSet "ns/foo" with its nodes, pods and revisions, of which "foo-old" is older than "foo-new". The new one is
// active, and two nodes go at once.
type farm struct {
	eds      *edsv1.ExtendedDaemonSet
	sets     map[string]*edsv1.ExtendedDaemonSetReplicaSet
	nodes    []corev1.Node
	pods     []corev1.Pod
	settings []edsv1.ExtendedDaemonsetSetting
	budgets  []v1alpha1.NodeDisruptionBudget
	// blind is true when pods may not be seen.
	blind bool
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
}

func newFarm(nodes int, options ...func(*farm)) *farm {
	f := &farm{
		eds: &edsv1.ExtendedDaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", UID: "eds", Generation: 3, CreationTimestamp: *at(now.Add(-time.Hour)), Annotations: map[string]string{}},
			Spec: edsv1.ExtendedDaemonSetSpec{
				Template: template("new"),
				Strategy: edsv1.ExtendedDaemonSetSpecStrategy{RollingUpdate: edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
					MaxUnavailable: ptr.To(intstr.FromInt32(2)), SlowStartAdditiveIncrease: ptr.To(intstr.FromInt32(100)),
				}},
			},
			Status: edsv1.ExtendedDaemonSetStatus{ActiveReplicaSet: "foo-new", ObservedGeneration: 3, State: edsv1.StateRunning},
		},
		sets: map[string]*edsv1.ExtendedDaemonSetReplicaSet{},
	}
	for i, name := range []string{"foo-old", "foo-new"} {
		rs := &edsv1.ExtendedDaemonSetReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{edsv1.LabelName: "foo"}, CreationTimestamp: *at(now.Add(time.Duration(i-2) * time.Hour)),
		}}
		rs.Spec.Template = template(strings.TrimPrefix(name, "foo-"))
		rs.Spec.TemplateGeneration = daemonset.TemplateHash(&rs.Spec.Template)
		f.sets[name] = rs
	}
	f.sets["foo-new"].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionActive, Status: metav1.ConditionTrue, LastTransitionTime: *at(now.Add(-time.Hour))}}
	for i := range nodes {
		f.nodes = append(f.nodes, aNode(fmt.Sprint("n", i)))
	}
	f.condition(edsv1.ConditionReady, false, "Progressing", "")
	for _, option := range options {
		option(f)
	}
	return f
}

// has puts ready pods of a revision on nodes.
func (f *farm) has(revision string, how func(*corev1.Pod), nodes ...int) *farm {
	for _, n := range nodes {
		pod := daemonset.NewPod(f.sets["foo-"+revision], "foo", &f.nodes[n], daemonset.Overrides{}, daemonset.PodOptions{NodeName: true})
		pod.Name, pod.UID = revision+"-on-"+f.nodes[n].Name, types.UID(revision+"-on-"+f.nodes[n].Name)
		pod.CreationTimestamp = *at(now.Add(-30 * time.Minute))
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: at(now.Add(-30 * time.Minute)),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: *at(now.Add(-29 * time.Minute))}},
		}
		if how != nil {
			how(pod)
		}
		f.pods = append(f.pods, *pod)
	}
	return f
}

func (f *farm) does(change func(*farm)) *farm {
	change(f)
	return f
}

func (f *farm) condition(kind string, is bool, reason, message string) {
	c := edsv1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: *at(minute)}
	if is {
		c.Status = metav1.ConditionTrue
	}
	f.eds.Status.Conditions = slices.DeleteFunc(f.eds.Status.Conditions, func(old edsv1.Condition) bool { return old.Type == kind })
	f.eds.Status.Conditions = append(f.eds.Status.Conditions, c)
}

// tries lets the new revision be a canary on nodes; the old one is active.
func (f *farm) tries(nodes ...string) *farm {
	f.eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
	f.eds.Status.ActiveReplicaSet, f.eds.Status.State = "foo-old", edsv1.StateCanary
	f.eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "foo-new", Nodes: nodes}
	return f
}

// atRest makes the status say that all is as it should be.
func (f *farm) atRest() *farm {
	f.condition(edsv1.ConditionReady, true, "Complete", "")
	n := int32(len(f.nodes))
	f.eds.Status.Desired, f.eds.Status.Current, f.eds.Status.Ready, f.eds.Status.Available, f.eds.Status.UpToDate = n, n, n, n, n
	return f
}

func (f *farm) see() *Cluster {
	d := Daemons{Sets: []edsv1.ExtendedDaemonSet{*f.eds}, Settings: f.settings}
	for _, rs := range f.sets {
		d.Revisions = append(d.Revisions, *rs)
	}
	if !f.blind {
		d.Pods = map[types.NamespacedName][]corev1.Pod{{Namespace: "ns", Name: "foo"}: f.pods}
	}
	return See(nil, f.nodes, f.budgets, now).Daemons(d)
}

// notReady is a pod that was ready for a while.
func notReady(p *corev1.Pod) {
	p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, *at(now.Add(-time.Minute))
}

func made(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { notReady(p); p.CreationTimestamp = *at(now.Add(-ago)) }
}

func going(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = at(now.Add(20*time.Second)), ptr.To[int64](30)
}

func ownerless(p *corev1.Pod) { p.OwnerReferences = nil }

func ofDaemonSet(p *corev1.Pod) {
	delete(p.Labels, edsv1.LabelName)
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}}
}

func cannotPull(p *corev1.Pod) {
	notReady(p)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
}

func strategyOf(f *farm) *edsv1.ExtendedDaemonSetSpecStrategy { return &f.eds.Spec.Strategy }

// lines says how the nodes stand, in few words.
func lines(nodes []Node) string {
	all := make([]string, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		said := n.Node + " " + string(n.State)
		if n.Phase != "" && n.Phase != v1alpha1.PhaseChanging {
			said += "/" + string(n.Phase)
		}
		if n.Reason != "" {
			said += " " + string(n.Reason)
		}
		if n.Canary {
			said += " canary"
		}
		all = append(all, said)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestDaemonNodes: the same worlds by which the controller's decisions are tested, and what is said of them.
// unscheduled is a pod that is bound to its node by affinity, and has found no place there.
func unscheduled(p *corev1.Pod) {
	notReady(p)
	n := aNode(p.Spec.NodeName)
	p.Spec = daemonset.NewPod(newFarm(0).sets["foo-old"], "foo", &n, daemonset.Overrides{}, daemonset.PodOptions{}).Spec
}

func TestDaemonNodes(t *testing.T) {
	claim := v1alpha1.Claim{Rollout: "Plan/a/b", UID: "u", Since: *at(minute)}
	for name, tc := range map[string]struct {
		farm *farm
		want string
	}{
		"all is done": {newFarm(2).has("new", nil, 0, 1), "n0 Updated, n1 Updated"},
		"two go at once, and which is the engine's to say": {
			newFarm(4).has("old", nil, 0, 1, 2, 3),
			"n0 Outdated, n1 Outdated MaxConcurrent, n2 Outdated, n3 Outdated MaxConcurrent",
		},
		"what is in its turn holds a place": {
			newFarm(4).has("new", made(time.Minute), 0).has("old", going, 1).has("old", nil, 2, 3),
			"n0 Updating, n1 Updating, n2 Outdated MaxConcurrent, n3 Outdated MaxConcurrent",
		},
		"a node that is not ready holds none": {
			newFarm(4, func(f *farm) { unready(&f.nodes[0]) }).has("new", notReady, 0).has("old", nil, 1, 2, 3),
			"n0 Updating, n1 Outdated MaxConcurrent, n2 Outdated, n3 Outdated",
		},
		"an outdated pod on a node that is not ready waits for it": {
			newFarm(1, func(f *farm) { unready(&f.nodes[0]) }).has("old", nil, 0),
			"n0 Outdated NodeNotReady",
		},
		"and so it does on one that a person has drained": {
			newFarm(1, func(f *farm) {
				c := &f.nodes[0].Status.Conditions
				*c = append(*c, corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionTrue})
			}).has("old", nil, 0),
			"n0 Outdated NodeNotReady",
		},
		"a claim keeps it away": {
			newFarm(1, func(f *farm) { claimed(claim)(&f.nodes[0]) }).has("old", nil, 0),
			"n0 Outdated Claimed",
		},
		"paused by the spec": {
			newFarm(1, func(f *farm) { strategyOf(f).Paused = true }).has("old", nil, 0), "n0 Outdated Paused",
		},
		"paused by an annotation": {
			newFarm(1, func(f *farm) { f.eds.Annotations[edsv1.AnnotationRollingUpdatePaused] = edsv1.True }).has("old", nil, 0), "n0 Outdated Paused",
		},
		"frozen: no pod is created either": {
			newFarm(2, func(f *farm) { f.eds.Annotations[edsv1.AnnotationRolloutFrozen] = edsv1.True }).has("old", nil, 0),
			"n0 Outdated Paused, n1 Outdated Paused",
		},
		"on delete": {
			newFarm(2, func(f *farm) { strategyOf(f).Type = edsv1.StrategyOnDelete }).has("old", nil, 0), "n0 Outdated OnDelete, n1 Updating",
		},
		"outside of the window": {
			newFarm(1, func(f *farm) {
				strategyOf(f).Windows = []v1alpha1.Window{{Schedule: "0 2 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
			}).has("old", nil, 0),
			"n0 Outdated OutsideWindow",
		},
		"a budget's number does not count, its pause does": {
			newFarm(1, func(f *farm) {
				f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(atMost(0))}
			}).has("old", nil, 0),
			"n0 Outdated",
		},
		"a budget is paused": {
			newFarm(1, func(f *farm) {
				f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Paused = true })}
			}).has("old", nil, 0),
			"n0 Outdated BudgetPaused",
		},
		"an untolerated taint keeps what runs there": {
			newFarm(2, func(f *farm) {
				for i := range f.nodes {
					f.nodes[i].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
				}
			}).has("old", nil, 0),
			"n0 Outdated NodeUnfit",
		},
		"pods are made slowly": {
			newFarm(4, func(f *farm) {
				strategyOf(f).RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(1))
				f.sets["foo-new"].Status.Conditions[0].LastTransitionTime = *at(now.Add(-90 * time.Second))
			}).has("new", made(time.Second), 0),
			"n0 Updating, n1 Updating, n2 Outdated SlowStart, n3 Outdated SlowStart",
		},
		"and so they are replaced": {
			newFarm(3, func(f *farm) {
				strategyOf(f).RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(1))
				f.sets["foo-new"].Status.Conditions[0].LastTransitionTime = *at(now)
			}).has("old", nil, 0, 1, 2),
			"n0 Outdated SlowStart, n1 Outdated MaxConcurrent, n2 Outdated",
		},
		"a pod that the controller could not make is not tried again at once": {
			newFarm(1, func(f *farm) {
				f.eds.Status.Waiting = []v1alpha1.UnitStatus{{Node: "n0", Reason: v1alpha1.ReasonNodeUnfit, Message: "the API server refuses the new pod"}}
			}).has("old", nil, 0),
			"n0 Outdated NodeUnfit",
		},
		"not more often than reconcileFrequency": {
			newFarm(1, func(f *farm) {
				strategyOf(f).ReconcileFrequency = &metav1.Duration{Duration: time.Minute}
				f.sets["foo-new"].Status.Conditions = append(f.sets["foo-new"].Status.Conditions,
					edsv1.Condition{Type: edsv1.ConditionPodDeletion, Status: metav1.ConditionTrue, LastUpdateTime: *at(now.Add(-time.Second))})
			}).has("old", nil, 0),
			"n0 Outdated SlowStart",
		},
		"a pod that can't start has failed, where failures are limited": {
			newFarm(2, func(f *farm) { strategyOf(f).MaxFailures = ptr.To(intstr.FromInt32(0)) }).has("new", cannotPull, 0).has("old", nil, 1),
			"n0 Failed PodFailed, n1 Outdated Halted",
		},
		"and is in its turn where not": {newFarm(1).has("new", cannotPull, 0), "n0 Updating"},
		"it soaks": {
			newFarm(2, func(f *farm) { strategyOf(f).Soak = &metav1.Duration{Duration: time.Hour} }).has("new", nil, 0).has("old", nil, 1),
			"n0 Soaking/Soaking, n1 Outdated",
		},
		"a new pod beside the old one": {
			newFarm(2, func(f *farm) {
				strategyOf(f).RollingUpdate.MaxUnavailable, strategyOf(f).RollingUpdate.MaxSurge = nil, ptr.To(intstr.FromInt32(1))
			}).has("old", nil, 0, 1).has("new", made(time.Second), 1),
			"n0 Outdated MaxConcurrent, n1 Updating",
		},
		"pods without an owner are outdated": {newFarm(1).has("old", ownerless, 0), "n0 Outdated"},
		"pods of the DaemonSet that it takes over from are, too": {
			newFarm(2, func(f *farm) { f.eds.Annotations[edsv1.AnnotationOldDaemonset] = "agent" }).has("old", ofDaemonSet, 0, 1).has("new", nil, 0),
			"n0 Updated, n1 Outdated",
		},
		"a pod that has ended is in the way of another": {
			newFarm(1).has("new", func(p *corev1.Pod) { notReady(p); p.Status.Phase = corev1.PodFailed }, 0), "n0 Updating",
		},
		"other resources make another pod": {
			newFarm(2, func(f *farm) {
				f.settings = []edsv1.ExtendedDaemonsetSetting{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large"},
					Spec: edsv1.ExtendedDaemonsetSettingSpec{
						Reference: ref("foo"), NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "n0"}},
						Containers: []edsv1.ExtendedDaemonsetSettingContainerSpec{{Name: "c", Resources: corev1.ResourceRequirements{
							Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
						}}},
					},
					Status: edsv1.ExtendedDaemonsetSettingStatus{Status: edsv1.SettingValid},
				}}
			}).has("new", nil, 0, 1),
			"n0 Outdated, n1 Updated",
		},
		"a canary's pod is not ready": {
			newFarm(3).tries("n0").has("new", notReady, 0).has("old", nil, 1, 2),
			"n0 Updating canary, n1 Outdated WavePending, n2 Outdated WavePending",
		},
		"a canary begins in the middle of a rolling update": {
			newFarm(4).tries("n0").has("new", nil, 0, 1).has("old", nil, 2, 3),
			"n0 Updated canary, n1 Outdated WaveSoaking, n2 Outdated WaveSoaking, n3 Outdated WaveSoaking",
		},
		"old pods that no one schedules go last, as far as they are ignored": {
			newFarm(4, func(f *farm) {
				strategyOf(f).RollingUpdate.MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(2))
			}).has("old", nil, 0, 1).has("old", unscheduled, 2, 3),
			"n0 Outdated, n1 Outdated, n2 Outdated MaxConcurrent, n3 Outdated MaxConcurrent",
		},
		"on delete what a canary has left goes": {
			newFarm(1, func(f *farm) {
				strategyOf(f).Type = edsv1.StrategyOnDelete
				f.sets["foo-old"].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanary, Status: metav1.ConditionFalse}}
			}).has("old", nil, 0), "n0 Outdated",
		},
		"a canary soaks": {
			newFarm(3).tries("n0").has("new", func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = *at(now) }, 0).has("old", nil, 1, 2),
			"n0 Updated canary, n1 Outdated WaveSoaking, n2 Outdated WaveSoaking",
		},
		"a paused budget holds a canary": {
			newFarm(2, func(f *farm) {
				f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Paused = true })}
			}).tries("n0").has("old", nil, 0, 1),
			"n0 Outdated BudgetPaused canary, n1 Outdated WavePending",
		},
		"a canary waits for a person": {
			newFarm(2, func(f *farm) { f.tries("n0"); strategyOf(f).Canary.ValidationMode = edsv1.ValidationModeManual }).has("new", nil, 0).has("old", nil, 1),
			"n0 Updated canary, n1 Outdated WaitingForApproval",
		},
		"what is not of the active revision waits for the canary": {
			newFarm(3).tries("n0").has("new", nil, 0).has("old", ownerless, 1).has("old", nil, 2),
			"n0 Updated canary, n1 Outdated WaveSoaking, n2 Outdated WaveSoaking",
		},
		"after a canary that failed its node goes back": {
			newFarm(2, func(f *farm) {
				f.tries()
				f.eds.Status.Canary = nil
				f.sets["foo-new"].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: "OOMKilled"}}
			}).has("new", nil, 0).has("old", nil, 1),
			"n0 Outdated, n1 Updated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.farm.see().Rollouts()[0]
			if got := lines(r.Nodes); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if n := r.Counts; n.Updated+n.Updating+n.Waiting+n.Failed != n.Total || int(n.Total) != len(r.Nodes) {
				t.Errorf("counts: %+v of %d nodes", n, len(r.Nodes))
			}
		})
	}
}

// TestDaemonState sums up what a status says.
func TestDaemonState(t *testing.T) {
	stalled := func(reason, message string) func(*farm) {
		return func(f *farm) { f.condition(edsv1.ConditionStalled, true, reason, message) }
	}
	for name, tc := range map[string]struct {
		farm    *farm
		want    State
		message string
	}{
		"new":          {newFarm(1, func(f *farm) { f.eds.Status, f.eds.CreationTimestamp = edsv1.ExtendedDaemonSetStatus{}, *at(now) }), Pending, ""},
		"no one looks": {newFarm(1, func(f *farm) { f.eds.Status = edsv1.ExtendedDaemonSetStatus{} }), Pending, "no controller has looked at it: does one run, for its kind and namespace?"},
		"changed":      {newFarm(1, func(f *farm) { f.eds.Generation++ }), Pending, "the controller has not looked at its latest change yet"},
		"at rest":      {newFarm(1).has("new", nil, 0).atRest(), Complete, ""},
		"in turn":      {newFarm(1).has("new", notReady, 0), Progressing, ""},
		"about to go":  {newFarm(1).has("old", nil, 0), Progressing, ""},
		"waits":        {newFarm(1, func(f *farm) { strategyOf(f).Paused = true }).has("old", nil, 0), Waiting, ""},
		"pods are refused": {
			newFarm(1, func(f *farm) { f.condition(edsv1.ConditionReconcileError, true, "PodRefused", "a quota says no") }), Progressing, "a quota says no",
		},
		"not valid": {newFarm(1, stalled("InvalidSpec", "spec.strategy is odd")), Stalled, "spec.strategy is odd"},
		"nothing is counted yet": {
			newFarm(1, func(f *farm) {
				f.eds.Status = edsv1.ExtendedDaemonSetStatus{ActiveReplicaSet: "foo-new", State: edsv1.StateRunning}
				f.condition(edsv1.ConditionReady, false, "Progressing", "its pods are not counted yet")
			}), Progressing, "",
		},
		"its own controller looks after it, and is done": {
			newFarm(1, func(f *farm) {
				f.atRest()
				f.eds.Status.Conditions, f.eds.Status.ObservedGeneration = nil, 0
			}).has("new", nil, 0), Complete, "",
		},
		"its own controller looks after it, and is not": {
			newFarm(1, func(f *farm) {
				f.atRest()
				f.eds.Status.Conditions, f.eds.Status.ObservedGeneration, f.eds.Status.Ready = nil, 0, 0
			}).has("new", notReady, 0), Progressing, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.farm.see().Rollouts()[0]
			if r.State != tc.want || r.Message != tc.message || r.Kind != KindDaemonSet {
				t.Errorf("%s %s: %q, want %s: %q", r.Kind, r.State, r.Message, tc.want, tc.message)
			}
		})
	}
}

// TestDaemonSteering: what a person has done, or is to do.
func TestDaemonSteering(t *testing.T) {
	paused := newFarm(2).tries("n0").has("new", cannotPull, 0).has("old", nil, 1).does(func(f *farm) {
		f.eds.Status.State, f.eds.Status.Reason = edsv1.StateCanaryPaused, "ImagePullBackOff"
		f.sets["foo-new"].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryPaused, Status: metav1.ConditionTrue, Message: "pod on node n0: no such image"}}
	})
	want := &Canary{Revision: "foo-new", Nodes: []string{"n0"}, State: CanaryPaused, Reason: "ImagePullBackOff", Message: "pod on node n0: no such image"}
	r := paused.see().Rollouts()[0]
	if diff := cmp.Diff(want, r.Canary); diff != "" {
		t.Errorf("paused (-want +got):\n%s", diff)
	}
	if r.Version != "foo-new" || r.Stage != edsv1.StateCanaryPaused || r.Wave == nil || r.Wave.Name != "canary" {
		t.Errorf("%+v", r)
	}
	failed := newFarm(1, func(f *farm) {
		f.tries()
		f.eds.Status.Canary = nil
		f.condition(edsv1.ConditionCanaryFailed, true, edsv1.ReasonCanaryFailed, "canary failed with ers: foo-new: OOMKilled")
		f.sets["foo-new"].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: "OOMKilled", Message: "it ate too much"}}
	}).has("old", nil, 0)
	want = &Canary{Revision: "foo-new", State: CanaryFailed, Reason: "OOMKilled", Message: "it ate too much"}
	if diff := cmp.Diff(want, failed.see().Rollouts()[0].Canary); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	for annotation, f := range map[string]*farm{
		"":                                  newFarm(1, func(f *farm) { strategyOf(f).Paused = true }),
		edsv1.AnnotationRollingUpdatePaused: newFarm(1, func(f *farm) { f.eds.Annotations[edsv1.AnnotationRollingUpdatePaused] = edsv1.True }),
		edsv1.AnnotationRolloutFrozen:       newFarm(1, func(f *farm) { f.eds.Annotations[edsv1.AnnotationRolloutFrozen] = edsv1.True }),
	} {
		if r := f.see().Rollouts()[0]; !r.Paused || r.PausedBy != annotation {
			t.Errorf("paused by %q: %v, %q", annotation, r.Paused, r.PausedBy)
		}
	}
}

// TestDaemonBlind: what there is to see without pods.
func TestDaemonBlind(t *testing.T) {
	f := newFarm(5, func(f *farm) {
		f.blind = true
		s := &f.eds.Status
		s.Desired, s.Current, s.Ready, s.Available, s.UpToDate = 5, 5, 4, 4, 2
		s.Updating = []v1alpha1.UnitStatus{{Node: "n1", Phase: v1alpha1.PhaseChanging}, {Node: "n2", Reason: v1alpha1.ReasonPodFailed}}
		s.Waiting = []v1alpha1.UnitStatus{{Node: "n3", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 2"}, {Node: "n2", Reason: v1alpha1.ReasonMaxConcurrent}}
	})
	r := f.see().Rollouts()[0]
	if got, want := lines(r.Nodes), "n1 Updating, n2 Failed PodFailed, n3 Outdated MaxConcurrent"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if diff := cmp.Diff(v1alpha1.UnitCounts{Total: 5, Updated: 1, Updating: 1, Failed: 1, Waiting: 2}, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&PodCounts{Desired: 5, Current: 5, Ready: 4, Available: 4, UpToDate: 2}, r.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	w, _ := f.see().Why("n3")
	if p := w.Rollouts[0]; p.Unit.Reason != v1alpha1.ReasonMaxConcurrent || len(p.Checks) != 0 {
		t.Errorf("%+v", p)
	}
	// All is as it should be: there is no need to look.
	rest := newFarm(3, func(f *farm) {
		f.blind, f.sets = true, nil
		f.nodes[2].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
	}).atRest()
	r = rest.see().Rollouts()[0]
	if got, want := lines(r.Nodes), "n0 Updated, n1 Updated"; got != want || r.State != Complete {
		t.Errorf("%s %s, want %s", r.State, got, want)
	}
	// Nodes may not be seen.
	f.nodes = nil
	if r := f.see().Rollouts()[0]; len(r.Nodes) != 3 {
		t.Errorf("%+v", r.Nodes)
	}
}

// refusing are the checks that say no, and the names of the others.
func refusing(p *Part) (no, yes []string) {
	for _, c := range p.Checks {
		if c.Reason == "" {
			yes = append(yes, c.Name)
		} else {
			no = append(no, c.Name+" "+string(c.Reason))
		}
	}
	return no, yes
}

func TestDaemonWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		farm  *farm
		node  string
		state v1alpha1.UnitState
		place int
		no    []string
		pods  []string
	}{
		"updated":     {farm: newFarm(1).has("new", nil, 0), node: "n0", state: v1alpha1.UnitUpdated, pods: []string{"new-on-n0"}},
		"about to go": {farm: newFarm(1).has("old", nil, 0), node: "n0", state: v1alpha1.UnitOutdated, place: 1, pods: []string{"old-on-n0"}},
		"all that keeps it": {
			farm: newFarm(2, func(f *farm) {
				strategyOf(f).Paused = true
				strategyOf(f).RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
				f.nodes[0].Labels["first"] = "yes"
				strategyOf(f).Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "first"}}
				f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Paused = true })}
			}).has("old", nil, 0, 1),
			node: "n1", state: v1alpha1.UnitOutdated, place: 2, no: []string{"paused Paused", "budgetPaused BudgetPaused"}, pods: []string{"old-on-n1"},
		},
		"a gate that its own pods close": {
			farm: newFarm(1, func(f *farm) {
				f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(closedBy(v1alpha1.ReasonWorkloadsUnavailable, "ExtendedDaemonSet ns/foo has 0 of 1 available"))}
			}).has("old", nil, 0),
			node: "n0", state: v1alpha1.UnitOutdated, place: 1, pods: []string{"old-on-n0"},
		},
		"a gate that others close": {
			farm: newFarm(1, func(f *farm) {
				f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(closedBy(v1alpha1.ReasonWorkloadsUnavailable,
					"ExtendedDaemonSet ns/foo has 0 of 1 available; ExtendedDaemonSet ns/foo-2 has 0 of 1 available"))}
			}).has("old", nil, 0),
			node: "n0", state: v1alpha1.UnitOutdated, place: 1, no: []string{"gates WorkloadsUnavailable"}, pods: []string{"old-on-n0"},
		},
		"the slow start": {
			farm: newFarm(1, func(f *farm) {
				strategyOf(f).ReconcileFrequency = &metav1.Duration{Duration: time.Minute}
				f.sets["foo-new"].Status.Conditions = append(f.sets["foo-new"].Status.Conditions,
					edsv1.Condition{Type: edsv1.ConditionPodDeletion, Status: metav1.ConditionTrue, LastUpdateTime: *at(now.Add(-time.Second))})
			}).has("old", nil, 0),
			node: "n0", state: v1alpha1.UnitOutdated, place: 1, no: []string{"creation SlowStart"}, pods: []string{"old-on-n0"},
		},
		"no pod yet": {
			farm: newFarm(2, func(f *farm) { f.eds.Annotations[edsv1.AnnotationRolloutFrozen] = edsv1.True }).has("new", nil, 0),
			node: "n1", state: v1alpha1.UnitOutdated, no: []string{"creation Paused"},
		},
		"in its turn": {
			farm: newFarm(1).has("old", going, 0), node: "n0", state: v1alpha1.UnitUpdating, pods: []string{"old-on-n0"},
		},
		"on the canary": {
			farm: newFarm(2).tries("n0").has("new", nil, 0).has("old", nil, 1), node: "n0", state: v1alpha1.UnitUpdated, pods: []string{"new-on-n0"},
		},
		"behind the canary": {
			farm: newFarm(2).tries("n0").has("new", notReady, 0).has("old", nil, 1),
			node: "n1", state: v1alpha1.UnitOutdated, no: []string{"wave WavePending"}, pods: []string{"old-on-n1"},
		},
		"behind a paused canary": {
			farm: newFarm(2, func(f *farm) { f.eds.Annotations[edsv1.AnnotationCanaryPaused] = edsv1.True }).tries("n0").has("new", nil, 0).has("old", nil, 1),
			node: "n1", state: v1alpha1.UnitOutdated, no: []string{"wave WaveSoaking", "canary Paused"}, pods: []string{"old-on-n1"},
		},
		"behind a canary that has soaked and restarted": {
			farm: newFarm(2, func(f *farm) {
				f.eds.Status.Wave = &v1alpha1.WaveStatus{Name: "canary", Number: 1, Revision: f.sets["foo-new"].Spec.TemplateGeneration, State: v1alpha1.WaveSoaking, Since: *at(now.Add(-time.Hour))}
				f.sets["foo-new"].Status.Conditions = []edsv1.Condition{
					{Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue, LastTransitionTime: *at(now.Add(-time.Hour))},
					{Type: edsv1.ConditionPodRestarting, Status: metav1.ConditionTrue, LastUpdateTime: *at(minute)},
				}
			}).tries("n0").has("new", nil, 0).has("old", nil, 1),
			node: "n1", state: v1alpha1.UnitOutdated, no: []string{"canary WaveSoaking"}, pods: []string{"old-on-n1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ok := tc.farm.see().Why(tc.node)
			if !ok || len(w.Rollouts) != 1 {
				t.Fatalf("%v, %+v", ok, w)
			}
			p := &w.Rollouts[0]
			if p.Unit.State != tc.state || p.Place != tc.place {
				t.Errorf("%s at place %d, want %s at %d", p.Unit.State, p.Place, tc.state, tc.place)
			}
			no, _ := refusing(p)
			if diff := cmp.Diff(tc.no, no); diff != "" {
				t.Errorf("refused by (-want +got):\n%s", diff)
			}
			var pods []string
			for _, o := range p.Pods {
				pods = append(pods, o.Name)
			}
			if diff := cmp.Diff(tc.pods, pods); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDaemonWhyNot(t *testing.T) {
	elsewhere := newFarm(1, func(f *farm) { f.eds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}} })
	tainted := newFarm(1, func(f *farm) {
		f.nodes[0].Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	})
	for want, f := range map[string]*farm{
		"no pod is created there: spec.selector does not select it":                        elsewhere,
		"no pod is created there: the template does not tolerate its taint k=v:NoSchedule": tainted,
	} {
		w, _ := f.see().Why("n0")
		if len(w.Rollouts) != 0 || len(w.Others) != 1 || w.Others[0].Message != want || w.Others[0].Kind != KindDaemonSet {
			t.Errorf("%+v, want %s", w, want)
		}
	}
}

func ref(name string) *autoscalingv1.CrossVersionObjectReference {
	return &autoscalingv1.CrossVersionObjectReference{Kind: KindDaemonSet, Name: name}
}
