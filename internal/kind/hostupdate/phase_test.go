// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func TestPhaseOf(t *testing.T) {
	at := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 11, 20, 12, minutes, 0, 0, time.UTC)}
	}
	c := v1alpha1.Claim{Since: *at(0)}
	check := func(want v1alpha1.Phase, since int) {
		t.Helper()
		if got, when := PhaseOf(&c); got != want || !when.Equal(at(since)) {
			t.Errorf("%s since %s, want %s since minute %d", got, when, want, since)
		}
	}
	check(v1alpha1.PhasePreparing, 0)
	c.Cordoned = at(1)
	check(v1alpha1.PhaseDraining, 1)
	c.Rebooting, c.BootID = at(2), "a"
	check(v1alpha1.PhaseChanging, 2)
	c.Changed = at(3)
	check(v1alpha1.PhaseVerifying, 3)
	c.Soaking = at(4)
	check(v1alpha1.PhaseSoaking, 4)
	c = v1alpha1.Claim{Rebooting: at(5)} // One that was taken over in the middle.
	check(v1alpha1.PhaseChanging, 5)
}

func TestAwaits(t *testing.T) {
	const (
		prepare   = v1alpha1.HostActionPrepare
		perform   = v1alpha1.HostActionPerform
		reboot    = v1alpha1.HostActionReboot
		stabilize = v1alpha1.HostActionStabilize
		busy      = v1alpha1.HostStateBusy
		ready     = v1alpha1.HostStateReady
		failed    = v1alpha1.HostStateError
	)
	now := &metav1.Time{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	hooks := v1alpha1.RebootHooks{BeforeReboot: []string{"example.com/a", "example.com/b"}, AfterReboot: []string{"example.com/c"}}
	notReady := func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: *now}}
	}
	rebooted := func(n *corev1.Node) { n.Status.NodeInfo.BootID = "after" }
	annotated := func(keys ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			for _, key := range keys {
				n.Annotations[key] = "true"
			}
		}
	}
	rebooting := v1alpha1.Claim{Cordoned: now, Rebooting: now, BootID: "before"}
	changed := v1alpha1.Claim{Cordoned: now, Rebooting: now, BootID: "before", Changed: now}
	for name, tc := range map[string]struct {
		report Report
		claim  v1alpha1.Claim
		node   []func(*corev1.Node)
		hooks  v1alpha1.RebootHooks
		want   string
	}{
		"just claimed":     {report: Report{Wanted: prepare, Active: stabilize, State: ready}, want: "the host's agent has not taken up prepare-update yet"},
		"fetches":          {report: Report{Wanted: prepare, Active: prepare, State: busy, Target: "1.20.3"}, want: "the host fetches 1.20.3"},
		"fetches the same": {report: Report{Wanted: prepare, Active: prepare, State: busy}, want: "the host fetches the update"},
		"has fetched":      {report: Report{Wanted: prepare, Active: prepare, State: ready}},
		"fails to fetch":   {report: Report{Wanted: prepare, Active: prepare, State: failed, Error: "no space"}, want: "prepare-update failed: no space"},
		"fails silently":   {report: Report{Wanted: prepare, Active: prepare, State: failed}, want: "prepare-update failed: the host's agent does not say why"},
		"to be performed":  {report: Report{Wanted: perform, Active: prepare, State: ready}, want: "the host's agent has not taken up perform-update yet"},
		"performs": {
			report: Report{Wanted: perform, Active: perform, State: busy, Target: "1.20.4"},
			node:   []func(*corev1.Node){func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationHostWanted] = "1.20.3" }},
			want:   "the host makes 1.20.3 what it boots next",
		},
		"performed":          {report: Report{Wanted: perform, Active: perform, State: ready}},
		"hooks before":       {report: Report{Wanted: perform, Active: perform, State: ready}, hooks: hooks, want: "the host is about to reboot; annotations example.com/a, example.com/b of the Node must become true before"},
		"one of them is set": {report: Report{Wanted: perform, Active: perform, State: ready}, hooks: hooks, node: []func(*corev1.Node){annotated("example.com/a")}, want: "the host is about to reboot; annotations example.com/b of the Node must become true before"},
		"all are set":        {report: Report{Wanted: perform, Active: perform, State: ready}, hooks: hooks, node: []func(*corev1.Node){annotated("example.com/a", "example.com/b")}},
		"after a reset":      {report: Report{Wanted: stabilize, Active: stabilize, State: ready}},

		"drains": {report: Report{Wanted: perform, Active: perform, State: ready}, claim: v1alpha1.Claim{Cordoned: now}, hooks: hooks},

		"to be rebooted":  {report: Report{Wanted: reboot, Active: perform, State: ready}, claim: rebooting, want: "the host's agent has not taken up reboot-update yet"},
		"is going down":   {report: Report{Wanted: reboot, Active: reboot, State: busy}, claim: rebooting, want: "the host is to reboot, and has not gone down yet"},
		"may not go down": {report: Report{Wanted: reboot, Active: reboot, State: failed, Error: "an inhibitor"}, claim: rebooting, want: "reboot-update failed: an inhibitor"},
		"is down":         {report: Report{Wanted: reboot, Active: reboot, State: busy}, claim: rebooting, node: []func(*corev1.Node){notReady}, want: "the host reboots: not ready since 2026-11-20T12:00:00Z"},
		"has not said a word": {
			report: Report{Wanted: reboot, Active: reboot, State: busy}, claim: rebooting, node: []func(*corev1.Node){rebooted},
			want: "the host has rebooted, and its agent has not said yet what it runs",
		},
		"is up, not ready": {
			report: Report{Wanted: reboot, Active: reboot, State: ready}, claim: rebooting, node: []func(*corev1.Node){rebooted, notReady},
			want: "the host reboots: not ready since 2026-11-20T12:00:00Z",
		},
		"is up": {report: Report{Wanted: reboot, Active: reboot, State: ready}, claim: rebooting, node: []func(*corev1.Node){rebooted}},

		"changed, not ready":  {report: Report{Wanted: reboot, Active: reboot, State: ready}, claim: changed, node: []func(*corev1.Node){rebooted, notReady}, hooks: hooks, want: "not ready since 2026-11-20T12:00:00Z"},
		"hooks after":         {report: Report{Wanted: reboot, Active: reboot, State: ready}, claim: changed, node: []func(*corev1.Node){rebooted}, hooks: hooks, want: "the host has rebooted; annotations example.com/c of the Node must become true before"},
		"hooks after are set": {report: Report{Wanted: reboot, Active: reboot, State: ready}, claim: changed, node: []func(*corev1.Node){rebooted, annotated("example.com/c")}, hooks: hooks},
		"soaks":               {claim: v1alpha1.Claim{Soaking: now}, hooks: hooks},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
			n.Status.NodeInfo.BootID = "before"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			for _, change := range tc.node {
				change(n)
			}
			if diff := cmp.Diff(tc.want, Awaits(n, &tc.report, &tc.claim, tc.hooks)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAwaitsOfANodeThatNeverReported(t *testing.T) {
	now := metav1.Now()
	got := Awaits(&corev1.Node{}, &Report{Wanted: v1alpha1.HostActionReboot, Active: v1alpha1.HostActionReboot}, &v1alpha1.Claim{Rebooting: &now}, v1alpha1.RebootHooks{})
	if want := "the host reboots: not ready"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
