// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/clouds"
)

// A turn goes the same way whatever changes the node: each row is a mechanism, and each column a story. This test restarts the operator, so it runs
// before those that run in parallel.
func TestTurns(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, string) *turnOf{"plan": turnOfPlan, "host-update": turnOfHost, "replacement": turnOfMachine} {
		for story, run := range map[string]func(*turnOf){
			"held": heldDrain, "failure": failedTurn, "deletion": deletedRollout, "opt-out": optedOutNode,
		} {
			t.Run(name+"-"+story, func(t *testing.T) {
				t.Parallel()
				run(begin(t, name+"-"+story))
			})
		}
	}
}

// turnOf is a rollout over one node, which its test makes.
type turnOf struct {
	*testing.T
	name, node string
	// served is true once the node has a pod of a workload that is called like the rollout.
	served bool
	// rollout is empty but for its name; holder is its name in claims, and optOut the label that keeps it away from a node.
	rollout        *unstructured.Unstructured
	holder, optOut string
	// create makes the rollout with this strategy.
	create func(v1alpha1.Strategy)
	// offers is what the node's own half does before the operator drains the node, and changes what it does then, until it is changed.
	offers, changes func()
	// breaks lets changes fail, fails is what the node's half does then, and mends ends that.
	breaks, fails, mends func()
	// changed is how often the node was changed. left says what is left of a turn elsewhere than on its node, or "".
	changed func() int
	left    func() string
}

// A drain waits for a PodDisruptionBudget, whoever is restarted meanwhile. Then the node is changed once, soaks, and is released.
func heldDrain(c *turnOf) {
	pod := c.held()
	before := c.claim()
	restartOperator(c.T)
	c.patch(`{"spec":{"strategy":{"paused":true}}}`) // The status says that by the operator that runs now.
	c.phase(v1alpha1.PhaseDraining)
	c.stillHeld(pod)
	if after := c.claim(); after.Turn != before.Turn || !after.Since.Equal(&before.Since) {
		c.Errorf("the claim was %+v, and is %+v after the restart", before, after)
	}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: metav1.NamespaceDefault}}
	if err := world.Delete(c.Context(), pdb); err != nil {
		c.Fatal(err)
	}
	c.changes()
	c.phase(v1alpha1.PhaseSoaking)
	if n := c.changed(); n != 1 {
		c.Errorf("the node was changed %d times when it soaks", n)
	}
	c.patch(`{"spec":{"strategy":{"soak":"0s"}}}`)
	c.completes()
	if n := c.changed(); n != 1 {
		c.Errorf("the node was changed %d times", n)
	}
}

// A turn that fails is tried again as often as the strategy says, and then once a person asks for it.
func failedTurn(c *turnOf) {
	c.breaks()
	c.create(v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 1, Backoff: &metav1.Duration{Duration: time.Second}}})
	c.fails()
	c.until("has failed for good", func(s *turnStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Reason != "" && !strings.Contains(s.Failed[0].Message, "tried again") && c.claim().Failures == 2
	})
	if n := c.changed(); n != 0 {
		c.Errorf("the node was changed %d times", n)
	}
	c.mends()
	c.patch(`{"metadata":{"annotations":{%q:"now"}}}`, v1alpha1.AnnotationRetry)
	c.offers()
	c.changes()
	c.completes()
	if n := c.changed(); n != 1 {
		c.Errorf("the node was changed %d times after the retry", n)
	}
}

// A rollout that is deleted in the middle of a drain leaves nothing behind, and its node serves.
func deletedRollout(c *turnOf) {
	pod := c.held()
	if err := world.Delete(c.Context(), c.rollout.DeepCopy()); err != nil {
		c.Fatal(err)
	}
	c.releasedUnchanged(pod)
	eventually(c.T, "the rollout is gone", func(ctx context.Context) (string, bool) {
		err := world.Get(ctx, client.ObjectKeyFromObject(c.rollout), c.rollout.DeepCopy())
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	})
}

// A node that opts out in the middle of a drain serves as before.
func optedOutNode(c *turnOf) {
	pod := c.held()
	patchNode(c.T, c.node, map[string]any{"metadata": map[string]any{"labels": map[string]any{c.optOut: upgradev1.LabelDisabled}}})
	c.releasedUnchanged(pod)
	c.until("has no node", func(s *turnStatus) bool { return s.Counts.Total == 0 && len(s.Updating)+len(s.Failed) == 0 })
}

// held brings the turn to a drain that a PodDisruptionBudget holds, and returns the pod.
func (c *turnOf) held() corev1.Pod {
	c.Helper()
	deploy(c.T, c.name, 1, 1)
	pod := podsOf(c.T, c.name)[0]
	c.served = true
	c.create(v1alpha1.Strategy{Soak: &metav1.Duration{Duration: time.Hour}})
	c.offers()
	c.phase(v1alpha1.PhaseDraining)
	eventually(c.T, c.node+" is cordoned", func(context.Context) (string, bool) {
		n := node(c.T, c.node)
		return fmt.Sprint(n.Spec, n.Annotations), n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationCordonedBy] == c.holder
	})
	c.stillHeld(pod)
	return pod
}

// stillHeld checks that nothing was evicted, and nothing changed.
func (c *turnOf) stillHeld(pod corev1.Pod) {
	c.Helper()
	if got := podsOf(c.T, c.name); len(got) != 1 || got[0].UID != pod.UID || got[0].DeletionTimestamp != nil {
		c.Errorf("the PodDisruptionBudget allows no eviction, but the pods are %v", got)
	}
	if n := c.changed(); n != 0 {
		c.Errorf("the node was changed %d times before its drain was over", n)
	}
}

// releasedUnchanged waits until nothing is left of the turn, and checks that nothing came of it.
func (c *turnOf) releasedUnchanged(pod corev1.Pod) {
	c.Helper()
	c.released(func() string { return leftovers(node(c.T, c.node)) })
	c.stillHeld(pod)
}

func (c *turnOf) released(onNode func() string) {
	c.Helper()
	eventually(c.T, "nothing of the turn is left", func(context.Context) (string, bool) {
		why := onNode() + c.left()
		return why, why == ""
	})
}

// claim is the rollout's on its node.
func (c *turnOf) claim() v1alpha1.Claim {
	c.Helper()
	claims, err := v1alpha1.ParseClaims(node(c.T, c.node).Annotations)
	if err != nil || len(claims) != 1 || claims[0].Rollout != c.holder {
		c.Fatalf("%s has the claims %+v, %v, want that of %s", c.node, claims, err, c.holder)
	}
	return claims[0]
}

// turnStatus is what the statuses of all kinds have alike.
type turnStatus struct {
	ObservedGeneration        int64
	Counts                    *v1alpha1.UnitCounts
	Updating, Failed, Waiting []v1alpha1.UnitStatus
}

// until waits until the rollout's status is of its spec, and as wanted.
func (c *turnOf) until(what string, holds func(*turnStatus) bool) {
	c.Helper()
	eventually(c.T, c.name+" "+what, func(ctx context.Context) (string, bool) {
		now, s := c.rollout.DeepCopy(), &turnStatus{}
		if err := world.Get(ctx, client.ObjectKeyFromObject(c.rollout), now); err != nil {
			return err.Error(), false
		}
		text, err := json.Marshal(now.Object["status"])
		if err != nil || json.Unmarshal(text, s) != nil {
			c.Fatal(err, string(text))
		}
		return string(text), s.ObservedGeneration == now.GetGeneration() && s.Counts != nil && holds(s)
	})
}

func (c *turnOf) phase(phase v1alpha1.Phase) {
	c.Helper()
	c.until("is "+string(phase), func(s *turnStatus) bool { return len(s.Updating) == 1 && s.Updating[0].Phase == phase })
}

func (c *turnOf) completes() {
	c.Helper()
	c.until("is complete", func(s *turnStatus) bool { return s.Counts.Total == 1 && s.Counts.Updated == 1 })
	c.released(func() string {
		n := &corev1.Node{}
		err := world.Get(c.Context(), client.ObjectKey{Name: c.node}, n)
		if apierrors.IsNotFound(err) {
			return "" // Its machine was replaced.
		}
		if err != nil {
			return err.Error()
		}
		return leftovers(n)
	})
}

// patch changes the rollout as a person does.
func (c *turnOf) patch(format string, args ...any) {
	c.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	if err := persistently(c.Context(), func(ctx context.Context) error { return world.Patch(ctx, c.rollout.DeepCopy(), patch) }); err != nil {
		c.Fatal(err)
	}
}

// newTurn is a turn of a kind of rollouts, which is described where it fails.
func newTurn(t *testing.T, name, node string, rollout client.Object, kind, holder, optOut string) *turnOf {
	t.Helper()
	c := &turnOf{T: t, name: name, node: node, rollout: &unstructured.Unstructured{}, holder: holder, optOut: optOut, left: func() string { return "" }}
	nothing := func() {}
	c.offers, c.changes, c.breaks, c.fails, c.mends = nothing, nothing, nothing, nothing, nothing
	c.rollout.SetAPIVersion(v1alpha1.GroupVersion.String())
	if kind == "Plan" {
		c.rollout.SetAPIVersion(upgradev1.GroupVersion.String())
	}
	c.rollout.SetKind(kind)
	c.rollout.SetNamespace(rollout.GetNamespace())
	c.rollout.SetName(name)
	t.Cleanup(func() {
		if t.Failed() {
			n := &corev1.Node{}
			err := world.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: node}, n)
			text, _ := yaml.Marshal(map[string]any{"labels": n.Labels, "annotations": n.Annotations, "spec": n.Spec})
			t.Logf("node %s: %v\n%s", node, err, text)
		}
	})
	return c
}

// turnOfPlan is a Plan that adds a line to a file of a machine, which really evicts its pods. It fails where another file is.
func turnOfPlan(t *testing.T, name string) *turnOf {
	m := takeMachines(t, 1)[0]
	file, broken := "/var/"+name, "/var/"+name+".broken"
	// What each step sees of the workload in this machine's own table of processes.
	look := `n=0; for p in /proc/[0-9]*; do
		tr '\0' '\n' < $p/environ | grep -q "^HOSTNAME=` + name + `-[a-z0-9]*-[a-z0-9]*$" && n=$((n+1))
	done; test ! -e /host` + broken + ` && echo "$0 $n" >> /host` + file
	p := newPlan(t, name, "")
	p.Spec.Upgrade.Args = []string{look, "upgrade"}
	c := newTurn(t, name, m.Name(), p, "Plan", "Plan/"+namespace+"/"+name, upgradev1.LabelPlanHash(name))
	run := func(command ...string) {
		if out, err := m.Exec(t.Context(), command...); err != nil {
			t.Fatal(err, string(out))
		}
	}
	c.create = func(s v1alpha1.Strategy) {
		p.Spec.Drain, p.Spec.Strategy = &upgradev1.DrainSpec{}, &s
		if c.served {
			p.Spec.Prepare = &upgradev1.ContainerSpec{Image: image.Busybox, Command: p.Spec.Upgrade.Command, Args: []string{look, "prepare"}}
		}
		create(t, p)
	}
	c.breaks = func() { run("touch", broken) }
	c.mends = func() { run("rm", broken) }
	c.changed = func() (n int) {
		for _, line := range lines(t, m, file) {
			switch line {
			case "prepare 1":
			case "upgrade 0":
				n++
			default:
				t.Errorf("the Job ran beside another number of pods than it should: %s", line)
			}
		}
		return n
	}
	c.left = func() string {
		for _, j := range jobsOf(t, name) {
			if j.Status.CompletionTime == nil && j.Status.Failed == 0 {
				return "Job " + j.Name + " is there"
			}
		}
		return ""
	}
	return c
}

// turnOfHost is a host update of a simulated node, of which the test plays the host.
func turnOfHost(t *testing.T, name string) *turnOf {
	h := play(t, takeSimulated(t, 1))[0]
	r := newRollout(name)
	r.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}}
	c := newTurn(t, name, h.name, r, "NodeRollout", "NodeRollout/"+name, v1alpha1.LabelNodeRollout(name))
	boots := 0
	c.create = func(s v1alpha1.Strategy) {
		r.Spec.Strategy = &s
		createRollout(t, r)
		h.finds(oldVersion, newVersion)
	}
	c.offers = func() {
		h.does(v1alpha1.HostActionPrepare)
		h.does(v1alpha1.HostActionPerform)
	}
	c.changes = func() {
		h.reboots()
		boots++
		if boots == 1 && r.Spec.Strategy.Soak == nil {
			h.finds(newVersion, "")
		}
	}
	c.fails = func() {
		for range 2 {
			h.hears(v1alpha1.HostActionPrepare)
			h.says(v1alpha1.HostActionPrepare, v1alpha1.HostStateError, v1alpha1.AnnotationHostError, "no space left")
			h.finds(oldVersion, newVersion)
		}
	}
	c.changed = func() int {
		if node(t, h.name).Annotations[h.protocol.Wanted] == string(v1alpha1.HostActionReboot) && boots == 0 {
			return 1 // It was ordered to reboot.
		}
		return boots
	}
	c.left = func() string {
		switch wanted := node(t, h.name).Annotations[h.protocol.Wanted]; v1alpha1.HostAction(wanted) {
		case v1alpha1.HostActionPrepare, v1alpha1.HostActionPerform, v1alpha1.HostActionReboot:
			return "the host is still told to " + wanted
		}
		return ""
	}
	return c
}

// turnOfMachine is the replacement of the one machine of a scale set in a simulated cloud.
func turnOfMachine(t *testing.T, name string) *turnOf {
	p := newPool(t, name, poolOptions{})
	r := p.newRollout()
	c := newTurn(t, name, p.nodes(t)[0].Name, r, "NodeRollout", "NodeRollout/"+name, v1alpha1.LabelNodeRollout(name))
	c.create = func(s v1alpha1.Strategy) {
		r.Spec.Strategy = &s
		p.setImage(t, newImage)
		createRollout(t, r)
	}
	c.breaks = func() { p.fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add"}) }
	c.mends = func() { p.world.ClearFaultsOf(p.full) }
	c.changed = func() (n int) {
		for _, m := range p.world.Gone(p.full) {
			if m.ID == p.original[0] {
				n++
			}
		}
		return n
	}
	c.left = func() string {
		if n := len(p.world.Machines(p.full)); n != 1 {
			return fmt.Sprintf("there are %d machines", n)
		}
		for _, n := range p.nodes(t) {
			if why := leftovers(&n); why != "" {
				return n.Name + " " + why
			}
		}
		return ""
	}
	return c
}

// restarting is held while the operator is restarted.
var restarting sync.Mutex

// restartOperator kills the operator as a power cut does, and starts another.
func restartOperator(t *testing.T) {
	t.Helper()
	restarting.Lock()
	defer restarting.Unlock()
	world.operator.Kill()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "system-upgrade-controller", Namespace: namespace}}
	if err := persistently(t.Context(), func(ctx context.Context) error { return client.IgnoreNotFound(world.Delete(ctx, lease)) }); err != nil {
		t.Fatal(err)
	}
	if err := startOperator(); err != nil {
		t.Fatal(err)
	}
}
