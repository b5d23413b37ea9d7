// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// TestViewGivesTheReasonsOfStatus compares, for each node that status.waiting lists, its reason and message with those of package view.
func TestViewGivesTheReasonsOfStatus(t *testing.T) {
	const claim = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
	spec := func(change func(*edsv1.ExtendedDaemonSetSpecStrategy)) func(*world) {
		return func(w *world) { change(&w.eds.Spec.Strategy) }
	}
	annotate := func(key, value string) func(*world) {
		return func(w *world) { w.eds.Annotations = map[string]string{key: value} }
	}
	canary := func(change func(*world)) func(*world) {
		return func(w *world) {
			w.pods = nil
			w.trying().has("new", nil, 0).has("old", nil, 1, 2, 3, 4)
			change(w)
		}
	}
	for name, tc := range map[string]struct {
		change func(*world)
		want   v1alpha1.Reason
	}{
		"slots":     {func(*world) {}, v1alpha1.ReasonMaxConcurrent},
		"paused":    {spec(func(s *edsv1.ExtendedDaemonSetSpecStrategy) { s.Paused = true }), v1alpha1.ReasonPaused},
		"frozen":    {annotate(edsv1.AnnotationRolloutFrozen, edsv1.True), v1alpha1.ReasonPaused},
		"on delete": {spec(func(s *edsv1.ExtendedDaemonSetSpecStrategy) { s.Type = edsv1.StrategyOnDelete }), v1alpha1.ReasonOnDelete},
		"a window": {spec(func(s *edsv1.ExtendedDaemonSetSpecStrategy) {
			s.Windows = []v1alpha1.Window{{Schedule: "0 3 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
		}), v1alpha1.ReasonOutsideWindow},
		"a wave": {spec(func(s *edsv1.ExtendedDaemonSetSpecStrategy) {
			s.Waves = []v1alpha1.Wave{{Name: "first", Size: ptr.To(intstr.FromInt32(1))}}
		}), v1alpha1.ReasonWavePending},
		"the slow start": {spec(func(s *edsv1.ExtendedDaemonSetSpecStrategy) {
			s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxParallelPodCreation = ptr.To(intstr.FromString("100%")), ptr.To[int32](1)
		}), v1alpha1.ReasonSlowStart},
		"failures": {func(w *world) {
			w.eds.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0))
			w.pods = w.pods[1:]
			w.has("new", func(p *corev1.Pod) {
				unready(p)
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
			}, 0)
		}, v1alpha1.ReasonHalted},
		"a claim":          {func(w *world) { w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = claim }, v1alpha1.ReasonClaimed},
		"a node not ready": {func(w *world) { w.nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse }, v1alpha1.ReasonNodeNotReady},
		"a taint": {func(w *world) {
			w.nodes[0].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}, v1alpha1.ReasonNodeUnfit},
		"a canary soaks":       {canary(func(w *world) { w.pods[0].Status.Conditions[0].LastTransitionTime = ago(time.Minute) }), v1alpha1.ReasonWaveSoaking},
		"a canary not ready":   {canary(func(w *world) { unready(w.pods[0]) }), v1alpha1.ReasonWavePending},
		"a canary is paused":   {canary(annotate(edsv1.AnnotationCanaryPaused, edsv1.True)), v1alpha1.ReasonWaveSoaking},
		"a canary to validate": {canary(spec(func(s *edsv1.ExtendedDaemonSetSpecStrategy) { s.Canary.ValidationMode = edsv1.ValidationModeManual })), v1alpha1.ReasonWaitingForApproval},
		"a canary that restarted": {canary(func(w *world) {
			w.eds.Status.Wave = &v1alpha1.WaveStatus{
				Name: "canary", Number: 1, Revision: w.sets[1].Spec.TemplateGeneration, State: v1alpha1.WaveSoaking, Since: ago(time.Hour),
			}
			w.sets[1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
			s := &w.pods[0].Status.ContainerStatuses[0]
			s.RestartCount, s.LastTerminationState.Terminated = 1, &corev1.ContainerStateTerminated{Reason: "Error", FinishedAt: ago(time.Minute)}
		}), v1alpha1.ReasonWaveSoaking},
		"pods of a failed canary": {func(w *world) {
			w.sets[0].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue}}
			w.eds.Spec.Strategy.Windows = []v1alpha1.Window{{Schedule: "0 3 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
		}, v1alpha1.ReasonMaxConcurrent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(5).has("old", nil, 0, 1, 2, 3, 4)
			tc.change(w)
			p := w.begin(t, w.serve(t))
			if again, err := p.runCanary(t.Context()); again || err != nil {
				t.Fatal(again, err)
			}
			p.Decide()
			p.Summarize("", nil)
			want, reasons := map[string]string{}, map[v1alpha1.Reason]bool{}
			for _, u := range p.EDS.Status.Waiting {
				want[u.Node] = string(u.Reason) + ": " + u.Message
				reasons[u.Reason] = true
			}
			if !reasons[tc.want] {
				t.Fatalf("no node waits for %s: %v", tc.want, want)
			}
			objects := view.Daemons{Sets: []edsv1.ExtendedDaemonSet{*w.eds}, Pods: map[types.NamespacedName][]corev1.Pod{}}
			for _, rs := range w.sets {
				objects.Revisions = append(objects.Revisions, *rs)
			}
			var pods []corev1.Pod
			for _, pod := range w.pods {
				pods = append(pods, *pod)
			}
			objects.Pods[client.ObjectKeyFromObject(w.eds)] = pods
			nodes := make([]corev1.Node, 0, len(w.nodes))
			for _, n := range w.nodes {
				nodes = append(nodes, *n)
			}
			cluster := view.See(nil, nodes, nil, now).Daemons(objects)
			got := map[string]string{}
			for _, n := range cluster.Rollouts()[0].Nodes {
				if n.State == v1alpha1.UnitOutdated && n.Reason != "" {
					got[n.Node] = string(n.Reason) + ": " + n.Message
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("view differs from status (-status +view):\n%s", diff)
			}
		})
	}
}
