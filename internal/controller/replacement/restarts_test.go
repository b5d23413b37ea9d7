// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	turnof "moult.dev/moult/internal/turn"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/writes"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// joining makes a ready Node of each machine that starts.
type joining struct {
	client.Client
	now func() time.Time
}

func (j joining) Start(ctx context.Context, m clouds.Machine) error {
	n := nodeNamed(m.NodeName, func(n *corev1.Node) {
		n.Labels = map[string]string{"test": "workers"}
		n.Spec.ProviderID = m.ProviderID
		n.CreationTimestamp = metav1.NewTime(j.now())
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(j.now())}}
	})
	n.ResourceVersion = ""
	return j.Create(ctx, n)
}

func (joining) Stop(context.Context, clouds.Machine) error { return nil }

// podsIn are the pods of an API server.
type podsIn struct{ client.Reader }

func (podsIn) Watch(string) {}
func (podsIn) Stop(string)  {}
func (p podsIn) Pods(node string) ([]corev1.Pod, bool) {
	var list corev1.PodList
	err := p.List(context.Background(), &list, client.MatchingFields{drain.NodeNameField: node})
	return list.Items, err == nil
}

// numbered gives the random tokens of operations numbers, in the order in which they appear.
func numbered(lines []string) []string {
	names := map[string]string{}
	tokens := regexp.MustCompile(`"[0-9a-z]{26}"`)
	for i, line := range lines {
		lines[i] = tokens.ReplaceAllStringFunc(line, func(token string) string {
			if names[token] == "" {
				names[token] = fmt.Sprintf("\"token-%d\"", len(names)+1)
			}
			return names[token]
		})
	}
	return lines
}

// No memory of the process decides: a controller that is new for each reconcile writes the same, in the same order.
func TestRestarted(t *testing.T) {
	run := func(restarts bool) []string {
		scheme := runtime.NewScheme()
		if err := errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		clk := clocktesting.NewFakePassiveClock(now)
		rollout := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "uid-workers", Generation: 1}, Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": "workers"}},
			Strategy:     &v1alpha1.Strategy{Soak: &metav1.Duration{Duration: 5 * time.Second}},
			Replacement: &v1alpha1.Replacement{
				Provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: "sky"}}, CheckPeriod: &metav1.Duration{Duration: time.Second},
			},
		}}
		store := clientfake.NewClientBuilder().WithScheme(scheme).WithIndex(turnof.Object(), indexMachines, indexedByMachines).WithObjects(rollout).WithStatusSubresource(&v1alpha1.NodeRollout{}, &corev1.Node{}).
			WithIndex(&corev1.Pod{}, drain.NodeNameField, func(o client.Object) []string {
				p, _ := o.(*corev1.Pod)
				return []string{p.Spec.NodeName}
			}).Build()
		ctx, cancel := context.WithCancel(t.Context())
		world := clouds.New(ctx, clouds.Options{Hosts: joining{store, clk.Now}, Identify: identify})
		defer func() { cancel(); world.Wait() }()
		if err := world.Create(ctx, clouds.Set{Name: "workers", Image: "images/one", Capacity: 3}); err != nil {
			t.Fatal(err)
		}
		if err := world.Edit("workers", func(s *clouds.Set) error { s.Image = "images/two"; return nil }); err != nil {
			t.Fatal(err)
		}
		sky, record := newSky(world), &writes.Record{}
		api := record.Client(store)
		recorder := events.NewRecorder(ctx, clock.RealClock{}, fake.NewClientset().CoreV1().Events(""), scheme, "moult", "n1")
		defer recorder.Shutdown(context.WithoutCancel(ctx))
		start := func() *Controller {
			c := NewController(clk, api, api, nil, fleet.New(clk, api, nil), recorder, Options{
				Clouds: func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) { return sky, nil },
			})
			c.Works = turnof.NewWorks(podsIn{store})
			return c
		}
		c := start()
		for range 120 {
			if restarts {
				c = start()
			}
			if _, err := c.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(rollout)}); err != nil {
				t.Fatal(err)
			}
			record.Step()
			eventually(t, "machines run or are gone", func() string {
				for _, m := range world.Machines("workers") {
					n := &corev1.Node{}
					if m.State != clouds.Running || store.Get(ctx, client.ObjectKey{Name: m.NodeName}, n) != nil {
						return "machine " + m.ID
					}
				}
				return ""
			})
			clk.SetTime(clk.Now().Add(time.Second))
		}
		for _, m := range world.Machines("workers") {
			if m.Image != "images/two" {
				t.Errorf("machine %s has image %s", m.ID, m.Image)
			}
		}
		done := &v1alpha1.NodeRollout{}
		if err := store.Get(ctx, client.ObjectKeyFromObject(rollout), done); err != nil {
			t.Fatal(err)
		}
		runs := done.Status.History
		if len(runs) != 1 || runs[0].Result != v1alpha1.RunComplete || runs[0].Updated != 3 || runs[0].Turns == nil || runs[0].Turns.Count != 3 {
			t.Errorf("the history is %+v", runs)
		}
		return numbered(record.Lines())
	}
	kept, forgot := run(false), run(true)
	if len(kept) < 30 {
		t.Errorf("only %d writes were compared", len(kept))
	}
	if diff := cmp.Diff(kept, forgot); diff != "" {
		t.Errorf("the same process and a new one each time differ (-same +new):\n%s", diff)
	}
}

// A status that the cache shows later than this process has written another one is not acted on: it may list operations that were withdrawn.
func TestStaleStatus(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	rollout := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "uid", ResourceVersion: "100"},
		Spec:       v1alpha1.NodeRolloutSpec{Replacement: &v1alpha1.Replacement{ScaleSets: []string{"workers"}}},
	}
	store := clientfake.NewClientBuilder().WithScheme(scheme).WithIndex(turnof.Object(), indexMachines, indexedByMachines).WithObjects(rollout).Build()
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, fake.NewClientset().CoreV1().Events(""), scheme, "moult", "n1")
	defer recorder.Shutdown(context.WithoutCancel(t.Context()))
	clk := clocktesting.NewFakePassiveClock(noon)
	asked := false
	c := NewController(clk, store, store, nil, fleet.New(clk, store, nil), recorder, Options{
		Clouds: func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) {
			asked = true
			return nil, errors.New("not here")
		},
	})
	for _, version := range []string{"101", "100"} {
		acts := version == "100"
		c.Reports.Written("uid", version, noon)
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(rollout)})
		if err != nil || asked != acts || !acts && result.RequeueAfter != fleet.Coalesce/5 {
			t.Errorf("after a write with resourceVersion %s: the cloud was asked: %t, again after %s, %v", version, asked, result.RequeueAfter, err)
		}
		asked = false
	}
}
