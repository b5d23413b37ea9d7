// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// What a rollout asks of changed nodes keeps its waves back, too.
func TestWavesRespectHealth(t *testing.T) {
	for broken, want := range map[bool]v1alpha1.WaveState{true: v1alpha1.WaveUnhealthy, false: v1alpha1.WaveProgressing} {
		r := newRollout(func(r *v1alpha1.NodeRollout) {
			r.Spec.Strategy = &v1alpha1.Strategy{Waves: []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1))}}}
			r.Spec.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{AbsentTaints: []string{"broken"}}}
		})
		updated := newNode(words("stabilize,stabilize,ready false"), runs("1.1.0"))
		if broken {
			updated.Spec.Taints = []corev1.Taint{{Key: "broken"}}
		}
		next := newNode(func(n *corev1.Node) { n.Name, n.UID = "b", "uid-b" }, words("stabilize,stabilize,ready true"), runs("1.0.0"), offers("1.1.0"))
		s := fleet.Snapshot{Fleet: rollout.Fleet{Nodes: map[string]*rollout.Node{"a": rollout.NewNode(updated), "b": rollout.NewNode(next)}}, Objects: []*corev1.Node{updated, next}}
		c := newTestController(t, nil)
		p := c.newPass(r, nil, s)
		p.Decide(s.Fleet)
		if got := p.Decision; got.Wave == nil || got.Wave.State != want || (len(got.Start) > 0) == broken {
			t.Errorf("broken %v: wave %+v, starting %v", broken, got.Wave, got.Start)
		}
	}
}

// What a host update has left on nodes whose name a replacement has by now is released; a host that is to reboot is waited for, and looked at again
// in time though no other node changes.
func TestSameNameAsAReplacement(t *testing.T) {
	stored := turn.Object()
	stored.SetName("os")
	stored.SetUID("another")
	stored.Object["spec"] = map[string]any{"nodeSelector": map[string]any{}, "replacement": map[string]any{}}
	for name, tc := range map[string]struct {
		claim func(*v1alpha1.Claim)
		gone  bool
		wake  time.Duration
	}{
		"preparing":              {begun, true, 0},
		"told to reboot":         {rebooting, false, hostupdate.DefaultRebootTimeout - 5*time.Minute},
		"of a replacement's own": {func(c *v1alpha1.Claim) { c.UID = "another" }, false, 0},
	} {
		scheme := runtime.NewScheme()
		scheme.AddKnownTypeWithName(turn.GroupVersionKind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind("NodeDisruptionBudgetList"), &v1alpha1.NodeDisruptionBudgetList{})
		if err := corev1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		api := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(stored.DeepCopy(), newNode(words("reboot-update,perform-update,ready true"), runs("1.0.0"), holding(claimed(tc.claim)))).Build()
		c := newTestController(t, api)
		wake, err := c.reconcile(t.Context(), types.NamespacedName{Name: "os"})
		n := &corev1.Node{}
		if err := errors.Join(err, api.Get(t.Context(), client.ObjectKey{Name: "a"}, n)); err != nil {
			t.Fatal(err)
		}
		if tc.wake == 0 != wake.IsZero() || tc.wake > 0 && !wake.Equal(now.Add(tc.wake)) || (n.Annotations[v1alpha1.AnnotationClaims] == "") != tc.gone {
			t.Errorf("%s: it is looked at again at %s, the claims are %q", name, wake, n.Annotations[v1alpha1.AnnotationClaims])
		}
	}
}

// A rollout that waits until others have claimed their nodes claims none once its window has closed.
func TestWindowClosesMeanwhile(t *testing.T) {
	for waits, starts := range map[time.Duration]int{29 * time.Minute: 1, 30 * time.Minute: 0} {
		r := newRollout(func(r *v1alpha1.NodeRollout) {
			r.Spec.Strategy = &v1alpha1.Strategy{Windows: []v1alpha1.Window{{Schedule: "0 12 * * *", Duration: metav1.Duration{Duration: 30 * time.Minute}}}}
		})
		n := newNode(words("stabilize,stabilize,ready true"), runs("1.0.0"), offers("1.1.0"))
		clk := clocktesting.NewFakePassiveClock(now)
		scheme := runtime.NewScheme()
		if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
			t.Fatal(err)
		}
		api := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(n).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				clk.SetTime(now.Add(waits)) // It is let in, and looks.
				return w.List(ctx, list, opts...)
			},
		}).Build()
		s := fleet.Snapshot{Fleet: rollout.Fleet{Nodes: map[string]*rollout.Node{"a": rollout.NewNode(n)}}, Objects: []*corev1.Node{n}}
		c := newTestController(t, api)
		c.Clock = clk
		p := c.newPass(r, nil, s)
		if _, err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(p.Decision.Start) != starts || (p.Turns[0].Claim != nil) != (starts > 0) {
			t.Errorf("after %s: starts %v, claim %+v", waits, p.Decision.Start, p.Turns[0].Claim)
		}
		if c := p.Turns[0].Claim; c != nil && !c.Since.Time.Equal(now.Add(waits)) {
			t.Errorf("the claim is since %s, not since it was admitted", c.Since)
		}
	}
}

// BenchmarkPass is what one look at a NodeRollout costs beside the lists and the writes, while a rollout is half done.
func BenchmarkPass(b *testing.B) {
	for _, nodes := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			r := newRollout(func(r *v1alpha1.NodeRollout) {
				r.Spec.Strategy = &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(50))}
			})
			s := fleet.Snapshot{Fleet: rollout.Fleet{Nodes: map[string]*rollout.Node{}}}
			for i := range nodes {
				change := []func(*corev1.Node){func(n *corev1.Node) { n.Name, n.UID = fmt.Sprintf("node-%05d", i), types.UID(fmt.Sprintf("uid-%d", i)) }}
				switch {
				case i < nodes/2:
					change = append(change, words("stabilize,stabilize,ready false"), runs("1.1.0"))
				case i < nodes/2+50:
					change = append(change, words("prepare-update,prepare-update,busy true"), runs("1.0.0"), offers("1.1.0"), holding(claimed()))
				default:
					change = append(change, words("stabilize,stabilize,ready true"), runs("1.0.0"), offers("1.1.0"))
				}
				n := newNode(change...)
				s.Objects, s.Nodes[n.Name] = append(s.Objects, n), rollout.NewNode(n)
			}
			c := newTestController(b, nil)
			b.ReportAllocs()
			for b.Loop() {
				p := c.newPass(r, nil, s)
				p.Decide(s.Fleet)
				p.count()
				if got := r.Status.Counts; got.Updating != int32(min(50, nodes/2)) || len(p.Decision.Start) > 0 {
					b.Fatalf("%+v, starting %v", got, p.Decision.Start)
				}
			}
		})
	}
}

// one is a client that reads one object.
type one struct {
	client.Client
	content map[string]any
}

func (c one) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("it reads a %T", o)
	}
	u.Object = c.content
	return nil
}

// A NodeRollout that can't be read keeps what its status says.
func TestReadMalformed(t *testing.T) {
	c := newTestController(t, one{content: map[string]any{
		"metadata": map[string]any{"name": "os", "uid": "1"}, "spec": "nonsense",
		"status": map[string]any{"revision": "1.1.0", "releases": []any{map[string]any{"version": "1.1.0", "since": "2026-11-20T12:00:00Z"}}},
	}})
	stored, err := turn.Get(t.Context(), c.Client, types.NamespacedName{Name: "os"}, turn.Object())
	if err != nil {
		t.Fatal(err)
	}
	r, malformed, err := turn.Decode(stored)
	if err != nil || malformed == nil {
		t.Fatal(malformed, err)
	}
	if r.Name != "os" || r.UID != "1" || r.Status.Revision != "1.1.0" || len(r.Status.Releases) != 1 {
		t.Errorf("read is %+v", r)
	}
}
