// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

const (
	shop                = "budget-shop"
	node1, node2, node3 = "budget-1", "budget-2", "budget-3"
	userAgent           = "budget-test"
)

// bench is a cluster in which the controller runs.
type bench struct {
	client.Client
	t     *testing.T
	fleet *fleet.Fleet
	audit string
}

// TestAPI lets the controller run against a real API server, with the controllers that make Deployments come and go.
func TestAPI(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct {
		name string
		test func(*bench)
	}{
		{"counts", countsNodes},
		{"quiet", watchesNothingUnasked},
		{"records", clearsRecords},
		{"pods", podsGate},
		{"kinds", namedKinds},
		{"daemons", daemonPods},
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
	running := cluster.Shared(t, 0)
	for _, name := range []string{node1, node2, node3} {
		if err := running.AddNode(t.Context(), cluster.NodeOptions{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := running.Config()
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Client: c, t: t, audit: running.AuditLog()}
	definitions, err := crd.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if d.Spec.Group != v1alpha1.GroupName {
			continue
		}
		if err := c.Create(t.Context(), d); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop, Labels: map[string]string{"env": "live"}}})
	if err := cluster.WaitForAccounts(t.Context(), c, shop); err != nil {
		t.Fatal(err)
	}
	b.eventually("budgets are served", func() string {
		return text(c.List(t.Context(), &v1alpha1.NodeDisruptionBudgetList{}))
	})

	cfg.UserAgent = userAgent
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
	if err := errors.Join(m.Add(pods), b.fleet.SetupWithManager(t.Context(), m),
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
	err := wait.PollUntilContextTimeout(b.t.Context(), 50*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
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
	o := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "budget-" + path.Base(b.t.Name())}}
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
	b.edits(node1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	b.says(of, "True Open 1 node may be taken; only in kubernetes.io/hostname="+node1)
	claims, err := v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: "Plan/a/b", UID: "u", Since: metav1.Now()}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.edits(node2, func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationClaims] = claims })
	o = b.says(of, "False BudgetExhausted no node may be taken: at most 2 may be unavailable")
	var holders []string
	for _, h := range o.Status.Holders {
		holders = append(holders, h.Node+" "+string(h.Cause)+" "+h.By)
	}
	if want := []string{node2 + " Claimed Plan/a/b", node1 + " Unschedulable "}; !slices.Equal(holders, want) {
		b.t.Errorf("got %q, want %q", holders, want)
	}
	if s := o.Status; s.Domains != 2 || *s.Allowed != 0 || s.Unavailable != 2 {
		b.t.Errorf("got %+v", s)
	}
	b.edits(node1, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	b.edits(node2, func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
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

// A gate sees the objects of a kind that it names, once that kind can be read.
func namedKinds(b *bench) {
	of := b.budget("{gates: {workloads: {selector: {matchLabels: {gate: ships}}, kinds: [{apiVersion: test.moult.dev/v1, kind: Ship, desired: spec.sailors, ready: status.aboard}]}}}")
	b.says(of, `False WorkloadsUnavailable no node may be taken: reading test.moult.dev/v1 Ship, no matches for kind "Ship" in version "test.moult.dev/v1"`)
	b.creates(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ships.test.moult.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "test.moult.dev", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "ships", Singular: "ship", Kind: "Ship", ListKind: "ShipList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	})
	const open = "True Open nodes may be taken, there is no limit by number"
	b.says(of, open)
	ship := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.moult.dev/v1", "kind": "Ship", "spec": map[string]any{"sailors": int64(2)}, "status": map[string]any{"aboard": int64(1)},
	}}
	ship.SetNamespace(shop)
	ship.SetName("argo")
	ship.SetLabels(map[string]string{"gate": "ships"})
	b.creates(ship)
	b.says(of, "False WorkloadsUnavailable no node may be taken: Ship "+shop+"/argo has 1 of 2 available")
	if err := b.Patch(b.t.Context(), ship, client.RawPatch(types.MergePatchType, []byte(`{"status":{"aboard":2}}`))); err != nil {
		b.t.Fatal(err)
	}
	b.says(of, open)
}

// A budget that counts daemon pods shows them as holders. The API server fills in what is counted by default.
func daemonPods(b *bench) {
	of := b.budget("{maxUnavailable: 2, counts: [Nodes, DaemonPods]}")
	b.says(of, "True Open 2 nodes may be taken")
	agent := types.NamespacedName{Namespace: "ns", Name: "agent"}
	b.fleet.SetReplaced(agent, map[string]time.Time{node1: time.Now()})
	b.t.Cleanup(func() { b.fleet.SetReplaced(agent, nil) })
	o := b.says(of, "True Open 1 node may be taken")
	if h := o.Status.Holders; len(h) != 1 || h[0].Cause != v1alpha1.CauseDaemonPod || h[0].By != "ExtendedDaemonSet/ns/agent" {
		b.t.Errorf("got %+v", h)
	}
	o.Spec.Counts = nil
	if err := b.Update(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
	if o := b.says(of, "True Open 2 nodes may be taken"); !slices.Equal(o.Spec.Counts, []v1alpha1.BudgetCount{v1alpha1.CountNodes}) {
		b.t.Errorf("by default it counts %v", o.Spec.Counts)
	}
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

// Nothing is read that no gate has asked for.
func watchesNothingUnasked(b *bench) {
	log, err := os.ReadFile(b.audit)
	if err != nil {
		b.t.Fatal(err)
	}
	nodes := 0
	for line := range strings.Lines(string(log)) {
		if !strings.Contains(line, `"userAgent":"`+userAgent+`"`) {
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

// What was evicted closes the gate, whatever that selects, and is forgotten once the node is free and all is well.
func clearsRecords(b *bench) {
	record := func(want string) {
		b.t.Helper()
		b.eventually("the record is "+want, func() string {
			n := &corev1.Node{}
			if err := b.Get(b.t.Context(), client.ObjectKey{Name: node1}, n); err != nil {
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
	// Without a budget that asks no one needs it, once the node is free.
	const gone = `["ReplicaSet/budget-shop/gone"]`
	b.edits(node1, func(n *corev1.Node) {
		n.Annotations[v1alpha1.AnnotationEvicted], n.Annotations[v1alpha1.AnnotationClaims] = gone, claims
	})
	of := b.budget("{gates: {workloads: {selector: {matchLabels: {app: none}}}}}")
	const open = "True Open nodes may be taken, there is no limit by number"
	b.says(of, open)
	record(gone)
	b.edits(node1, func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
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
	value := `["ReplicaSet/budget-shop/` + name + `","ReplicaSet/budget-shop/gone"]`
	b.fleet.ExpectRecord(node1)
	b.edits(node1, func(n *corev1.Node) { // With a claim, so that it stays until the operator has seen the ReplicaSet.
		n.Annotations[v1alpha1.AnnotationEvicted], n.Annotations[v1alpha1.AnnotationClaims] = value, claims
	})
	b.says(of, "False WorkloadsUnavailable no node may be taken: evicted from budget-1: ReplicaSet budget-shop/"+name+" has 0 of 1 available")
	b.edits(node1, func(n *corev1.Node) { delete(n.Annotations, v1alpha1.AnnotationClaims) })
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
	migrate := pod("migrate", node2, map[string]string{"job": "migrate"})
	o := b.says(of, open+"; 1 node is blocked by pods that are on it")
	if o.Status.Allowed != nil || len(o.Status.BlockedBy) > 0 {
		b.t.Errorf("got %+v", o.Status)
	}
	s, err := b.fleet.Snapshot(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range s.Budgets {
		if budget := s.Gates(&s.Budgets[i]); budget.Name == of.Name {
			if got := budget.NodeBlocks[node2].Message; len(budget.NodeBlocks) != 1 || got != "pod budget-shop/migrate is on it" {
				b.t.Errorf("got %+v", budget.NodeBlocks)
			}
		}
	}
	pod("stop", "", map[string]string{"stop": "all"})
	b.says(of, "False PodsBlock no node may be taken: pod budget-shop/stop is there; 1 node is blocked by pods that are on it")
	b.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, "env", "test")
	b.says(of, open+"; 1 node is blocked by pods that are on it")
	b.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, "env", "live")
	b.says(of, "False PodsBlock no node may be taken: pod budget-shop/stop is there; 1 node is blocked by pods that are on it")
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
