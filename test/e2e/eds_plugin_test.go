// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// waits returns when the operator's status and `kubectl moult status` give these nodes this reason.
func (d *daemons) waits(t *testing.T, reason v1alpha1.Reason, nodes ...string) {
	t.Helper()
	want := map[string]v1alpha1.Reason{}
	for _, n := range nodes {
		want[n] = reason
	}
	eventually(t, fmt.Sprintf("%v wait: %s", nodes, reason), func(context.Context) (string, bool) {
		plugin, operator := map[string]v1alpha1.Reason{}, map[string]v1alpha1.Reason{}
		for _, n := range d.get(t).Status.Waiting {
			operator[n.Node] = n.Reason
		}
		out, err := moult(t, "status", "eds/"+agent, "-n", d.namespace, "-o", "json")
		var r view.Rollout
		if err != nil || json.Unmarshal([]byte(out), &r) != nil {
			return fmt.Sprint(err, out), false
		}
		for _, n := range r.Nodes {
			if n.State == v1alpha1.UnitOutdated {
				plugin[n.Node] = n.Reason
			}
		}
		return fmt.Sprintf("plugin: %v, operator: %v", plugin, operator), maps.Equal(plugin, want) && maps.Equal(operator, want)
	})
}

// TestDaemonsInMoult previews, shows and steers an ExtendedDaemonSet with kubectl moult, from before it is there to the end of
// an update.
func TestDaemonsInMoult(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "moult", 3)
	names := d.nodes
	e := d.daemon(canary, func(e *edsv1.ExtendedDaemonSet) {
		e.TypeMeta = metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: view.KindDaemonSet}
		e.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		e.Spec.Strategy.Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}
	})
	of := func(args ...string) []string { return append(args, "-n", d.namespace) }
	const it = "eds/" + agent

	says(t, of("preview", write(t, e)), "not in the cluster yet", "3 nodes selected", "3 nodes to get a first pod")
	d.create(t, e.DeepCopy())
	d.settled(t)
	says(t, of("status", it), "ExtendedDaemonSet "+d.namespace+"/agent", "Complete", "3 of 3 updated")

	// What the preview says is what happens.
	version("v2")(e)
	says(t, of("preview", write(t, e)), "a new revision", "canary on 1 node ("+names[0]+"), until a person validates it",
		"1 node at once (spec.strategy.rollingUpdate.maxUnavailable is 1)", "wave remainder: 2 nodes")
	d.edit(t, version("v2"))
	if c := d.inCanary(t, 1).Status.Canary; !slices.Equal(c.Nodes, names[:1]) {
		t.Errorf("the canary is on %v, and the preview said %s", c.Nodes, names[0])
	}
	d.waits(t, v1alpha1.ReasonWaitingForApproval, names[1:]...)
	says(t, of("status", it), "1 of 3 updated, 2 waiting", "(Canary)", "wave 1 of 2, canary: WaitingForApproval", "kubectl moult approve eds/agent -n "+d.namespace)
	says(t, []string{"why", names[0]}, "ExtendedDaemonSet "+d.namespace+"/agent", "canary, Updated")

	// While it is paused the canary can be approved, and nothing is replaced.
	says(t, of("pause", it), "extendeddaemonset.datadoghq.com/agent paused")
	refuses(t, of("approve", it, "--wave=other"), "it is wave canary (1 of 2) that is current")
	says(t, of("approve", it, "--wave=canary"), "wave canary (1 of 2) approved")
	d.inState(t, edsv1.StateRollingUpdatePaused)
	d.waits(t, v1alpha1.ReasonPaused, names[1:]...)
	says(t, of("resume", it), "extendeddaemonset.datadoghq.com/agent resumed")
	says(t, of("status", it, "--until-complete"), "Complete, 3 of 3 updated")

	// A pod that does not become ready keeps the others waiting, and is named.
	d.edit(t, version("v3"), behave("unready", "true"), func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Canary = nil })
	d.waits(t, v1alpha1.ReasonMaxConcurrent, names[1:]...)
	says(t, of("status", it), "2 wait: MaxConcurrent: 1 of 1 slots taken ("+names[0]+")")
	d.edit(t, func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Annotations = nil })
	d.settled(t)
}
