// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// rebootingPlan is a Plan that drains a machine, changes it and reboots it. A pod that finds the machine changed only says so.
func rebootingPlan(t *testing.T, name string) (*cluster.Machine, *upgradev1.Plan) {
	t.Helper()
	m := takeMachines(t, 1)[0]
	p := newPlan(t, name, fmt.Sprintf(`log=/host/var/%s
		test -e $log.changed && echo verified >> $log && exit
		echo changed >> $log
		touch $log.changed
		sync
		chroot /host /bin/busybox reboot
		sleep 3600`, name))
	p.Spec.Drain = &upgradev1.DrainSpec{}
	return m, p
}

// rebooted checks that the machine was changed once, rebooted once, and was verified by the Job's last pod.
func rebooted(t *testing.T, m *cluster.Machine, plan, before string, pod corev1.Pod) {
	t.Helper()
	if diff := cmp.Diff([]string{"changed", "verified"}, lines(t, m, "/var/"+plan)); diff != "" {
		t.Errorf("what ran on %s (-want +got)\n%s", m.Name(), diff)
	}
	if now := m.BootID(); now == before || node(t, m.Name()).Status.NodeInfo.BootID != now {
		t.Errorf("the boot id was %s, is %s, and the Node's is %s", before, now, node(t, m.Name()).Status.NodeInfo.BootID)
	}
	released(t, m.Name(), false)
	for _, left := range podsOf(t, plan) {
		if left.UID == pod.UID {
			t.Errorf("pod %s was not evicted", left.Name)
		}
	}
}

// A Job that reboots its machine goes on after the reboot: its pod is lost with the machine, and its next pod sees that the work is done.
// The machine is drained once, stays cordoned until then, and counts as failed at no time. This test restarts the operator.
func TestPlanRebootsAMachine(t *testing.T) {
	world.backoffLimit = 2 // The operator's default.
	restartOperator(t)
	defer func() {
		world.backoffLimit = 0
		restartOperator(t)
	}()
	m, p := rebootingPlan(t, "reboots")
	d := deploy(t, p.Name, 1, 0)
	pod, before, journal := podsOf(t, d.Name)[0], m.BootID(), newNodeJournal(t)
	create(t, p)
	complete(t, p.Name)
	rebooted(t, m, p.Name, before, pod)
	jobs := jobsOf(t, p.Name)
	if len(jobs) != 1 || jobs[0].Status.Failed != 1 || jobs[0].Status.Succeeded != 1 {
		t.Errorf("the Jobs are %+v, want one of which one pod failed and one succeeded", jobs)
	}
	if reasons := eventReasons(t, "Plan", p.Name); reasons["JobFailed"] != 0 {
		t.Errorf("the Plan's Events are %v", reasons)
	}
	cordoned, turns := 0, map[string]bool{}
	was := false
	for _, n := range journal.of(t, m.Name()) {
		if n.Spec.Unschedulable && !was {
			cordoned++
		}
		was = n.Spec.Unschedulable
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil {
			t.Error(err)
		}
		for _, c := range claims {
			turns[c.Turn] = true
		}
	}
	if cordoned != 1 || len(turns) != 1 {
		t.Errorf("the node was cordoned %d times, in %d turns", cordoned, len(turns))
	}
}

// Where the Job makes no other pod, its node fails by the reboot, stays cordoned, and says why. It is updated by the next attempt, which finds
// the work done.
func TestPlanLosesItsPodByAReboot(t *testing.T) {
	t.Parallel()
	m, p := rebootingPlan(t, "loses")
	d := deploy(t, p.Name, 1, 0)
	pod, before := podsOf(t, d.Name)[0], m.BootID()
	create(t, p)
	failed := status(t, p.Name, "has failed", func(s *upgradev1.PlanStatus) bool { return len(s.Failed) == 1 }).Status
	if f := failed.Failed[0]; f.Node != m.Name() || f.Reason != v1alpha1.ReasonJobFailed || !strings.Contains(f.Message, "backoff limit") {
		t.Errorf("it failed with %+v", f)
	}
	if n := node(t, m.Name()); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] == "" {
		t.Errorf("node %s is unschedulable %t, and has the claims %q", n.Name, n.Spec.Unschedulable, n.Annotations[v1alpha1.AnnotationClaims])
	}
	if c := failed.Condition(upgradev1.ConditionStalled); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("the Plan is stalled: %+v", c)
	}
	// The strategy tries again by itself what a person would try again.
	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Spec.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 1, Backoff: &metav1.Duration{Duration: time.Second}}}
	})
	complete(t, p.Name)
	rebooted(t, m, p.Name, before, pod)
	available(t, d, 1)
}
