// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// TestRollback: a rollout that is rolled back says from what, and brings its nodes to what they had.
func TestRollback(t *testing.T) {
	back := goes(func(s *v1alpha1.Strategy) { s.MaxFailures, s.Rollback = ptr.To(intstr.FromInt32(0)), true })
	nr := aNodeRollout(back, func(nr *v1alpha1.NodeRollout) {
		nr.Status.Revision, nr.Status.LastComplete, nr.Status.RolledBack = "1.19.0", "1.19.0", "1.20.3"
	})
	host := upToDate("n", "1.20.3")
	host.Labels[v1alpha1.HostProtocols[0].InterfaceLabel] = v1alpha1.InterfaceUpdog
	host.Annotations[v1alpha1.AnnotationHostChecked] = now.Add(-time.Hour).Format(time.RFC3339)
	p := aPlan(func(p *upgradev1.Plan) {
		p.Status.LatestVersion, p.Status.RolledBack = "v1", &upgradev1.PlanRevision{Version: "v2"}
	})
	c := See([]upgradev1.Plan{p}, []corev1.Node{host}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{nr})
	all := c.Rollouts()
	if r := &all[0]; r.RolledBack != "1.20.3" || r.Version != "1.19.0" || len(r.Nodes) != 1 || r.Nodes[0].State != v1alpha1.UnitOutdated || r.Nodes[0].Target != "1.19.0" {
		t.Errorf("the NodeRollout is %+v", r)
	}
	if r := &all[1]; r.RolledBack != "v2" || r.Version != "v1" {
		t.Errorf("the Plan is %+v", r)
	}
}
