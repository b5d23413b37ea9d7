// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/watch"
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
	turnof "moult.dev/moult/internal/turn"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/follow"
	"moult.dev/moult/test/tier"
)

// stage is a cluster, and the clouds of the tests that share it.
type stage struct {
	client.Client
	clientset kubernetes.Interface
	cluster   *cluster.Cluster
	scheme    *runtime.Scheme
	config    *rest.Config
	// skies are the clouds, by region.
	skies sync.Map
}

// bench is one test: a NodeRollout, and a scale set in a cloud of its own.
type bench struct {
	*stage
	t *testing.T
	// id is the name of the NodeRollout and of the scale set.
	id       string
	capacity int
	world    *clouds.World
}

// TestAPI runs the controller against a real API server, with scale sets in memory whose machines are simulated nodes.
func TestAPI(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	s := newStage(t)
	t.Run("killed", func(t *testing.T) { s.bench(t, killed) })
	s.operator(t)
	for name, test := range map[string]func(*bench){
		"surge zero in a budget": missingNodesCount,
		"deleted":                deletedInTurn,
		"detect":                 detects,
		"ducklett":               ducklett,
		"drain refused":          drainRefused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.bench(t, test)
		})
	}
}

// bench runs a test in a cloud of its own.
func (s *stage) bench(t *testing.T, test func(*bench)) {
	_, name, _ := strings.Cut(t.Name(), "/")
	b := &bench{stage: s, t: t, id: strings.ReplaceAll(name, "_", "-")}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b.world = clouds.New(ctx, clouds.Options{Hosts: clouds.SimulatedHosts(s.cluster), Identify: identify})
	s.skies.Store(b.region(), newSky(b.world))
	t.Cleanup(func() { cancel(); b.world.Wait() })
	defer func() {
		if t.Failed() {
			b.dump()
		}
	}()
	test(b)
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{cluster: cluster.Shared(t, 0), scheme: runtime.NewScheme()}
	err := errors.Join(corev1.AddToScheme(s.scheme), appsv1.AddToScheme(s.scheme), policyv1.AddToScheme(s.scheme), storagev1.AddToScheme(s.scheme),
		v1alpha1.AddToScheme(s.scheme), apiextensionsv1.AddToScheme(s.scheme))
	if err != nil {
		t.Fatal(err)
	}
	s.config = s.cluster.Config()
	s.config.QPS, s.config.Burst = 1000, 1000
	if s.Client, err = client.New(s.config, client.Options{Scheme: s.scheme}); err != nil {
		t.Fatal(err)
	}
	if s.clientset, err = kubernetes.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Group != v1alpha1.GroupName {
			continue
		}
		if err := s.Create(t.Context(), d); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "NodeRollouts are served", func() string {
		return text(errors.Join(s.List(t.Context(), &v1alpha1.NodeRolloutList{}), s.List(t.Context(), &v1alpha1.NodeDisruptionBudgetList{})))
	})
	return s
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// dump logs what there is to see.
func (b *bench) dump() {
	r := &v1alpha1.NodeRollout{}
	err := b.Get(context.WithoutCancel(b.t.Context()), types.NamespacedName{Name: b.id}, r)
	status, _ := json.MarshalIndent(r.Status, "", "  ")
	b.t.Logf("status: %s %v", status, err)
	for _, n := range b.nodes() {
		b.t.Log(n.Name, n.Spec.Unschedulable, n.Annotations, n.Spec.Taints)
	}
	for _, m := range b.world.Machines(b.id) {
		b.t.Logf("machine %+v", m)
	}
	for _, c := range b.world.Journal() {
		b.t.Logf("%+v", c)
	}
}

// eventually waits until nothing is wrong any more.
func eventually(t *testing.T, what string, wrong func() string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		t.Fatalf("%s: %s", what, last)
	}
}

// operator runs the controller until it is stopped, or the test ends.
func (s *stage) operator(t *testing.T) (stop func()) {
	t.Helper()
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, s.clientset.CoreV1().Events(""), s.scheme, "moult", "n1")
	byObject := fleet.CacheOptions()
	maps.Copy(byObject, turnof.CacheOptions())
	m, err := ctrl.NewManager(rest.CopyConfig(s.config), ctrl.Options{
		Scheme: s.scheme, Cache: cache.Options{ByObject: byObject}, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := fleet.NewPodCache(s.config, cache.Options{Scheme: s.scheme, Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient()})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(drain.NeverWait(rest.CopyConfig(s.config)), client.Options{Scheme: s.scheme, Mapper: m.GetRESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(clock.RealClock{}, m.GetClient(), pods)
	ctx, cancel := context.WithCancel(t.Context())
	c := NewController(clock.RealClock{}, m.GetClient(), live, s.clientset.CoreV1(), f, recorder, Options{
		Threads: 4,
		Clouds: func(_ context.Context, p *v1alpha1.CloudProvider) (cloud.Cloud, error) {
			sky, _ := s.skies.Load(p.AWS.Region)
			return sky.(cloud.Cloud), nil
		},
	})
	if err := errors.Join(m.Add(pods), f.SetupWithManager(ctx, m), c.SetupWithManager(ctx, m)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		recorder.Shutdown(context.WithoutCancel(t.Context()))
	})
	t.Cleanup(stop)
	return stop
}

// region is the one of the test's cloud.
func (b *bench) region() string { return "sky-" + b.id }

// set makes a scale set of so many machines, whose nodes are ready.
func (b *bench) set(capacity int) {
	b.t.Helper()
	b.capacity = capacity
	if err := b.world.Create(b.t.Context(), clouds.Set{Name: b.id, Image: "images/one", Capacity: capacity, Labels: map[string]string{"test": b.id}}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := b.DeleteAllOf(context.WithoutCancel(b.t.Context()), &corev1.Node{}, client.MatchingLabels{"test": b.id}); err != nil {
			b.t.Error(err)
		}
	})
	eventually(b.t, "nodes are ready", func() string {
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

// temporary creates an object that goes with the test.
func (b *bench) temporary(o client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
}

// rollout makes the NodeRollout. It is gone when the test ends.
func (b *bench) rollout(change ...func(*v1alpha1.NodeRolloutSpec)) {
	b.t.Helper()
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}, Spec: v1alpha1.NodeRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}},
		Strategy:     &v1alpha1.Strategy{},
		Replacement: &v1alpha1.Replacement{
			Provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{Region: b.region()}}, CheckPeriod: &metav1.Duration{Duration: time.Second},
		},
	}}
	for _, how := range change {
		how(&r.Spec)
	}
	b.t.Cleanup(func() {
		if err := b.Patch(context.WithoutCancel(b.t.Context()), r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
	b.temporary(r)
}

// patch changes an object.
func (b *bench) patch(o client.Object, body string) {
	b.t.Helper()
	if err := b.Patch(b.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Fatal(err)
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

// ready waits until the condition Ready has this in its message.
func (b *bench) ready(message string) {
	b.t.Helper()
	eventually(b.t, "the rollout becomes "+message, func() string {
		for _, c := range b.status().Conditions {
			if c.Type == v1alpha1.ConditionReady && strings.Contains(c.Message, message) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", b.status().Conditions)
	})
}

// unsettled says what is not as at first: all machines of an image, and nothing left of any turn.
func (b *bench) unsettled(image string) string {
	s, _ := b.world.Set(b.id)
	machines, nodes := b.world.Machines(b.id), b.nodes()
	if s.Capacity != b.capacity || len(machines) != b.capacity || len(nodes) != b.capacity {
		return fmt.Sprintf("the capacity is %d, with %d machines and %d nodes", s.Capacity, len(machines), len(nodes))
	}
	for _, m := range machines {
		if m.Image != image || m.State != clouds.Running {
			return fmt.Sprintf("%+v", m)
		}
	}
	for i := range nodes {
		if left := leftOn(&nodes[i]); left != "" {
			return nodes[i].Name + ": " + left
		}
	}
	return ""
}

// settled waits until all machines are of an image, there are as many as before, and nothing is left of what was done.
func (b *bench) settled(image string) {
	b.t.Helper()
	eventually(b.t, "everything is of "+image, func() string {
		status := b.status()
		for _, set := range status.ScaleSets {
			if len(set.Operations) > 0 {
				return fmt.Sprintf("%+v", set.Operations)
			}
		}
		if len(status.Turns) > 0 {
			return fmt.Sprintf("%+v", status.Turns)
		}
		return b.unsettled(image)
	})
}

// leftOn is what is left on a node that no turn should have left there.
func leftOn(n *corev1.Node) string {
	for key := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName) || key == v1alpha1.AnnotationScaleDownDisabled || strings.HasPrefix(key, v1alpha1.DucklettPrefix) {
			return key + ": " + n.Annotations[key]
		}
	}
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return "kept from load balancers"
	}
	for i := range n.Spec.Taints {
		return n.Spec.Taints[i].Key // That of a cordoned node too.
	}
	return ""
}

// between checks how many machines there ever were, but for those that are being deleted.
func (b *bench) between(least, most int) {
	b.t.Helper()
	n := b.capacity
	for _, c := range b.world.Journal() {
		ids := len(strings.Fields(c.Detail)) - 1
		switch {
		case c.Outcome != "":
		case c.Name == "Add":
			n += ids
		case c.Name == "Delete":
			n -= ids
		}
		if n < least || n > most {
			b.t.Errorf("after %s of %s there are %d machines, not %d to %d", c.Name, c.Detail, n, least, most)
		}
	}
}

// added checks how many machines were ever added.
func (b *bench) added(want int) {
	b.t.Helper()
	if n := len(b.world.Machines(b.id)) + len(b.world.Gone(b.id)) - b.capacity; n != want {
		b.t.Errorf("%d machines were added, not %d", n, want)
	}
}

// killed ends the process at each change of the status.
func killed(b *bench) {
	kills := 4
	if tier.All {
		kills = 20
	}
	b.set(3)
	stop := b.operator(b.t)
	b.rollout()
	b.ready("3 of 3 nodes updated")
	b.image("images/two")
	for range kills {
		last := b.status()
		eventually(b.t, "something happens", func() string {
			now := b.status()
			if fmt.Sprint(now.Turns, now.ScaleSets) != fmt.Sprint(last.Turns, last.ScaleSets) {
				return ""
			}
			return b.unsettled("images/two")
		})
		stop()
		stop = b.operator(b.t)
	}
	b.settled("images/two")
	b.between(3, 4)
	b.added(3)
	stop()
}

// missingNodesCount has a budget of one node less than the rollout may take at a time: a Node that has gone before another one comes is counted.
func missingNodesCount(b *bench) {
	b.set(4)
	b.temporary(&v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: b.id}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, MaxUnavailable: ptr.To(intstr.FromInt32(1)),
	}})
	fewest := b.fewest()
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
		s.Replacement.Surge, s.Strategy.MaxConcurrent = ptr.To(intstr.FromInt32(0)), ptr.To(intstr.FromInt32(3))
	})
	b.ready("4 of 4 nodes updated")
	b.image("images/two")
	b.settled("images/two")
	b.between(3, 4)
	if n := fewest(); n != 3 {
		b.t.Errorf("of 4 nodes %d were in service at the worst moment, not 3", n)
	}
}

// fewest follows the nodes. The function that it returns says how few were ready and schedulable at once.
func (b *bench) fewest() func() int {
	b.t.Helper()
	selector := "test=" + b.id
	list, err := b.clientset.CoreV1().Nodes().List(b.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		b.t.Fatal(err)
	}
	var mu sync.Mutex
	serves, fewest := map[string]bool{}, len(list.Items)
	for i := range list.Items {
		serves[list.Items[i].Name] = true
	}
	changes := make(chan follow.Change, 1000)
	go func() {
		defer close(changes)
		_ = follow.Changes(b.t.Context(), func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return b.clientset.CoreV1().Nodes().Watch(ctx, o)
		}, list.ResourceVersion, changes) // What it does not see is missed below.
	}()
	go func() {
		for c := range changes {
			n := c.Object.(*corev1.Node)
			mu.Lock()
			if serves[n.Name] = c.Type != watch.Deleted && inService(n); !serves[n.Name] {
				delete(serves, n.Name)
			}
			fewest = min(fewest, len(serves))
			mu.Unlock()
		}
	}()
	return func() int {
		var want []string
		for _, n := range b.nodes() {
			want = append(want, n.Name)
		}
		slices.Sort(want)
		eventually(b.t, "the watch has seen all", func() string {
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Sorted(maps.Keys(serves)); !slices.Equal(got, want) {
				return fmt.Sprint(got)
			}
			return ""
		})
		mu.Lock()
		defer mu.Unlock()
		return fewest
	}
}

// inService reports whether a node is ready and schedulable.
func inService(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func deletedInTurn(b *bench) {
	b.set(2)
	b.rollout()
	b.ready("2 of 2 nodes updated")
	b.world.Fault(clouds.Fault{Kind: clouds.JoinsSick, Call: "Add", Times: 1})
	b.image("images/two")
	eventually(b.t, "a replacement is waited for", func() string {
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
	eventually(b.t, "the rollout is gone", func() string {
		err := b.Get(b.t.Context(), types.NamespacedName{Name: b.id}, r)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint(r.Finalizers, r.Status.Turns, err)
	})
	if left := b.unsettled("images/one"); left != "" {
		b.t.Error(left)
	}
}

// detects changes nothing before it may, and then no node that is opted out.
func detects(b *bench) {
	b.set(2)
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.Replacement.DetectOnly = true })
	b.ready("2 of 2 nodes updated")
	b.image("images/two")
	eventually(b.t, "it is detected", func() string {
		if s := b.status(); len(s.Waiting) != 2 || s.Waiting[0].Reason != v1alpha1.ReasonDetectOnly || s.ScaleSets[0].Outdated != 2 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	b.added(0)
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-0"}}
	optOut := func(value string) {
		b.patch(out, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelNodeRollout(b.id), value))
	}
	optOut(`"disabled"`)
	b.patch(&v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}, `{"spec":{"replacement":{"detectOnly":null}}}`)
	eventually(b.t, "the other is replaced", func() string {
		if s := b.status(); s.Counts.Updated != 1 || s.Counts.Total != 1 || len(s.Turns) > 0 || !strings.HasPrefix(s.Revision, "two@") {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	b.added(1)
	optOut("null")
	b.settled("images/two")
	b.added(2)
}

// ducklett takes over nodes in each state that Ducklett may have left them in.
func ducklett(b *bench) {
	states := []string{
		v1alpha1.DucklettUpgradeReady, v1alpha1.DucklettUpgradeStarted, v1alpha1.DucklettUpgradeDrainReady, v1alpha1.DucklettUpgradeDrainStarted, v1alpha1.DucklettUpgradeDeleteReady,
	}
	b.set(6)
	b.image("images/two")
	for i, state := range states {
		// Others write to this Node meanwhile.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n := &corev1.Node{}
			if err := b.Get(b.t.Context(), types.NamespacedName{Name: fmt.Sprintf("%s-%d", b.id, i)}, n); err != nil {
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
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.Strategy.MaxConcurrent = ptr.To(intstr.FromInt32(6)) })
	b.settled("images/two")
	b.added(6)
	b.between(6, 10)
}

// drainRefused has a pod on its node that no controller would make again.
func drainRefused(b *bench) {
	b.set(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.id},
		Spec:       corev1.PodSpec{NodeName: b.id + "-0", Containers: []corev1.Container{{Name: "c", Image: "none"}}, TerminationGracePeriodSeconds: ptr.To(int64(0))},
	}
	b.temporary(pod)
	b.rollout()
	b.ready("1 of 1 nodes updated")
	b.image("images/two")
	b.ready("can't be drained")
	eventually(b.t, "what the turn left is gone", func() string {
		s, _ := b.world.Set(b.id)
		if nodes := b.nodes(); s.Capacity != 1 || len(nodes) != 1 || nodes[0].Spec.Unschedulable || len(b.status().Turns) > 0 {
			return fmt.Sprint(s, len(nodes), b.status().Turns)
		}
		return ""
	})
	if err := b.Delete(b.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		b.t.Fatal(err)
	}
	b.patch(&v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}, `{"metadata":{"annotations":{"moult.dev/retry":"1"}}}`)
	b.settled("images/two")
	b.between(1, 2)
}
