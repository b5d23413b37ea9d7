// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

// updated is the whole trace of one update.
var updated = []string{
	",, ",
	"stabilize,unknown,unknown unknown",
	"stabilize,stabilize,ready true",
	"prepare-update,stabilize,ready true claimed",
	"prepare-update,prepare-update,busy true claimed",
	"prepare-update,prepare-update,ready true claimed",
	"perform-update,prepare-update,ready true claimed",
	"perform-update,perform-update,busy true claimed",
	"perform-update,perform-update,ready true claimed",
	"perform-update,perform-update,ready true unschedulable exclude-from-external-load-balancers cordoned",
	"reboot-update,perform-update,ready true unschedulable exclude-from-external-load-balancers rebooting",
	"reboot-update,reboot-update,busy true unschedulable exclude-from-external-load-balancers rebooting",
	"reboot-update,reboot-update,ready false unschedulable exclude-from-external-load-balancers rebooting",
	"stabilize,stabilize,ready false",
}

// line is what matters of a Node: "wanted,active,state update", and its marks.
func line(n *corev1.Node) string {
	a := n.Annotations
	parts := []string{fmt.Sprintf("%s,%s,%s %s", a[bottlerocket.Wanted], a[bottlerocket.Active], a[bottlerocket.State], a[bottlerocket.Update])}
	if n.Spec.Unschedulable {
		parts = append(parts, "unschedulable")
	}
	for _, label := range []string{corev1.LabelNodeExcludeBalancers, v1alpha1.LabelBeforeReboot, v1alpha1.LabelAfterReboot} {
		if _, there := n.Labels[label]; there {
			parts = append(parts, label[strings.LastIndex(label, "/")+1:])
		}
	}
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return err.Error()
	}
	for _, c := range claims {
		what := "claimed"
		switch {
		case c.Failed != nil:
			what = string(c.Failed.Reason)
		case c.Soaking != nil:
			what = "soaking"
		case c.Changed != nil:
			what = "changed"
		case c.Rebooting != nil:
			what = "rebooting"
		case c.Cordoned != nil:
			what = "cordoned"
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, " ")
}

// leftOn says what a turn has left on a node, or "".
func leftOn(n *corev1.Node) string {
	l := line(n)
	if !strings.HasPrefix(l, "stabilize,stabilize,ready") || strings.Contains(l, "unschedulable") || strings.Contains(l, "exclude") {
		return l
	}
	for _, c := range n.Status.Conditions {
		if c.Reason == "MoultTurn" && c.Status == corev1.ConditionTrue {
			return string(c.Type) + " is True"
		}
	}
	return ""
}

// oneAtATime checks that no node is in a turn while another is. Each line is "node: state".
func oneAtATime(t *testing.T, lines []string) {
	t.Helper()
	turn := ""
	for _, l := range lines {
		name, what, _ := strings.Cut(l, ": ")
		if last := what[strings.LastIndex(what, " ")+1:]; slices.Contains([]string{"claimed", "cordoned", "rebooting", "soaking"}, last) {
			if turn != "" && turn != name {
				t.Errorf("%s is in a turn while %s is", name, turn)
			}
			turn = name
		} else if turn == name {
			turn = ""
		}
	}
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// Two hosts are updated one after the other, by the fewest writes, and then nothing is written any more.
func TestUpdate(t *testing.T) {
	l := newLoop(t)
	l.host("a")
	l.host("b")
	l.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
	if wake := l.settles(); !wake.IsZero() {
		t.Errorf("it looks again at %s", wake)
	}
	for name := range l.hosts {
		if diff := cmp.Diff(updated, l.lines[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		l.updatedOnce(name)
		if n := l.node(name); n.Annotations["example.com/others"] != "stay" {
			t.Errorf("%s has lost what others wrote: %v", name, n.Annotations)
		}
		// Asked, claimed, performed, cordoned, ordered to reboot, released.
		if l.writes[name] > 6 {
			t.Errorf("%s was written %d times", name, l.writes[name])
		}
		if l.writes["pod-"+name] != 1 {
			t.Errorf("the pod of %s was evicted %d times", name, l.writes["pod-"+name])
		}
	}
	oneAtATime(t, l.order)
	runs := l.status().History
	if len(runs) != 1 || runs[0].Result != v1alpha1.RunComplete || runs[0].Updated != 2 || runs[0].Turns == nil || runs[0].Turns.Count != 2 {
		t.Errorf("the history is %+v", runs)
	}
}

// A host that has found no update after its reboot is not ordered to look again at the end of its turn. Any other host is.
func TestLooksAfterReboot(t *testing.T) {
	const rebooted, none = "reboot-update,reboot-update,ready false", "stabilize,stabilize,ready false"
	const asked, unknown = "stabilize,unknown,unknown unknown", "reboot-update,reboot-update,ready true"
	for name, tc := range map[string]struct {
		host func(*simulated)
		soak time.Duration
		want []string
	}{
		"it finds none":                 {nil, 0, []string{rebooted, none}},
		"it finds none, and soaks":      {nil, time.Hour, []string{rebooted, rebooted + " soaking", none}},
		"it can't look":                 {func(h *simulated) { h.blind = true }, 0, []string{unknown, asked, none}},
		"it can't look, and soaks":      {func(h *simulated) { h.blind = true }, time.Hour, []string{unknown, unknown + " soaking", asked, none}},
		"the agent of another operator": {func(h *simulated) { h.peer = true }, 0, []string{unknown, asked, "stabilize,stabilize,busy unknown", none}},
	} {
		t.Run(name, func(t *testing.T) {
			before := rebootsMeasured(t)
			l := newLoop(t, func(r *v1alpha1.NodeRollout) { r.Spec.Strategy = &v1alpha1.Strategy{Soak: duration(tc.soak)} })
			l.host("a", func(h *simulated) {
				if tc.host != nil {
					tc.host(h)
				}
			})
			l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
			l.settles()
			first := slices.IndexFunc(l.lines["a"], func(line string) bool { return strings.HasPrefix(line, "reboot-update,reboot-update,ready") })
			got := slices.Clone(l.lines["a"][max(first, 0):])
			got[0] = strings.TrimSuffix(got[0], " unschedulable exclude-from-external-load-balancers rebooting")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			l.updatedOnce("a")
			if measured := rebootsMeasured(t) - before; measured != 1 {
				t.Errorf("%d reboots were measured", measured)
			}
		})
	}
}

// rebootsMeasured is how many reboots the metric of all rollouts has counted.
func rebootsMeasured(t *testing.T) (n uint64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "moult_host_reboot_duration_seconds" {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

// A host that finds a further release after its reboot has another turn, once it was asked about it.
func TestChainedReleases(t *testing.T) {
	l := newLoop(t)
	h := l.host("a")
	l.meanwhile = func() {
		if h.boots == 2 {
			h.offers = "1.2.0"
		}
	}
	l.until("it runs the further release", func() string { return strings.TrimPrefix(h.runs, "1.2.0") })
	l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	l.idles("a")
	end := "reboot-update,reboot-update,ready true unschedulable exclude-from-external-load-balancers rebooting"
	if i := slices.Index(l.lines["a"], end); h.orders != 2 || h.boots != 3 || i < 0 || l.lines["a"][i+1] != "stabilize,unknown,unknown unknown" {
		t.Errorf("it was ordered to reboot %d times, has booted %d times, and the Node was\n%s", h.orders, h.boots, strings.Join(l.lines["a"], "\n"))
	}
}

// An operator that dies after any write is followed by another, which does nothing twice and forgets nothing.
func TestKilled(t *testing.T) {
	done := func(t *testing.T, l *loop) {
		l.host("a")
		l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
		l.idles("a")
		if diff := cmp.Diff(updated, l.lines["a"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		l.updatedOnce("a")
		if runs := l.status().History; len(runs) != 1 || runs[0].Result != v1alpha1.RunComplete || runs[0].Updated != 1 {
			t.Errorf("the history is %+v", runs)
		}
	}
	for writes := 1; writes <= 4; writes++ {
		t.Run(fmt.Sprintf("each %d writes", writes), func(t *testing.T) {
			l := newLoop(t)
			l.life = writes
			l.restart()
			done(t, l)
		})
	}
	for write := 1; write <= 16; write++ {
		t.Run(fmt.Sprintf("before write %d", write), func(t *testing.T) {
			l := newLoop(t)
			l.left, l.lost = write, true
			done(t, l)
		})
	}
}

// Each fault of a host ends with a reason and a schedulable node. A person's retry, or the host itself, ends it.
func TestFaults(t *testing.T) {
	fails := func(action v1alpha1.HostAction) func(*simulated) {
		return func(h *simulated) { h.fails[action] = "it is broken" }
	}
	heals := func(h *simulated) { h.fails, h.ignores, h.falls, h.mute = nil, false, false, false }
	quick := func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.RebootTimeout = duration(5 * time.Minute) }
	for _, tc := range []struct {
		name    string
		host    func(*simulated)
		spec    func(*v1alpha1.NodeRollout)
		reason  v1alpha1.Reason
		message string
		orders  int
		// mend makes the host well again. A person's retry follows, unless the host comes back by itself.
		mend   func(*simulated)
		itself bool
	}{
		{"prepare fails", fails("prepare-update"), nil, v1alpha1.ReasonHostUpdateFailed, "prepare-update failed: it is broken", 0, heals, false},
		{"perform fails", fails("perform-update"), nil, v1alpha1.ReasonHostUpdateFailed, "perform-update failed: it is broken", 0, heals, false},
		{"the host does not reboot", func(h *simulated) { h.ignores = true }, quick, v1alpha1.ReasonNotRebooted, "has not within rebootTimeout, 5m0s", 1, heals, false},
		{"the host falls back", func(h *simulated) { h.falls = true }, nil, v1alpha1.ReasonVersionUnchanged, "has rebooted, and runs 1.0.0, not 1.1.0", 1, heals, false},
		{"the host comes back late", func(h *simulated) { h.away = time.Hour }, quick, v1alpha1.ReasonRebootTimeout, "its node was not ready again within rebootTimeout, 5m0s", 1, nil, true},
		{"the turn takes too long", func(h *simulated) { h.away = time.Hour }, func(r *v1alpha1.NodeRollout) {
			r.Spec.Strategy = &v1alpha1.Strategy{TurnTimeout: duration(10 * time.Minute)}
			r.Spec.HostUpdate.RebootTimeout = duration(2 * time.Hour)
		}, v1alpha1.ReasonTurnTimeout, "took longer than turnTimeout, 10m0s", 1, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLoop(t, func(r *v1alpha1.NodeRollout) {
				if tc.spec != nil {
					tc.spec(r)
				}
			})
			h := l.host("a", tc.host)
			l.becomes(metav1.ConditionFalse, tc.message)
			if s := l.status(); len(s.Failed) != 1 || s.Failed[0].Reason != tc.reason || !strings.Contains(s.Failed[0].Message, tc.message) {
				t.Errorf("failed are %v", s.Failed)
			}
			if n := l.node("a"); n.Spec.Unschedulable || n.Annotations[bottlerocket.Wanted] != "stabilize" || n.Labels[corev1.LabelNodeExcludeBalancers] != "" {
				t.Errorf("its node is %s", line(n))
			}
			if h.orders != tc.orders {
				t.Errorf("it was ordered to reboot %d times", h.orders)
			}
			want := tc.orders
			if !tc.itself {
				l.settles()
				if tc.mend(h); l.status().Counts.Failed != 1 {
					t.Errorf("it is tried again by itself: %v", l.status().Counts)
				}
				l.edit(&v1alpha1.NodeRollout{}, "os", `{"metadata":{"annotations":{"moult.dev/retry":"1"}}}`)
				want++
			}
			l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
			l.idles("a")
			if h.orders != want || h.runs != "1.1.0" {
				t.Errorf("it was ordered to reboot %d times, and runs %s", h.orders, h.runs)
			}
		})
	}
}

// The clock alone decides when a release is old enough, when a failed host is tried again, and when a soak ends.
func TestTimes(t *testing.T) {
	l := newLoop(t, func(r *v1alpha1.NodeRollout) {
		r.Spec.HostUpdate.MinimumAge = duration(time.Hour)
		r.Spec.Strategy = &v1alpha1.Strategy{Soak: duration(10 * time.Minute), Retries: &v1alpha1.Retries{Limit: 1, Backoff: duration(20 * time.Minute)}}
	})
	h := l.host("a", func(h *simulated) { h.fails["prepare-update"] = "it is broken" })
	from := l.clock.Now()
	took := func(what string, want time.Duration) {
		t.Helper()
		if got := l.clock.Since(from).Truncate(time.Second); got != want {
			t.Errorf("%s after %s, want %s", what, got, want)
		}
		from = l.clock.Now()
	}
	waits := func(reason v1alpha1.Reason) {
		t.Helper()
		l.until("it waits for "+string(reason), func() string {
			if s := l.status(); len(s.Waiting) != 1 || s.Waiting[0].Reason != reason {
				return fmt.Sprint(s.Waiting)
			}
			return ""
		})
	}
	waits(v1alpha1.ReasonReleaseTooYoung)
	from = l.status().Releases[0].Since.Time
	// A release keeps its age while no one can say whether it is there.
	h.fails["stabilize"] = "the repository is away"
	l.annotate("a", map[string]any{bottlerocket.State: "unknown"})
	waits(v1alpha1.ReasonHostError)
	delete(h.fails, "stabilize")
	l.annotate("a", map[string]any{bottlerocket.State: "busy"}) // Its agent tries again by itself.
	l.reaches("a", "claimed")
	took("it starts", time.Hour)
	l.reaches("a", string(v1alpha1.ReasonHostUpdateFailed))
	took("it fails", 0)
	delete(h.fails, "prepare-update")
	l.reaches("a", "claimed")
	took("it is tried again", 20*time.Minute)
	l.reaches("a", "soaking")
	took("it soaks", h.away)
	l.reaches("a", "stabilize,stabilize,ready false")
	took("it is over", 10*time.Minute)
	if claims := l.node("a").Annotations[v1alpha1.AnnotationClaims]; claims != "" {
		t.Errorf("claims %s", claims)
	}
}

// The pass that cordons a node also evicts its pods, unless load balancers get time. It never orders the reboot.
func TestCordonsAndDrains(t *testing.T) {
	const cordoned = "perform-update,perform-update,ready true unschedulable exclude-from-external-load-balancers cordoned"
	for name, tc := range map[string]struct {
		spec      func(*v1alpha1.NodeRolloutSpec)
		evictions int
	}{
		"drained":     {func(*v1alpha1.NodeRolloutSpec) {}, 1},
		"not drained": {func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Disabled: true} }, 0},
		"load balancers first": {func(s *v1alpha1.NodeRolloutSpec) {
			s.HostUpdate.ExcludeFromLoadBalancers = &v1alpha1.LoadBalancerExclusion{Wait: duration(time.Minute)}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, func(r *v1alpha1.NodeRollout) { tc.spec(&r.Spec) })
			l.host("a")
			l.reaches("a", "perform-update,perform-update,ready true claimed")
			l.look()
			if got := line(l.node("a")); got != cordoned || l.writes["pod-a"] != tc.evictions {
				t.Errorf("after the pass it is %s, and %d pods were evicted", got, l.writes["pod-a"])
			}
		})
	}
}

// A drain ends as spec.drain says.
func TestDrainEnds(t *testing.T) {
	drain := func(d v1alpha1.NodeDrain) func(*v1alpha1.NodeRollout) {
		return func(r *v1alpha1.NodeRollout) { r.Spec.Drain = &d }
	}
	timed := func(end v1alpha1.DrainOnTimeout) func(*v1alpha1.NodeRollout) {
		return drain(v1alpha1.NodeDrain{Timeout: duration(5 * time.Minute), OnTimeout: end})
	}
	for name, tc := range map[string]struct {
		spec    func(*v1alpha1.NodeRollout)
		bare    bool
		status  metav1.ConditionStatus
		message string
		stays   bool
	}{
		"a pod without a controller is refused":   {drain(v1alpha1.NodeDrain{}), true, metav1.ConditionFalse, "can't be drained: 1 pod left; pod web/pod-a", true},
		"nothing is drained":                      {drain(v1alpha1.NodeDrain{Disabled: true}), false, metav1.ConditionTrue, "1 of 1 nodes updated", true},
		"a drain that takes too long fails":       {timed("Halt"), false, metav1.ConditionFalse, "was not done within its timeout, 5m0s", true},
		"a drain that takes too long is skipped":  {timed("Skip"), false, metav1.ConditionFalse, "the rollout goes on without the node", true},
		"pods of a drain that takes too long die": {timed("Force"), false, metav1.ConditionTrue, "1 of 1 nodes updated", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, tc.spec)
			l.protects = true
			l.host("a")
			if tc.bare {
				l.edit(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web"}}, "pod-a", `{"metadata":{"ownerReferences":null}}`)
			}
			l.becomes(tc.status, tc.message)
			l.until("the node is released", func() string { return strings.TrimPrefix(l.idle("a"), "stabilize,stabilize,ready true Drain") })
			if pods, _ := (podsIn{l.api}).Pods("a"); (len(pods) > 0) != tc.stays {
				t.Errorf("%d pods are left", len(pods))
			}
		})
	}
}

// A node that the rollout does not want any more is released: at once before its host was ordered to reboot, and when it is back otherwise.
func TestReleasedWhenUnwanted(t *testing.T) {
	for how, leave := range map[string]func(*loop){
		"deleted": func(l *loop) {
			if err := l.api.Delete(t.Context(), newRollout()); err != nil {
				l.Fatal(err)
			}
		},
		"deselected": func(l *loop) { l.edit(&corev1.Node{}, "a", `{"metadata":{"labels":{"pool":null}}}`) },
		"opted out": func(l *loop) {
			l.edit(&corev1.Node{}, "a", `{"metadata":{"labels":{"noderollout.moult.dev/os":"disabled"}}}`)
		},
		"unlabelled": func(l *loop) {
			l.edit(&corev1.Node{}, "a", `{"metadata":{"labels":{"bottlerocket.aws/updater-interface-version":null}}}`)
		},
	} {
		for _, reboots := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, rebooting %t", how, reboots), func(t *testing.T) {
				l := newLoop(t, func(r *v1alpha1.NodeRollout) { r.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "a"} })
				l.protects = !reboots
				h := l.host("a", func(h *simulated) { h.away = 2 * time.Minute })
				l.edit(&corev1.Node{}, "a", `{"metadata":{"labels":{"pool":"a"}}}`)
				l.until("the turn has come so far", func() string {
					if is := line(l.node("a")); h.down != reboots || !reboots && !strings.HasSuffix(is, " cordoned") {
						return is
					}
					return ""
				})
				leave(l)
				for range 3 {
					l.look()
				}
				if is := line(l.node("a")); reboots && !strings.HasSuffix(is, "unschedulable exclude-from-external-load-balancers rebooting") {
					t.Errorf("it is not waited for: %s", is)
				}
				l.until("it is released", func() string {
					if n := l.node("a"); n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] != "" || n.Labels[corev1.LabelNodeExcludeBalancers] != "" {
						return line(n)
					}
					return ""
				})
				l.settles()
				if reboots {
					l.updatedOnce("a")
				} else if h.orders != 0 || h.next != "" && how != "unlabelled" { // Without the label no agent takes it back.
					t.Errorf("it was ordered to reboot %d times, and would boot into %s", h.orders, h.next)
				}
			})
		}
	}
}

// Annotations that a person takes off in the middle of a turn lead to no second reboot and to no unschedulable node.
func TestWiped(t *testing.T) {
	p := bottlerocket
	for what, keys := range map[string][]string{
		"wanted":   {p.Wanted},
		"state":    {p.State},
		"claims":   {v1alpha1.AnnotationClaims},
		"protocol": {p.Wanted, p.Active, p.State, p.Update},
		"agent":    {p.Active, p.State, v1alpha1.AnnotationHostBoot},
		"all": {
			p.Wanted, p.Active, p.State, p.Update, v1alpha1.AnnotationClaims, v1alpha1.AnnotationHostWanted, v1alpha1.AnnotationHostVersion,
			v1alpha1.AnnotationHostTarget, v1alpha1.AnnotationHostBoot,
		},
	} {
		for _, at := range []string{
			"prepare-update,prepare-update,busy", "perform-update,perform-update,ready true unschedulable",
			"reboot-update,reboot-update,busy", "down", "reboot-update,reboot-update,ready",
		} {
			t.Run(what+" at "+at, func(t *testing.T) {
				l := newLoop(t)
				h := l.host("a")
				wiped := false
				l.meanwhile = func() {
					if wiped || at == "down" && !h.down || at != "down" && !strings.HasPrefix(line(l.node("a")), at) {
						return
					}
					wiped = true
					values := map[string]any{}
					for _, key := range keys {
						values[key] = nil
					}
					l.annotate("a", values)
				}
				l.until("it comes to rest", func() string {
					s := l.status()
					if s.Counts == nil || !wiped || s.Counts.Updated != 1 && s.Counts.Failed != 1 {
						return fmt.Sprint(s.Counts, s.Updating, s.Waiting)
					}
					return strings.TrimPrefix(l.idle("a"), "stabilize,stabilize,ready true NotRebooted")
				})
				// An order that is gone before the host went down does not come back in the same turn.
				withdrawn := at == "reboot-update,reboot-update,busy" && h.orders == 0 && h.boots == 1 && len(l.status().Failed) == 1
				if !withdrawn {
					l.updatedOnce("a")
				}
			})
		}
	}
}

// The operator goes on where the Bottlerocket update operator has stopped, with that one's agents or its own.
func TestTakesOver(t *testing.T) {
	t.Run("peer's agent", func(t *testing.T) {
		l := newLoop(t)
		l.host("a", func(h *simulated) { h.peer = true })
		l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
		l.idles("a")
		l.updatedOnce("a")
	})
	for _, left := range []string{
		"prepare-update,prepare-update,busy", "perform-update,prepare-update,ready", "perform-update,perform-update,ready",
		"reboot-update,perform-update,ready", "reboot-update,reboot-update,busy", "reboot-update,reboot-update,ready",
		"unknown,reboot-update,error", "update-me,please,now",
	} {
		t.Run(left, func(t *testing.T) {
			l := newLoop(t)
			words := strings.SplitN(left, ",", 3)
			rebooting := words[0] == "reboot-update"
			h := l.host("a", func(h *simulated) {
				if h.prepared = h.offers; rebooting {
					h.next = h.offers
				}
			})
			if rebooting && words[1] == words[0] {
				h.orders++
				h.boot(l)
			}
			l.edit(&corev1.Node{}, "a", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q,%q:%q},"labels":{%q:"",%q:""}},"spec":{"unschedulable":%v}}`,
				bottlerocket.Wanted, words[0], bottlerocket.Active, words[1], bottlerocket.State, words[2], bottlerocket.Wanted, bottlerocket.Active, rebooting))
			l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
			l.idles("a")
			l.updatedOnce("a")
			for _, key := range []string{bottlerocket.Wanted, bottlerocket.Active} {
				if _, there := l.node("a").Labels[key]; there {
					t.Errorf("the empty label %s is still there", key)
				}
			}
		})
	}
}

// Hosts whose updates have no name are rebooted as often as they need it, and the waves begin anew each time.
func TestSentinel(t *testing.T) {
	l := newLoop(t, func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{Waves: []v1alpha1.Wave{{Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual}, {Size: ptr.To(intstr.FromInt32(1))}}}
	})
	for _, name := range []string{"a", "b"} {
		l.host(name, func(h *simulated) { h.unnamed = true })
	}
	for i, offers := range []string{"1.1.0", "1.2.0"} {
		for _, name := range []string{"a", "b"} {
			l.hosts[name].offers = offers
			l.annotate(name, map[string]any{bottlerocket.State: "unknown"}) // It is asked again.
		}
		approval := ""
		l.until("the first wave waits for approval", func() string {
			s := l.status()
			if s.Wave == nil || !strings.HasPrefix(s.Wave.ApproveWith, fmt.Sprintf("wave-1@reboot-%d/", i+1)) || s.Counts.Updated != 1 {
				return fmt.Sprint(s.Wave, s.Counts)
			}
			approval = s.Wave.ApproveWith
			return ""
		})
		if i == 0 {
			l.edit(&v1alpha1.NodeRollout{}, "os", `{"metadata":{"annotations":{"moult.dev/approve":"`+approval+`"}}}`)
		} else {
			body := `{"status":{"approval":{"of":"` + approval + `","by":"jane"}}}`
			if err := l.api.Status().Patch(l.Context(), &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "os"}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
				t.Fatal(err)
			}
		}
		l.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
		l.settles()
	}
	if s := l.status(); s.Approval == nil || s.Approval.By != "jane" || s.Revision != "reboot-2" || len(s.Versions) != 0 || len(s.Releases) != 0 {
		t.Errorf("status is %+v", s)
	}
	if a, b := l.hosts["a"].orders, l.hosts["b"].orders; a != 2 || b != 2 {
		t.Errorf("they were ordered to reboot %d and %d times", a, b)
	}
}

// A host that has rebooted by itself after its turn began is ordered to reboot in the boot that it is in then, and has rebooted only once it is in another.
func TestRebootsByItselfBefore(t *testing.T) {
	l := newLoop(t)
	h := l.host("a", func(h *simulated) { h.ignores = true })
	l.reaches("a", "claimed")
	h.boot(l)
	l.reaches("a", "rebooting")
	claims, err := v1alpha1.ParseClaims(l.node("a").Annotations)
	if err != nil || len(claims) != 1 || claims[0].BootID != h.bootID() {
		t.Errorf("claims are %+v, %v, and the host is in %s", claims, err, h.bootID())
	}
	l.becomes(metav1.ConditionFalse, "has not within rebootTimeout")
}

// A node that a person has cordoned stays cordoned, even if a person takes its claim away in the reboot.
func TestPersonsCordon(t *testing.T) {
	l := newLoop(t)
	h := l.host("a")
	l.edit(&corev1.Node{}, "a", `{"spec":{"unschedulable":true}}`)
	l.until("it goes down", func() string { return strings.TrimPrefix(fmt.Sprint(h.down), "true") })
	l.annotate("a", map[string]any{v1alpha1.AnnotationClaims: nil})
	l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	l.reaches("a", "stabilize,stabilize,ready false unschedulable")
	l.settles()
	l.updatedOnce("a")
	if !l.node("a").Spec.Unschedulable {
		t.Error("it is schedulable")
	}
}

// A node that is not healthy after its reboot for too long stays cordoned until it is.
func TestNotHealthy(t *testing.T) {
	l := newLoop(t, func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{TurnTimeout: duration(15 * time.Minute)}
		r.Spec.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"startup"}}}
	})
	h := l.host("a")
	l.until("it goes down", func() string { return strings.TrimPrefix(fmt.Sprint(h.down), "true") })
	l.edit(&corev1.Node{}, "a", `{"spec":{"taints":[{"key":"startup","effect":"PreferNoSchedule"}]}}`)
	l.becomes(metav1.ConditionFalse, "its node is not well: taint startup must be absent")
	l.reaches("a", "stabilize,stabilize,ready false unschedulable exclude-from-external-load-balancers "+string(v1alpha1.ReasonTurnTimeout))
	l.settles()
	if s := l.status(); s.Counts.Failed != 1 || !l.node("a").Spec.Unschedulable {
		t.Errorf("%v, %s", s.Counts, line(l.node("a")))
	}
	l.edit(&corev1.Node{}, "a", `{"spec":{"taints":null}}`)
	l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	l.idles("a")
	l.updatedOnce("a")
}

// A spec that becomes invalid in the middle of a turn lets the turn end, and starts no other.
func TestInvalidMeanwhile(t *testing.T) {
	l := newLoop(t)
	l.host("a")
	l.host("b")
	l.until("a turn begins", func() string {
		if !strings.Contains(strings.Join(l.order, "\n"), "cordoned") {
			return "none has"
		}
		return ""
	})
	l.edit(&v1alpha1.NodeRollout{}, "os", `{"spec":{"strategy":{"windows":[{"schedule":"@hourly","duration":"1h","timeZone":"Europe/Berln"}]}}}`)
	l.becomes(metav1.ConditionFalse, "Europe/Berln")
	l.until("the turn ends", func() string {
		if s := l.status(); s.Counts.Updated != 1 || s.Counts.Waiting != 1 || len(s.Updating) > 0 {
			return fmt.Sprint(s.Counts, s.Updating)
		}
		return ""
	})
	l.settles()
	if orders := l.hosts["a"].orders + l.hosts["b"].orders; orders != 1 {
		t.Errorf("hosts were ordered to reboot %d times", orders)
	}
}
