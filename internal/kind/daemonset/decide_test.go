// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	annotated := func(w *world, key, value string) *world {
		w.eds.Annotations = map[string]string{key: value}
		return w
	}
	rolling := func(w *world) *edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate {
		return &w.eds.Spec.Strategy.RollingUpdate
	}
	for name, tc := range map[string]struct {
		world func() *world
		want  string
	}{
		"every node without a pod gets one": {
			func() *world { return newWorld(3) },
			"create n0,n1,n2",
		},
		"the slow start bounds how many are made": {
			func() *world {
				w := newWorld(4)
				rolling(w).SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(2))
				w.sets[1].Status.Conditions[0].LastTransitionTime = ago(time.Second)
				return w
			},
			"create n0,n1",
		},
		"pods that are being made count, until they are ready": {
			func() *world {
				w := newWorld(4).has("new", starting, 0).has("new", nil, 1)
				rolling(w).MaxParallelPodCreation = ptr.To[int32](1)
				return w
			},
			"",
		},
		"one that does not get ready holds no one up for long": {
			func() *world {
				w := newWorld(3).has("new", unready, 0).has("new", nil, 1)
				rolling(w).MaxParallelPodCreation = ptr.To[int32](1)
				return w
			},
			"create n2",
		},
		"as many are replaced as maxUnavailable says": {
			func() *world { return newWorld(5).has("old", nil, 0, 1, 2, 3, 4) },
			"replace n2/old,n4/old; MaxConcurrent n0,n1,n3",
		},
		"those that are unavailable go first": {
			func() *world { return newWorld(5).has("old", nil, 0, 1, 2).has("old", unready, 3, 4) },
			"replace n3/old,n4/old; MaxConcurrent n0,n1,n2",
		},
		"a node between two pods holds its place": {
			func() *world {
				return newWorld(5).has("old", nil, 0, 1, 2).has("old", going, 3).has("new", starting, 4)
			},
			"MaxConcurrent n0,n1,n2",
		},
		"one on a node that is not ready does not": {
			func() *world { return newWorld(5).has("old", nil, 0, 1).has("new", unready, 2, 3, 4).down(2, 3, 4) },
			"replace n0/old,n1/old",
		},
		"a node that is not ready is in no wave before others": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2).down(0)
				w.nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
				w.eds.Spec.Strategy.Waves = []v1alpha1.Wave{{Size: ptr.To(intstr.FromInt32(1))}}
				return w
			},
			"replace n2/old; NodeNotReady n0; WavePending n1",
		},
		"an outdated pod on a node that is not ready stays": {
			func() *world { return newWorld(3).has("old", nil, 0).has("new", nil, 1, 2).down(0) },
			"NodeNotReady n0",
		},
		"pods that are not scheduled do not count, as far as maxPodSchedulerFailure goes": {
			func() *world {
				w := newWorld(5).has("old", nil, 0, 1, 2).has("new", unscheduled, 3, 4)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(1))
				return w
			},
			"replace n2/old; MaxConcurrent n0,n1",
		},
		"old pods that are not scheduled go last, as far as maxPodSchedulerFailure goes": {
			func() *world {
				w := newWorld(6).has("old", nil, 0, 1).has("old", unscheduled, 2, 3, 4, 5)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(4))
				return w
			},
			"replace n0/old,n1/old; MaxConcurrent n2,n3,n4,n5",
		},
		"those beyond that go first, as others that are unavailable": {
			func() *world {
				w := newWorld(6).has("old", nil, 0, 1).has("old", unscheduled, 2, 3, 4, 5)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(3))
				return w
			},
			"replace n0/old,n5/old; MaxConcurrent n1,n2,n3,n4",
		},
		"and when there are no others they are replaced, too": {
			func() *world {
				w := newWorld(4).has("new", nil, 0, 1).has("old", unscheduled, 2, 3)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(4))
				return w
			},
			"replace n2/old,n3/old",
		},
		"deletions do not outrun creations": {
			func() *world {
				w := newWorld(5).has("old", nil, 0, 1, 2, 3, 4)
				rolling(w).MaxUnavailable, rolling(w).MaxParallelPodCreation = ptr.To(intstr.FromString("100%")), ptr.To[int32](2)
				return w
			},
			"replace n2/old,n4/old; SlowStart n0,n1,n3",
		},
		"reconcileFrequency spaces the batches": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				w.eds.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: 10 * time.Second}
				w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{Type: edsv1.ConditionPodDeletion, Status: metav1.ConditionTrue, LastUpdateTime: ago(4 * time.Second)})
				return w
			},
			"MaxConcurrent n1; SlowStart n0,n2",
		},
		"but not creations": {
			func() *world {
				w := newWorld(2).has("new", nil, 0)
				w.eds.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: time.Hour}
				return w
			},
			"create n1",
		},
		"a pause keeps outdated pods, and makes missing ones": {
			func() *world {
				return annotated(newWorld(3).has("old", nil, 0, 1), edsv1.AnnotationRollingUpdatePaused, "true")
			},
			"create n2; Paused n0,n1",
		},
		"only true pauses": {
			func() *world {
				return annotated(newWorld(1).has("old", nil, 0), edsv1.AnnotationRollingUpdatePaused, "yes")
			},
			"replace n0/old",
		},
		"what is frozen makes none": {
			func() *world {
				return annotated(newWorld(3).has("old", nil, 0, 1), edsv1.AnnotationRolloutFrozen, "true")
			},
			"Paused n0,n1",
		},
		"OnDelete leaves it to people": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1)
				w.eds.Spec.Strategy.Type = edsv1.StrategyOnDelete
				return w
			},
			"create n2; OnDelete n0,n1",
		},
		"with surge the new pod comes first": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				rolling(w).MaxUnavailable, rolling(w).MaxSurge = nil, ptr.To(intstr.FromInt32(1))
				return w
			},
			"create n2; MaxConcurrent n0,n1",
		},
		"and the old one goes when it is available": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2).has("new", nil, 0).has("new", starting, 1)
				rolling(w).MaxUnavailable, rolling(w).MaxSurge = nil, ptr.To(intstr.FromInt32(2))
				return w
			},
			"done n0/old; MaxConcurrent n2",
		},
		"but for a port of the host that both need": {
			func() *world {
				w := newWorld(2)
				for i := range w.sets {
					c := &w.sets[i].Spec.Template.Spec.Containers[0]
					c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
					w.sets[i].Spec.TemplateGeneration = TemplateHash(&w.sets[i].Spec.Template)
				}
				w.eds.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
				w.has("old", nil, 0, 1)
				rolling(w).MaxUnavailable, rolling(w).MaxSurge = nil, ptr.To(intstr.FromInt32(1))
				return w
			},
			"replace n1/old; MaxConcurrent n0",
		},
		"of two pods without surge one goes": {
			func() *world {
				return newWorld(2).has("old", nil, 0).has("new", nil, 0).has("old", nil, 1).has("new", starting, 1)
			},
			"clean n0/old,n1/new; replace n1/old",
		},
		"pods without an owner are outdated ones": {
			func() *world { return newWorld(3).has("old", orphan, 0, 1, 2) },
			"replace n0/orphan,n2/orphan; MaxConcurrent n1",
		},
		"where a DaemonSet would make its pod again, the new one starts beside it": {
			func() *world {
				return newWorld(3).has("old", nil, 0, 1, 2).keeps().has("new", nil, 0).has("new", starting, 1)
			},
			"create n2",
		},
		"or waits, if both need a port of the host": {
			func() *world {
				w := newWorld(1)
				port := []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
				for i := range w.sets {
					w.sets[i].Spec.Template.Spec.Containers[0].Ports = port
					w.sets[i].Spec.TemplateGeneration = TemplateHash(&w.sets[i].Spec.Template)
				}
				w.eds.Spec.Template.Spec.Containers[0].Ports = port
				return w.has("old", nil, 0).keeps()
			},
			"NodeUnfit n0",
		},
		"a pod that has ended goes at once": {
			func() *world { return newWorld(2).has("new", ended, 0).has("new", nil, 1) },
			"clean n0/new",
		},
		"a node that its new pod may have broken holds its slot": {
			func() *world { return newWorld(4).has("new", unready, 0).has("old", nil, 1, 2, 3).breaks(0) },
			"replace n2/old; MaxConcurrent n1,n3",
		},
		"and has failed": {
			func() *world {
				w := newWorld(4).has("new", unready, 0).has("old", nil, 1, 2, 3).breaks(0)
				w.eds.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0))
				return w
			},
			"Halted n1,n2,n3; PodFailed n0",
		},
		"one that broke later holds none": {
			func() *world { return newWorld(4).has("new", unreadyLater, 0).has("old", nil, 1, 2, 3).breaks(0) },
			"replace n2/old,n3/old; MaxConcurrent n1",
		},
		"a node that another rollout has is ignored": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
				return w
			},
			"replace n1/old,n2/old; Claimed n0",
		},
		"and so is one that a person has drained": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				w.nodes[0].Status.Conditions = append(w.nodes[0].Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionTrue})
				return w
			},
			"replace n1/old,n2/old; NodeNotReady n0",
		},
		"a node that is ready, no one says since when, is ready": {
			func() *world {
				w := newWorld(1).has("old", nil, 0)
				w.nodes[0].Status.Conditions[0].LastTransitionTime = metav1.Time{}
				return w
			},
			"replace n0/old",
		},
		"an untolerated taint keeps what runs there": {
			func() *world {
				w := newWorld(3).has("old", nil, 0).has("new", nil, 1)
				for _, n := range w.nodes {
					n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
				}
				return w
			},
			"NodeUnfit n0",
		},
		"unless it says NoExecute": {
			func() *world {
				w := newWorld(2).has("old", nil, 0).has("new", nil, 1)
				w.nodes[0].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
				return w
			},
			"clean n0/old",
		},
		"a pod that waits for a node that is gone goes": {
			func() *world {
				w := newWorld(2).has("new", nil, 0).has("new", unscheduled, 1)
				w.nodes = w.nodes[:1]
				return w
			},
			"clean n1/new",
		},
		"a pod that ran on a node that is gone is left to Kubernetes": {
			func() *world {
				w := newWorld(2).has("new", nil, 0, 1)
				w.nodes = w.nodes[:1]
				return w
			},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.world().look(t).show()
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for _, tc := range []struct {
		from *intstr.IntOrString
		of   int
		want int
	}{
		{nil, 10, 0},
		{ptr.To(intstr.FromInt32(0)), 10, 0},
		{ptr.To(intstr.FromInt32(3)), 10, 3},
		{ptr.To(intstr.FromInt32(30)), 10, 30},
		{ptr.To(intstr.FromInt32(-3)), 10, 0},
		{ptr.To(intstr.FromString("0%")), 10, 0},
		{ptr.To(intstr.FromString("1%")), 10, 1},
		{ptr.To(intstr.FromString("10%")), 10, 1},
		{ptr.To(intstr.FromString("10%")), 11, 2},
		{ptr.To(intstr.FromString("33%")), 3, 1},
		{ptr.To(intstr.FromString("34%")), 3, 2},
		{ptr.To(intstr.FromString("50%")), 0, 0},
		{ptr.To(intstr.FromString("50%")), -4, 0},
		{ptr.To(intstr.FromString("100%")), 7, 7},
		{ptr.To(intstr.FromString("99%")), 10_000, 9900},
		{ptr.To(intstr.FromString("150%")), 4, 6},
		{ptr.To(intstr.FromString("2147483647%")), 10_000, 214_748_364_700},
		{ptr.To(intstr.FromString("-1%")), 10, 0},
		{ptr.To(intstr.FromString("3")), 10, 0},
		{ptr.To(intstr.FromString("many")), 10, 0},
		{ptr.To(intstr.FromString("%")), 10, 0},
		{ptr.To(intstr.FromString("")), 10, 0},
	} {
		if got := Count(tc.from, tc.of); got != tc.want {
			t.Errorf("%v of %d: got %d, want %d", tc.from, tc.of, got, tc.want)
		}
	}
}

func TestCreationLimit(t *testing.T) {
	type rolling = edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate
	start := func(parallel int32, interval time.Duration, increase intstr.IntOrString) *rolling {
		return &rolling{
			MaxParallelPodCreation: &parallel, SlowStartIntervalDuration: &metav1.Duration{Duration: interval}, SlowStartAdditiveIncrease: &increase,
		}
	}
	tenth, five := intstr.FromString("10%"), intstr.FromInt32(5)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		ru    *rolling
		since time.Time
		nodes int
		limit int
		// next is in how long it grows; 0: never.
		next time.Duration
	}{
		"the defaults, empty":                        {&rolling{}, now, 100, 1, time.Minute},
		"the defaults after an hour and a half":      {&rolling{}, now.Add(-90*time.Minute - 10*time.Second), 100, 91, 50 * time.Second},
		"the defaults in the end":                    {&rolling{}, now.Add(-250 * time.Minute), 1000, 250, 0},
		"just before an interval ends":               {start(250, time.Minute, five), now.Add(-time.Minute + 1), 100, 5, 1},
		"just when it ends":                          {start(250, time.Minute, five), now.Add(-time.Minute), 100, 10, time.Minute},
		"a percentage":                               {start(250, time.Minute, tenth), now.Add(-2 * time.Minute), 101, 33, time.Minute},
		"a percentage of no nodes":                   {start(250, time.Minute, tenth), now, 0, 1, time.Minute},
		"never more than in parallel":                {start(12, time.Minute, five), now.Add(-2 * time.Minute), 100, 12, 0},
		"just as many as in parallel":                {start(10, time.Minute, five), now.Add(-time.Minute), 100, 10, 0},
		"one in parallel":                            {start(1, time.Minute, five), now, 100, 1, 0},
		"none in parallel":                           {start(0, time.Minute, five), now, 100, 0, 0},
		"an increase of zero is one":                 {start(250, time.Minute, intstr.FromInt32(0)), now.Add(-2 * time.Minute), 100, 3, time.Minute},
		"an increase that can't be read is one":      {start(250, time.Minute, intstr.FromString("some")), now.Add(-2 * time.Minute), 100, 3, time.Minute},
		"before it began":                            {start(250, time.Minute, five), now.Add(time.Second), 100, 5, time.Minute + time.Second},
		"begun long ago, with the shortest interval": {start(1<<31-1, 1, intstr.FromInt32(1<<31-1)), now.AddDate(-400, 0, 0), 100, 1<<31 - 1, 0},
	} {
		defaulted := Defaulted(&spec{Strategy: edsv1.ExtendedDaemonSetSpecStrategy{RollingUpdate: *tc.ru}}, "")
		limit, next := CreationLimit(&defaulted.Strategy.RollingUpdate, tc.since, now, tc.nodes)
		var want time.Time
		if tc.next > 0 {
			want = now.Add(tc.next)
		}
		if limit != tc.limit || !next.Equal(want) {
			t.Errorf("%s: got %d and %s, want %d and %s", name, limit, next, tc.limit, want)
		}
	}
}

// TestCreationLimitGrows finds the limit the same until the instant that is told, and higher then.
func TestCreationLimitGrows(t *testing.T) {
	seed := seedOf(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		since := now.Add(time.Duration(r.Int64N(int64(4*time.Hour))) - 3*time.Hour)
		increase := intstr.FromInt32(r.Int32N(20))
		if r.IntN(2) == 0 {
			increase = intstr.FromString("7%")
		}
		ru := &edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
			MaxParallelPodCreation: ptr.To(1 + r.Int32N(300)), SlowStartAdditiveIncrease: &increase,
			SlowStartIntervalDuration: &metav1.Duration{Duration: time.Duration(1 + r.Int64N(int64(5*time.Minute)))},
		}
		nodes := r.IntN(200)
		limit, next := CreationLimit(ru, since, now, nodes)
		if limit > int(*ru.MaxParallelPodCreation) {
			t.Fatalf("%d of at most %d", limit, *ru.MaxParallelPodCreation)
		}
		if next.IsZero() {
			if later, _ := CreationLimit(ru, since, now.AddDate(1, 0, 0), nodes); later != limit {
				t.Fatalf("it grows from %d to %d at last, and no one says so", limit, later)
			}
			continue
		}
		before, same := CreationLimit(ru, since, next.Add(-1), nodes)
		after, _ := CreationLimit(ru, since, next, nodes)
		if !next.After(now) || before != limit || !same.Equal(next) || after <= limit {
			t.Fatalf("%d at first, then %d, and %d at %s after", limit, before, after, next.Sub(now))
		}
	}
}

// seedOf is the seed of a test's random numbers, the same in each run. MOULT_SEED=n draws others.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("MOULT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("reading $MOULT_SEED, %v", err)
		}
	}
	t.Logf("MOULT_SEED=%d", seed)
	return seed
}
