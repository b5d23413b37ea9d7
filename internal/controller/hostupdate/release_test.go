// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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
		known []v1alpha1.HostRelease
		nodes []*corev1.Node
		// want is each node's state, with its next step if it has one, then the revision, who starts, and how the wave stands.
		want []string
	}{
		{"one finds it, and the others looked before", canary, "", nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Hour), host("c", "1.0.0", "", -time.Hour)},
			[]string{"a Outdated", "b Updated asked unoffered", "c Updated asked unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"they are looking, and had nothing to offer", canary, "", nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), looks("b", "1.0.0"), looks("c", "1.0.0")},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"one looked before, and not long ago", canary, "", nil,
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -askedAgainAfter+time.Second), host("c", "1.0.0", "", -askedAgainAfter)},
			[]string{"a Outdated", "b Updated unoffered", "c Updated asked unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"it is not for them yet, and they are no canary", canary, "", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("b", "1.0.0", "", -time.Second), host("c", "1.0.0", "", -time.Second)},
			[]string{"a Outdated", "b Updated unoffered", "c Updated unoffered", "1.1.0", "starts a", "canary Progressing 0/1"}},
		{"it is not for the pool of the canary yet", pool, "", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("test", "1.0.0", "", -time.Second)},
			[]string{"a Outdated", "test Updated unoffered", "1.1.0", "starts", "canary Progressing 1/1"}},
		{"the pool of the canary runs it", pool, "", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Minute)}},
			[]*corev1.Node{host("a", "1.0.0", "1.1.0", -time.Minute), host("test", "1.1.0", "", -time.Second)},
			[]string{"a Outdated", "test Updated", "1.1.0", "starts a", "remainder Progressing 0/1"}},
		{"no one has anything to offer", pool, "", nil,
			[]*corev1.Node{host("a", "1.1.0", "", -time.Minute), host("test", "1.0.0", "", -time.Hour)},
			[]string{"a Updated", "test Updated unoffered", "1.1.0", "starts", "canary Complete 1/1"}},
		{"one is to go back, and all had been brought to the newer one", canary, "1.1.0", []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(time.Hour)}},
			[]*corev1.Node{host("a", "1.1.0", "1.0.0", -time.Minute), host("b", "1.1.0", "", -time.Hour), host("c", "1.1.0", "1.0.0", -time.Minute)},
			[]string{"a Outdated", "b Updated asked unoffered", "c Outdated", "1.0.0", "starts a", "canary Progressing 0/1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRollout(func(r *v1alpha1.NodeRollout) { r.Status.Releases = tc.known })
			if tc.wave != "" {
				r.Status.Wave = &v1alpha1.WaveStatus{Name: "remainder", Number: 2, Revision: tc.wave, State: v1alpha1.WaveComplete}
			}
			for _, n := range tc.nodes {
				n.Labels["pool"] = n.Name
			}
			w := newWorld(t, r)
			var got []string
			var all []rollout.Unit
			for _, one := range sees(w, tc.nodes...) {
				u := &one.Unit
				words := []string{u.Node, string(u.State)}
				if one.Step == stepAsk {
					words = append(words, "asked")
				}
				if u.Unoffered {
					words = append(words, "unoffered")
				}
				got = append(got, strings.TrimSpace(strings.Join(append(words, string(u.Reason)), " ")))
				all = append(all, *u)
			}
			s := rollout.New(&v1alpha1.Strategy{Waves: tc.waves}, 1, len(all))
			s.UID, s.Revision, s.Wave = uid, w.Revision, r.Status.Wave
			d := rollout.Decide(s, all, w.Fleet, now)
			got = append(got, w.Revision, strings.TrimSpace("starts "+strings.Join(d.Start, " ")), fmt.Sprintf("%s %s %d/%d", d.Wave.Name, d.Wave.State, d.Wave.Updated, d.Wave.Nodes))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// askedAgainAfter is how long a host that has answered is not asked again.
const askedAgainAfter = 30 * time.Minute

// lookout lets a rollout look at the same nodes again and again.
type lookout struct {
	*Controller
	*testing.T
	rollout *v1alpha1.NodeRollout
	asks    map[string]int
}

// newLookout has three hosts: a offers what it likes, b is updated, and c is not yet.
func newLookout(t *testing.T) *lookout {
	t.Helper()
	l := &lookout{T: t, asks: map[string]int{}, rollout: newRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(10))}
		r.Status.Releases = []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(2 * time.Hour)}}
	})}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	host := func(name, said, version, target string) client.Object {
		return newNode(words(said), runs(version), offers(target), checked(-time.Hour),
			func(n *corev1.Node) { n.Name, n.UID, n.ResourceVersion = name, types.UID("uid-"+name), "" })
	}
	const has, none = "stabilize,stabilize,ready true", "stabilize,stabilize,ready false"
	l.Controller = newTestController(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		host("a", none, "1.1.0", ""), host("b", none, "1.1.0", ""), host("c", has, "1.0.0", "1.1.0")).Build())
	return l
}

func checked(after time.Duration) func(*corev1.Node) {
	return annotated(v1alpha1.AnnotationHostChecked, now.Add(after).Format(time.RFC3339))
}

// looks is one look, after this time, which does all but to start nodes.
func (l *lookout) looks(after time.Duration) *pass {
	l.Helper()
	l.Clock = clocktesting.NewFakePassiveClock(now.Add(after))
	var list corev1.NodeList
	if err := l.Client.List(l.Context(), &list); err != nil {
		l.Fatal(err)
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	p := l.newPass(l.rollout, nil, snapshotOf(nodes...))
	if err := p.Settle(l.Context()); err != nil {
		l.Fatal(err)
	}
	p.Decide(p.w.Fleet)
	l.rollout.Status.Releases = p.w.Releases
	for _, n := range nodes {
		now := &corev1.Node{}
		if err := l.Client.Get(l.Context(), client.ObjectKeyFromObject(n), now); err != nil {
			l.Fatal(err)
		}
		if line(now) == "stabilize,unknown,unknown unknown" && line(n) != line(now) {
			l.asks[n.Name]++
		}
	}
	return p
}

// says changes what a Node tells of its host.
func (l *lookout) says(name string, how ...func(*corev1.Node)) {
	l.Helper()
	n := &corev1.Node{}
	if err := l.Client.Get(l.Context(), client.ObjectKey{Name: name}, n); err != nil {
		l.Fatal(err)
	}
	for _, how := range how {
		how(n)
	}
	if err := l.Client.Update(l.Context(), n); err != nil {
		l.Fatal(err)
	}
}

// made is what is made of each, and who would start.
func made(p *pass) map[string]string {
	all := map[string]string{}
	for _, t := range p.Turns {
		u := &t.Unit
		all[u.Node] = strings.TrimSpace(fmt.Sprintf("%s %s", u.State, u.Reason))
		if slices.Contains(p.Decision.Start, u.Node) {
			all[u.Node] += " starts"
		}
	}
	return all
}

// A host that offers one release after another does not have the others asked again and again.
func TestAskedAgainAtMost(t *testing.T) {
	l := newLookout(t)
	if p := l.looks(0); len(l.asks) > 0 {
		t.Fatalf("asked %v, %v", l.asks, made(p))
	}
	tells := func(version string, after time.Duration, asks int, want map[string]string) *pass {
		t.Helper()
		l.says("a", words("stabilize,stabilize,ready true"), offers(version))
		var p *pass
		for range 2 {
			p = l.looks(after)
			if diff := cmp.Diff(want, made(p)); diff != "" || l.asks["b"] != asks || l.asks["c"] != asks || l.asks["a"] > 0 || p.w.Revision != version {
				t.Errorf("%s after %s, to %s: asked %v, want %d each (-want +got):\n%s", version, after, p.w.Revision, l.asks, asks, diff)
			}
		}
		return p
	}
	waiting := map[string]string{"a": "Outdated starts", "b": "Updated", "c": "Outdated HostSilent"}
	tells("99.0.0", 0, 1, waiting)
	tells("99.0.1", 20*time.Second, 1, waiting)
	answer := func(after time.Duration) {
		l.says("b", words("stabilize,stabilize,ready false"), checked(after))
		l.says("c", words("stabilize,stabilize,ready true"), checked(after))
	}
	answer(time.Minute)
	if p := tells("99.0.2", 2*time.Minute, 1, map[string]string{"a": "Outdated starts", "b": "Updated", "c": "Outdated starts"}); !p.Wake.Equal(now.Add(time.Minute + askedAgainAfter)) {
		t.Errorf("it looks again at %s", p.Wake)
	}
	tells("99.0.2", time.Minute+askedAgainAfter, 2, waiting)
}

// What a host had said before it was asked again counts until it has answered.
func TestAnswersAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		change []func(*corev1.Node)
		want   string
	}{
		"it has not taken it up":         {nil, "Updated"},
		"it is looking":                  {[]func(*corev1.Node){words("stabilize,stabilize,busy unknown")}, "Updated"},
		"it has nothing to offer":        {[]func(*corev1.Node){words("stabilize,stabilize,ready false"), checked(time.Second)}, "Updated"},
		"it has something":               {[]func(*corev1.Node){words("stabilize,stabilize,ready true"), offers("1.2.0"), checked(time.Second)}, "Outdated starts"},
		"it could not find out":          {[]func(*corev1.Node){words("stabilize,stabilize,error unknown")}, "Outdated HostError"},
		"it says neither":                {[]func(*corev1.Node){words("stabilize,stabilize,ready unknown")}, "Outdated HostSilent"},
		"it had something":               {[]func(*corev1.Node){offers("1.1.5")}, "Outdated HostSilent"},
		"it was ordered to do something": {[]func(*corev1.Node){words("prepare-update,unknown,unknown unknown")}, "Outdated HostSilent"},
	} {
		l := newLookout(t)
		l.says("a", words("stabilize,stabilize,ready true"), offers("1.2.0"))
		l.looks(0)
		l.says("b", tc.change...)
		if got := made(l.looks(time.Second))["b"]; l.asks["b"] == 0 || got != tc.want {
			t.Errorf("%s: %s, want %s; asked %v", name, got, tc.want, l.asks)
		}
	}
}

// What goes last waits until the others have said whether they are to go, and for a minute at most.
func TestAwaitsAnswers(t *testing.T) {
	const offering, asked, failed, again = "stabilize,stabilize,ready true", "stabilize,unknown,unknown unknown", "stabilize,stabilize,error unknown", "stabilize,stabilize,ready false"
	for _, tc := range []struct {
		name         string
		own, ordered bool
		// said is by whom: the first is the operator's own node, if there is one.
		said []string
		// since is for how long the release is known.
		since time.Duration
		want  []v1alpha1.Reason
		wake  time.Duration
	}{
		{"all have answered", true, true, []string{offering, offering}, 0, []v1alpha1.Reason{"", ""}, 0},
		{"another has not", true, false, []string{offering, asked}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent}, time.Minute},
		{"another has not for a while", true, false, []string{offering, asked}, 50 * time.Second, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent}, 10 * time.Second},
		{"another does not answer at all", true, false, []string{offering, asked}, time.Minute, []v1alpha1.Reason{"", v1alpha1.ReasonHostSilent}, 0},
		{"another could not say", true, false, []string{offering, failed}, 0, []v1alpha1.Reason{"", v1alpha1.ReasonHostError}, 0},
		{"only that of the operator has not", true, false, []string{asked, offering}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, ""}, 0},
		{"another is asked again that does not run the newest", true, false, []string{offering, again}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, ""}, time.Minute},
		{"and is not special", false, false, []string{offering, again}, 0, []v1alpha1.Reason{"", ""}, 0},
		{"no one is special", false, false, []string{offering, asked}, 0, []v1alpha1.Reason{"", v1alpha1.ReasonHostSilent}, 0},
		{"there is an order", false, true, []string{offering, asked, offering}, 0, []v1alpha1.Reason{v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent, v1alpha1.ReasonHostSilent}, time.Minute},
	} {
		w := newWorld(t, newRollout(func(r *v1alpha1.NodeRollout) {
			r.Status.Releases = []v1alpha1.HostRelease{{Version: "1.1.0", Since: ago(tc.since)}}
			if tc.ordered {
				r.Spec.Strategy = &v1alpha1.Strategy{Order: []v1alpha1.Order{{By: v1alpha1.OrderZone}}}
			}
		}))
		if tc.own {
			w.OwnNode = "n0"
		}
		var nodes []*corev1.Node
		for i, said := range tc.said {
			n := old(said, func(n *corev1.Node) { n.Name, n.UID = fmt.Sprintf("n%d", i), types.UID(fmt.Sprintf("uid-%d", i)) })
			if said == again {
				delete(n.Annotations, v1alpha1.AnnotationHostTarget)
				checked(-time.Hour)(n)
			}
			nodes = append(nodes, n)
		}
		var got []v1alpha1.Reason
		var wake time.Duration
		for _, one := range sees(w, nodes...) {
			if got = append(got, one.Unit.Reason); !one.Wake.IsZero() {
				wake = one.Wake.Sub(now)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || wake != tc.wake {
			t.Errorf("%s: wakes after %s, want %s (-want +got):\n%s", tc.name, wake, tc.wake, diff)
		}
	}
}
