// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// simulatedDaemons are on simulated nodes that are made for the test, and go with it.
func simulatedDaemons(t *testing.T, name string, n int) *daemons {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("eds-%s-%d", name, i+1)
		addDaemonNode(t, names[i], labelOf(t))
	}
	nodesReady(t, names...)
	return newDaemons(t, name, labelOf(t), names)
}

// addDaemonNode makes a simulated node like the others, whose label target has this value.
func addDaemonNode(t *testing.T, name, label string) {
	t.Helper()
	n := node(t, cluster.SimulatedNode+"0001").DeepCopy()
	kwok := n.Annotations["kwok.x-k8s.io/node"]
	n.ObjectMeta = metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", target: label},
		Annotations: map[string]string{"kwok.x-k8s.io/node": kwok},
	}
	n.Spec = corev1.NodeSpec{ProviderID: "simulated://" + name}
	n.Status.NodeInfo.BootID = string(uuid.NewUUID())
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == "MoultTestRebooted" })
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime, n.Status.Conditions[i].LastTransitionTime = metav1.Now(), metav1.Now()
	}
	if err := world.Create(t.Context(), n); err != nil {
		t.Fatalf("creating node: %v", err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(world.Delete(context.WithoutCancel(t.Context()), n)); err != nil {
			t.Errorf("deleting node: %v", err)
		}
	})
}

// nodesReady waits until nodes are ready and without a taint.
func nodesReady(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, name+" is ready", func(context.Context) (string, bool) {
			n := node(t, name)
			return fmt.Sprint(n.Spec.Taints, n.Status.Conditions), nodeIsReady(n) && len(n.Spec.Taints) == 0
		})
	}
}

func nodeIsReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// A new node has its pod at once, however long reconcileFrequency is, and a node that goes is missed by nobody.
func TestDaemonsOnNewNodes(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "newnode", 2)
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: 10 * time.Minute}
	}))
	const added = "eds-newnode-3"
	addDaemonNode(t, added, labelOf(t))
	nodesReady(t, added)
	ready := time.Now()
	eventually(t, "the new node has a pod", func(context.Context) (string, bool) {
		return "none", d.podOn(t, "agent", added) != nil
	})
	t.Logf("it has one after %s", time.Since(ready))
	d.nodes = append(d.nodes, added)
	d.settled(t, "agent")

	if err := world.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.nodes[0]}}); err != nil {
		t.Fatal(err)
	}
	d.nodes = d.nodes[1:]
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}

// A taint with NoSchedule keeps new pods away and lets those that run stay; one with NoExecute does not.
func TestDaemonsOnTaintedNodes(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "taints", 2)
	d.start(t, d.daemon("agent"))
	before := d.uids(t, "agent")
	tainted := d.nodes[0]
	taint := func(effect corev1.TaintEffect) {
		patchNode(t, tainted, map[string]any{"spec": map[string]any{"taints": []corev1.Taint{{Key: "e2e.moult.dev/taint", Effect: effect}}}})
	}
	taint(corev1.TaintEffectNoSchedule)
	lasts(t, 3*time.Second, "the pod stays", func(context.Context) error {
		if now := d.uids(t, "agent"); now[tainted] != before[tainted] {
			return fmt.Errorf("it was %s, and is %q", before[tainted], now[tainted])
		}
		return nil
	})
	if err := d.Delete(t.Context(), d.podOn(t, "agent", tainted)); err != nil {
		t.Fatal(err)
	}
	lasts(t, 3*time.Second, "no other pod comes", func(context.Context) error {
		if p := d.podOn(t, "agent", tainted); p != nil && p.UID != before[tainted] {
			return fmt.Errorf("%s was made", p.Name)
		}
		return nil
	})
	patchNode(t, tainted, map[string]any{"spec": map[string]any{"taints": nil}})
	d.settled(t, "agent")

	taint(corev1.TaintEffectNoExecute)
	d.on(d.nodes[1]).settled(t, "agent")
	patchNode(t, tainted, map[string]any{"spec": map[string]any{"taints": nil}})
	d.settled(t, "agent")
	if after := d.uids(t, "agent"); after[d.nodes[1]] != before[d.nodes[1]] {
		t.Errorf("the pod on %s, which nothing happened to, is another one", d.nodes[1])
	}
}

// A node that is not ready holds up no other, and is brought up to date when it is back.
func TestDaemonsPassByNodesThatAreNotReady(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "notready", 3)
	d.start(t, d.daemon("agent"))
	down := d.nodes[1]
	if err := world.Silence(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	eventually(t, down+" is not ready", func(context.Context) (string, bool) { return "it is", !nodeIsReady(node(t, down)) })
	d.edit(t, "agent", version("v2"))
	others := []string{d.nodes[0], d.nodes[2]}
	eventually(t, "the others are updated", func(context.Context) (string, bool) {
		seen := ""
		ok := true
		for _, n := range others {
			p := d.podOn(t, "agent", n)
			ok = ok && p != nil && podAvailable(p) && versionOf(p) == "v2"
			seen += fmt.Sprintf("%s: %t ", n, ok)
		}
		return seen, ok
	})
	patchNode(t, down, map[string]any{"metadata": map[string]any{"annotations": map[string]any{cluster.NodeNotReady: nil}}})
	nodesReady(t, down)
	d.settled(t, "agent")
}

// Two ExtendedDaemonSets of the same name and template in two namespaces have nothing to do with each other.
func TestDaemonsOfTheSameName(t *testing.T) {
	t.Parallel()
	one := simulatedDaemons(t, "same", 3)
	two := newDaemons(t, "same-other", labelOf(t), one.nodes)
	both := []*daemons{one, two}
	for _, d := range both {
		d.create(t, d.daemon("agent", canary(0)))
	}
	var names []string
	for _, d := range both {
		e := d.settled(t, "agent")
		names = append(names, e.Status.ActiveReplicaSet)
		if r := d.revision(t, e.Status.ActiveReplicaSet); len(r.OwnerReferences) != 1 || r.OwnerReferences[0].UID != e.UID {
			t.Errorf("%s/%s belongs to %v, want %s", r.Namespace, r.Name, r.OwnerReferences, e.UID)
		}
		for _, p := range d.pods(t, "agent") {
			if p.OwnerReferences[0].UID != d.revision(t, e.Status.ActiveReplicaSet).UID {
				t.Errorf("pod %s/%s belongs to %v", p.Namespace, p.Name, p.OwnerReferences)
			}
		}
	}
	if names[0] == names[1] {
		t.Errorf("both have revision %s", names[0])
	}
	before := two.uids(t, "agent")
	one.edit(t, "agent", version("v2"))
	e := one.inCanary(t, "agent", 1)
	one.mark(t, e.Status.Canary.ReplicaSet, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
	one.until(t, "agent", "has failed", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.State == edsv1.StateRunning && edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionCanaryFailed)
	})
	other := two.settled(t, "agent")
	for node, uid := range two.uids(t, "agent") {
		if before[node] != uid {
			t.Errorf("the other's pod on %s was replaced", node)
		}
	}
	if edsv1.IsConditionTrue(other.Status.Conditions, edsv1.ConditionCanaryFailed) || len(two.revisions(t, "agent")) != 1 {
		t.Errorf("the other has a part in it: %s", statusOf(other))
	}
}

// What the selector does not select any more loses its pod, what it selects now gets one, and nothing else is touched: it is no new
// revision. A label of the ExtendedDaemonSet is not taken for its name.
func TestDaemonsSelectOtherNodes(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "selects", 3)
	first, second := d.on(d.nodes[:2]...), d.on(d.nodes[1:]...)
	active := first.start(t, first.daemon("agent", canary(0), func(e *edsv1.ExtendedDaemonSet) {
		e.Labels = map[string]string{edsv1.LabelName: "another"}
	})).Status.ActiveReplicaSet
	kept := d.uids(t, "agent")[d.nodes[1]]
	d.edit(t, "agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.Selector = second.selector })
	e := second.settled(t, "agent")
	if now := d.uids(t, "agent")[d.nodes[1]]; now != kept || e.Status.ActiveReplicaSet != active || len(d.revisions(t, "agent")) != 1 {
		t.Errorf("the pod on %s was %s and is %s; revisions are %v", d.nodes[1], kept, now, d.revisions(t, "agent"))
	}
	d.onePerNode(t, "agent")
}

var errReplaced = errors.New("a pod was replaced")

// With OnDelete a pod is replaced when somebody deletes it.
func TestDaemonsOnDelete(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "ondelete", 3)
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Type = edsv1.StrategyOnDelete }))
	before := d.uids(t, "agent")
	d.edit(t, "agent", version("v2"))
	d.until(t, "agent", "has no pod that is up to date", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.UpToDate == 0 && e.Status.Available == 3 && len(d.revisions(t, "agent")) == 2
	})
	lasts(t, 3*time.Second, "nothing is replaced", func(context.Context) error {
		for node, uid := range d.uids(t, "agent") {
			if before[node] != uid {
				return fmt.Errorf("%w on %s", errReplaced, node)
			}
		}
		return nil
	})
	for i, name := range d.nodes {
		if err := d.Delete(t.Context(), d.podOn(t, "agent", name)); err != nil {
			t.Fatal(err)
		}
		d.until(t, "agent", "has another pod that is up to date", func(e *edsv1.ExtendedDaemonSet) bool {
			return e.Status.UpToDate == int32(i+1) && e.Status.Available == 3
		})
		if p := d.podOn(t, "agent", name); p == nil || versionOf(p) != "v2" {
			t.Errorf("on %s is %v", name, p)
		}
	}
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}

// Revisions without pods are kept for a rollback, which makes one of them the active one again.
func TestDaemonsHistoryAndRollback(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "history", 2)
	first := d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.RevisionHistoryLimit = ptr.To[int32](1) })).Status.ActiveReplicaSet
	d.edit(t, "agent", version("v2"))
	second := d.settled(t, "agent").Status.ActiveReplicaSet
	d.stands(t, first, edsv1.ExtendedDaemonSetReplicaSetStatus{Status: edsv1.ReplicaSetUnknown})
	d.edit(t, "agent", version("v3"))
	third := d.settled(t, "agent").Status.ActiveReplicaSet
	kept := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		eventually(t, "as many revisions are kept as asked for", func(context.Context) (string, bool) {
			have := slices.Sorted(slices.Values(d.revisions(t, "agent")))
			return fmt.Sprint(have), slices.Equal(have, want)
		})
	}
	kept(second, third)
	d.edit(t, "agent", version("v2"))
	if back := d.settled(t, "agent").Status.ActiveReplicaSet; back != second {
		t.Errorf("rolled back to %s, want %s", back, second)
	}
	kept(second, third)
	d.onePerNode(t, "agent")
}
