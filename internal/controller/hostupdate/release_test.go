// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// A release that one host has found is asked for on all others, and nothing but a host that runs it lets the wave of the canary end.
func TestReleaseIsFound(t *testing.T) {
	host := func(name, runs, offers string, checked time.Duration) *corev1.Node {
		said := "stabilize,stabilize,ready false"
		if offers != "" {
			said = "stabilize,stabilize,ready true"
		}
		return newNode(words(said), annotated(v1alpha1.AnnotationHostVersion, runs), annotated(v1alpha1.AnnotationHostTarget, offers),
			annotated(v1alpha1.AnnotationHostChecked, now.Add(checked).Format(time.RFC3339)), func(n *corev1.Node) { n.Name, n.UID = name, types.UID("uid-"+name) })
	}
	looks := func(name, runs string) *corev1.Node {
		n := host(name, runs, "", 0)
		words("stabilize,unknown,unknown unknown")(n)
		return n
	}
	canary := []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1))}}
	pool := []v1alpha1.Wave{{Name: "canary", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "test"}}}}
	for _, tc := range []struct {
		name  string
		waves []v1alpha1.Wave
		wave  string
		told  map[types.UID]string
		known []v1alpha1.HostRelease
		nodes []*corev1.Node
		// want is each node's state, with its next step if it has one, then the revision, who starts, and how the wave stands.
		want []string
	}{
		{"one finds it, and the others looked before", canary, "", nil, nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Hour), host("c", "1.0.0", "", -time.Hour)},
			[]string{"a Outdated", "b Outdated asked unoffered HostSilent", "c Outdated asked unoffered HostSilent", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"they are looking", canary, "", map[types.UID]string{"uid-b": "1.1.0", "uid-c": "1.1.0"}, nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), looks("b", "1.0.0"), looks("c", "1.0.0")},
			[]string{"a Outdated", "b Outdated unoffered HostSilent", "c Outdated unoffered HostSilent", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"it is not for them yet, and they are no canary", canary, "", nil, []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Second), host("c", "1.0.0", "", -time.Second)},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"nor is it for them as far as is known, and they have been asked", canary, "", map[types.UID]string{"uid-b": "1.1.0", "uid-c": "1.1.0"}, nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Hour), host("c", "1.0.0", "", -time.Hour)},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"it is not for the pool of the canary yet", pool, "", nil, []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("test", "1.0.0", "", -time.Second)},
			[]string{"a Outdated", "test Updated unoffered", "1.1.0", "starts", "canary Progressing 1/1"}},
		{"the pool of the canary runs it", pool, "", nil, []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("test", "1.1.0", "", -time.Second)},
			[]string{"a Outdated", "test Updated", "1.1.0", "starts a", "remainder Progressing 0/1"}},
		{"nobody has anything to offer", pool, "", nil, nil,
			[]*corev1.Node{host("a", "1.1.0", "", -time.Minute), host("test", "1.0.0", "", -time.Hour)},
			[]string{"a Updated", "test Updated unoffered", "1.1.0", "starts", "canary Complete 1/1"}},
		{"one is to go back, and all had been brought to the newer one", canary, "1.1.0", nil, []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Hour)}},
			[]*corev1.Node{host("a", "1.1.0", "1.0.0", -time.Minute), host("b", "1.1.0", "", -time.Minute), host("c", "1.1.0", "1.0.0", -time.Minute)},
			[]string{"a Outdated", "b Outdated asked unoffered HostSilent", "c Outdated", "1.0.0", "starts a", "canary Progressing 0/1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRollout(func(r *v1alpha1.NodeRollout) { r.Status.Releases = tc.known })
			if tc.wave != "" {
				r.Status.Wave = &v1alpha1.WaveStatus{Name: "remainder", Number: 2, Revision: tc.wave, State: v1alpha1.WaveComplete}
			}
			for _, n := range tc.nodes {
				n.Labels["pool"] = n.Name
			}
			var w *world
			judged(t, r, newNode(), func(seen *world) { w = seen })
			w.memo = &memo{basis: basis{rollout: uid}, updated: map[types.UID]bool{}, told: tc.told}
			var got []string
			var units []rollout.Unit
			for _, one := range w.sees(tc.nodes...) {
				u := &one.unit
				words := []string{u.Node, string(u.State)}
				if one.step == stepAsk {
					words = append(words, "asked")
				}
				if u.Unoffered {
					words = append(words, "unoffered")
				}
				got = append(got, strings.TrimSpace(strings.Join(append(words, string(u.Reason)), " ")))
				units = append(units, *u)
			}
			s := rollout.New(&v1alpha1.Strategy{Waves: tc.waves}, 1, len(units))
			s.UID, s.Revision, s.Wave = uid, w.revision, r.Status.Wave
			d := rollout.Decide(s, units, w.fleet, now)
			got = append(got, w.revision, strings.TrimSpace("starts "+strings.Join(d.Start, " ")), fmt.Sprintf("%s %s %d/%d", d.Wave.Name, d.Wave.State, d.Wave.Updated, d.Wave.Nodes))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What a host is asked for once is remembered, and what has been found since is another question.
func TestAskedForRelease(t *testing.T) {
	r := newRollout(func(r *v1alpha1.NodeRollout) {
		r.Status.Releases = []v1alpha1.HostRelease{{Version: "1.0.0", Since: ago(time.Hour)}}
	})
	p, s := passing(t, r, newNode(words("stabilize,stabilize,ready false"), imaged("1.0.0")))
	p.latest = "1.1.0"
	if err := p.ask(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := p.memo.told["uid-a"]; got != "1.1.0" {
		t.Errorf("it was asked for %q", got)
	}
}

// What goes last waits until the others have said whether they are to go, and not for ever.
func TestAwaitsAnswers(t *testing.T) {
	const offers, asked, failed = "stabilize,stabilize,ready true", "stabilize,unknown,unknown unknown", "stabilize,stabilize,error unknown"
	for _, tc := range []struct {
		name         string
		own, ordered bool
		// said is by whom: the first is the operator's own node, if there is one.
		said  []string
		since time.Duration
		want  []v1alpha1.Reason
		wake  time.Duration
	}{
		{"all have answered", true, true, []string{offers, offers}, 0, []v1alpha1.Reason{"", ""}, 0},
		{"another has not", true, false, []string{offers, asked}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent}, time.Minute},
		{"another has not for a while", true, false, []string{offers, asked}, 50 * time.Second, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent}, 10 * time.Second},
		{"another does not answer at all", true, false, []string{offers, asked}, time.Minute, []v1alpha1.Reason{"", v1alpha1.ReasonHostSilent}, 0},
		{"another could not say", true, false, []string{offers, failed}, 0, []v1alpha1.Reason{"", v1alpha1.ReasonHostError}, time.Minute},
		{"only that of the operator has not", true, false, []string{asked, offers}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, ""}, 0},
		{"nobody is special", false, false, []string{offers, asked}, 0, []v1alpha1.Reason{"", v1alpha1.ReasonHostSilent}, 0},
		{"there is an order", false, true, []string{offers, asked, offers}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent}, time.Minute},
	} {
		r := newRollout(func(r *v1alpha1.NodeRollout) {
			if tc.ordered {
				r.Spec.Strategy = &v1alpha1.Strategy{Order: []v1alpha1.Order{{By: v1alpha1.OrderZone}}}
			}
		})
		var w *world
		judged(t, r, newNode(), func(seen *world) { w = seen })
		w.memo = &memo{updated: map[types.UID]bool{}}
		if tc.own {
			w.own = "n0"
		}
		var nodes []*corev1.Node
		for i, said := range tc.said {
			nodes = append(nodes, old(said, func(n *corev1.Node) { n.Name, n.UID = fmt.Sprintf("n%d", i), types.UID(fmt.Sprintf("uid-%d", i)) }))
		}
		w.sees(nodes...)
		w.now = now.Add(tc.since)
		var got []v1alpha1.Reason
		var wake time.Duration
		for _, one := range w.sees(nodes...) {
			if got = append(got, one.unit.Reason); !one.wake.IsZero() {
				wake = one.wake.Sub(w.now)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || wake != tc.wake {
			t.Errorf("%s: wakes after %s, want %s (-want +got):\n%s", tc.name, wake, tc.wake, diff)
		}
	}
}
