// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/config/crd"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/test/cluster"
)

const shop = "shop"

// bench is a cluster in which the controller runs.
type bench struct {
	client.Client
	t     *testing.T
	fleet *fleet.Fleet
	audit string
}

// TestAPI lets the controller run against a real API server, with the controllers that make Deployments come and go.
func TestAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	b := newBench(t)
	for _, tc := range []struct {
		name string
		test func(*bench)
	}{
		{"counts", countsNodes},
		{"invalid", saysWhatIsInvalid},
		{"quiet", watchesNothingUnasked},
		{"workloads", workloadsGate},
		{"records", clearsRecords},
		{"pods", podsGate},
		{"alerts", alertsGate},
		{"evictions", countsEvictions},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sub := *b
			sub.t = t
			tc.test(&sub)
		})
	}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	running := cluster.New(t, cluster.Options{Dir: dir, Nodes: 3, AuditLog: true})
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := running.Config()
	cfg.QPS, cfg.Burst = 1000, 1000
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Client: c, t: t, audit: filepath.Join(dir, "log", "audit.log")}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Group == v1alpha1.GroupName {
			b.create(d)
		}
	}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop, Labels: map[string]string{"env": "live"}}})
	if err := cluster.WaitForAccounts(t.Context(), c, shop); err != nil {
		t.Fatal(err)
	}
	b.eventually("budgets are served", func() string {
		return text(c.List(t.Context(), &v1alpha1.NodeDisruptionBudgetList{}))
	})

	cfg.UserAgent = "the-operator"
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, clientset.CoreV1().Events(""), scheme, "moult", "n1")
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cache.Options{ByObject: fleet.CacheOptions()}, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := fleet.NewPodCache(cfg, cache.Options{Scheme: scheme, Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient()})
	if err != nil {
		t.Fatal(err)
	}
	b.fleet = fleet.New(clock.RealClock{}, m.GetClient(), pods)
	if err := errors.Join(m.Add(pods), b.fleet.Watch(t.Context(), m.GetCache()), b.fleet.SetupWithManager(t.Context(), m),
		NewController(clock.RealClock{}, m.GetClient(), b.fleet, recorder).SetupWithManager(t.Context(), m)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		recorder.Shutdown(context.WithoutCancel(t.Context()))
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

// creates an object that goes with the test.
func (b *bench) creates(o client.Object) {
	b.t.Helper()
	b.create(o)
	b.t.Cleanup(func() {
		if err := b.Delete(context.WithoutCancel(b.t.Context()), o); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	})
}

// eventually waits until there is nothing left to say.
func (b *bench) eventually(what string, wrong func() string) {
	b.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, 60*time.Second, true, func(context.Context) (bool, error) {
		last = wrong()
		return last == "", nil
	})
	if err != nil {
		b.t.Fatalf("%s: %v: %s", what, err, last)
	}
}

// budget makes one of these fields, in YAML.
func (b *bench) budget(spec string) *v1alpha1.NodeDisruptionBudget {
	b.t.Helper()
	o := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: filepath.Base(b.t.Name())}}
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		b.t.Fatal(err)
	}
	b.creates(o)
	return o
}

// says waits until a budget's condition Open is as wanted, "True reason message", and returns the budget.
func (b *bench) says(of *v1alpha1.NodeDisruptionBudget, want string) *v1alpha1.NodeDisruptionBudget {
	b.t.Helper()
	var o *v1alpha1.NodeDisruptionBudget
	b.eventually("budget "+of.Name+" says "+want, func() string {
		o = &v1alpha1.NodeDisruptionBudget{} // What is absent would stay as it was read before.
		if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(of), o); err != nil {
			return err.Error()
		}
		got := "nothing"
		if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionOpen); c != nil {
			got = string(c.Status) + " " + c.Reason + " " + c.Message
		}
		if got == want {
			return ""
		}
		return got
	})
	return o
}

// edits a node.
func (b *bench) edits(name string, how func(*corev1.Node)) {
	b.t.Helper()
	n := &corev1.Node{}
	if err := b.Get(b.t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		b.t.Fatal(err)
	}
	before := n.DeepCopy()
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	how(n)
	if err := b.Patch(b.t.Context(), n, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
}

func countsNodes(b *bench) {
	of := b.budget("{maxUnavailable: 2, topologyKey: kubernetes.io/hostname}")
	o := b.says(of, "True Open 2 nodes may be taken")
	if s := o.Status; s.Matched != 3 || s.Unavailable != 0 || *s.Allowed != 2 || s.ObservedGeneration != 1 {
		b.t.Errorf("got %+v", s)
	}
	b.edits("sim-0001", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	b.says(of, "True Open 1 node may be taken")
	claims, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: "Plan/a/b", UID: "u", Since: metav1.Now()}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.edits("sim-0002", func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationClaims] = claims })
	o = b.says(of, "False BudgetExhausted no node may be taken: at most 2 may be unavailable")
	var holders []string
	for _, h := range o.Status.Holders {
		holders = append(holders, h.Node+" "+string(h.Cause)+" "+h.By)
	}
	if want := []string{"sim-0002 Claimed Plan/a/b", "sim-0001 Unschedulable "}; !slices.Equal(holders, want) {
		b.t.Errorf("got %q, want %q", holders, want)
	}
	if s := o.Status; s.Domains != 2 || *s.Allowed != 0 || s.Unavailable != 2 {
		b.t.Errorf("got %+v", s)
	}
	b.edits("sim-0001", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	b.edits("sim-0002", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
	b.says(of, "True Open 2 nodes may be taken")

	// The clock alone closes and opens.
	before := o.DeepCopy()
	o.Spec.Windows = []v1alpha1.Window{{Schedule: "0 0 29 2 1", Duration: metav1.Duration{Duration: time.Minute}}}
	if err := b.Patch(b.t.Context(), o, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("the window blocks", func() string {
		o = &v1alpha1.NodeDisruptionBudget{}
		if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(of), o); err != nil {
			return err.Error()
		}
		if len(o.Status.BlockedBy) != 1 || o.Status.BlockedBy[0].Gate != v1alpha1.ReasonOutsideBudgetWindow || *o.Status.Allowed != 0 {
			return fmt.Sprintf("%+v", o.Status)
		}
		return ""
	})
	b.told(of, "OutsideBudgetWindow")
	before = o.DeepCopy()
	o.Spec.Windows = nil
	if err := b.Patch(b.t.Context(), o, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
	b.says(of, "True Open 2 nodes may be taken")
	b.told(of, "Opened")
}

// told waits for an Event.
func (b *bench) told(of *v1alpha1.NodeDisruptionBudget, reason string) {
	b.t.Helper()
	b.eventually("there is an Event "+reason, func() string {
		var list corev1.EventList
		if err := b.List(b.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err.Error()
		}
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.UID == of.UID && e.InvolvedObject.Kind == "NodeDisruptionBudget" {
				all = append(all, e.Reason)
			}
		}
		if slices.Contains(all, reason) {
			return ""
		}
		return fmt.Sprint(all)
	})
}

// What the API server can't check is told in the conditions.
func saysWhatIsInvalid(b *bench) {
	of := b.budget("{gates: {alerts: {url: 'http://p', allow: '['}}}")
	o := b.says(of, "False BudgetInvalid no node may be taken: spec.gates.alerts.allow: error parsing regexp: missing closing ]: `[`")
	if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled) {
		b.t.Errorf("got %+v", o.Status.Conditions)
	}
	b.told(of, "BudgetInvalid")
}

// Nothing is read that no gate has asked for.
func watchesNothingUnasked(b *bench) {
	log, err := os.ReadFile(b.audit)
	if err != nil {
		b.t.Fatal(err)
	}
	nodes := 0
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, `"userAgent":"the-operator"`) {
			continue
		}
		if strings.Contains(line, `"objectRef":{"resource":"nodes"`) {
			nodes++
		}
		for _, resource := range []string{"pods", "namespaces", "deployments", "replicasets", "statefulsets", "daemonsets", "replicationcontrollers"} {
			if strings.Contains(line, `"objectRef":{"resource":"`+resource+`"`) {
				b.t.Errorf("it reads %s: %s", resource, line)
			}
		}
	}
	if nodes == 0 {
		b.t.Error("the audit log tells nothing of it")
	}
}

func deployment(name string, replicas int32, selector map[string]string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{NodeSelector: selector, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			},
		},
	}
}

func workloadsGate(b *bench) {
	of := b.budget("{gates: {workloads: {selector: {matchLabels: {app: cart}}, namespaceSelector: {matchLabels: {env: live}}}}}")
	const open = "True Open nodes may be taken, there is no limit by number"
	o := b.says(of, open)
	if o.Status.Allowed != nil {
		b.t.Errorf("allowed is %d", *o.Status.Allowed)
	}
	other := deployment("other", 1, map[string]string{"no": "such"})
	b.creates(other)
	cart := deployment("cart", 2, nil)
	b.creates(cart)
	b.eventually("cart is available", func() string {
		if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(cart), cart); err != nil {
			return err.Error()
		}
		if cart.Status.AvailableReplicas != 2 {
			return fmt.Sprintf("%+v", cart.Status)
		}
		return ""
	})
	b.says(of, open)
	before := cart.DeepCopy()
	cart.Spec.Template.Spec.NodeSelector = map[string]string{"no": "such"}
	cart.Spec.Replicas = ptr.To[int32](4)
	if err := b.Patch(b.t.Context(), cart, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
	o = b.says(of, "False WorkloadsUnavailable no node may be taken: Deployment shop/cart has 3 of 4 available")
	if s := o.Status; *s.Allowed != 0 || len(s.BlockedBy) != 1 || s.BlockedBy[0].Since.IsZero() {
		b.t.Errorf("got %+v", s)
	}
	b.told(of, "WorkloadsUnavailable")
	if err := b.Delete(b.t.Context(), cart); err != nil {
		b.t.Fatal(err)
	}
	b.says(of, open)
}

// What was evicted closes the gate, whatever that selects, and is forgotten once the node is free and all is well.
func clearsRecords(b *bench) {
	record := func(want string) {
		b.t.Helper()
		b.eventually("the record is "+want, func() string {
			n := &corev1.Node{}
			if err := b.Get(b.t.Context(), client.ObjectKey{Name: "sim-0001"}, n); err != nil {
				return err.Error()
			}
			if got := n.Annotations[v1alpha1.AnnotationEvicted]; got != want {
				return got
			}
			return ""
		})
	}
	claims, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: "Plan/a/b", UID: "u", Since: metav1.Now()}})
	if err != nil {
		b.t.Fatal(err)
	}
	// Without a budget that asks nobody needs it, once the node is free.
	const gone = `["ReplicaSet/shop/gone"]`
	b.edits("sim-0001", func(n *corev1.Node) {
		n.Annotations[v1alpha1.AnnotationEvicted], n.Annotations[v1alpha1.AnnotationClaims] = gone, claims
	})
	of := b.budget("{gates: {workloads: {selector: {matchLabels: {app: none}}}}}")
	const open = "True Open nodes may be taken, there is no limit by number"
	b.says(of, open)
	record(gone)
	b.edits("sim-0001", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
	record("")

	web := deployment("web", 1, map[string]string{"no": "such"})
	b.creates(web)
	var sets appsv1.ReplicaSetList
	b.eventually("there is a ReplicaSet", func() string {
		if err := b.List(b.t.Context(), &sets, client.MatchingLabels{"app": "web"}); err != nil || len(sets.Items) == 0 {
			return "none yet, " + text(err)
		}
		return ""
	})
	name := sets.Items[0].Name
	value := `["ReplicaSet/shop/` + name + `","ReplicaSet/shop/gone"]`
	b.edits("sim-0001", func(n *corev1.Node) { // With a claim, so that it stays until the operator has seen the ReplicaSet.
		n.Annotations[v1alpha1.AnnotationEvicted], n.Annotations[v1alpha1.AnnotationClaims] = value, claims
	})
	b.says(of, "False WorkloadsUnavailable no node may be taken: evicted from sim-0001: ReplicaSet shop/"+name+" has 0 of 1 available")
	b.edits("sim-0001", func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
	record(value)
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(web), web); err != nil {
		b.t.Fatal(err)
	}
	before := web.DeepCopy()
	web.Spec.Template.Spec.NodeSelector = nil
	if err := b.Patch(b.t.Context(), web, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
	b.says(of, open)
	record("")
}

func podsGate(b *bench) {
	of := b.budget("{gates: {pods: [{selector: {matchLabels: {job: migrate}}}, {selector: {matchLabels: {stop: all}}, namespaceSelector: {matchLabels: {env: live}}, scope: Cluster}]}}")
	const open = "True Open nodes may be taken, there is no limit by number"
	b.says(of, open)
	pod := func(name, node string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
			Spec:       corev1.PodSpec{NodeName: node, NodeSelector: map[string]string{}, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}
		if node == "" {
			p.Spec.NodeSelector = map[string]string{"no": "such"}
		}
		b.creates(p)
		return p
	}
	migrate := pod("migrate", "sim-0002", map[string]string{"job": "migrate"})
	o := b.says(of, open+"; 1 node is blocked by pods that are on it")
	if o.Status.Allowed != nil || len(o.Status.BlockedBy) > 0 {
		b.t.Errorf("got %+v", o.Status)
	}
	s, err := b.fleet.Snapshot(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, budget := range s.Budgets {
		if budget.Name == of.Name {
			if got := budget.NodeBlocks["sim-0002"].Message; len(budget.NodeBlocks) != 1 || got != "pod shop/migrate is on it" {
				b.t.Errorf("got %+v", budget.NodeBlocks)
			}
		}
	}
	pod("stop", "", map[string]string{"stop": "all"})
	b.says(of, "False PodsBlock no node may be taken: pod shop/stop is there; 1 node is blocked by pods that are on it")
	b.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, "env", "test")
	b.says(of, open+"; 1 node is blocked by pods that are on it")
	b.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, "env", "live")
	b.says(of, "False PodsBlock no node may be taken: pod shop/stop is there; 1 node is blocked by pods that are on it")
	b.edit(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "stop"}}, "stop", "none")
	b.says(of, open+"; 1 node is blocked by pods that are on it")
	// What has ended no longer counts.
	if err := b.Status().Patch(b.t.Context(), migrate, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))); err != nil {
		b.t.Fatal(err)
	}
	b.says(of, open)
}

// edit sets a label.
func (b *bench) edit(o client.Object, label, value string) {
	b.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value)
	if err := b.Patch(b.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
		b.t.Fatal(err)
	}
}

func alertsGate(b *bench) {
	var asked, broken atomic.Int64
	var active atomic.Bool
	active.Store(true)
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if broken.Load() > 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		series := ""
		if active.Load() {
			series = `{"metric":{"alertname":"DiskFull","alertstate":"firing"},"value":[1,"1"]}`
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`+series+`]}}`)
	}))
	defer prometheus.Close()
	of := b.budget("{gates: {alerts: {url: '" + prometheus.URL + "', intervalSeconds: 1}}}")
	const open = "True Open nodes may be taken, there is no limit by number"
	b.says(of, "False AlertsActive no node may be taken: 1 alert is active: DiskFull")
	active.Store(false)
	b.says(of, open)
	broken.Store(1)
	b.says(of, "False AlertsUnreachable no node may be taken: Prometheus does not answer: server_error: server error: 500")
	o := &v1alpha1.NodeDisruptionBudget{}
	if err := b.Get(b.t.Context(), client.ObjectKeyFromObject(of), o); err != nil {
		b.t.Fatal(err)
	}
	before := o.DeepCopy()
	o.Spec.Gates.Alerts.WhenUnreachable = v1alpha1.UnreachableOpen
	if err := b.Patch(b.t.Context(), o, client.MergeFrom(before)); err != nil {
		b.t.Fatal(err)
	}
	b.says(of, open+"; alerts are not heeded: Prometheus does not answer: server_error: server error: 500")
	broken.Store(0)
	b.says(of, open)
	if err := b.Delete(b.t.Context(), of); err != nil {
		b.t.Fatal(err)
	}
	b.eventually("it is no longer asked", func() string {
		last := asked.Load()
		time.Sleep(1500 * time.Millisecond)
		if asked.Load() > last {
			return "it is"
		}
		return ""
	})
}

func countsEvictions(b *bench) {
	b.creates(deployment("evicted", 2, map[string]string{corev1.LabelHostname: "sim-0003"}))
	b.eventually("the pods are counted", func() string {
		s, err := b.fleet.Snapshot(b.t.Context())
		if err != nil {
			return err.Error()
		}
		got := b.fleet.CountEvictions(s.Nodes)
		if n := got["sim-0003"].Evictions; n != 2 {
			return fmt.Sprintf("%d on sim-0003", n)
		}
		if n := got["sim-0001"].Evictions; n != 0 {
			return fmt.Sprintf("%d on sim-0001", n)
		}
		return ""
	})
}
