// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

// daemons are the ExtendedDaemonSets of a test, in a namespace of its own.
type daemons struct {
	client.WithWatch
	namespace string
	// nodes are those that the selector selects, sorted by name.
	nodes    []string
	selector *metav1.LabelSelector
	journal  *daemonJournal
}

// daemonClient knows the kinds of ExtendedDaemonSet, and can watch.
var daemonClient = sync.OnceValues(func() (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, edsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config := world.Config()
	config.QPS = -1
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
})

// newDaemons makes a namespace for ExtendedDaemonSets on n simulated nodes, and on the machines given. All of it is deleted
// when the test ends.
func newDaemons(t *testing.T, name string, n int, machines ...*cluster.Machine) *daemons {
	t.Helper()
	c, err := daemonClient()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemons{WithWatch: c, namespace: "eds-" + name, selector: &metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}}
	if err := d.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating namespace: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			d.explain(t)
		}
		if err := d.Delete(context.WithoutCancel(t.Context()), ns); err != nil {
			t.Errorf("deleting namespace: %v", err)
		}
	})
	for _, m := range machines {
		d.nodes = append(d.nodes, m.Name())
	}
	for range n {
		d.addNode(t)
	}
	eventually(t, "the nodes have no taint", func(context.Context) (string, bool) {
		i := slices.IndexFunc(d.nodes, func(name string) bool { return len(node(t, name).Spec.Taints) > 0 })
		return fmt.Sprint(d.nodes, i), i < 0
	})
	if err := cluster.WaitForAccounts(t.Context(), d, d.namespace); err != nil {
		t.Fatal(err)
	}
	d.journal = newDaemonJournal(t, d)
	return d
}

// addNode makes a simulated node that the selector selects, and returns its name.
func (d *daemons) addNode(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d", d.namespace, len(d.nodes)+1)
	if err := world.AddNode(t.Context(), cluster.NodeOptions{Name: name, Labels: d.selector.MatchLabels}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.removeNode(t, name) })
	d.nodes = append(d.nodes, name)
	return name
}

func (d *daemons) removeNode(t *testing.T, name string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := persistently(context.WithoutCancel(t.Context()), func(ctx context.Context) error { return client.IgnoreNotFound(world.Delete(ctx, n)) }); err != nil {
		t.Errorf("deleting node %s: %v", name, err)
	}
	d.nodes = slices.DeleteFunc(slices.Clone(d.nodes), func(n string) bool { return n == name })
}

func (d *daemons) explain(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	for _, args := range [][]string{{"get", "eds,ers,pods", "-o", "wide"}, {"get", "eds,ers", "-o", "yaml"}, {"get", "events", "--sort-by=.lastTimestamp"}} {
		out, err := kubectl(ctx, append(args, "-n", d.namespace)...)
		t.Logf("kubectl %v: %v\n%s", args, err, out)
	}
	t.Logf("journal:\n%s", d.journal)
}

// sleeper runs until it is asked to end, and then ends at once.
const sleeper = "trap 'exit 0' TERM; sleep 3600 & wait $!"

// daemon is an ExtendedDaemonSet on the test's nodes, without a canary and without a slow start.
func (d *daemons) daemon(change ...func(*edsv1.ExtendedDaemonSet)) *edsv1.ExtendedDaemonSet {
	e := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: agent, Namespace: d.namespace, Annotations: map[string]string{}},
		Spec: edsv1.ExtendedDaemonSetSpec{
			Selector: d.selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": agent}, Annotations: map[string]string{}},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](5),
					Containers: []corev1.Container{{
						Name: "daemon", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", sleeper},
					}},
				},
			},
		},
	}
	e.Spec.Strategy.RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromString("100%"))
	version("v1")(e)
	for _, f := range change {
		f(e)
	}
	return e
}

// agent is the name of each test's ExtendedDaemonSet. Names repeat across namespaces.
const agent = "agent"

// version gives the template another hash.
func version(v string) func(*edsv1.ExtendedDaemonSet) {
	return func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "VERSION", Value: v}}
	}
}

func versionOf(s *corev1.PodSpec) string {
	if env := s.Containers[0].Env; len(env) > 0 {
		return env[0].Value
	}
	return ""
}

// canary runs on one node until a person validates it.
func canary(e *edsv1.ExtendedDaemonSet) {
	e.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{
		ValidationMode: edsv1.ValidationModeManual,
		AutoPause:      &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{}, AutoFail: &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{},
	}
}

// behave says how pods behave on simulated nodes.
func behave(what, value string) func(*edsv1.ExtendedDaemonSet) {
	return func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Annotations = map[string]string{"test.moult.dev/" + what: value}
	}
}

// start creates the ExtendedDaemonSet, and waits until it runs on all nodes.
func (d *daemons) start(t *testing.T, change ...func(*edsv1.ExtendedDaemonSet)) *edsv1.ExtendedDaemonSet {
	t.Helper()
	d.create(t, d.daemon(change...))
	return d.settled(t)
}

func (d *daemons) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := d.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %s: %v", o.GetName(), err)
	}
}

// read reads an object of the namespace.
func (d *daemons) read(t *testing.T, name string, o client.Object) {
	t.Helper()
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return d.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: name}, o)
	}); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

func (d *daemons) list(t *testing.T, list client.ObjectList, options ...client.ListOption) {
	t.Helper()
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return d.List(ctx, list, append(options, client.InNamespace(d.namespace))...)
	}); err != nil {
		t.Fatalf("listing: %v", err)
	}
}

func (d *daemons) get(t *testing.T) *edsv1.ExtendedDaemonSet {
	t.Helper()
	e := &edsv1.ExtendedDaemonSet{}
	d.read(t, agent, e)
	return e
}

func (d *daemons) edit(t *testing.T, changes ...func(*edsv1.ExtendedDaemonSet)) {
	t.Helper()
	eventually(t, "editing the ExtendedDaemonSet", func(ctx context.Context) (string, bool) {
		e := d.get(t)
		for _, f := range changes {
			f(e)
		}
		err := d.Update(ctx, e)
		return fmt.Sprint(err), err == nil
	})
}

func (d *daemons) patch(t *testing.T, o client.Object, fields map[string]any) {
	t.Helper()
	body, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if body, err = yaml.YAMLToJSON(body); err != nil {
		t.Fatal(err)
	}
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return d.Patch(ctx, o, client.RawPatch(types.MergePatchType, body))
	}); err != nil {
		t.Fatalf("patching %s: %v", o.GetName(), err)
	}
}

// eds runs `kubectl eds`.
func (d *daemons) eds(t *testing.T, args ...string) {
	t.Helper()
	plugin, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := cluster.Binaries(t.Context(), t.Output(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(plugin, filepath.Join(dir, "kubectl-eds")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), programs["kubectl"], append([]string{"eds", "-n", d.namespace}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+dir, "KUBECONFIG="+world.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl eds %v: %v\n%s", args, err, out)
	}
}

// until waits for a status that tells of the present spec.
func (d *daemons) until(t *testing.T, what string, holds func(*edsv1.ExtendedDaemonSet) bool) *edsv1.ExtendedDaemonSet {
	t.Helper()
	var e *edsv1.ExtendedDaemonSet
	eventually(t, what, func(context.Context) (string, bool) {
		e = d.get(t)
		return statusOf(e), e.Status.ObservedGeneration == e.Generation && holds(e)
	})
	return e
}

func statusOf(e *edsv1.ExtendedDaemonSet) string {
	text, err := yaml.Marshal(e.Status)
	if err != nil {
		return err.Error()
	}
	return "\n" + string(text)
}

func (d *daemons) inState(t *testing.T, state edsv1.State) *edsv1.ExtendedDaemonSet {
	t.Helper()
	return d.until(t, "state "+string(state), func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.State == state })
}

// inCanary waits for a canary whose pods are ready on so many nodes.
func (d *daemons) inCanary(t *testing.T, nodes int) *edsv1.ExtendedDaemonSet {
	t.Helper()
	return d.until(t, fmt.Sprintf("canary on %d nodes", nodes), func(e *edsv1.ExtendedDaemonSet) bool {
		c := e.Status.Canary
		return e.Status.State == edsv1.StateCanary && c != nil && len(c.Nodes) == nodes && c.ReplicaSet != e.Status.ActiveReplicaSet &&
			!slices.ContainsFunc(c.Nodes, func(n string) bool {
				p := d.podOn(t, n)
				return p == nil || !podReady(p) || p.Labels[edsv1.LabelReplicaSetName] != c.ReplicaSet
			})
	})
}

// settled waits until the ExtendedDaemonSet is Running, with a ready pod of its template on each node, and no other.
func (d *daemons) settled(t *testing.T) *edsv1.ExtendedDaemonSet {
	t.Helper()
	return d.runs(t, "", fmt.Sprintf("runs on %d nodes", len(d.nodes)))
}

// canaryFailed waits until a canary is given up, and each node has a ready pod of the active revision.
func (d *daemons) canaryFailed(t *testing.T, active string) *edsv1.ExtendedDaemonSet {
	t.Helper()
	e := d.runs(t, active, "has given the canary up")
	for _, kind := range []string{edsv1.ConditionCanaryFailed, edsv1.ConditionStalled} {
		if !edsv1.IsConditionTrue(e.Status.Conditions, kind) {
			t.Errorf("%s is not True: %s", kind, statusOf(e))
		}
	}
	return e
}

// runs waits until each node has a ready pod of a revision. An empty revision is that of the template.
func (d *daemons) runs(t *testing.T, revision, what string) *edsv1.ExtendedDaemonSet {
	t.Helper()
	n := int32(len(d.nodes))
	return d.until(t, what, func(e *edsv1.ExtendedDaemonSet) bool {
		s := e.Status
		pods := slices.DeleteFunc(d.pods(t), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil && !slices.Contains(d.nodes, nodeOfPod(&p)) })
		on := map[string]bool{}
		same := s.State == edsv1.StateRunning && s.Canary == nil && s.Desired == n && s.Current == n && s.Ready == n && s.Available == n && len(pods) == int(n)
		if revision == "" {
			same = same && s.ActiveReplicaSet != "" && s.UpToDate == n && edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady)
		} else {
			same = same && s.ActiveReplicaSet == revision && edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionStalled)
		}
		for i := range pods {
			p := &pods[i]
			on[p.Spec.NodeName] = true
			same = same && podReady(p) && slices.Contains(d.nodes, p.Spec.NodeName) && p.Labels[edsv1.LabelReplicaSetName] == s.ActiveReplicaSet &&
				(revision != "" || versionOf(&p.Spec) == versionOf(&e.Spec.Template.Spec))
		}
		return same && len(on) == int(n)
	})
}

func (d *daemons) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	d.list(t, &all, client.MatchingLabels{edsv1.LabelName: agent})
	return all.Items
}

// podOn is the pod on a node that is not on its way out; nil if there is none.
func (d *daemons) podOn(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	for _, p := range d.pods(t) {
		if nodeOfPod(&p) == node && p.DeletionTimestamp == nil {
			return &p
		}
	}
	return nil
}

// deletePod deletes the pod on a node.
func (d *daemons) deletePod(t *testing.T, node string) {
	t.Helper()
	if err := d.Delete(t.Context(), d.podOn(t, node)); err != nil {
		t.Fatal(err)
	}
}

// uids are the pods by their nodes. A node's changes when its pod is replaced.
func (d *daemons) uids(t *testing.T) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, p := range d.pods(t) {
		if p.DeletionTimestamp == nil {
			uids[nodeOfPod(&p)] = p.UID
		}
	}
	return uids
}

// unchanged checks that a node still has the pod that it had.
func (d *daemons) unchanged(t *testing.T, before map[string]types.UID, nodes ...string) {
	t.Helper()
	after := d.uids(t)
	for _, n := range nodes {
		if after[n] != before[n] {
			t.Errorf("the pod on %s was replaced", n)
		}
	}
}

// nodeOfPod is the node that a pod is on, or that its affinity names.
func nodeOfPod(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// podReady reports whether a pod is ready, and not on its way out.
func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// labelNode labels a node. A nil value removes the label.
func labelNode(t *testing.T, node, key string, value any) {
	t.Helper()
	patchNode(t, node, map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
}
