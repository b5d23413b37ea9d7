// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
)

// bench is a cluster with a cloud, and what a test has running in it.
type bench struct {
	client.Client
	t *testing.T
	// id is the name of the test's NodeRollout, and of its scale set.
	id      string
	cluster *cluster.Cluster
	scheme  *runtime.Scheme
	config  *rest.Config
	world   *clouds.World
	sky     *sky
	plane   Plane
	// most and least are how many machines there ever were that were not going.
	mu          sync.Mutex
	most, least int
}

// TestAPI lets the controller run against a real API server, with scale sets in memory whose machines are simulated nodes.
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	ctrl.SetLogger(logr.Discard())
	b := newBench(t)
	for _, tc := range []struct {
		name string
		test func(*bench)
	}{
		{"one at a time", oneAtATime},
		{"surge zero", withoutSurge},
		{"surge zero in a budget", missingNodesCount},
		{"never joins", neverJoins},
		{"image back", imageBack},
		{"version back", versionBack},
		{"deleted", deletedInTurn},
		{"died", diesByItself},
		{"full", full},
		{"refused", refused},
		{"killed", killed},
		{"rollback", rollsBack},
		{"detect", detects},
		{"ducklett", ducklett},
		{"ducklett set back", ducklettMeanwhile("images/one", 0)},
		{"ducklett overtaken", ducklettMeanwhile("images/three", 3)},
		{"opted out", optsOut},
		{"node gone early", nodeGoneEarly},
		{"drain refused", drainRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := &bench{Client: b.Client, t: t, id: strings.ReplaceAll(tc.name, " ", "-"), cluster: b.cluster, scheme: b.scheme, config: b.config}
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			sub.world = clouds.New(ctx, clouds.Options{
				Hosts: clouds.SimulatedHosts(b.cluster), CreateTime: 200 * time.Millisecond, DeleteTime: 200 * time.Millisecond, Identify: identify,
			})
			sub.sky = newSky(sub.world)
			t.Cleanup(func() { cancel(); sub.world.Wait() })
			defer func() {
				if t.Failed() {
					sub.dump()
				}
			}()
			tc.test(sub)
		})
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	running := cluster.New(t, cluster.Options{})
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), policyv1.AddToScheme(scheme), storagev1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := running.Config()
	cfg.QPS, cfg.Burst = 1000, 1000
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Client: c, t: t, cluster: running, scheme: scheme, config: cfg}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Group == v1alpha1.GroupName {
			b.create(d)
		}
	}
	b.eventually("NodeRollouts are served", func() string {
		return text(errors.Join(c.List(t.Context(), &v1alpha1.NodeRolloutList{}), c.List(t.Context(), &v1alpha1.NodeDisruptionBudgetList{})))
	})
	return b
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// dump tells what there was to be seen.
func (b *bench) dump() {
	ctx := context.WithoutCancel(b.t.Context())
	if list := (v1alpha1.NodeRolloutList{}); b.List(ctx, &list) == nil {
		for i := range list.Items {
			if list.Items[i].Name == b.id {
				status, err := json.MarshalIndent(list.Items[i].Status, "", "  ")
				b.t.Logf("status of %s: %s %v", b.id, status, err)
			}
		}
	}
	for _, n := range b.nodes() {
		b.t.Log(n.Name, n.Spec.Unschedulable, n.Annotations, n.Spec.Taints)
	}
	for _, m := range b.world.Machines(b.id) {
		b.t.Logf("machine %+v", m)
	}
	for _, c := range b.world.Journal() {
		b.t.Logf("%+v", c)
	}
	b.sky.mu.Lock()
	defer b.sky.mu.Unlock()
	b.t.Log(b.sky.calls)
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// eventually waits until nothing is wrong any more.
func (b *bench) eventually(what string, wrong func() string) {
	b.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		b.t.Fatalf("%s: %s", what, last)
	}
}

// operator runs the controller until it is stopped, or the test ends.
func (b *bench) operator() (stop func()) {
	b.t.Helper()
	cfg := rest.CopyConfig(b.config)
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	recorder := events.NewRecorder(b.t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), b.scheme, "moult", "n1")
	byObject := fleet.CacheOptions()
	maps.Copy(byObject, CacheOptions())
	log := logr.Discard()
	if os.Getenv("VERBOSE") != "" {
		log = logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	}
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: b.scheme, Cache: cache.Options{ByObject: byObject}, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, Logger: log,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	pods, err := fleet.NewPodCache(cfg, cache.Options{Scheme: b.scheme, Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient()})
	if err != nil {
		b.t.Fatal(err)
	}
	live, err := client.New(drain.NeverWait(cfg), client.Options{Scheme: b.scheme, Mapper: m.GetRESTMapper()})
	if err != nil {
		b.t.Fatal(err)
	}
	f := fleet.New(clock.RealClock{}, m.GetClient(), pods)
	ctx, cancel := context.WithCancel(b.t.Context())
	c := NewController(clock.RealClock{}, m.GetClient(), live, clientset.CoreV1(), f, recorder, Options{
		Clouds: func(context.Context, *v1alpha1.CloudProvider) (cloud.Cloud, error) { return b.sky, nil }, Plane: b.plane,
	})
	if err := errors.Join(m.Add(pods), f.Watch(ctx, m.GetCache()), f.SetupWithManager(ctx, m), c.SetupWithManager(ctx, m)); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				b.t.Error(err)
			}
			recorder.Shutdown(context.WithoutCancel(b.t.Context()))
		})
	}
	b.t.Cleanup(stop)
	return stop
}

// set makes a scale set of so many machines, whose nodes are ready.
func (b *bench) set(capacity int, change ...func(*clouds.Set)) {
	b.t.Helper()
	s := clouds.Set{Name: b.id, Image: "images/one", Capacity: capacity, Labels: map[string]string{"test": b.id}}
	for _, how := range change {
		how(&s)
	}
	if err := b.world.Create(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx := context.WithoutCancel(b.t.Context())
		for _, n := range b.nodes() {
			if err := b.Delete(ctx, &n); client.IgnoreNotFound(err) != nil {
				b.t.Error(err)
			}
		}
	})
	b.eventually("nodes are ready", func() string {
		nodes := b.nodes()
		if len(nodes) != capacity {
			return fmt.Sprint(len(nodes))
		}
		for i := range nodes {
			if len(nodes[i].Spec.Taints) > 0 {
				return fmt.Sprint(nodes[i].Spec.Taints)
			}
		}
		return ""
	})
	b.least = capacity
	ctx, cancel := context.WithCancel(b.t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			n := 0
			for _, m := range b.world.Machines(b.id) {
				if m.State != clouds.Deleting {
					n++
				}
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.most, b.least = max(b.most, n), min(b.least, n)
		}, 5*time.Millisecond)
	})
	b.t.Cleanup(func() { cancel(); watch.Wait() })
}

// image gives the scale set another image.
func (b *bench) image(image string) {
	b.t.Helper()
	if err := b.world.Edit(b.id, func(s *clouds.Set) error { s.Image = image; return nil }); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) nodes() []corev1.Node {
	list := corev1.NodeList{}
	if err := b.List(context.WithoutCancel(b.t.Context()), &list, client.MatchingLabels{"test": b.id}); err != nil {
		b.t.Error(err)
	}
	return list.Items
}

// rollout makes the NodeRollout. It goes with the test.
func (b *bench) rollout(change ...func(*v1alpha1.NodeRolloutSpec)) {
	b.t.Helper()
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}, Spec: v1alpha1.NodeRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}},
		Replacement: &v1alpha1.Replacement{
			Provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}, CheckPeriod: &metav1.Duration{Duration: 2 * time.Second},
		},
	}}
	for _, how := range change {
		how(&r.Spec)
	}
	b.create(r)
	b.t.Cleanup(func() {
		ctx := context.WithoutCancel(b.t.Context())
		if err := b.Delete(ctx, r); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
		if err := b.Patch(ctx, r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
}

func surge(n int32) func(*v1alpha1.NodeRolloutSpec) {
	return func(s *v1alpha1.NodeRolloutSpec) { s.Replacement.Surge = ptr.To(intstr.FromInt32(n)) }
}

func strategy(change func(*v1alpha1.Strategy)) func(*v1alpha1.NodeRolloutSpec) {
	return func(s *v1alpha1.NodeRolloutSpec) {
		if s.Strategy == nil {
			s.Strategy = &v1alpha1.Strategy{}
		}
		change(s.Strategy)
	}
}

func (b *bench) status() v1alpha1.NodeRolloutStatus {
	b.t.Helper()
	r := &v1alpha1.NodeRollout{}
	if err := b.Get(b.t.Context(), types.NamespacedName{Name: b.id}, r); err != nil {
		b.t.Fatal(err)
	}
	return r.Status
}

// ready waits until Ready says so.
func (b *bench) ready(message string) {
	b.t.Helper()
	b.eventually("the rollout becomes "+message, func() string {
		for _, c := range b.status().Conditions {
			if c.Type == v1alpha1.ConditionReady {
				if strings.Contains(c.Message, message) {
					return ""
				}
				return string(c.Status) + ": " + c.Message
			}
		}
		return "it has no status"
	})
}

// settled waits until all machines are of an image, there are as many as before, and nothing is left of what was done.
func (b *bench) settled(image string, capacity int) {
	b.t.Helper()
	b.eventually("everything is of "+image, func() string {
		s, _ := b.world.Set(b.id)
		machines, nodes := b.world.Machines(b.id), b.nodes()
		if s.Capacity != capacity || len(machines) != capacity || len(nodes) != capacity {
			return fmt.Sprintf("the capacity is %d, with %d machines and %d nodes", s.Capacity, len(machines), len(nodes))
		}
		for _, m := range machines {
			if image != "" && m.Image != image || m.State != clouds.Running {
				return fmt.Sprintf("%+v", m)
			}
		}
		for i := range nodes {
			if left := leftOn(&nodes[i]); left != "" {
				return nodes[i].Name + ": " + left
			}
		}
		status := b.status()
		if len(status.Turns) > 0 {
			return fmt.Sprintf("%+v", status.Turns)
		}
		for _, set := range status.ScaleSets {
			if len(set.Operations) > 0 {
				return fmt.Sprintf("%+v", set.Operations)
			}
		}
		return ""
	})
	b.sky.mu.Lock()
	defer b.sky.mu.Unlock()
}

// leftOn is what is left on a node that no turn should have left there.
func leftOn(n *corev1.Node) string {
	if n.Spec.Unschedulable {
		return "unschedulable"
	}
	for key := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName) || key == v1alpha1.AnnotationScaleDownDisabled || strings.HasPrefix(key, v1alpha1.DucklettPrefix) {
			return key + ": " + n.Annotations[key]
		}
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return "kept from load balancers"
	}
	for i := range n.Spec.Taints {
		return n.Spec.Taints[i].Key
	}
	return ""
}

// between checks how many machines there were.
func (b *bench) between(least, most int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.least < least || b.most > most {
		b.t.Errorf("there were %d to %d machines, not %d to %d", b.least, b.most, least, most)
	}
}

// added counts the machines that were ever added.
func (b *bench) added(capacity int) int {
	return len(b.world.Machines(b.id)) + len(b.world.Gone(b.id)) - capacity
}

func oneAtATime(b *bench) {
	b.set(3)
	b.operator()
	b.rollout()
	b.ready("3 of 3 nodes updated")
	b.image("images/two")
	b.settled("images/two", 3)
	b.ready("3 of 3 nodes updated")
	b.between(3, 4)
	if n := b.added(3); n != 3 {
		b.t.Errorf("%d machines were added", n)
	}
	s := b.status()
	if !strings.HasPrefix(s.Revision, "two@") || s.ScaleSets[0].PreviousImage != "images/one" {
		b.t.Errorf("%+v", s)
	}
}

func withoutSurge(b *bench) {
	b.set(3)
	b.operator()
	b.rollout(surge(0))
	b.ready("3 of 3 nodes updated")
	b.image("images/two")
	b.settled("images/two", 3)
	b.between(2, 3)
}

// missingNodesCount has a budget of one node less than the rollout may take at a time: a Node that has gone before another one comes is counted.
func missingNodesCount(b *bench) {
	b.set(4)
	b.operator()
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: b.id}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, MaxUnavailable: ptr.To(intstr.FromInt32(1)),
	}}
	b.create(budget)
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), budget); err != nil {
			b.t.Error(err)
		}
	})
	b.rollout(surge(0), strategy(func(s *v1alpha1.Strategy) { s.MaxConcurrent = ptr.To(intstr.FromInt32(3)) }))
	b.ready("4 of 4 nodes updated")
	ctx, cancel := context.WithCancel(b.t.Context())
	fewest := 4
	var watch sync.WaitGroup
	watch.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) { fewest = min(fewest, b.inService()) }, 10*time.Millisecond)
	})
	b.image("images/two")
	b.settled("images/two", 4)
	cancel()
	watch.Wait()
	if fewest != 3 {
		b.t.Errorf("of 4 nodes only %d were in service at a time", fewest)
	}
}

// inService counts the nodes that are ready and schedulable.
func (b *bench) inService() (n int) {
	for _, o := range b.nodes() {
		if !o.Spec.Unschedulable && slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			n++
		}
	}
	return n
}

// untroubled gives the machines that do join as long as any.
const untroubled = `{"spec":{"replacement":{"replacementReady":{"timeout":"10m"}}}}`

func neverJoins(b *bench) {
	b.set(2)
	b.operator()
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
		s.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: &metav1.Duration{Duration: 10 * time.Second}}
	})
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.NeverJoins, Call: "Add", Times: 1})
	b.image("images/two")
	b.ready("was not ready within replacementReady.timeout")
	b.eventually("the machine that never joined is gone", func() string {
		if s, _ := b.world.Set(b.id); s.Capacity != 2 || len(b.world.Machines(b.id)) != 2 || len(b.status().Turns) > 0 {
			return fmt.Sprint(s, b.status().Turns)
		}
		return ""
	})
	b.between(2, 3)
	for _, n := range b.nodes() {
		if n.Spec.Unschedulable {
			b.t.Errorf("%s is cordoned", n.Name)
		}
	}
	if f := b.status().Failed; len(f) != 1 || f[0].Reason != v1alpha1.ReasonReplacementFailed {
		b.t.Errorf("failed are %+v", f)
	}
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
	if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"moult.dev/retry":"1"}},`+untroubled[1:]))); err != nil {
		b.t.Fatal(err)
	}
	b.settled("images/two", 2)
}

func imageBack(b *bench) {
	b.set(2)
	b.operator()
	b.rollout()
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.JoinsSick, Call: "Add", Times: 1})
	b.image("images/two")
	b.eventually("a replacement is waited for", func() string {
		for _, t := range b.status().Turns {
			if t.Phase == v1alpha1.MachineJoining {
				return ""
			}
		}
		return "it is not"
	})
	b.image("images/one")
	b.settled("images/one", 2)
	b.ready("2 of 2 nodes updated")
	b.between(2, 3)
}

// versionBack: machines join by what the image says, also after it was set back.
func versionBack(b *bench) {
	const one, two = "images/flatcar-stable-1.31.4-v2-0badcafe", "images/flatcar-stable-1.32.0-v2-0badbeef"
	of := &tells{}
	b.plane = of
	b.set(2, func(s *clouds.Set) { s.Image = one })
	b.operator()
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
		s.Replacement.ControlPlane, s.Replacement.KubernetesVersionFromImage = &v1alpha1.ControlPlane{}, true
	})
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.JoinsSick, Call: "Add", Times: 1})
	b.image(two)
	b.eventually("a replacement is waited for", func() string {
		for _, t := range b.status().Turns {
			if t.Phase == v1alpha1.MachineJoining {
				return ""
			}
		}
		return "it is not"
	})
	b.image(one)
	b.settled(one, 2)
	b.ready("2 of 2 nodes updated")
	b.eventually("the version is told", func() string {
		if all := of.all(); !slices.Equal(all, []string{"1.31.4", "1.32.0", "1.31.4"}) {
			return fmt.Sprint(all)
		}
		return ""
	})
}

// tells is a control plane that may be told versions while it is looked at.
type tells struct {
	plane
	mu       sync.Mutex
	versions []string
}

func (f *tells) SetVersion(_ context.Context, version string, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.versions = append(f.versions, version)
	return nil
}

func (f *tells) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.versions)
}

func deletedInTurn(b *bench) {
	b.set(2)
	b.operator()
	b.rollout()
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.JoinsSick, Call: "Add", Times: 1})
	b.image("images/two")
	b.eventually("a replacement is waited for", func() string {
		for _, t := range b.status().Turns {
			if t.Phase == v1alpha1.MachineJoining && t.ReplacementNode != "" {
				return ""
			}
		}
		return "it is not"
	})
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
	if err := b.Delete(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("the rollout is gone", func() string {
		err := b.Get(b.t.Context(), types.NamespacedName{Name: b.id}, r)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint(r.Finalizers, r.Status.Turns, err)
	})
	if s, _ := b.world.Set(b.id); s.Capacity != 2 || len(b.world.Machines(b.id)) != 2 {
		b.t.Errorf("%+v", s)
	}
	for _, n := range b.nodes() {
		if left := leftOn(&n); left != "" {
			b.t.Errorf("%s: %s", n.Name, left)
		}
	}
}

func diesByItself(b *bench) {
	for _, shrink := range []bool{true, false} {
		b.t.Run(fmt.Sprintf("shrink %v", shrink), func(t *testing.T) {
			sub := &bench{Client: b.Client, t: t, id: fmt.Sprintf("died-%v", shrink), cluster: b.cluster, scheme: b.scheme, config: b.config, world: b.world, sky: b.sky}
			defer func() {
				if t.Failed() {
					sub.dump()
				}
			}()
			sub.set(2)
			sub.operator()
			sub.rollout(strategy(func(s *v1alpha1.Strategy) { s.Soak = &metav1.Duration{Duration: time.Second} }))
			sub.ready("2 of 2 nodes updated")
			sub.world.Fault(clouds.Fault{Kind: clouds.JoinsSick, Call: "Add", Times: 1, Set: sub.id})
			sub.image("images/two")
			var turn v1alpha1.MachineTurn
			sub.eventually("a replacement is waited for", func() string {
				for _, t := range sub.status().Turns {
					if turn = t; t.Phase == v1alpha1.MachineJoining && t.ReplacementNode != "" {
						return ""
					}
				}
				return "it is not"
			})
			if err := sub.world.Kill(sub.id, turn.Machine, shrink); err != nil {
				t.Fatal(err)
			}
			sub.eventually("it is noticed", func() string {
				for _, t := range sub.status().Turns {
					if t.Turn == turn.Turn && t.Machine != "" && t.Phase == v1alpha1.MachineJoining {
						return fmt.Sprintf("%+v", t)
					}
				}
				return ""
			})
			body := `{"metadata":{"annotations":{"` + cluster.NodeNotReady + `":null}}}`
			if err := sub.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: turn.ReplacementNode}}, client.RawPatch(types.MergePatchType, []byte(body))); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			sub.settled("images/two", 2)
		})
	}
}

func full(b *bench) {
	b.set(2, func(s *clouds.Set) { s.Max = 2 })
	b.operator()
	b.rollout()
	b.ready("2 of 2 nodes updated")
	b.image("images/two")
	b.ready("is at its maximum of 2 machines")
	if n := b.added(2); n != 0 {
		b.t.Errorf("%d machines were added", n)
	}
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
	if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replacement":{"onFull":"DeleteFirst"}}}`))); err != nil {
		b.t.Fatal(err)
	}
	b.settled("images/two", 2)
	b.between(1, 2)
}

// refused lets every call of the cloud fail once, before and after it has had its effect.
func refused(b *bench) {
	b.set(2)
	failed := map[string]bool{}
	b.sky.fails = func(call, _ string) (before, after error) {
		for _, what := range []struct {
			name string
			err  error
		}{
			{call + " throttled", cloud.Errorf(cloud.KindThrottled, "too many requests")},
			{call + " denied", cloud.Errorf(cloud.KindDenied, "no right to %s", call)},
		} {
			if !failed[what.name] && (call != "Poll" || what.name != "Poll denied") {
				failed[what.name] = true
				return what.err, nil
			}
		}
		if name := call + " lost"; !failed[name] {
			failed[name] = true
			return nil, errors.New("the connection was lost")
		}
		return nil, nil
	}
	b.operator()
	b.rollout()
	b.ready("2 of 2 nodes updated")
	b.image("images/two")
	b.settled("images/two", 2)
	b.between(2, 3)
	if n := b.added(2); n != 2 {
		b.t.Errorf("%d machines were added", n)
	}
}

// killed ends the process again and again.
func killed(b *bench) {
	b.set(3)
	stop := b.operator()
	b.rollout()
	b.ready("3 of 3 nodes updated")
	b.image("images/two")
	for i := range 12 {
		last := b.status()
		b.eventually("something happens", func() string {
			now := b.status()
			if len(now.Turns) == 0 && i > 3 || fmt.Sprint(now.Turns, now.ScaleSets) != fmt.Sprint(last.Turns, last.ScaleSets) {
				return ""
			}
			return "nothing"
		})
		stop()
		stop = b.operator()
	}
	b.settled("images/two", 3)
	b.between(3, 4)
	if n := b.added(3); n != 3 {
		b.t.Errorf("%d machines were added", n)
	}
}

func rollsBack(b *bench) {
	b.set(2)
	b.operator()
	b.rollout(strategy(func(s *v1alpha1.Strategy) { s.MaxFailures = ptr.To(intstr.FromInt32(0)) }), func(s *v1alpha1.NodeRolloutSpec) {
		s.Replacement.Rollback = true
		s.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: &metav1.Duration{Duration: 10 * time.Second}}
	})
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.NeverJoins, Call: "Add"})
	b.image("images/bad")
	b.eventually("it is rolled back", func() string {
		if s := b.status().ScaleSets; len(s) != 1 || s[0].RolledBack != "images/bad" || s[0].Image != "images/one" {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	b.settled("images/one", 2)
	b.ready("2 of 2 nodes updated")
	b.world.ClearFaults()
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
	if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(untroubled))); err != nil {
		b.t.Fatal(err)
	}
	b.image("images/good")
	b.settled("images/good", 2)
}

func detects(b *bench) {
	b.set(2)
	b.operator()
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.Replacement.DetectOnly = true })
	b.ready("2 of 2 nodes updated")
	b.image("images/two")
	b.eventually("it is detected", func() string {
		if s := b.status(); len(s.Waiting) != 2 || s.Waiting[0].Reason != v1alpha1.ReasonDetectOnly || s.ScaleSets[0].Outdated != 2 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if n := b.added(2); n != 0 {
		b.t.Errorf("%d machines were added", n)
	}
}

// ducklett takes over nodes in each state that Ducklett may have left them in.
func ducklett(b *bench) {
	states := []string{
		v1alpha1.DucklettUpgradeReady, v1alpha1.DucklettUpgradeStarted, v1alpha1.DucklettUpgradeDrainReady, v1alpha1.DucklettUpgradeDrainStarted, v1alpha1.DucklettUpgradeDeleteReady,
	}
	b.set(6)
	b.image("images/two")
	nodes := b.nodes()
	slices.SortFunc(nodes, func(x, y corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	for i, state := range states {
		// Others write of this Node meanwhile.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n := &corev1.Node{}
			if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(&nodes[i]), n); err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationDucklettStatus, state)
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationDucklettImage, "two")
			if i > 0 {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationDucklettCount, "10")
			}
			if i > 1 {
				n.Spec.Unschedulable = true
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintDucklett, Value: "1", Effect: corev1.TaintEffectNoSchedule})
			}
			return b.Update(b.t.Context(), n)
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	// Ducklett has made the set larger for four of them.
	if _, _, err := b.world.Add(b.id, "", nil, 4); err != nil {
		b.t.Fatal(err)
	}
	b.operator()
	b.rollout(strategy(func(s *v1alpha1.Strategy) { s.MaxConcurrent = ptr.To(intstr.FromInt32(6)) }))
	b.settled("images/two", 6)
	if n := b.added(6); n != 6 {
		b.t.Errorf("%d machines were added", n)
	}
	b.between(6, 10)
}

// ducklettMeanwhile takes over a node that Ducklett was replacing when another image was set: what Ducklett has added is not left over, and so many
// machines are added.
func ducklettMeanwhile(image string, adds int) func(*bench) {
	return func(b *bench) {
		b.set(3)
		b.image("images/two")
		if _, _, err := b.world.Add(b.id, "", nil, 1); err != nil {
			b.t.Fatal(err)
		}
		b.eventually("what Ducklett adds joins", func() string {
			if n := len(b.nodes()); n != 4 {
				return fmt.Sprint(n)
			}
			return ""
		})
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n := &corev1.Node{}
			if err := b.Get(b.t.Context(), types.NamespacedName{Name: b.id + "-0"}, n); err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationDucklettStatus, v1alpha1.DucklettUpgradeDrainStarted)
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationDucklettImage, "two")
			n.Spec.Unschedulable = true
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.TaintDucklett, Value: "1", Effect: corev1.TaintEffectNoSchedule})
			return b.Update(b.t.Context(), n)
		}); err != nil {
			b.t.Fatal(err)
		}
		b.image(image)
		b.operator()
		b.rollout()
		b.settled(image, 3)
		if n := b.added(3) - 1; n != adds {
			b.t.Errorf("%d machines were added", n)
		}
	}
}

func optsOut(b *bench) {
	b.set(2)
	b.operator()
	b.rollout()
	b.ready("2 of 2 nodes updated")
	label := func(value string) {
		name := b.id + "-0"
		body := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelNodeRollout(b.id), value)
		if err := b.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			b.t.Fatal(err)
		}
	}
	label(`"disabled"`)
	b.image("images/two")
	b.eventually("the other is replaced", func() string {
		if s := b.status(); s.Counts.Updated != 1 || s.Counts.Total != 1 || len(s.Turns) > 0 || !strings.HasPrefix(s.Revision, "two@") {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if n := b.added(2); n != 1 {
		b.t.Errorf("%d machines were added", n)
	}
	label("null")
	b.settled("images/two", 2)
}

// nodeGoneEarly deletes the Node of a machine in its turn, as a cloud controller may.
func nodeGoneEarly(b *bench) {
	b.set(2)
	b.operator()
	b.rollout()
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.JoinsSick, Call: "Add", Times: 1})
	b.image("images/two")
	var turn v1alpha1.MachineTurn
	b.eventually("a replacement is waited for", func() string {
		for _, t := range b.status().Turns {
			if turn = t; t.Phase == v1alpha1.MachineJoining && t.ReplacementNode != "" {
				return ""
			}
		}
		return "it is not"
	})
	if err := b.Delete(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: turn.Node}}); err != nil {
		b.t.Fatal(err)
	}
	body := `{"metadata":{"annotations":{"` + cluster.NodeNotReady + `":null}}}`
	if err := b.Patch(b.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: turn.ReplacementNode}}, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Fatal(err)
	}
	b.settled("images/two", 2)
	b.between(2, 3)
}

// drainRefused has a pod on each node that no controller would make again.
func drainRefused(b *bench) {
	b.set(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.id},
		Spec:       corev1.PodSpec{NodeName: b.id + "-0", Containers: []corev1.Container{{Name: "c", Image: "none"}}, TerminationGracePeriodSeconds: ptr.To(int64(0))},
	}
	b.create(pod)
	b.operator()
	b.rollout()
	b.ready("1 of 1 nodes updated")
	b.image("images/two")
	b.ready("can't be drained")
	b.settledFailed(1)
	if err := b.Delete(b.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		b.t.Fatal(err)
	}
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
	if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"moult.dev/retry":"1"}}}`))); err != nil {
		b.t.Fatal(err)
	}
	b.settled("images/two", 1)
	b.between(1, 2)
}

// settledFailed waits until a turn that failed has left nothing behind but its claim.
func (b *bench) settledFailed(capacity int) {
	b.t.Helper()
	b.eventually("what the turn left is gone", func() string {
		s, _ := b.world.Set(b.id)
		if nodes := b.nodes(); s.Capacity != capacity || len(nodes) != capacity || nodes[0].Spec.Unschedulable || len(b.status().Turns) > 0 {
			return fmt.Sprint(s, len(nodes), b.status().Turns)
		}
		return ""
	})
}
