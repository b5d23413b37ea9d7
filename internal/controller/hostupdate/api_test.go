// SPDX-License-Identifier: Apache-2.0

package hostupdate

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
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/turn"
	"moult.dev/moult/test/cluster"
)

// bottlerocket is the protocol of most tests.
var bottlerocket = v1alpha1.HostProtocols[0]

// bench is a cluster, and what a test has running in it.
type bench struct {
	client.WithWatch
	t *testing.T
	// id is the name of the test's NodeRollout, and begins the names of its nodes.
	id      string
	cluster *cluster.Cluster
	scheme  *runtime.Scheme
	config  *rest.Config
	journal *journal
	hosts   map[string]*machine
}

// TestAPI runs the controller against a real API server, with real agents on simulated hosts.
func TestAPI(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	b := newBench(t)
	b.operator()
	b.pods()
	t.Run("cases", func(t *testing.T) { // They end before the operator does.
		for name, test := range map[string]func(*bench){
			"trace": wholeTrace, "held": drainIsHeld, "hooks": hooks, "deleted": deletedMeanwhile, "limit": failureLimit, "two": twoRolloutsOneNode,
			"rollback": rollBack,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sub := *b
				sub.t, sub.id, sub.hosts = t, name, map[string]*machine{}
				sub.journal = sub.follow()
				defer func() {
					if t.Failed() {
						sub.dump()
					}
				}()
				test(&sub)
			})
		}
	})
}

// dump tells what there was to be seen.
func (b *bench) dump() {
	ctx := context.WithoutCancel(b.t.Context())
	b.t.Logf("journal:\n%s", b.journal.all())
	if list := (v1alpha1.NodeRolloutList{}); b.List(ctx, &list) == nil {
		for i := range list.Items {
			if !strings.HasPrefix(list.Items[i].Name, b.id) {
				continue
			}
			status, err := json.MarshalIndent(list.Items[i].Status, "", "  ")
			b.t.Logf("status of %s: %s %v", list.Items[i].Name, status, err)
		}
	}
	for name := range b.hosts {
		n := &corev1.Node{}
		err := b.Get(ctx, types.NamespacedName{Name: name}, n)
		b.t.Log(name, n.Labels, n.Annotations, n.Status.NodeInfo, n.Status.Conditions, err)
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	running := cluster.Shared(t, 0)
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), policyv1.AddToScheme(scheme), storagev1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := running.Config()
	cfg.QPS, cfg.Burst = 1000, 1000
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{WithWatch: c, t: t, cluster: running, scheme: scheme, config: cfg}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Group != v1alpha1.GroupName {
			continue
		}
		if err := c.Create(t.Context(), d); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
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

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := b.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// temporary creates an object that goes with the test.
func (b *bench) temporary(o client.Object) {
	b.t.Helper()
	b.create(o)
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
}

// eventually waits until nothing is wrong any more.
func (b *bench) eventually(what string, wrong func() string) {
	b.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		b.t.Fatalf("%s: %s", what, last)
	}
}

// operator runs the controller until the test ends.
func (b *bench) operator() {
	b.t.Helper()
	cfg := rest.CopyConfig(b.config)
	cfg.UserAgent = "the-operator"
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	recorder := events.NewRecorder(b.t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), b.scheme, "moult", "n1")
	byObject := fleet.CacheOptions()
	maps.Copy(byObject, turn.CacheOptions())
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
	c := NewController(clock.RealClock{}, m.GetClient(), live, clientset.CoreV1(), f, recorder, Options{})
	if err := errors.Join(m.Add(pods), f.SetupWithManager(ctx, m), c.SetupWithManager(ctx, m)); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		recorder.Shutdown(context.WithoutCancel(b.t.Context()))
	})
}

// node makes a Node with a host that runs 1.0.0 and offers 1.1.0, and runs its agent. A host that is changed is spoken to by updog.
func (b *bench) node(name string, change ...func(*machine)) *machine {
	b.t.Helper()
	name = b.id + "-" + name
	m, hostInterface := newMachine(name, "1.0.0", "1.1.0"), v1alpha1.InterfaceUpdateAPI
	for _, how := range change {
		how(m)
		hostInterface = v1alpha1.InterfaceUpdog
	}
	b.hosts[name] = m
	b.temporary(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{"example.com/others": "stay"}, Labels: map[string]string{corev1.LabelHostname: name, bottlerocket.InterfaceLabel: hostInterface, "test": b.id},
	}})
	b.kubelet(m)
	ctx, cancel := context.WithCancel(b.t.Context())
	var beats sync.WaitGroup
	beats.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { b.kubelet(m) }, 5*time.Second) })
	b.t.Cleanup(func() { cancel(); beats.Wait() })
	b.eventually("pods may come to node "+name, func() string {
		if n := b.get(name); !isReady(n) || len(n.Spec.Taints) > 0 {
			return fmt.Sprint(n.Status.Conditions, n.Spec.Taints)
		}
		return ""
	})
	b.agent(m)
	return m
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// kubelet posts what the machine's kubelet would, or, while it is down, what is found out then.
func (b *bench) kubelet(m *machine) {
	m.posts.Lock()
	defer m.posts.Unlock()
	m.mu.Lock()
	ready := !m.isDown && m.runs != m.ill
	info := map[string]any{"bootID": m.bootID(), "osImage": "Bottlerocket OS " + m.runs + " (test)"}
	m.mu.Unlock()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	now := metav1.Now()
	body, err := json.Marshal(map[string]any{"status": map[string]any{
		"nodeInfo":   info,
		"conditions": []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: now, LastHeartbeatTime: now}},
	}})
	if err != nil {
		b.t.Error(err)
	}
	err = b.Status().Patch(context.WithoutCancel(b.t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}, client.RawPatch(types.StrategicMergePatchType, body))
	if client.IgnoreNotFound(err) != nil {
		b.t.Error(err)
	}
}

// agent runs an agent until the test ends, a new process after each reboot.
func (b *bench) agent(m *machine) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			process, end := context.WithCancel(ctx)
			ran := make(chan error, 1)
			a, err := agent.New(agent.Options{
				NodeName: m.name, Config: rest.CopyConfig(b.config), ReadAsNode: agent.ReadAsNodeNever, CheckInterval: time.Hour, RebootGrace: time.Hour,
				Host: func(v1alpha1.HostProtocol, string) (host.Host, error) { return m, nil },
			})
			if err != nil {
				b.t.Error(err)
				end()
				return
			}
			go func() { ran <- a.Run(process) }()
			reboots := false
			select {
			case <-ctx.Done():
			case <-m.down:
				reboots = true
			}
			end()
			if err := <-ran; err != nil {
				b.t.Errorf("the agent ended with %v", err)
			}
			if reboots {
				m.set(func(m *machine) { m.isDown = true })
				b.kubelet(m)
				m.boot()
				b.kubelet(m)
			}
		}
	}()
	b.t.Cleanup(func() { cancel(); <-ended })
}

func (b *bench) get(name string) *corev1.Node {
	b.t.Helper()
	n := &corev1.Node{}
	if err := b.Get(b.t.Context(), types.NamespacedName{Name: name}, n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// rollout makes the NodeRollout.
func (b *bench) rollout(change ...func(*v1alpha1.NodeRolloutSpec)) *v1alpha1.NodeRollout {
	b.t.Helper()
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}, Spec: v1alpha1.NodeRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, HostUpdate: &v1alpha1.HostUpdate{},
	}}
	for _, how := range change {
		how(&r.Spec)
	}
	b.temporary(r)
	b.t.Cleanup(func() {
		// Before the nodes: what it has there is released.
		err := b.Delete(context.WithoutCancel(b.t.Context()), r)
		if client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
	return r
}

func (b *bench) status() v1alpha1.NodeRolloutStatus {
	b.t.Helper()
	r := &v1alpha1.NodeRollout{}
	if err := b.Get(b.t.Context(), types.NamespacedName{Name: b.id}, r); err != nil {
		b.t.Fatal(err)
	}
	return r.Status
}

// becomes waits until Ready says so.
func (b *bench) becomes(status metav1.ConditionStatus, message string) {
	b.t.Helper()
	b.eventually("the rollout becomes "+message, func() string {
		c := meta.FindStatusCondition(b.status().Conditions, v1alpha1.ConditionReady)
		if c == nil {
			return "it has no status"
		}
		if c.Status != status || !strings.Contains(c.Message, message) {
			return fmt.Sprintf("it is %s: %s", c.Status, c.Message)
		}
		return ""
	})
}

// journal is what was to be seen on each Node, each change once.
type journal struct {
	mu    sync.Mutex
	lines map[string][]string
	order []string
}

// follow writes down what operator and agents say to each other, and what is done to the Nodes, from now on.
func (b *bench) follow() *journal {
	b.t.Helper()
	j := &journal{lines: map[string][]string{}}
	clientset, err := kubernetes.NewForConfig(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	w, err := clientset.CoreV1().Nodes().Watch(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && strings.HasPrefix(n.Name, b.id+"-") {
				j.note(n)
			}
		}
	}()
	b.t.Cleanup(func() { w.Stop(); <-done })
	return j
}

func (j *journal) note(n *corev1.Node) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, lines := line(n), j.lines[n.Name]
	if len(lines) > 0 && lines[len(lines)-1] == now {
		return
	}
	j.lines[n.Name] = append(lines, now)
	j.order = append(j.order, n.Name+": "+now)
}

func (j *journal) of(node string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines[node])
}

func (j *journal) all() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.order, "\n")
}

// traced waits until each Node has the whole trace of one update, and nothing else.
func (b *bench) traced() {
	b.t.Helper()
	b.eventually("agents have looked again", func() string {
		for name := range b.hosts {
			if diff := cmp.Diff(updated, b.journal.of(name)); diff != "" {
				return name + " (-want +got):\n" + diff
			}
		}
		return ""
	})
}

// rebootedOnce checks that each host was ordered to reboot once, and did.
func (b *bench) rebootedOnce() {
	b.t.Helper()
	for name, m := range b.hosts {
		if n := m.count("reboot"); n != 1 || m.boots != 2 {
			b.t.Errorf("%s was ordered to reboot %d times, and has booted %d times", name, n, m.boots)
		}
	}
}

// pods is a kubelet for the pods of all Nodes here: it runs them, and ends those that are being deleted.
func (b *bench) pods() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	w, err := b.Watch(ctx, &corev1.PodList{})
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || p.Labels["test"] == "" {
				continue
			}
			switch {
			case p.DeletionTimestamp != nil:
				err = b.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
			case p.Status.Phase == corev1.PodPending:
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				err = b.Status().Update(ctx, p)
			}
			_ = err // The next change tries again, or the test fails.
		}
	}()
	b.t.Cleanup(func() { cancel(); w.Stop(); <-done })
}

// annotate sets annotations to "true", of a node or of the rollout.
func (b *bench) annotate(o client.Object, keys ...string) {
	b.t.Helper()
	values := map[string]string{}
	for _, key := range keys {
		values[key] = "true"
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err == nil {
		err = b.Patch(b.t.Context(), o, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// released waits until nothing of a turn is left on a node.
func (b *bench) released(name string) {
	b.t.Helper()
	b.eventually(name+" is released", func() string { return leftOn(b.get(b.id + "-" + name)) })
}

// wholeTrace updates two nodes, one after the other, with each word between operator and agents in order.
func wholeTrace(b *bench) {
	b.node("a")
	b.node("b")
	b.rollout()
	b.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
	b.traced()
	b.rebootedOnce()
	oneAtATime(b.t, strings.Split(b.journal.all(), "\n"))
}

// drainIsHeld waits for a PodDisruptionBudget, says so, and goes on once it allows the eviction.
func drainIsHeld(b *bench) {
	m := b.node("n")
	labels := map[string]string{"test": b.id}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: b.id, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: m.name, Containers: []corev1.Container{{Name: "c", Image: "x"}}, AutomountServiceAccountToken: ptr.To(false)},
	}
	// The namespace's account may not be there yet.
	b.eventually("the pod is created", func() string { return text(client.IgnoreAlreadyExists(b.Create(b.t.Context(), p))) })
	b.t.Cleanup(func() { _ = b.Delete(context.WithoutCancel(b.t.Context()), p, client.GracePeriodSeconds(0)) })
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: b.id},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	b.temporary(pdb)
	b.eventually("the budget counts the pod", func() string {
		if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(pdb), pdb); err != nil || pdb.Status.CurrentHealthy != 1 {
			return fmt.Sprint(pdb.Status, err)
		}
		return ""
	})
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{Force: true} })
	b.eventually("it says what holds it", func() string {
		s := b.status()
		if len(s.Updating) != 1 || s.Updating[0].Phase != v1alpha1.PhaseDraining || !strings.Contains(s.Updating[0].Message, "is held by PodDisruptionBudget default/"+b.id) {
			return fmt.Sprint(s.Updating)
		}
		return ""
	})
	if err := b.Delete(b.t.Context(), pdb); err != nil {
		b.t.Fatal(err)
	}
	b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	b.released("n")
	b.rebootedOnce()
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
		b.t.Errorf("the pod was not evicted, %v", err)
	}
}

// hooked is a rollout with hooks before and after the reboot.
func hooked(s *v1alpha1.NodeRolloutSpec) {
	s.HostUpdate.Hooks = &v1alpha1.RebootHooks{BeforeReboot: []string{"ceph.example.com/noout", "b"}, AfterReboot: []string{"after"}}
}

// waits is until a turn waits for hooks.
func (b *bench) waits(suffix string, phase v1alpha1.Phase, message string) {
	b.t.Helper()
	b.eventually("it waits for "+message, func() string {
		s := b.status()
		if l := line(b.get(b.id + "-n")); !strings.HasSuffix(l, suffix) || len(s.Updating) != 1 || s.Updating[0].Phase != phase || !strings.Contains(s.Updating[0].Message, message) {
			return fmt.Sprint(l, s.Updating)
		}
		return ""
	})
}

// hooks are waited for before and after the reboot.
func hooks(b *bench) {
	m := b.node("n")
	b.rollout(hooked)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	b.waits("perform-update,perform-update,ready true before-reboot claimed", v1alpha1.PhasePreparing, "annotations ceph.example.com/noout, b of the Node must become true before")
	b.annotate(n, "b")
	b.waits("before-reboot claimed", v1alpha1.PhasePreparing, "annotations ceph.example.com/noout of the Node must become true before")
	b.annotate(n, "ceph.example.com/noout")
	b.waits("unschedulable exclude-from-external-load-balancers after-reboot changed", v1alpha1.PhaseVerifying, "annotations after of the Node must become true")
	b.annotate(n, "after")
	b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	b.released("n")
	n = b.get(m.name)
	for _, key := range []string{"ceph.example.com/noout", "b", "after"} {
		if _, there := n.Annotations[key]; there {
			b.t.Errorf("annotation %s is still there", key)
		}
	}
	b.rebootedOnce()
}

// deletedMeanwhile releases the node of a NodeRollout that is deleted in the middle of a turn.
func deletedMeanwhile(b *bench) {
	m := b.node("n")
	b.rollout(hooked)
	b.waits("before-reboot claimed", v1alpha1.PhasePreparing, "annotations")
	if err := b.Delete(b.t.Context(), &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("the node is released", func() string {
		if l := line(b.get(m.name)); strings.Contains(l, "claimed") || strings.Contains(l, "before-reboot") || m.marked() != "" {
			return l + " " + m.marked()
		}
		return ""
	})
	if m.count("reboot") != 0 {
		b.t.Error("it was ordered to reboot")
	}
}

// rollBack brings three hosts back to what they ran, when none of them becomes ready with the new release.
func rollBack(b *bench) {
	r := b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
		s.Strategy = &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(3)), MaxFailures: ptr.To(intstr.FromInt32(2)), Rollback: true}
		s.HostUpdate.RebootTimeout = &metav1.Duration{Duration: 10 * time.Second}
	})
	for _, name := range []string{"a", "b", "c"} {
		b.node(name, func(m *machine) { m.offers, m.ill = "", "1.1.0" })
	}
	b.becomes(metav1.ConditionTrue, "3 of 3 nodes updated")
	for name, m := range b.hosts {
		m.set(func(m *machine) { m.offers = "1.1.0" })
		b.annotate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, bottlerocket.State) // It is asked again.
	}
	b.eventually("it is rolled back", func() string {
		if s := b.status(); s.RolledBack != "1.1.0" || s.Revision != "1.0.0" {
			return fmt.Sprint(s.RolledBack, s.Revision, s.Failed)
		}
		return ""
	})
	b.becomes(metav1.ConditionTrue, "3 of 3 nodes updated; rolled back from 1.1.0")
	for name, m := range b.hosts {
		if n := m.count("rollback"); n != 1 || m.count("reboot") != 2 || m.boots != 3 || m.runs != "1.0.0" {
			b.t.Errorf("%s was rolled back %d times, has booted %d times, and runs %s", name, n, m.boots, m.runs)
		}
		b.released(strings.TrimPrefix(name, b.id+"-"))
	}
	b.eventually("an Event says so", func() string {
		var list corev1.EventList
		if err := b.List(b.t.Context(), &list); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.UID == r.UID && e.Reason == "RolledBack" {
				return ""
			}
		}
		return "there is none"
	})
}

// failureLimit halts at spec.strategy.maxFailures, and goes on when that is raised or a person retries.
func failureLimit(b *bench) {
	b.node("a")
	b.node("b")
	for _, m := range b.hosts {
		m.set(func(m *machine) { m.fails["prepare"] = errors.New("disk full") })
	}
	b.rollout(func(s *v1alpha1.NodeRolloutSpec) {
		s.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(0))}
	})
	counts := func(what string, holds func(*v1alpha1.NodeRolloutStatus) bool) {
		b.t.Helper()
		b.eventually(what, func() string {
			if s := b.status(); s.Counts == nil || !holds(&s) {
				return fmt.Sprint(s)
			}
			return ""
		})
	}
	counts("it halts", func(s *v1alpha1.NodeRolloutStatus) bool {
		return s.Counts.Failed == 1 && s.Failed[0].Reason == v1alpha1.ReasonHostUpdateFailed && strings.Contains(s.Failed[0].Message, "disk full") &&
			len(s.Waiting) == 1 && s.Waiting[0].Reason == v1alpha1.ReasonHalted && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled)
	})
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}
	if err := b.Patch(b.t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"strategy":{"maxFailures":1}}}`))); err != nil {
		b.t.Fatal(err)
	}
	counts("it goes on", func(s *v1alpha1.NodeRolloutStatus) bool { return s.Counts.Failed == 2 })
	for name, m := range b.hosts {
		m.set(func(m *machine) { delete(m.fails, "prepare") })
		if n := b.get(name); n.Spec.Unschedulable {
			b.t.Errorf("%s is unschedulable", name)
		}
	}
	b.annotate(&v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}}, v1alpha1.AnnotationRetry)
	b.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
	b.released("a")
	b.released("b")
	b.rebootedOnce()
}

// twoRolloutsOneNode lets the claim decide which rollout has the node.
func twoRolloutsOneNode(b *bench) {
	b.node("shared")
	other := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id + "-other"}, Spec: v1alpha1.NodeRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, HostUpdate: &v1alpha1.HostUpdate{},
	}}
	b.temporary(other)
	b.rollout()
	b.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	b.traced()
	b.rebootedOnce()
}
