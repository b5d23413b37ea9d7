// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/test/writes"
)

// No memory of the process decides: a controller that is new for each reconcile writes the same, in the same order.
func TestReconcileRestarted(t *testing.T) {
	run := func(restarts bool) []string {
		c := newCluster(t, newNode("node-1", ready(now)), newNode("node-2", ready(now)), newNode("node-3", ready(now)), podOn1("cart-1", true), newPlan(func(p *upgradev1.Plan) {
			drains(p)
			p.Spec.Strategy = &v1alpha1.Strategy{
				Soak: &metav1.Duration{Duration: 5 * time.Second}, Retries: &v1alpha1.Retries{Limit: 1, Backoff: &metav1.Duration{Duration: 7 * time.Second}},
			}
		}))
		record := &writes.Record{}
		watched, _ := c.Client.(client.WithWatch)
		c.Client = record.Client(watched)
		c.Controller = c.newController(c.Events)
		failedOnce := false
		for range 120 {
			if restarts {
				c.Controller = c.newController(c.Events)
			}
			c.reconcileOnce()
			record.Step()
			c.evicted()
			jobs := c.jobs()
			for _, node := range slices.Sorted(maps.Keys(jobs)) {
				j := jobs[node]
				switch age := c.clock.Now().Sub(j.CreationTimestamp.Time); {
				case plan.Finished(j) != nil:
				case age == time.Second:
					c.waitsOn(node, "drain")
				case age < 4*time.Second || c.node(node).Annotations[v1alpha1.AnnotationCordonedBy] == "":
				case node == "node-2" && !failedOnce:
					failedOnce = true
					c.ends(node, failed)
				default:
					c.ends(node, succeeded)
				}
			}
			c.passes(time.Second)
		}
		c.expect("", "", "node-1 node-2 node-3")
		runs := c.plan().Status.History
		if len(runs) != 1 || runs[0].Result != v1alpha1.RunComplete || runs[0].Updated != 3 || runs[0].Turns == nil || runs[0].Turns.Count != 3 ||
			len(runs[0].Failures) != 1 {
			t.Errorf("the history is %+v", runs)
		}
		return record.Lines()
	}
	kept, forgot := run(false), run(true)
	if len(kept) < 20 {
		t.Errorf("only %d writes were compared", len(kept))
	}
	if diff := cmp.Diff(kept, forgot); diff != "" {
		t.Errorf("the same process and a new one each time differ (-same +new):\n%s", diff)
	}
}
