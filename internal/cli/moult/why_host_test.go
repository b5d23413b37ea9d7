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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/view"
)

func whyNodeRollout(options ...func(*v1alpha1.NodeRollout)) v1alpha1.NodeRollout {
	nr := v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "bottlerocket", UID: "uid-of-rollout"},
		Spec:       v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}},
		Status: v1alpha1.NodeRolloutStatus{
			Revision: "1.20.3", Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: before(time.Hour)}},
		},
	}
	for _, option := range options {
		option(&nr)
	}
	return nr
}

// aHost is a node whose host runs 1.19.0 and has 1.20.3 to offer; each pair is an annotation.
func whyHost(pairs ...string) func(*corev1.Node) {
	p := v1alpha1.HostProtocols[0]
	return func(n *corev1.Node) {
		n.Labels[p.InterfaceLabel] = v1alpha1.InterfaceUpdateAPI
		n.Status.NodeInfo.BootID = "before"
		all := append([]string{
			p.Wanted, "stabilize", p.Active, "stabilize", p.State, "ready", p.Update, "true",
			v1alpha1.AnnotationHostVersion, "1.19.0", v1alpha1.AnnotationHostTarget, "1.20.3", v1alpha1.AnnotationHostChecked, "2026-11-20T11:40:00Z",
		}, pairs...)
		for i := 0; i < len(all); i += 2 {
			n.Annotations[all[i]] = all[i+1]
		}
	}
}

func says(wanted, active, state string) []string {
	p := v1alpha1.HostProtocols[0]
	return []string{p.Wanted, wanted, p.Active, active, p.State, state}
}

func hostClaim(change ...func(*v1alpha1.Claim)) func(*corev1.Node) {
	c := v1alpha1.Claim{Rollout: "NodeRollout/bottlerocket", UID: "uid-of-rollout", Revision: "1.20.3", Since: before(9 * time.Minute)}
	for _, f := range change {
		f(&c)
	}
	return claimed(c)
}

func hostFails(reason v1alpha1.Reason, message string) func(*v1alpha1.Claim) {
	return func(c *v1alpha1.Claim) {
		c.Failed, c.Attempt = &v1alpha1.ClaimFailure{Reason: reason, Message: message, Time: before(5 * time.Minute)}, currentAttempt()
	}
}

// currentAttempt is what aNodeRollout starts turns to 1.20.3 for.
func currentAttempt() string {
	nr, t := whyNodeRollout(), hostupdate.Unit{Turn: nodeturn.Turn{Node: &corev1.Node{}}, Verdict: hostupdate.Verdict{Version: "1.20.3"}}
	w, err := hostupdate.NewWorld(&nr, nil)
	if err != nil {
		panic(err)
	}
	return w.NewClaim(&t).Attempt
}

func TestDrawHosts(t *testing.T) {
	cordoned := func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations[v1alpha1.AnnotationCordonedBy] = "NodeRollout/bottlerocket"
	}
	drained := func(c *v1alpha1.Claim) {
		c.Cordoned, c.Rebooting, c.BootID = ptr.To(before(8*time.Minute)), ptr.To(before(6*time.Minute)), "before"
	}
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		node    []func(*corev1.Node)
	}{
		"host-next":    {rollout: whyNodeRollout(), node: []func(*corev1.Node){whyHost()}},
		"host-fetches": {rollout: whyNodeRollout(), node: []func(*corev1.Node){whyHost(append(says("prepare-update", "prepare-update", "busy"), v1alpha1.AnnotationHostWanted, "1.20.3", v1alpha1.AnnotationHostAttempts, "1")...), hostClaim()}},
		"host-unheard": {rollout: whyNodeRollout(), node: []func(*corev1.Node){whyHost(append(says("reboot-update", "perform-update", "ready"), v1alpha1.AnnotationHostWanted, "1.20.3")...), hostClaim(drained), cordoned}},
		"host-updated": {
			rollout: whyNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Status.Conditions[0].Status = metav1.ConditionTrue }),
			node:    []func(*corev1.Node){whyHost(v1alpha1.AnnotationHostVersion, "1.20.3", v1alpha1.AnnotationHostPrevious, "1.19.0", "bottlerocket.aws/update-available", "false")},
		},
		"host-error": {
			rollout: whyNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Spec.Strategy = &v1alpha1.Strategy{Paused: true} }),
			node:    []func(*corev1.Node){whyHost(append(says("stabilize", "stabilize", "error"), v1alpha1.AnnotationHostError, "refresh-updates failed: no route to host")...)},
		},
		"host-silent": {rollout: whyNodeRollout(), node: []func(*corev1.Node){whyHost(append(says("stabilize", "unknown", "unknown"), "bottlerocket.aws/update-available", "unknown")...)}},
		"host-failed": {
			rollout: whyNodeRollout(),
			node: []func(*corev1.Node){
				whyHost(), hostClaim(hostFails(v1alpha1.ReasonVersionUnchanged, "the host has rebooted, and runs 1.19.0, not 1.20.3")),
			},
		},
		"host-not-offered": {rollout: whyNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Spec.HostUpdate.Version = "1.21.0" }), node: []func(*corev1.Node){whyHost()}},
		"host-detect-only": {rollout: whyNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Spec.HostUpdate.DetectOnly = true }), node: []func(*corev1.Node){whyHost()}},
		"host-opted-out":   {rollout: whyNodeRollout(), node: []func(*corev1.Node){whyHost(), func(n *corev1.Node) { n.Labels["noderollout.moult.dev/bottlerocket"] = "disabled" }}},
		"host-unlabelled":  {rollout: whyNodeRollout()},
		"host-sentinel": {
			rollout: whyNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.Status.Revision = "reboot-1" }),
			node: []func(*corev1.Node){func(n *corev1.Node) {
				p := v1alpha1.HostProtocols[2]
				n.Labels[p.InterfaceLabel] = v1alpha1.InterfaceSentinel
				n.Annotations[p.Wanted], n.Annotations[p.Active], n.Annotations[p.State], n.Annotations[p.Update] = "stabilize", "stabilize", "ready", "true"
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []corev1.Node{whyNode("worker-1", tc.node...)}
			w, ok := view.See(nil, nodes, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Why("worker-1")
			if !ok {
				t.Fatal("there is no such node")
			}
			golden(t, "why/"+name, explain(&w, now).Text(0, false))
		})
	}
}

// TestAdviceForFailedHosts: each way to fail has something to look at, and a way to try again.
func TestAdviceForFailedHosts(t *testing.T) {
	for reason, want := range map[v1alpha1.Reason]string{
		v1alpha1.ReasonHostUpdateFailed: "the log of the host's agent", v1alpha1.ReasonNotRebooted: "what keeps it from rebooting",
		v1alpha1.ReasonVersionUnchanged: "does not boot its update", v1alpha1.ReasonRebootTimeout: "spec.hostUpdate.rebootTimeout",
		v1alpha1.ReasonDrainRefused: "spec.drain.force", v1alpha1.ReasonDrainTimeout: "PodDisruptionBudget", v1alpha1.ReasonTurnTimeout: "spec.strategy.turnTimeout",
	} {
		n := whyNode("worker-1", whyHost(), hostClaim(hostFails(reason, "it broke")))
		w, _ := view.See(nil, []corev1.Node{n}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{whyNodeRollout()}).Why("worker-1")
		advice := strings.Join(advise(&w, &w.Rollouts[0], now), "\n")
		if !strings.Contains(advice, want) || !strings.Contains(advice, "kubectl moult retry worker-1") {
			t.Errorf("%s: %s", reason, advice)
		}
	}
}

// TestExplainNodeRollouts reads them beside others, and says where they are not to be seen.
func TestExplainNodeRollouts(t *testing.T) {
	hosts := source.NodeRollout.Resource.GroupResource()
	for name, tc := range map[string]struct {
		fails map[string]error
		want  string
	}{
		"seen":    {want: "NodeRollout bottlerocket  1.20.3  Outdated, next"},
		"denied":  {fails: map[string]error{"noderollouts": apierrors.NewForbidden(hosts, "", errors.New("no"))}, want: "NodeRollouts are not shown: "},
		"unknown": {fails: map[string]error{"noderollouts": apierrors.NewNotFound(hosts, "")}, want: "NodeRollouts are not shown: this cluster does not know NodeRollouts"},
		"alone": {
			fails: map[string]error{"plans": apierrors.NewForbidden(hosts, "", errors.New("no")), "extendeddaemonsets": apierrors.NewNotFound(hosts, "")},
			want:  "Plans are not shown: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := map[schema.GroupVersionResource]string{
				source.Plan.Resource: "PlanList", source.Budget.Resource: "NodeDisruptionBudgetList", source.DaemonSet.Resource: "ExtendedDaemonSetList",
				source.NodeRollout.Resource: "NodeRolloutList",
			}
			nr := whyNodeRollout()
			u := object(t, "NodeRollout", &nr)
			u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeRollout"))
			dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, u)
			for resource, err := range tc.fails {
				dynamic.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err })
			}
			node := whyNode("worker-1", whyHost())
			core := fake.NewClientset(&node)
			var out bytes.Buffer
			c := &command{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, clock: clocktesting.NewFakeClock(now)}
			src := &source.Source{Client: dynamic, Core: core.CoreV1(), Namespace: "ns"}
			if err := c.why(t.Context(), src, source.Target{Name: "worker-1"}, &flags.Output{}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("it does not say %q:\n%s", tc.want, out.String())
			}
		})
	}
}
