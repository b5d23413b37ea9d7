// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// change changes the Plan's spec as a person does.
func (c *cluster) change(how func(*upgradev1.Plan)) {
	c.t.Helper()
	p := c.plan()
	how(p)
	p.Generation++
	if err := c.Update(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	c.reconciles()
}

// runs checks which version the Jobs that run bring, by node.
func (c *cluster) runs(version string, nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		if j := c.jobs()[node]; j == nil || j.Labels[upgradev1.LabelVersion] != version || j.Spec.Template.Spec.Containers[0].Image != "rancher/k3s-upgrade:"+version {
			c.t.Fatalf("on %s the Job is %v, want one of %s", node, j, version)
		}
	}
}

func (c *cluster) endAll(how string, nodes ...string) {
	c.t.Helper()
	for _, node := range nodes {
		c.ends(node, map[string]func(*batchv1.Job){"succeeded": succeeded, "failed": failed}[how])
	}
	c.reconciles()
}

// message is that of Ready.
func (c *cluster) message() string { return c.plan().Status.Condition(v1alpha1.ConditionReady).Message }

// halfway is a Plan that all nodes have in version v1, and that has failed with version v2 on two of them, one more than it allows.
func halfway(t *testing.T, changes ...func(*upgradev1.Plan)) *cluster {
	t.Helper()
	c := newCluster(t, newNode("node-1", ready(now)), newNode("node-2", ready(now)), newNode("node-3", ready(now)), newPlan(func(p *upgradev1.Plan) {
		p.Spec.Concurrency, p.Spec.Version = 3, "v1"
		p.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(1)), Rollback: true}
	}))
	c.reconciles()
	c.runs("v1", "node-1", "node-2", "node-3")
	c.endAll("succeeded", "node-1", "node-2", "node-3")
	c.expect("", "", "node-1 node-2 node-3")
	c.change(func(p *upgradev1.Plan) {
		p.Spec.Version = "v2"
		for _, how := range changes {
			how(p)
		}
	})
	c.runs("v2", "node-1", "node-2", "node-3")
	c.endAll("succeeded", "node-1")
	c.expect("node-2 node-3", "node-2 node-3", "node-1")
	c.endAll("failed", "node-2", "node-3")
	return c
}

// The nodes that were updated and those that failed are brought back by Jobs of the version before.
func TestRollback(t *testing.T) {
	c := halfway(t)
	all := []string{"node-1", "node-2", "node-3"}
	c.runs("v1", all...)
	c.expect("node-1 node-2 node-3", "node-1 node-2 node-3", "")
	if _, ok := c.node("node-2").Labels[upgradev1.LabelPlanHash(name)]; !ok {
		t.Error("a node has lost its label of the Plan, by which a selector may select it")
	}
	s := c.plan().Status
	if s.LatestVersion != "v1" || s.LatestHash != s.LastComplete.Hash || s.RolledBack == nil || s.RolledBack.Version != "v2" || s.RolledBack.Hash == s.LatestHash {
		t.Errorf("the status is %+v", s)
	}
	c.Controller = c.newController(c.Events) // No process remembers it.
	c.endAll("succeeded", all...)
	c.expect("", "", "node-1 node-2 node-3")
	if want := "3 of 3 nodes updated; rolled back from version v2"; c.message() != want {
		t.Errorf("it says %q, want %q", c.message(), want)
	}
	t.Run("another version ends it", func(t *testing.T) {
		c.t = t
		c.change(func(p *upgradev1.Plan) { p.Spec.Version = "v3" })
		c.runs("v3", all...)
		if s := c.plan().Status; s.RolledBack != nil || s.LatestVersion != "v3" || s.LastComplete.Version != "v1" {
			t.Errorf("the status is %+v", s)
		}
	})
}

// Without rollback in the strategy nodes are brought to what failed again.
func TestRollbackIsTakenBack(t *testing.T) {
	c := halfway(t)
	c.change(func(p *upgradev1.Plan) { p.Spec.Strategy.Rollback = false })
	c.reconciles()
	c.runs("v2", "node-2", "node-3")
	if s := c.plan().Status; s.RolledBack != nil || s.LatestVersion != "v2" {
		t.Errorf("the status is %+v", s)
	}
}

// A node in a turn to a version that a person takes back may have that version, whatever its label says: it runs the Job of the version before.
func TestVersionIsTakenBack(t *testing.T) {
	back := func(p *upgradev1.Plan) { p.Spec.Version = "v1" }
	halted := func(t *testing.T) *cluster {
		t.Helper()
		return halfway(t, func(p *upgradev1.Plan) { p.Spec.Strategy.Rollback = false })
	}
	t.Run("where the turn has failed", func(t *testing.T) {
		c := halted(t)
		c.change(back)
		c.runs("v1", "node-1", "node-2", "node-3")
		c.endAll("succeeded", "node-1", "node-2", "node-3")
		c.expect("", "", "node-1 node-2 node-3")
	})
	t.Run("where its Job runs", func(t *testing.T) {
		c := halted(t)
		c.change(func(p *upgradev1.Plan) { p.Spec.Version = "v3" })
		c.runs("v3", "node-1", "node-2", "node-3")
		if label, ok := c.node("node-2").Labels[upgradev1.LabelPlanHash(name)]; !ok || label != "" {
			t.Errorf("a node that has failed with v2 has the label %q in its next turn", label)
		}
		c.change(back)
		c.runs("v1", "node-1", "node-2", "node-3")
		c.expect("node-1 node-2 node-3", "node-1 node-2 node-3", "")
	})
	t.Run("not while it is paused", func(t *testing.T) {
		c := halted(t)
		c.change(func(p *upgradev1.Plan) { p.Spec.Version = "v3" })
		c.change(func(p *upgradev1.Plan) { back(p); p.Spec.Strategy.Paused = true })
		c.runs("v3", "node-1", "node-2", "node-3")
	})
}

// What fails in a rollback halts it, and is not rolled back.
func TestRollbackFails(t *testing.T) {
	c := halfway(t)
	c.endAll("failed", "node-1", "node-2", "node-3")
	c.expect("", "node-1 node-2 node-3", "")
	want := "0 of 3 nodes updated, 3 failed: halted: 3 nodes failed; maxFailures is 1: node-1, node-2, node-3; " +
		"it can't be rolled back: it was rolled back from version v2 already; "
	stalled := c.plan().Status.Condition(v1alpha1.ConditionStalled)
	if stalled.Status != metav1.ConditionTrue || !strings.HasPrefix(stalled.Message, want) {
		t.Errorf("it says %q, want %q", stalled.Message, want)
	}
}

// A Plan that can't be rolled back stays halted, and says why.
func TestRollbackIsImpossible(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*upgradev1.Plan)
		want   string
	}{
		"another image": {
			func(p *upgradev1.Plan) { p.Spec.Upgrade.Args = []string{"--new"} },
			"since version v1 more of the Plan or its secrets has changed than the version, so its Job can't be made again",
		},
		"another account":  {func(p *upgradev1.Plan) { p.Spec.ServiceAccountName = "other" }, "since version v1 more of the Plan"},
		"nothing is known": {func(p *upgradev1.Plan) { p.Status.LastComplete = nil }, "no earlier version is known that all nodes had"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newNode("node-1", ready(now)), newPlan(func(p *upgradev1.Plan) {
				p.Spec.Version = "v1"
				p.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0)), Rollback: true}
			}))
			c.reconciles()
			c.endAll("succeeded", "node-1")
			p := c.plan()
			p.Spec.Version = "v2"
			tc.change(p)
			status := p.Status
			if err := c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			p.Status = status
			if err := c.Client.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			c.reconciles()
			c.endAll("failed", "node-1")
			c.expect("", "node-1", "")
			if s := c.plan().Status; s.RolledBack != nil || s.LatestVersion != "v2" || !strings.Contains(c.message(), "; it can't be rolled back: "+tc.want) {
				t.Errorf("it says %q", c.message())
			}
		})
	}
}

// A node whose drain failed was not changed: it is released with the version that it has.
func TestRollbackOfUndrained(t *testing.T) {
	c := halfway(t)
	claim := claimed(broken, func(c *v1alpha1.Claim) { c.Failed.Reason = v1alpha1.ReasonDrainTimeout })
	s := c.plan().Status
	claim.Revision = s.RolledBack.Hash
	if err := c.Create(t.Context(), newNode("node-4", ready(now), labelled(s.LatestHash), holding(claim), func(n *corev1.Node) { n.ResourceVersion = "" })); err != nil {
		t.Fatal(err)
	}
	c.reconciles()
	c.expect("node-1 node-2 node-3", "node-1 node-2 node-3", "node-4")
}

// While a channel does not answer, the version stays the one that failed, and so the rollback stays.
func TestRollbackOfAChannel(t *testing.T) {
	p := newPlan(byChannel, resolved("v1", 3), func(p *upgradev1.Plan) {
		p.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0)), Rollback: true}
		p.Status.RolledBack = &upgradev1.PlanRevision{Version: "v2"}
	})
	if diff := cmp.Diff([]string{"v2", "v2"}, []string{lastVersion(p), resolvedVersion(p)}); diff != "" {
		t.Error(diff)
	}
}
