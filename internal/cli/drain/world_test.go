// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/internal/drain"
)

// start is when the tests begin.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world is a cluster in which time passes only while a command waits.
type world struct {
	*clocktesting.FakeClock
	client.Client
	t   *testing.T
	env map[string]string

	// held says how often a budget holds the pod, stuck that it never ends, back that it returns when it has ended.
	held        map[string]int
	stuck, back map[string]bool
	// at happens when so much time has passed.
	at map[time.Duration]func()
	// broken is what every list of pods gives, forbidden what every write of a Node's status gives.
	broken, forbidden error
	// statuses counts the writes of Nodes' statuses.
	statuses int
	// before is called before the pod of this name is evicted.
	before func(name string)
	// err is what the last command gave.
	err error

	evictions sync.Mutex
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		FakeClock: clocktesting.NewFakeClock(start), t: t, env: map[string]string{},
		held: map[string]int{}, stuck: map[string]bool{}, back: map[string]bool{}, at: map[time.Duration]func(){},
	}
	w.Client = fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Node{}).
		WithObjects(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "ds"}}).
		WithIndex(&corev1.Pod{}, drain.NodeNameField, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, pods := list.(*corev1.PodList); pods && w.broken != nil {
					return w.broken
				}
				return c.List(ctx, list, opts...)
			},
			SubResourceCreate: func(ctx context.Context, c client.Client, _ string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
				return w.evict(ctx, c, obj, body.(*policyv1.Eviction).DeleteOptions.DryRun)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if w.forbidden != nil {
					return w.forbidden
				}
				w.statuses++
				return c.SubResource(sub).Patch(ctx, obj, p, opts...)
			},
		}).Build()
	return w
}

func (w *world) evict(ctx context.Context, c client.Client, pod client.Object, dryRun []string) error {
	w.evictions.Lock()
	defer w.evictions.Unlock()
	if w.before != nil {
		w.before(pod.GetName())
	}
	if w.held[pod.GetName()] > 0 {
		w.held[pod.GetName()]--
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget api needs 1 healthy pods and has 1 currently",
		}}
		return err
	}
	if len(dryRun) > 0 {
		return nil
	}
	return c.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: pod.GetName()}})
}

// NewTimer lets the time pass: what is to happen happens, and pods that were told to go end.
func (w *world) NewTimer(d time.Duration) clock.Timer {
	timer := w.FakeClock.NewTimer(d)
	before := w.Since(start)
	w.Step(d)
	for at, happens := range w.at {
		if at > before && at <= w.Since(start) {
			happens()
		}
	}
	var pods corev1.PodList
	if err := w.Client.List(context.Background(), &pods); err != nil && w.broken == nil {
		w.t.Error(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; !p.DeletionTimestamp.IsZero() && !w.stuck[p.Name] {
			w.end(p)
		}
	}
	return timer
}

func (w *world) end(p *corev1.Pod) {
	p.Finalizers = nil
	if err := w.Update(context.Background(), p); err != nil {
		w.t.Error(err)
	}
	if !w.back[p.Name] {
		return
	}
	again := pod(p.Name, p.Spec.NodeName)
	again.UID += "-again"
	again.CreationTimestamp = metav1.NewTime(w.Now())
	again.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if err := w.Create(context.Background(), again); err != nil {
		w.t.Error(err)
	}
}

// ran is what became of a command.
type ran struct {
	Out, ErrOut []string
	Error       string
}

// run runs a command line in the world.
func (w *world) run(ctx context.Context, line string) ran {
	w.t.Helper()
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	c := &command{
		IOStreams: streams, clock: w, environment: inside(w.env, "system-upgrade"),
		connect: func() (client.Client, error) { return w.Client, nil },
	}
	root := &cobra.Command{Use: "moult", SilenceErrors: true}
	root.AddCommand(newDrain(c), newCordon(c), newUncordon(c))
	root.SetArgs(strings.Fields(line))
	root.SetOut(errOut)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	r := ran{Out: lines(out), ErrOut: lines(errOut)}
	if w.err = err; err != nil {
		r.Error = err.Error()
	}
	return r
}

// exitCode is what the process would exit with after the last command.
func (w *world) exitCode() int {
	if w.err == nil {
		return 0
	}
	var coded interface{ ExitCode() int }
	if errors.As(w.err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	if err := w.Get(w.t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// conditions says of each condition of the node whether it is true, and its message.
func (w *world) conditions(name string) map[corev1.NodeConditionType]string {
	w.t.Helper()
	m := map[corev1.NodeConditionType]string{}
	for _, c := range w.node(name).Status.Conditions {
		m[c.Type] = string(c.Status) + " " + c.Message
	}
	return m
}

// marks are the node's annotations, and the label that keeps external load balancers off.
func (w *world) marks(name string) map[string]string {
	w.t.Helper()
	n := w.node(name)
	m := maps.Clone(n.Annotations)
	if value, ok := n.Labels[corev1.LabelNodeExcludeBalancers]; ok {
		m = map[string]string{}
		maps.Copy(m, n.Annotations)
		m["excluded"] = value
	}
	return m
}

func lines(b *bytes.Buffer) []string {
	if b.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// cordons says of each node whether it is unschedulable, and by whom.
func (w *world) cordons() map[string]string {
	w.t.Helper()
	var nodes corev1.NodeList
	if err := w.List(w.t.Context(), &nodes); err != nil {
		w.t.Fatal(err)
	}
	m := map[string]string{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		m[n.Name] = fmt.Sprint(n.Spec.Unschedulable, " ", n.Annotations["moult.dev/cordoned-by"])
	}
	return m
}

func (w *world) pods() []string {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.Client.List(w.t.Context(), &pods); err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

func aNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"}}}
	for _, c := range change {
		c(n)
	}
	return n
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

// pod makes a running pod of a ReplicaSet that ends when time passes.
func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{"moult.dev/test"},
			CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	ofKind("ReplicaSet", "rs")(p)
	for _, c := range change {
		c(p)
	}
	return p
}

func ofKind(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "uid", Controller: &yes}}
	}
}

func unowned(p *corev1.Pod) { p.OwnerReferences = nil }

func endedAt(at time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		when := metav1.NewTime(start.Add(at))
		p.DeletionTimestamp = &when
	}
}

func expect[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
