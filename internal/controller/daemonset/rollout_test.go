// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/writes"
)

// live is a world in which pods start at once.
type live struct {
	*testing.T
	*Controller
	clock *testingclock.FakePassiveClock
	key   types.NamespacedName
	uids  map[string]int // how often an object of this name was created
	// record has what is written, one step for each reconcile.
	record writes.Record
	// most is how many nodes were without an available pod at once.
	most int
}

// run reconciles for so long, with pods that become ready after a second.
func (l *live) run(d time.Duration, restart bool) {
	l.Helper()
	for end := l.clock.Now().Add(d); l.clock.Now().Before(end); l.clock.SetTime(l.clock.Now().Add(time.Second)) {
		for range 20 {
			if restart {
				l.memory.Clear()
			}
			wake, err := l.reconcile(l.Context(), l.key)
			l.record.Step()
			if err != nil {
				l.Fatal(err)
			}
			if wake.IsZero() || wake.Sub(l.clock.Now()) >= time.Second {
				break
			}
		}
		l.startPods()
	}
}

func (l *live) startPods() {
	available := map[string]bool{}
	for _, pod := range l.pods() {
		available[pod.Spec.NodeName] = len(pod.Status.Conditions) > 0
		if pod.CreationTimestamp.IsZero() {
			pod.CreationTimestamp = metav1.NewTime(l.clock.Now())
			if err := l.client.Update(l.Context(), &pod); err != nil {
				l.Fatal(err)
			}
		}
		if len(pod.Status.Conditions) == 0 {
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(l.clock.Now())}}
			if err := l.client.Status().Update(l.Context(), &pod); err != nil {
				l.Fatal(err)
			}
		}
	}
	missing := 0
	for _, name := range []string{"n0", "n1", "n2", "n3", "n4", "n5"} {
		if !available[name] {
			missing++
		}
	}
	l.most = max(l.most, missing)
}

func (l *live) pods() []corev1.Pod {
	var list corev1.PodList
	if err := l.client.List(l.Context(), &list); err != nil {
		l.Fatal(err)
	}
	return list.Items
}

// images are those that run, by node.
func (l *live) images() (images []string) {
	for _, pod := range l.pods() {
		images = append(images, pod.Spec.NodeName+"="+pod.Spec.Containers[0].Image)
	}
	slices.Sort(images)
	return images
}

func (l *live) eds() *edsv1.ExtendedDaemonSet {
	eds := &edsv1.ExtendedDaemonSet{}
	if err := l.client.Get(l.Context(), l.key, eds); err != nil {
		l.Fatal(err)
	}
	return eds
}

// A new template first runs on one node, as a canary, and then on all. It makes no difference whether the process forgets everything
// before each reconcile: the same is written, in the same order.
func TestRollout(t *testing.T) {
	written := map[bool][]string{}
	for name, restart := range map[string]bool{"one process": false, "restarted before each reconcile": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(6)
			w.sets, w.eds.Status = nil, edsv1.ExtendedDaemonSetStatus{}
			w.eds.Spec.Template.Spec.Containers[0].Image = "one"
			w.eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{Duration: &metav1.Duration{Duration: 10 * time.Second}}
			c := w.serve(t)
			l := &live{T: t, Controller: c, clock: testingclock.NewFakePassiveClock(now), key: client.ObjectKeyFromObject(w.eds), uids: map[string]int{}}
			c.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, with client.WithWatch, o client.Object, options ...client.CreateOption) error {
					l.uids[o.GetName()]++
					o.SetUID(types.UID(fmt.Sprintf("%s-%d", o.GetName(), l.uids[o.GetName()])))
					return with.Create(ctx, o, options...)
				},
			})
			recorded, _ := c.client.(client.WithWatch)
			c.client = l.record.Client(recorded)
			c.clock, c.daemonPods = l.clock, c.client
			c.options.NodeName = true
			for _, n := range w.nodes {
				if err := c.client.Create(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
			l.run(5*time.Second, restart)
			if got := l.images(); len(got) != 6 || !edsv1.IsConditionTrue(l.eds().Status.Conditions, edsv1.ConditionReady) {
				t.Fatalf("after the creation: %v, %+v", got, l.eds().Status)
			}
			eds := l.eds()
			eds.Spec.Template.Spec.Containers[0].Image = "two"
			if err := c.client.Update(t.Context(), eds); err != nil {
				t.Fatal(err)
			}
			l.most = 0
			l.run(5*time.Second, restart)
			if got, want := l.images(), []string{"n0=two", "n1=one", "n2=one", "n3=one", "n4=one", "n5=one"}; !slices.Equal(got, want) {
				t.Errorf("in the canary: %v, %+v", got, l.eds().Status.Canary)
			}
			l.run(25*time.Second, restart)
			want := []string{"n0=two", "n1=two", "n2=two", "n3=two", "n4=two", "n5=two"}
			if got := l.images(); !slices.Equal(got, want) || !edsv1.IsConditionTrue(l.eds().Status.Conditions, edsv1.ConditionReady) {
				t.Errorf("after the rollout: %v, %+v", got, l.eds().Status)
			}
			if l.most > 2 {
				t.Errorf("%d nodes were without an available pod at once, and maxUnavailable is 2", l.most)
			}
			if runs := l.eds().Status.History; len(runs) != 1 || runs[0].Result != v1alpha1.RunComplete || runs[0].Updated != 6 ||
				len(runs[0].Waits) == 0 || runs[0].Waits[0].Reason != v1alpha1.ReasonWaveSoaking {
				t.Errorf("the history is %+v", runs)
			}
			written[restart] = l.record.Lines()
		})
	}
	if diff := cmp.Diff(written[false], written[true]); diff != "" || len(written[true]) < 40 {
		t.Errorf("%d writes differ (-one process +restarted):\n%s", len(written[true]), diff)
	}
}
