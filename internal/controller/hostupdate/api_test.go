// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
	"moult.dev/moult/test/cluster"
)

// bottlerocket is the protocol of most tests.
var bottlerocket = v1alpha1.HostProtocols[0]

// bench is a cluster, and what a test has running in it.
type bench struct {
	client.Client
	t *testing.T
	// id is the name of the test's NodeRollout, and begins the names of its nodes.
	id      string
	cluster *cluster.Cluster
	scheme  *runtime.Scheme
	config  *rest.Config
	journal *journal
	hosts   map[string]*machine
}

// TestAPI lets the controller run against a real API server, with real agents on hosts that are doubles.
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
		{"trace", wholeTrace},
		{"killed", killed},
		{"drain", drains},
		{"faults", faults},
		{"abandoned", abandons},
		{"wiped", wipes},
		{"taken over", takesOver},
		{"sentinel", sentinel},
		{"hooks", hooks},
		{"two", twoRolloutsOneNode},
		{"mishaps", mishaps},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := *b
			sub.t, sub.id, sub.hosts = t, strings.ReplaceAll(tc.name, " ", "-"), map[string]*machine{}
			sub.journal = sub.follow()
			defer func() {
				if t.Failed() && len(sub.hosts) > 0 {
					sub.dump()
				}
			}()
			tc.test(&sub)
		})
	}
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
	running := cluster.New(t, cluster.Options{})
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
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		b.t.Fatalf("%s: %s", what, last)
	}
}

// hold waits for so long, in which nothing may be wrong.
func (b *bench) hold(d time.Duration, wrong func() string) {
	b.t.Helper()
	err := wait.PollUntilContextTimeout(b.t.Context(), 100*time.Millisecond, d, true, func(context.Context) (bool, error) {
		if text := wrong(); text != "" {
			return false, errors.New(text)
		}
		return false, nil
	})
	if !wait.Interrupted(err) {
		b.t.Error(err)
	}
}

// requests are what was asked of the API server.
type requests struct {
	mu   sync.Mutex
	list []string
}

func (r *requests) around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !strings.Contains(request.URL.Path, "/events") && request.URL.Query().Get("watch") == "" {
			r.mu.Lock()
			r.list = append(r.list, request.Method+" "+request.URL.Path)
			r.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *requests) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// writes counts what was written to a path, and below.
func (r *requests) writes(path string) int {
	n := 0
	for _, request := range r.all() {
		if !strings.HasPrefix(request, http.MethodGet) && strings.Contains(request+"/", path+"/") {
			n++
		}
	}
	return n
}

// operator runs the controller until it is stopped, or the test ends. Requests go through around, if it is not nil.
func (b *bench) operator(around func(http.RoundTripper) http.RoundTripper) (stop func()) {
	b.t.Helper()
	cfg := rest.CopyConfig(b.config)
	cfg.UserAgent = "the-operator"
	if around != nil {
		cfg.Wrap(around)
	}
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
	c := NewController(clock.RealClock{}, m.GetClient(), live, clientset.CoreV1(), f, recorder, Options{})
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

// node makes a Node with a host that runs a version and offers another.
func (b *bench) node(name, runs, offers string, change ...func(*machine)) *machine {
	b.t.Helper()
	name = b.id + "-" + name
	m := newMachine(name, runs, offers)
	for _, how := range change {
		how(m)
	}
	b.hosts[name] = m
	b.temporary(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{"example.com/others": "stay"}, Labels: map[string]string{corev1.LabelHostname: name, bottlerocket.InterfaceLabel: v1alpha1.InterfaceUpdateAPI, "test": b.id},
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
	ready := !m.isDown
	info := map[string]any{"bootID": m.bootID(), "osImage": "Bottlerocket OS " + m.runs + " (test)"}
	if m.unnamed {
		info["osImage"] = "Linux"
	}
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

// agents runs an agent for each machine until the test ends, a new process after each reboot.
func (b *bench) agents() {
	for _, m := range b.hosts {
		b.agent(m)
	}
}

func (b *bench) agent(m *machine) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			process, end := context.WithCancel(ctx)
			ran := make(chan error, 1)
			a, err := agent.New(agent.Options{
				NodeName: m.name, Config: rest.CopyConfig(b.config), ReadAsNode: agent.ReadAsNodeNever, CheckInterval: time.Hour, RebootGrace: 2 * time.Second,
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
				b.reboot(ctx, m)
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	b.t.Cleanup(stop)
	return stop
}

// reboot is what becomes of a machine that goes down.
func (b *bench) reboot(ctx context.Context, m *machine) {
	m.mu.Lock()
	m.isDown = true
	stays, meanwhile := m.stays, m.meanwhile
	m.mu.Unlock()
	b.kubelet(m)
	if stays {
		<-ctx.Done()
		return
	}
	if meanwhile != nil {
		done := make(chan struct{})
		go func() { defer close(done); meanwhile() }()
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
	m.boot()
	b.kubelet(m)
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
func (b *bench) rollout(change ...func(*v1alpha1.NodeRolloutSpec)) {
	b.t.Helper()
	r := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: b.id}, Spec: v1alpha1.NodeRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"test": b.id}}, HostUpdate: &v1alpha1.HostUpdate{},
	}}
	for _, how := range change {
		how(&r.Spec)
	}
	b.temporary(r)
	b.t.Cleanup(func() {
		// Before the nodes: what it has there is given back.
		err := b.Delete(context.WithoutCancel(b.t.Context()), r)
		if client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
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

// line is what matters of a Node: wanted,active,state update, and how it stands otherwise.
func line(n *corev1.Node) string {
	a := n.Annotations
	parts := []string{fmt.Sprintf("%s,%s,%s %s", a[bottlerocket.Wanted], a[bottlerocket.Active], a[bottlerocket.State], a[bottlerocket.Update])}
	if n.Spec.Unschedulable {
		parts = append(parts, "unschedulable")
	}
	for _, label := range []string{corev1.LabelNodeExcludeBalancers, v1alpha1.LabelBeforeReboot, v1alpha1.LabelAfterReboot} {
		if _, there := n.Labels[label]; there {
			parts = append(parts, label[strings.LastIndex(label, "/")+1:])
		}
	}
	claims, err := v1alpha1.ParseClaims(a)
	if err != nil {
		return err.Error()
	}
	for _, c := range claims {
		what := "claimed"
		switch {
		case c.Failed != nil:
			what = string(c.Failed.Reason)
		case c.Soaking != nil:
			what = "soaking"
		case c.Changed != nil:
			what = "changed"
		case c.Rebooting != nil:
			what = "rebooting"
		case c.Cordoned != nil:
			what = "cordoned"
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, " ")
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

// updated is the whole trace of one update.
var updated = []string{
	",, ",
	"stabilize,unknown,unknown unknown",
	"stabilize,stabilize,busy unknown",
	"stabilize,stabilize,ready true",
	"prepare-update,stabilize,ready true claimed",
	"prepare-update,prepare-update,busy true claimed",
	"prepare-update,prepare-update,ready true claimed",
	"perform-update,prepare-update,ready true claimed",
	"perform-update,perform-update,busy true claimed",
	"perform-update,perform-update,ready true claimed",
	"perform-update,perform-update,ready true unschedulable exclude-from-external-load-balancers cordoned",
	"reboot-update,perform-update,ready true unschedulable exclude-from-external-load-balancers rebooting",
	"reboot-update,reboot-update,busy true unschedulable exclude-from-external-load-balancers rebooting",
	"reboot-update,reboot-update,ready true unschedulable exclude-from-external-load-balancers rebooting",
	"reboot-update,reboot-update,ready true soaking",
	"stabilize,unknown,unknown unknown",
	"stabilize,stabilize,busy unknown",
	"stabilize,stabilize,ready false",
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

// rebootedOnce checks that each host was told to reboot once, and did.
func (b *bench) rebootedOnce() {
	b.t.Helper()
	for name, m := range b.hosts {
		if n := m.count("reboot"); n != 1 || m.boots != 2 {
			b.t.Errorf("%s was told to reboot %d times, and has booted %d times", name, n, m.boots)
		}
	}
}

// wholeTrace updates two nodes, one after the other, with everything that is said in order.
func wholeTrace(b *bench) {
	b.node("a", "1.0.0", "1.1.0")
	b.node("b", "1.0.0", "1.1.0")
	b.agents()
	var counted requests
	b.operator(counted.around)
	b.rollout()
	b.becomes(metav1.ConditionTrue, "2 of 2 nodes updated")
	b.traced()
	b.rebootedOnce()
	for name := range b.hosts {
		if n := b.get(name); n.Annotations["example.com/others"] != "stay" || n.Labels[corev1.LabelHostname] == "" {
			b.t.Errorf("%s has lost what others had there: %v %v", name, n.Labels, n.Annotations)
		}
		// Asked, claimed, performed, cordoned, told to reboot, soaking, released; and conditions: draining, drained, over.
		if n := counted.writes("/nodes/" + name); n > 10 {
			b.t.Errorf("%s was written %d times", name, n)
		}
	}
	// Once all is done nothing is requested any more but what watches last.
	b.eventually("the last status is written", func() string {
		if s := b.status(); s.Counts == nil || s.Counts.Updated != 2 || len(s.Updating) > 0 || len(s.Waiting) > 0 {
			return fmt.Sprint(s)
		}
		return ""
	})
	before := counted.all()
	b.hold(3*time.Second, func() string {
		if more := counted.all()[len(before):]; len(more) > 0 {
			return fmt.Sprint("it requests ", more)
		}
		return ""
	})
	// One after the other: while one is in a turn, the other is not.
	under := ""
	for l := range strings.SplitSeq(b.journal.all(), "\n") {
		name, what, _ := strings.Cut(l, ": ")
		if last := what[strings.LastIndex(what, " ")+1:]; slices.Contains([]string{"claimed", "cordoned", "rebooting", "soaking"}, last) {
			if under != "" && under != name {
				b.t.Errorf("%s is in a turn while %s is", name, under)
			}
			under = name
		} else if under == name {
			under = ""
		}
	}
}
