// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
)

const manifest = `
apiVersion: v1
kind: Namespace
metadata: {name: fleet}
---
apiVersion: upgrade.cattle.io/v1
kind: Plan
metadata: {name: agents, namespace: fleet}
spec:
  concurrency: 1
  version: v2
  nodeSelector: {}
  drain: {timeout: 5m, deleteEmptydirData: false}
  upgrade: {image: agent}
  strategy:
    order: [{by: Label, key: kubernetes.io/hostname}]
    waves:
    - {name: canary, size: 1, soak: 1h}
`

func previewNode(name string, options ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, option := range options {
		option(n)
	}
	return n
}

func previewPod(node, name string, options ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"app": strings.TrimRight(name, "-0123456789")},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, option := range options {
		option(p)
	}
	return p
}

func unmanaged(p *corev1.Pod) { p.OwnerReferences = nil }

func ofDaemonSet(p *corev1.Pod) {
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "DaemonSet", "ds"
}

func withLocalData(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func podBudget(name, app string, allowed int32, options ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1},
	}
	for _, option := range options {
		option(b)
	}
	return b
}

// inCluster is the manifest's Plan as a cluster has it, with a revision that its turns of ten minutes bring nodes to.
func inCluster(t *testing.T, change ...func(*upgradev1.Plan)) *unstructured.Unstructured {
	t.Helper()
	all, err := new(previewCommand).parse(strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	p := all[0].object.(*upgradev1.Plan)
	p.TypeMeta = metav1.TypeMeta{APIVersion: upgradev1.GroupVersion.String(), Kind: "Plan"}
	p.UID = "agents"
	p.Status.LatestVersion, p.Status.LatestHash, p.Status.TurnSeconds = "v2", "hash", 600
	p.Status.SetCondition(upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionFalse, Reason: upgradev1.ReasonSyncJob}, now)
	for _, c := range change {
		c(p)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// asIs is an object of a kind as the API server stores it.
func asIs(t *testing.T, k *source.Kind, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(k.Resource.GroupVersion().WithKind(k.Name))
	return u
}

// preview runs the command over these objects.
func preview(t *testing.T, plans, objects []runtime.Object, change func(*previewCommand), args ...string) (string, error) {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		source.Plan.Resource: "PlanList", source.Budget.Resource: "NodeDisruptionBudgetList", source.DaemonSet.Resource: "ExtendedDaemonSetList",
		source.NodeRollout.Resource: "NodeRolloutList", source.PodBudget.Resource: "PodDisruptionBudgetList",
		edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"): "ExtendedDaemonSetReplicaSetList",
		edsv1.GroupVersion.WithResource("extendeddaemonsetsettings"):    "ExtendedDaemonsetSettingList",
	}
	for _, o := range objects {
		if _, ok := o.(*policyv1.PodDisruptionBudget); ok {
			plans = append(plans, asIs(t, source.PodBudget, o))
		}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, plans...)
	core := fake.NewClientset(objects...)
	core.PrependReactor("list", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		where := a.(ktesting.ListAction).GetListRestrictions()
		list := &corev1.PodList{}
		for _, o := range objects {
			if p, ok := o.(*corev1.Pod); ok && where.Fields.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) && where.Labels.Matches(labels.Set(p.Labels)) {
				list.Items = append(list.Items, *p)
			}
		}
		return true, list, nil
	})
	var out bytes.Buffer
	c := &previewCommand{command: command{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(manifest), Out: &out, ErrOut: &out}, clock: clocktesting.NewFakeClock(now),
	}, limit: 10, src: &source.Source{Client: client, Core: core.CoreV1(), Namespace: "fleet"},
	}
	if change != nil {
		change(c)
	}
	err := c.run(t.Context(), args)
	for _, a := range append(client.Actions(), core.Actions()...) {
		if v := a.GetVerb(); v != "get" && v != "list" {
			t.Errorf("a preview may not %s", v)
		}
	}
	return out.String(), err
}

func updated(n *corev1.Node) { n.Labels[upgradev1.LabelPlanHash("agents")] = "hash" }

func TestPreview(t *testing.T) {
	pods := []runtime.Object{
		previewNode("a"), previewNode("b"), previewNode("c"),
		previewPod("a", "cart-1"), previewPod("a", "front-1"), previewPod("a", "log-1", ofDaemonSet), previewPod("a", "bare-1", unmanaged), previewPod("a", "cache-1", withLocalData),
		previewPod("b", "cart-2"),
		podBudget("cart", "cart", 0), podBudget("front", "front", 1),
	}
	var many []runtime.Object
	for i := range 14 {
		many = append(many, previewNode(fmt.Sprintf("node-%02d", i)))
	}
	for name, tc := range map[string]struct {
		plans, objects []runtime.Object
		change         func(*previewCommand)
		args           []string
	}{
		"new":      {objects: pods, change: func(c *previewCommand) { c.file = "-" }},
		"there":    {plans: []runtime.Object{inCluster(t)}, objects: pods, args: []string{"agents"}},
		"complete": {plans: []runtime.Object{inCluster(t)}, objects: []runtime.Object{previewNode("a", updated)}, args: []string{"plan/agents"}},
		"fewest-evictions": {
			plans: []runtime.Object{inCluster(t, func(p *upgradev1.Plan) {
				p.Spec.Drain, p.Spec.Strategy.Waves = nil, nil
				p.Spec.Strategy.Order = []v1alpha1.Order{{By: v1alpha1.OrderFewestEvictionsFirst}, {By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}
			})},
			objects: []runtime.Object{previewNode("a"), previewNode("b"), previewPod("a", "bare-1", unmanaged), previewPod("a", "cache-1", withLocalData), previewPod("b", "cart-1")},
			args:    []string{"agents"},
		},
		"no-drain": {plans: []runtime.Object{inCluster(t, func(p *upgradev1.Plan) { p.Spec.Drain = nil })}, objects: pods, args: []string{"agents"}},
		"many":     {plans: []runtime.Object{inCluster(t)}, objects: many, change: func(c *previewCommand) { c.limit = 3 }, args: []string{"agents"}},
		"many-wide": {plans: []runtime.Object{inCluster(t)}, objects: many, change: func(c *previewCommand) {
			c.limit = 3
			c.output.Add(&cobra.Command{}, flags.Wide)
			if err := c.output.Set(flags.Wide); err != nil {
				t.Fatal(err)
			}
		}, args: []string{"agents"}},
		"another-version": {
			plans:   []runtime.Object{inCluster(t, func(p *upgradev1.Plan) { p.Spec.Version, p.Status.LatestVersion = "v1", "v1" })},
			objects: []runtime.Object{previewNode("a", updated), previewNode("b")}, args: []string{"-"}, change: func(c *previewCommand) { c.turn = time.Minute },
		},
		"invalid": {
			plans: []runtime.Object{inCluster(t, func(p *upgradev1.Plan) {
				p.Spec.Window = &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{"someday"}, StartTime: "1", EndTime: "2"}
			})},
			objects: []runtime.Object{previewNode("a")}, args: []string{"agents"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := preview(t, tc.plans, tc.objects, tc.change, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "preview/"+name, []byte(got))
		})
	}
}

// TestPreviewOfBlockedNodes: a pod on a node keeps that node back, and no other; where pods are not to be seen, that is said.
func TestPreviewOfBlockedNodes(t *testing.T) {
	builds := v1alpha1.PodsGate{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "build"}}}
	ofCI := builds
	ofCI.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ci"}}
	gatedBy := func(gate v1alpha1.PodsGate) runtime.Object {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.NodeDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget"},
			ObjectMeta: metav1.ObjectMeta{Name: "workers"},
			Spec:       v1alpha1.NodeDisruptionBudgetSpec{Gates: &v1alpha1.Gates{Pods: []v1alpha1.PodsGate{gate}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: content}
	}
	plan := inCluster(t, func(p *upgradev1.Plan) { p.Spec.Concurrency, p.Spec.Drain, p.Spec.Strategy.Waves = 3, nil, nil })
	denied := func(c *previewCommand) { c.src.Core = forbidden{c.src.Core} }
	const (
		blocked = "    1. a  PodsBlock: budget workers: pod shop/build-1 is on it\n"
		without = "not counted: the time until budget workers opens for some nodes (PodsBlock)"
	)
	for name, tc := range map[string]struct {
		gate   v1alpha1.PodsGate
		team   string
		change func(*previewCommand)
		want   []string
	}{
		"it blocks":               {gate: builds, want: []string{blocked, "    2. b  starts now", "    3. c  starts now", without}},
		"of a namespace":          {gate: ofCI, team: "ci", want: []string{blocked, "    2. b  starts now", without}},
		"of another namespace":    {gate: ofCI, team: "web", want: []string{"    1. a  starts now", "    2. b  starts now"}},
		"pods can't be listed":    {gate: builds, change: denied, want: []string{source.NoGated, "    1. a  starts now", "    2. b  starts now"}},
		"of the whole cluster":    {gate: v1alpha1.PodsGate{Scope: v1alpha1.PodsInCluster, Selector: builds.Selector}, change: denied, want: []string{"    1. a  starts now"}},
		"there are none to block": {gate: v1alpha1.PodsGate{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}, want: []string{"    1. a  starts now"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{
				previewNode("a"), previewNode("b"), previewNode("c"), previewPod("a", "build-1"), previewPod("b", "front-1"), previewPod("", "build-2"),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": tc.team}}},
			}
			got, err := preview(t, []runtime.Object{plan, gatedBy(tc.gate)}, objects, tc.change, "agents")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("it does not say %q:\n%s", want, got)
				}
			}
			if said := slices.Contains(tc.want, source.NoGated); said != strings.Contains(got, source.NoGated) {
				t.Errorf("what can't be seen:\n%s", got)
			}
		})
	}
}

// TestPreviewOfBudgetInFile: a budget of the file counts, in place of that of its name.
func TestPreviewOfBudgetInFile(t *testing.T) {
	in := manifest + "---\napiVersion: moult.dev/v1alpha1\nkind: NodeDisruptionBudget\nmetadata: {name: all}\nspec: {maxUnavailable: 0}\n"
	got, err := preview(t, nil, []runtime.Object{previewNode("a")}, func(c *previewCommand) { c.In = strings.NewReader(in) }, "-")
	if err != nil || !strings.Contains(got, "BudgetExhausted: budget all: ") {
		t.Errorf("%v:\n%s", err, got)
	}
}

func TestPreviewFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(manifest, "concurrency", "concurency", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args   []string
		change func(*previewCommand)
		want   string
	}{
		"without a name":  {want: "preview needs the name of a rollout, or a file"},
		"with both":       {args: []string{"p"}, change: func(c *previewCommand) { c.file = "-" }, want: "not both"},
		"unknown":         {args: []string{"p"}, want: `Plan fleet/p not found`},
		"unknown field":   {args: []string{file}, want: `plan.yaml, document 2: strict decoding error: unknown field "spec.concurency"`},
		"no such file":    {args: []string{"nothing.yaml"}, want: "no such file"},
		"a negative turn": {args: []string{"p"}, change: func(c *previewCommand) { c.turn = -1 }, want: "must not be negative"},
		"another kind":    {args: []string{"pod/p"}, want: `"pod/p" names no Plan`},
		"nothing of use":  {args: []string{"-"}, change: func(c *previewCommand) { c.In = strings.NewReader("kind: Pod") }, want: "reading the standard input, there is no Plan, ExtendedDaemonSet or NodeRollout in it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := preview(t, nil, []runtime.Object{previewNode("a")}, tc.change, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	const head = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p}\n"
	for text, want := range map[string]string{
		head + "spec: {version: v1}":                             "",
		head + "spec: {drain: {force: maybe}}":                   "cannot unmarshal string into Go struct field",
		head + "spec: {strategy: {wave: []}}":                    `unknown field "spec.strategy.wave"`,
		head + "spec: {version: v1, version: v2}":                `"version" already set`,
		"apiVersion: upgrade.cattle.io/v1\nkind: Plan\nspec: {}": "the Plan has no metadata.name",
		"a: [": "document 1",
	} {
		_, err := new(previewCommand).parse(strings.NewReader(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestSameRevision(t *testing.T) {
	digest := func(p *upgradev1.Plan) {
		p.Annotations = map[string]string{upgradev1.AnnotationDigest: "spec.upgrade.image"}
	}
	for name, tc := range map[string]struct {
		both, file func(*upgradev1.Plan)
		want       bool
	}{
		"the same":                            {want: true},
		"another version":                     {file: func(p *upgradev1.Plan) { p.Spec.Version = "v3" }},
		"another channel beside a version":    {file: func(p *upgradev1.Plan) { p.Spec.Channel = "https://x" }},
		"another channel":                     {both: func(p *upgradev1.Plan) { p.Spec.Version = "" }, file: func(p *upgradev1.Plan) { p.Spec.Channel = "https://x" }},
		"another service account":             {file: func(p *upgradev1.Plan) { p.Spec.ServiceAccountName = "x" }},
		"a Secret more":                       {file: func(p *upgradev1.Plan) { p.Spec.Secrets = []upgradev1.SecretSpec{{Name: "x"}} }},
		"another concurrency":                 {file: func(p *upgradev1.Plan) { p.Spec.Concurrency = 7 }, want: true},
		"more counts":                         {file: digest},
		"more counts, and nothing differs":    {both: digest, want: true},
		"more counts, and something differs":  {both: digest, file: func(p *upgradev1.Plan) { p.Spec.Concurrency = 7 }},
		"another image, which does not count": {file: func(p *upgradev1.Plan) { p.Spec.Upgrade.Image = "x" }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := &upgradev1.Plan{Spec: upgradev1.PlanSpec{Version: "v2", Upgrade: &upgradev1.ContainerSpec{Image: "i"}}}
			if tc.both != nil {
				tc.both(a)
			}
			b := a.DeepCopy()
			if tc.file != nil {
				tc.file(b)
			}
			if got := sameRevision(a, b); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// golden compares with a file of testdata.
