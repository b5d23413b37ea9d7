// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// whyDaemon asks about a node's part in an ExtendedDaemonSet until it is as wanted.
func whyDaemon(t *testing.T, d *daemons, node, name, what string, holds func(*view.Part) bool) {
	t.Helper()
	eventually(t, "why "+node+": "+what, func(context.Context) (string, bool) {
		out, err := moult(t, "why", node, "-o", "json")
		var w view.Why
		if err != nil || json.Unmarshal([]byte(out), &w) != nil {
			return fmt.Sprint(err, out), false
		}
		i := slices.IndexFunc(w.Rollouts, func(p view.Part) bool {
			return p.Rollout.Kind == view.KindDaemonSet && p.Rollout.Namespace == d.namespace && p.Rollout.Name == name
		})
		return out, i >= 0 && holds(&w.Rollouts[i])
	})
}

// checked reports whether a check gives this reason.
func checked(name string, reason v1alpha1.Reason) func(*view.Part) bool {
	return func(p *view.Part) bool {
		return slices.ContainsFunc(p.Checks, func(c view.Check) bool { return c.Name == name && c.Reason == reason })
	}
}

// agrees waits until the plugin says of each node that waits, or is in its turn, what the operator says in the status, and both say it of
// as many.
func (d *daemons) agrees(t *testing.T, name string, waiting int) {
	t.Helper()
	eventually(t, fmt.Sprintf("plugin and operator agree on %d nodes of %s that wait", waiting, name), func(context.Context) (string, bool) {
		before := d.get(t, name)
		out, err := moult(t, "status", "eds/"+name, "-n", d.namespace, "-o", "json")
		var r view.Rollout
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			return fmt.Sprint(err, out), false
		}
		said, told := map[string]v1alpha1.Reason{}, map[string]v1alpha1.Reason{}
		for _, n := range r.Nodes {
			if n.State == v1alpha1.UnitOutdated {
				said[n.Node] = n.Reason
			}
		}
		for _, n := range before.Status.Waiting {
			told[n.Node] = n.Reason
		}
		same := len(said) == len(told)
		for node, reason := range told {
			same = same && said[node] == reason
		}
		return fmt.Sprintf("plugin: %v, operator: %v\n%s", said, told, out), same && len(told) == waiting
	})
}

// TestDaemonsInMoult has kubectl moult show and steer an ExtendedDaemonSet, from its preview to the end of an update with a canary that
// somebody approves.
func TestDaemonsInMoult(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "moult", 4)
	names := d.nodes
	const name = "agent"
	e := d.daemon(name, canary(0), func(e *edsv1.ExtendedDaemonSet) {
		e.TypeMeta = metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: view.KindDaemonSet}
		e.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		e.Spec.Strategy.Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}
	})
	of := func(args ...string) []string { return append(args, "-n", d.namespace) }

	// Not there yet, and then there.
	says(t, of("preview", write(t, e)), "not in the cluster yet", "4 nodes selected", "4 nodes to get a first pod")
	refuses(t, of("pause", "eds/"+name), `there is no ExtendedDaemonSet "agent" in namespace `+d.namespace)
	d.start(t, e.DeepCopy())
	says(t, of("status", "eds/"+name), "ExtendedDaemonSet "+d.namespace+"/agent", "Complete", "4 of 4 updated")
	says(t, of("status", name), "ExtendedDaemonSet "+d.namespace+"/agent")
	says(t, []string{"status", "-A"}, "ExtendedDaemonSet "+d.namespace+"/agent")
	whyDaemon(t, d, names[2], name, "is updated", func(p *view.Part) bool {
		return p.Unit.State == v1alpha1.UnitUpdated && len(p.Pods) == 1 && p.Pods[0].Ready && p.Pods[0].UpToDate
	})
	refuses(t, of("approve", "eds/"+name), "the operator has not begun with its waves")

	// Another template: what the preview says is what happens.
	version("v2")(e)
	out, err := moult(t, of("preview", write(t, e), "-o", "json")...)
	var v view.Preview
	if err != nil || json.Unmarshal([]byte(out), &v) != nil {
		t.Fatal(err, out)
	}
	var order []string
	for _, s := range v.Steps {
		order = append(order, s.Node)
	}
	if v.Canary == nil || !slices.Equal(v.Canary.Nodes, names[:1]) || !v.Canary.Manual || !slices.Equal(order, names) || v.AtOnce != 1 || len(v.InTurn) != 0 {
		t.Errorf("preview: %s", out)
	}
	says(t, of("preview", write(t, e), "--turn=30s"), "a new revision", "canary on 1 node ("+names[0]+"), until somebody validates it",
		"1 node at once (spec.strategy.rollingUpdate.maxUnavailable is 1)", "wave remainder: 3 nodes", "the time until the canary is validated")
	d.edit(t, name, version("v2"))
	if c := d.inCanary(t, name, 1).Status.Canary; !slices.Equal(c.Nodes, v.Canary.Nodes) {
		t.Errorf("the canary is on %v, and the preview said %v", c.Nodes, v.Canary.Nodes)
	}
	whyDaemon(t, d, names[0], name, "is the canary", func(p *view.Part) bool {
		return p.Unit.State == v1alpha1.UnitUpdated && p.Unit.Canary && len(p.Checks) == 0
	})
	whyDaemon(t, d, names[1], name, "waits for approval", checked("wave", v1alpha1.ReasonWaitingForApproval))
	d.agrees(t, name, 3)
	says(t, of("status", "eds/"+name), "1 of 4 updated, 3 waiting", "(Canary)", "wave 1 of 2, canary: WaitingForApproval", "kubectl moult approve eds/agent -n "+d.namespace,
		"3 wait: WaitingForApproval")
	says(t, []string{"why", names[0]}, "ExtendedDaemonSet "+d.namespace+"/agent", "canary, Updated", "waits for somebody's approval")

	// The canary is paused, and that is said.
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryPausedReason: "lunch"})
	d.inState(t, name, edsv1.StateCanaryPaused)
	says(t, of("status", "eds/"+name), "(Canary Paused)", "paused: lunch  (kubectl eds canary unpause agent -n "+d.namespace+")")
	whyDaemon(t, d, names[1], name, "waits for the paused canary", checked("canary", v1alpha1.ReasonPaused))
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryPaused: nil, edsv1.AnnotationCanaryPausedReason: nil})
	d.inState(t, name, edsv1.StateCanary)

	// Paused, the canary can be approved and nothing else goes.
	says(t, of("pause", "eds/"+name), "extendeddaemonset.datadoghq.com/agent paused")
	refuses(t, of("approve", "eds/"+name, "--wave=other"), "it is wave canary (1 of 2) that is current")
	says(t, of("approve", "eds/"+name, "--wave=canary"), "extendeddaemonset.datadoghq.com/agent wave canary (1 of 2) approved")
	d.inState(t, name, edsv1.StateRollingUpdatePaused)
	whyDaemon(t, d, names[2], name, "is paused", func(p *view.Part) bool {
		return checked("paused", v1alpha1.ReasonPaused)(p) && p.Place == 2 && p.Asking == 3 && slices.Equal(p.Ahead, names[1:2])
	})
	d.agrees(t, name, 3)
	says(t, of("status", "eds/"+name), "paused: nothing new starts  (kubectl moult resume eds/agent -n "+d.namespace+")")

	// A claim of somebody else keeps a node away, others go on.
	claim := `[{"rollout":"Plan/x/y","uid":"x","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
	patchNode(t, names[1], map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationClaims: claim}}})
	t.Cleanup(func() {
		patchNode(t, names[1], map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationClaims: nil}}})
	})
	says(t, of("resume", "eds/"+name), "extendeddaemonset.datadoghq.com/agent resumed")
	d.until(t, name, "is updated on all nodes but one", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.UpToDate == 3 && e.Status.Available == 4 })
	whyDaemon(t, d, names[1], name, "is claimed", checked("claim", v1alpha1.ReasonClaimed))
	d.agrees(t, name, 1)
	patchNode(t, names[1], map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationClaims: nil}}})
	says(t, of("status", "eds/"+name, "--until-complete"), "Complete, 4 of 4 updated")
	says(t, of("preview", "eds/"+name), "4 nodes selected, 4 updated", "no node is to be started")
	if d.get(t, name).Spec.Strategy.Paused {
		t.Error("it is still paused")
	}

	// One that fails says so.
	d.edit(t, name, version("v3"))
	failed := d.inCanary(t, name, 1).Status.Canary.ReplicaSet
	d.mark(t, failed, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
	d.until(t, name, "has failed", func(e *edsv1.ExtendedDaemonSet) bool {
		return edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled)
	})
	says(t, of("status", "eds/"+name), "Stalled", "canary "+failed+" failed: Manually failed", "kubectl eds canary reset agent -n "+d.namespace)
	refuses(t, of("status", "eds/"+name, "--until-complete"), "is stalled: canary failed with ers: "+failed)
	d.edit(t, name, version("v2"))
	d.settled(t, name)

	// A pod that does not become ready keeps the others waiting, and is named.
	unready := "test.moult.dev/unready"
	d.edit(t, name, version("v4"), func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.Canary, e.Spec.Template.Annotations = nil, map[string]string{unready: "true"}
	})
	d.agrees(t, name, 3)
	whyDaemon(t, d, names[3], name, "waits for its turn", checked("concurrency", v1alpha1.ReasonMaxConcurrent))
	whyDaemon(t, d, names[0], name, "is in its turn", func(p *view.Part) bool {
		return p.Unit.State == v1alpha1.UnitUpdating && strings.Contains(p.Unit.Message, "is not ready") && len(p.Pods) == 1
	})
	says(t, of("status", "eds/"+name), "3 wait: MaxConcurrent: 1 of 1 slots taken ("+names[0]+")")
	d.edit(t, name, func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Annotations = nil })
	says(t, of("status", "eds/"+name, "--until-complete"), "Complete, 4 of 4 updated")

	// Its name, as kubectl asks for it.
	program, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "__complete", "-n", d.namespace, "pause", "eds/a")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+world.Kubeconfig())
	if out, err := cmd.Output(); err != nil || !slices.Contains(strings.Split(string(out), "\n"), "eds/"+name) {
		t.Errorf("completion: %v\n%s", err, out)
	}
}
