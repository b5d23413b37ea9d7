// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// api is an API server whose pods end when the test says so, and that notes what it is asked.
type api struct {
	Client
	clock *clocktesting.FakePassiveClock

	mu sync.Mutex
	// answers are given to evictions and deletions of the pod.
	answers map[string]error
	asked   []string
	gets    int
	// getErr is the answer to reads.
	getErr error
}

func newAPI(t *testing.T, pods ...corev1.Pod) *api {
	t.Helper()
	a := &api{clock: clocktesting.NewFakePassiveClock(start), answers: map[string]error{}}
	objects := []client.Object{&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "ds", UID: "uid-ds"}}}
	for i := range pods {
		objects = append(objects, &pods[i])
	}
	byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	a.Client = fake.NewClientBuilder().
		WithObjects(objects...).
		WithIndex(&corev1.Pod{}, NodeNameField, byNode).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if a.gets++; a.getErr != nil {
					return a.getErr
				}
				return c.Get(ctx, key, obj, opts...)
			},
			SubResourceCreate: func(_ context.Context, _ client.Client, sub string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
				return a.answer(sub, obj, body.(*policyv1.Eviction).DeleteOptions)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				if _, ok := obj.(*corev1.Pod); !ok {
					return c.Delete(ctx, obj, opts...)
				}
				var o client.DeleteOptions
				o.ApplyOptions(opts)
				return a.answer("delete", obj, o.AsDeleteOptions())
			},
		}).Build()
	return a
}

func (a *api) answer(what string, obj client.Object, o *metav1.DeleteOptions) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(o.DryRun) > 0 {
		what += " in dry run"
	}
	if o.Preconditions == nil || *o.Preconditions.UID != obj.GetUID() {
		what += " without its uid"
	}
	a.asked = append(a.asked, what+" "+obj.GetName())
	return a.answers[obj.GetName()]
}

// heard is what the API server was asked since it was heard last. Pods of one priority are asked in any order.
func (a *api) heard() []string {
	defer func() { a.asked = nil }()
	slices.Sort(a.asked)
	return a.asked
}

func (a *api) pass(t *testing.T, o Options) Result {
	t.Helper()
	r, err := New(a.clock, a).Pass(t.Context(), "n1", a.pods(t), start, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pods are those of node n1.
func (a *api) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := New(a.clock, a).Pods(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

// states says how each pod stands.
func states(r Result) map[string]State {
	m := map[string]State{}
	for _, o := range r.Pods {
		m[o.Pod.Name] = o.State
	}
	return m
}

func expect[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestPassEvictsWhatMayGo(t *testing.T) {
	a := newAPI(t, pod("a"), pod("b", terminating(time.Second)), pod("d", ofDaemonSet), pod("s", static),
		pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }))
	r := a.pass(t, Options{IgnoreDaemonSets: true})

	expect(t, "states", map[string]State{"a": Evicted, "b": Terminating, "d": Skipped, "s": Skipped}, states(r))
	expect(t, "asked", []string{"eviction a"}, a.heard())
	if r.Done() || r.Stuck() || !r.Next.Equal(start.Add(seenWithin)) {
		t.Errorf("pods that are on their way are waited for, and requested again if nothing is seen: %+v", r)
	}
}

func TestPassIsDoneWhenOnlyTheSkippedAreLeft(t *testing.T) {
	r := newAPI(t, pod("d", ofDaemonSet), pod("s", static)).pass(t, Options{IgnoreDaemonSets: true})
	if !r.Done() || r.Stuck() || !r.Next.IsZero() {
		t.Errorf("not done: %+v", r)
	}
}

func TestPassTouchesNothingWhenAPodIsRefused(t *testing.T) {
	a := newAPI(t, pod("a"), pod("b", terminating(time.Second)), pod("u", unowned), pod("d", ofDaemonSet))
	r := a.pass(t, Options{})

	expect(t, "states", map[string]State{"a": Waiting, "b": Waiting, "u": Refused, "d": Refused}, states(r))
	expect(t, "asked", nil, a.heard())
	if !r.Stuck() || len(r.In(Refused)) == 0 || len(r.In(Blocked)) > 0 || r.TimedOut != "" {
		t.Errorf("not refused: %+v", r)
	}
}

func TestPassExplainsABudget(t *testing.T) {
	a := newAPI(t, pod("a"), pod("b"))
	a.answers["b"] = heldBy("api")
	r := a.pass(t, Options{})

	expect(t, "states", map[string]State{"a": Evicted, "b": Blocked}, states(r))
	if r.Stuck() || len(r.In(Blocked)) == 0 {
		t.Errorf("not blocked: %+v", r)
	}
	expect(t, "next", start.Add(retryAfter), r.Next)

	delete(a.answers, "b")
	a.clock.SetTime(r.Next)
	expect(t, "states when it yields", map[string]State{"a": Evicted, "b": Evicted}, states(a.pass(t, Options{})))
}

func TestPassIsStuckWhenTheAPIForbidsTheRest(t *testing.T) {
	a := newAPI(t, pod("a"), pod("dns", withPriority(critical)))
	a.answers["a"] = apierrors.NewForbidden(pods, "a", errors.New("no"))
	r := a.pass(t, Options{})
	expect(t, "states", map[string]State{"a": Failed, "dns": Waiting}, states(r))
	if !r.Stuck() || !r.Next.IsZero() {
		t.Errorf("not stuck: %+v", r)
	}

	forced := Options{Timeout: time.Hour, OnTimeout: ForceOnTimeout}
	if r = a.pass(t, forced); r.Stuck() || r.Next.IsZero() {
		t.Errorf("does not wait for the timeout that deletes it: %+v", r)
	}
	a.answers["a"] = errors.New("connection refused")
	r = a.pass(t, Options{})
	if r.Stuck() || r.Next.IsZero() {
		t.Errorf("gives up an API server that may come back: %+v", r)
	}
}

func TestPassKeepsCriticalPodsForTheEnd(t *testing.T) {
	low, dns, net := pod("low", withPriority(-1)), pod("dns", withPriority(critical)), pod("net", withPriority(critical+1000))
	high := pod("high", withPriority(1000))

	a := newAPI(t, net, dns, high, low)
	r := a.pass(t, Options{})
	expect(t, "all others go together", map[string]State{"low": Evicted, "high": Evicted, "dns": Waiting, "net": Waiting}, states(r))
	expect(t, "in order", []string{"low", "high", "dns", "net"}, []string{r.Pods[0].Pod.Name, r.Pods[1].Pod.Name, r.Pods[2].Pod.Name, r.Pods[3].Pod.Name})

	r = newAPI(t, net, dns, pod("high", terminating(time.Second))).pass(t, Options{})
	expect(t, "while one ends", map[string]State{"high": Terminating, "dns": Waiting, "net": Waiting}, states(r))

	r = newAPI(t, net, dns, pod("high", ofDaemonSet)).pass(t, Options{IgnoreDaemonSets: true})
	expect(t, "cluster before node", map[string]State{"high": Skipped, "dns": Evicted, "net": Waiting}, states(r))
}

func TestPassShortensARunningGracePeriod(t *testing.T) {
	thirty, ten := int64(30), int64(10)
	a := newAPI(t, pod("a", terminating(time.Second)))
	a.pass(t, Options{GracePeriodSeconds: &thirty})
	expect(t, "asked", nil, a.heard())
	a.pass(t, Options{GracePeriodSeconds: &ten})
	expect(t, "asked", []string{"eviction a"}, a.heard())
}

func TestPassDeletes(t *testing.T) {
	a := newAPI(t, pod("a"))
	r := a.pass(t, Options{DisableEviction: true})
	expect(t, "states", map[string]State{"a": Evicted}, states(r))
	expect(t, "asked", []string{"delete a"}, a.heard())
}

func TestPreviewAsksNothing(t *testing.T) {
	a := newAPI(t, pod("a"), pod("u", unowned))
	r, err := New(a.clock, a).Preview(t.Context(), a.pods(t), Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "states", map[string]State{"a": Evicted, "u": Evicted}, states(r))
	expect(t, "asked", nil, a.heard())
}

func TestPassWhenTheTimeIsOver(t *testing.T) {
	limit := time.Minute
	for name, tc := range map[string]struct {
		on     OnTimeout
		states map[string]State
		asked  []string
		done   bool
		stuck  bool
	}{
		"by default halts": {
			"", map[string]State{"a": Waiting, "held": Blocked, "going": Terminating, "dns": Waiting},
			[]string{"eviction in dry run a", "eviction in dry run dns", "eviction in dry run held"}, false, true,
		},
		"halt": {
			HaltOnTimeout, map[string]State{"a": Waiting, "held": Blocked, "going": Terminating, "dns": Waiting},
			[]string{"eviction in dry run a", "eviction in dry run dns", "eviction in dry run held"}, false, true,
		},
		"skip": {
			SkipOnTimeout, map[string]State{"a": Waiting, "held": Blocked, "going": Terminating, "dns": Waiting},
			[]string{"eviction in dry run a", "eviction in dry run dns", "eviction in dry run held"}, false, true,
		},
		"force": {
			ForceOnTimeout, map[string]State{"a": Evicted, "held": Evicted, "going": Terminating, "dns": Evicted},
			[]string{"delete a", "delete dns", "delete held"}, false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, pod("a"), pod("held"), pod("going", terminating(90*time.Second)), pod("dns", withPriority(critical)))
			o := Options{Timeout: limit, OnTimeout: tc.on}
			a.clock.SetTime(start.Add(limit - time.Second))
			r := a.pass(t, o)
			expect(t, "next", start.Add(limit), r.Next)
			expect(t, "asked before", []string{"eviction a", "eviction held"}, a.heard())

			a.clock.SetTime(start.Add(limit))
			if tc.on != ForceOnTimeout {
				a.answers["held"] = heldBy("api")
			}
			r = a.pass(t, o)
			expect(t, "states", tc.states, states(r))
			expect(t, "asked", tc.asked, a.heard())
			expect(t, "done", tc.done, r.Done())
			expect(t, "stuck", tc.stuck, r.Stuck())
			expect(t, "timed out", tc.stuck, r.TimedOut.ended() && r.Stuck())
			expect(t, "skipped", tc.on == SkipOnTimeout, r.TimedOut == SkipOnTimeout)
			expect(t, "blocked", tc.stuck, len(r.In(Blocked)) > 0)
		})
	}
}

func TestPassRefusesThoughTheTimeIsOver(t *testing.T) {
	for _, on := range []OnTimeout{HaltOnTimeout, SkipOnTimeout, ForceOnTimeout} {
		a := newAPI(t, pod("a"), pod("u", unowned))
		a.clock.SetTime(start.Add(time.Hour))
		r := a.pass(t, Options{Timeout: time.Minute, OnTimeout: on})
		expect(t, string(on), map[string]State{"a": Waiting, "u": Refused}, states(r))
		expect(t, "asked", nil, a.heard())
		if !r.Stuck() || len(r.In(Refused)) == 0 {
			t.Errorf("not refused: %+v", r)
		}
	}
}

func TestPassIsDoneThoughTheTimeIsOver(t *testing.T) {
	for _, on := range []OnTimeout{"", HaltOnTimeout, SkipOnTimeout, ForceOnTimeout} {
		a := newAPI(t)
		a.clock.SetTime(start.Add(time.Hour))
		if r := a.pass(t, Options{Timeout: time.Minute, OnTimeout: on}); !r.Done() || r.Stuck() {
			t.Errorf("%s: not done: %+v", on, r)
		}
	}
}

func TestPassWakesWhenAPodIsOverdue(t *testing.T) {
	a := newAPI(t, pod("a", terminating(-10*time.Second)), pod("b", terminating(10*time.Second)))
	o := Options{SkipWaitForDelete: time.Minute}
	r := a.pass(t, o)
	expect(t, "next", start.Add(51*time.Second), r.Next)
	a.clock.SetTime(r.Next)
	r = a.pass(t, o)
	expect(t, "states", map[string]State{"a": Skipped, "b": Terminating}, states(r))
}

func TestPassLeavesAPodThatReturns(t *testing.T) {
	a := newAPI(t, pod("a", made(2*time.Second), tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})))
	if r := a.pass(t, Options{}); !r.Done() {
		t.Errorf("not done: %+v", r)
	}
	expect(t, "asked", nil, a.heard())
}

// Passes run before the watch shows what the first has done. The eviction is not repeated, unless the watch shows nothing for long.
func TestPassEvictsOnce(t *testing.T) {
	a := newAPI(t, pod("a"), pod("blocked"))
	a.answers["blocked"] = apierrors.NewTooManyRequests("later", 1)
	d := New(a.clock, a)
	for _, tc := range []struct {
		after time.Duration
		state State
		heard []string
	}{
		{0, Evicted, []string{"eviction a", "eviction blocked"}},
		{time.Second, Terminating, []string{"eviction blocked"}},
		{seenWithin, Evicted, []string{"eviction a", "eviction blocked"}},
	} {
		a.clock.SetTime(start.Add(tc.after))
		r, err := d.Pass(t.Context(), "n1", a.pods(t), start, Options{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "states", map[string]State{"a": tc.state, "blocked": Blocked}, states(r))
		expect(t, "asked", tc.heard, a.heard())
	}
}

func TestPassReadsADaemonSetOnce(t *testing.T) {
	a := newAPI(t, pod("a", ofDaemonSet), pod("b", ofDaemonSet))
	d := New(a.clock, a)
	for range 3 {
		if _, err := d.Pass(t.Context(), "n1", a.pods(t), start, Options{IgnoreDaemonSets: true}); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "reads", 1, a.gets)
}

func TestPassReadsADaemonSetAgainAfterAnError(t *testing.T) {
	a := newAPI(t, pod("a", ofDaemonSet))
	o := Options{IgnoreDaemonSets: true}
	a.getErr = apierrors.NewInternalError(errors.New("etcd has no leader"))
	if _, err := New(a.clock, a).Pass(t.Context(), "n1", a.pods(t), start, o); err == nil {
		t.Error("a temporary error decided something")
	}
	a.getErr = apierrors.NewForbidden(schema.GroupResource{Resource: "daemonsets"}, "ds", nil)
	if r := a.pass(t, o); !r.Stuck() {
		t.Errorf("not refused: %+v", r)
	}
	a.getErr = nil
	if r := a.pass(t, o); !r.Done() {
		t.Errorf("not done: %+v", r)
	}
}

func TestPassAsksNoMoreThanItsShareAtOnce(t *testing.T) {
	var many []corev1.Pod
	for i := range 3 * parallel {
		many = append(many, pod("p"+string(rune('a'+i/26))+string(rune('a'+i%26))))
	}
	a := newAPI(t, many...)
	r := a.pass(t, Options{})
	expect(t, "evicted", 3*parallel, len(r.In(Evicted)))
}

func TestPodsSaysThatItCannotList(t *testing.T) {
	a := newAPI(t)
	broken := interceptor.NewClient(a.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("connection refused")
		},
	})
	_, err := New(a.clock, broken).Pods(t.Context(), "n1")
	if err == nil || err.Error() != "listing the pods of node n1, connection refused" || !IsTransient(err) {
		t.Errorf("got %v", err)
	}
}
