// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// daemons are the ExtendedDaemonSets of one test: in a namespace of their own, on nodes that they select by a label.
type daemons struct {
	client.WithWatch
	namespace string
	// nodes are those selected, in the order of their names.
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
	return client.NewWithWatch(world.Config(), client.Options{Scheme: scheme})
})

// newDaemons makes a namespace for a test's ExtendedDaemonSets on the nodes whose label target has this value. When the test
// ends the namespace goes, after a look at what must hold of every ExtendedDaemonSet.
func newDaemons(t *testing.T, name, label string, nodes []string) *daemons {
	t.Helper()
	c, err := daemonClient()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemons{
		WithWatch: c, namespace: "eds-" + strings.ToLower(name), nodes: slices.Sorted(slices.Values(nodes)),
		selector: &metav1.LabelSelector{MatchLabels: map[string]string{target: label}},
	}
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
	if err := cluster.WaitForAccounts(t.Context(), d, d.namespace); err != nil {
		t.Fatal(err)
	}
	d.journal = newDaemonJournal(t, d)
	return d
}

// on are the same with some of the nodes alone.
func (d *daemons) on(nodes ...string) *daemons {
	narrow := *d
	narrow.nodes = nodes
	narrow.selector = &metav1.LabelSelector{
		MatchLabels:      d.selector.MatchLabels,
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes}},
	}
	return &narrow
}

func (d *daemons) explain(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	for _, args := range [][]string{
		{"get", "eds,ers,pods", "-o", "wide"}, {"get", "eds,ers", "-o", "yaml"}, {"get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, err := kubectl(ctx, append(args, "-n", d.namespace)...)
		t.Logf("kubectl %v: %v\n%s", args, err, out)
	}
	t.Logf("what happened:\n%s", d.journal)
}

// sleeper runs until it is asked to end, and then ends at once.
const sleeper = "trap 'exit 0' TERM; sleep 3600 & wait $!"

// daemon is an ExtendedDaemonSet on the test's nodes, without a canary, that creates as many pods at once as there are nodes.
func (d *daemons) daemon(name string, change ...func(*edsv1.ExtendedDaemonSet)) *edsv1.ExtendedDaemonSet {
	e := &edsv1.ExtendedDaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.namespace, Annotations: map[string]string{}},
		Spec: edsv1.ExtendedDaemonSetSpec{
			Selector: d.selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: map[string]string{}},
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

// version makes the template another one.
func version(v string) func(*edsv1.ExtendedDaemonSet) {
	return func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "VERSION", Value: v}}
	}
}

func versionOf(p *corev1.Pod) string {
	if env := p.Spec.Containers[0].Env; len(env) > 0 {
		return env[0].Value
	}
	return ""
}

// canary is tried on one node, and promoted after a time, or by hand where that is 0.
func canary(duration time.Duration) func(*edsv1.ExtendedDaemonSet) {
	return func(e *edsv1.ExtendedDaemonSet) {
		c := &edsv1.ExtendedDaemonSetSpecStrategyCanary{
			AutoPause: &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{}, AutoFail: &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{},
		}
		if duration == 0 {
			c.ValidationMode = edsv1.ValidationModeManual
		} else {
			c.Duration, c.NoRestartsDuration = &metav1.Duration{Duration: duration}, &metav1.Duration{Duration: duration}
		}
		e.Spec.Strategy.Canary = c
	}
}

// start creates an ExtendedDaemonSet and waits until it runs on all of the nodes.
func (d *daemons) start(t *testing.T, e *edsv1.ExtendedDaemonSet) *edsv1.ExtendedDaemonSet {
	t.Helper()
	d.create(t, e)
	return d.settled(t, e.Name)
}

func (d *daemons) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := d.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %s: %v", o.GetName(), err)
	}
}

// read reads an object of the namespace.
func (d *daemons) read(t *testing.T, name string, o client.Object) error {
	t.Helper()
	return persistently(t.Context(), func(ctx context.Context) error {
		return d.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: name}, o)
	})
}

// listed is what the namespace has of an ExtendedDaemonSet.
func (d *daemons) listed(t *testing.T, name string, list client.ObjectList) error {
	t.Helper()
	return persistently(t.Context(), func(ctx context.Context) error {
		return d.List(ctx, list, client.InNamespace(d.namespace), client.MatchingLabels{edsv1.LabelName: name})
	})
}

func (d *daemons) get(t *testing.T, name string) *edsv1.ExtendedDaemonSet {
	t.Helper()
	e := &edsv1.ExtendedDaemonSet{}
	if err := d.read(t, name, e); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return e
}

// edit changes an ExtendedDaemonSet, and returns what it has become.
func (d *daemons) edit(t *testing.T, name string, changes ...func(*edsv1.ExtendedDaemonSet)) *edsv1.ExtendedDaemonSet {
	t.Helper()
	var e *edsv1.ExtendedDaemonSet
	eventually(t, "editing "+name, func(ctx context.Context) (string, bool) {
		e = d.get(t, name)
		for _, f := range changes {
			f(e)
		}
		err := d.Update(ctx, e)
		if err != nil && !cluster.Passing(err) {
			t.Fatalf("editing %s: %v", name, err)
		}
		return fmt.Sprint(err), err == nil
	})
	return e
}

// annotate sets annotations of an object, and removes those that are nil.
func (d *daemons) annotate(t *testing.T, o client.Object, annotations map[string]any) {
	t.Helper()
	d.patch(t, o, map[string]any{"metadata": map[string]any{"annotations": annotations}})
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
		return d.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, body))
	}); err != nil {
		t.Fatalf("patching %s: %v", o.GetName(), err)
	}
}

// until waits for a status that tells of the present spec. A canary and several pods one after the other may come before that,
// and a kubelet waits ever longer before it tries again what it could not do.
func (d *daemons) until(t *testing.T, name, what string, holds func(*edsv1.ExtendedDaemonSet) bool) *edsv1.ExtendedDaemonSet {
	t.Helper()
	var e *edsv1.ExtendedDaemonSet
	within(t, 4*patience, name+" "+what, func(context.Context) (string, bool) {
		e = d.get(t, name)
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

// inState waits for a state.
func (d *daemons) inState(t *testing.T, name string, state edsv1.State) *edsv1.ExtendedDaemonSet {
	t.Helper()
	return d.until(t, name, "is "+string(state), func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.State == state })
}

// inCanary waits until a canary goes on, and its pods are ready on so many nodes.
func (d *daemons) inCanary(t *testing.T, name string, nodes int) *edsv1.ExtendedDaemonSet {
	t.Helper()
	return d.until(t, name, fmt.Sprintf("has a canary on %d nodes", nodes), func(e *edsv1.ExtendedDaemonSet) bool {
		c := e.Status.Canary
		if e.Status.State != edsv1.StateCanary || c == nil || len(c.Nodes) != nodes || c.ReplicaSet == e.Status.ActiveReplicaSet {
			return false
		}
		for _, n := range c.Nodes {
			if p := d.podOn(t, name, n); p == nil || !podAvailable(p) || p.Labels[edsv1.LabelReplicaSetName] != c.ReplicaSet {
				return false
			}
		}
		return true
	})
}

// settled waits until an ExtendedDaemonSet is Running, with a ready pod of its template on each node, and no other but those
// that end elsewhere.
func (d *daemons) settled(t *testing.T, name string) *edsv1.ExtendedDaemonSet {
	t.Helper()
	n := int32(len(d.nodes))
	return d.until(t, name, fmt.Sprintf("runs on %d nodes", n), func(e *edsv1.ExtendedDaemonSet) bool {
		s := e.Status
		pods := slices.DeleteFunc(d.pods(t, name), func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil && !slices.Contains(d.nodes, nodeOfPod(&p))
		})
		same := s.State == edsv1.StateRunning && s.Canary == nil && s.ActiveReplicaSet != "" &&
			s.Desired == n && s.Current == n && s.Ready == n && s.Available == n && s.UpToDate == n &&
			edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady) && len(pods) == len(d.nodes)
		for i := range pods {
			p := &pods[i]
			same = same && podAvailable(p) && p.Spec.NodeName == d.nodes[i] && p.Labels[edsv1.LabelReplicaSetName] == s.ActiveReplicaSet &&
				versionOf(p) == versionOf(&corev1.Pod{Spec: e.Spec.Template.Spec})
		}
		return same
	})
}

// pods are those of an ExtendedDaemonSet, in the order of their nodes' names.
func (d *daemons) pods(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	if err := d.listed(t, name, &all); err != nil {
		t.Fatalf("listing pods: %v", err)
	}
	slices.SortFunc(all.Items, func(a, b corev1.Pod) int { return strings.Compare(nodeOfPod(&a)+a.Name, nodeOfPod(&b)+b.Name) })
	return all.Items
}

// podOn is the pod of an ExtendedDaemonSet on a node, if there is one that is not on its way out.
func (d *daemons) podOn(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	for _, p := range d.pods(t, name) {
		if nodeOfPod(&p) == node && p.DeletionTimestamp == nil {
			return &p
		}
	}
	return nil
}

// uids are the pods of an ExtendedDaemonSet by their nodes: what changes when one is replaced.
func (d *daemons) uids(t *testing.T, name string) map[string]types.UID {
	t.Helper()
	uids := map[string]types.UID{}
	for _, p := range d.pods(t, name) {
		if p.DeletionTimestamp == nil {
			uids[nodeOfPod(&p)] = p.UID
		}
	}
	return uids
}

// nodeOfPod is the node that a pod is on, or is to be on.
func nodeOfPod(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return p.Spec.NodeName
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == "metadata.name" && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// podAvailable reports whether a pod is ready, and stays so as far as one knows.
func podAvailable(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && podReady(p) }

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// revision reads an ExtendedDaemonSetReplicaSet.
func (d *daemons) revision(t *testing.T, name string) *edsv1.ExtendedDaemonSetReplicaSet {
	t.Helper()
	r := &edsv1.ExtendedDaemonSetReplicaSet{}
	if err := d.read(t, name, r); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return r
}

// stands waits until a revision's status, but for its conditions, is as wanted.
func (d *daemons) stands(t *testing.T, name string, want edsv1.ExtendedDaemonSetReplicaSetStatus) {
	t.Helper()
	eventually(t, "revision "+name+" is "+string(want.Status), func(context.Context) (string, bool) {
		got := d.revision(t, name).Status
		got.Conditions = nil
		diff := cmp.Diff(want, got)
		return diff, diff == ""
	})
}

// revisions are the names of an ExtendedDaemonSet's revisions.
func (d *daemons) revisions(t *testing.T, name string) []string {
	t.Helper()
	var all edsv1.ExtendedDaemonSetReplicaSetList
	if err := d.listed(t, name, &all); err != nil {
		t.Fatalf("listing revisions: %v", err)
	}
	var names []string
	for _, r := range all.Items {
		names = append(names, r.Name)
	}
	return names
}

// mark writes whether a canary has failed on its revision's status, as `kubectl eds canary fail` and `reset` do.
func (d *daemons) mark(t *testing.T, revision string, failed metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, "marking "+revision, func(ctx context.Context) (string, bool) {
		r := d.revision(t, revision)
		now := metav1.Now()
		c := edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: failed, Reason: reason, LastTransitionTime: now, LastUpdateTime: now}
		r.Status.Conditions = append(slices.DeleteFunc(r.Status.Conditions, func(old edsv1.Condition) bool { return old.Type == c.Type }), c)
		err := d.Status().Update(ctx, r)
		return fmt.Sprint(err), err == nil
	})
}

// lasts checks that something holds for a time.
func lasts(t *testing.T, duration time.Duration, what string, holds func(ctx context.Context) error) {
	t.Helper()
	end := time.Now().Add(duration)
	within(t, duration+patience, what, func(ctx context.Context) (string, bool) {
		if err := holds(ctx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return "it holds", time.Now().After(end)
	})
}
