// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// waiting makes a pod wait to start, with a reason and the kubelet's message.
func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		unready(p)
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
}

// The status of a rollout whose pods can't start says why, though there is no canary.
func TestStartProblem(t *testing.T) {
	const cannot = "Pod %s cannot start with reason: "
	absent := waiting("CreateContainerConfigError", `configmap "absent" not found`)
	for name, tc := range map[string]struct {
		world  func() *world
		event  string
		reason string
		want   string
	}{
		"a ConfigMap is absent": {
			func() *world { return newWorld(2).has("new", nil, 0).has("new", absent, 1) }, "", "CreateContainerConfigError",
			cannot + `CreateContainerConfigError, on node n1: container c can't start, CreateContainerConfigError: configmap "absent" not found`,
		},
		"a volume is absent": {
			func() *world { return newWorld(2).has("new", nil, 0).has("new", waiting("ContainerCreating", ""), 1) },
			`configmap "absent" not found`, "ContainerCreating",
			cannot + `ContainerCreating, on node n1: FailedMount: configmap "absent" not found`,
		},
		"it takes its time":      {func() *world { return newWorld(2).has("new", waiting("ContainerCreating", ""), 0, 1) }, "", "", ""},
		"it has no place":        {func() *world { return newWorld(2).has("new", unscheduled, 0, 1) }, "", "", ""},
		"the node is to blame":   {func() *world { return newWorld(2).has("new", absent, 0, 1).down(0, 1) }, "", "", ""},
		"an outdated one":        {func() *world { return newWorld(2).has("old", absent, 0, 1) }, "", "", ""},
		"all pods have started":  {func() *world { return newWorld(2).has("new", nil, 0, 1) }, "", "", ""},
		"they are not ready yet": {func() *world { return newWorld(2).has("new", unready, 0, 1) }, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := tc.world().begin(t)
			pod := ""
			for _, s := range j.States {
				if s.Current != nil && !s.Current.State.Ready {
					pod = s.Current.Name
					if tc.event != "" {
						s.Current.State.Explain("FailedMount", tc.event)
					}
				}
			}
			j.Decide()
			j.Summarize("", nil)
			want := strings.Replace(tc.want, "%s", pod, 1)
			for _, kind := range []string{edsv1.ConditionReconciling, edsv1.ConditionReady} {
				c := edsv1.FindCondition(j.EDS.Status.Conditions, kind)
				if _, why, _ := strings.Cut(c.Message, "available: "); why != want {
					t.Errorf("%s says %q, want %q", kind, c.Message, want)
				}
			}
			status := j.ReplicaSetStatus(j.Active)
			c := edsv1.TrueCondition(status.Conditions, edsv1.ConditionPodCannotStart)
			if (c == nil) != (want == "") || c != nil && (c.Reason != tc.reason || c.Message != want) {
				t.Errorf("the revision says %+v, want %q", c, want)
			}
		})
	}
}
