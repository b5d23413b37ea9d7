// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// edsPlugin is `kubectl eds`, called as its users call it, in a cluster of its own in which no operator runs: objects stay as
// ExtendedDaemonSet's controller leaves them.
type edsPlugin struct {
	client.Client
	*testing.T
	cluster *cluster.Cluster
	kubectl string
	// path holds the plugin under all its names, and nothing else.
	path      string
	namespace string
}

// TestEDSPlugin is what people do with it.
func TestEDSPlugin(t *testing.T) {
	t.Parallel()
	p := newEDSPlugin(t)
	t.Run("canary", func(t *testing.T) { p.in(t, "monitoring").steerCanary() })
	t.Run("rights", func(t *testing.T) { p.in(t, "rights").needRights() })
}

func newEDSPlugin(t *testing.T) *edsPlugin {
	t.Helper()
	p := &edsPlugin{T: t, cluster: cluster.New(t, cluster.Options{Nodes: 2}), path: t.TempDir()}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, edsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.Client, err = client.New(p.cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	programs, err := cluster.Binaries(t.Context(), t.Output(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	p.kubectl = programs["kubectl"]
	program, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubectl-eds", "kubectl_complete-eds", "check-eds"} {
		if err := os.Symlink(program, filepath.Join(p.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.mustRun(p.kubectl, "apply", "--server-side", "-k", "../../config/crd")
	p.mustRun(p.kubectl, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	return p
}

// in is the plugin of one part of the test, in a namespace of its own.
func (p *edsPlugin) in(t *testing.T, namespace string) *edsPlugin {
	part := *p
	part.T, part.namespace = t, namespace
	part.mustRun(p.kubectl, "create", "namespace", namespace)
	return &part
}

// run runs a program that finds the plugin on its PATH.
func (p *edsPlugin) run(program string, args ...string) (string, error) {
	p.Helper()
	cmd := exec.CommandContext(p.Context(), program, args...)
	cmd.Env = append(os.Environ(), "PATH="+p.path, "KUBECONFIG="+p.cluster.Kubeconfig())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (p *edsPlugin) mustRun(program string, args ...string) {
	p.Helper()
	if out, err := p.run(program, args...); err != nil {
		p.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// eds runs kubectl eds in the namespace.
func (p *edsPlugin) eds(args ...string) (string, error) {
	p.Helper()
	return p.run(p.kubectl, append([]string{"eds", "-n", p.namespace}, args...)...)
}

// says checks what kubectl eds says.
func (p *edsPlugin) says(want string, args ...string) {
	p.Helper()
	if out, err := p.eds(args...); err != nil || strings.TrimSuffix(out, "\n") != want {
		p.Errorf("%v: %v\n%s\nwant\n%s", args, err, out, want)
	}
}

// refuses checks why kubectl eds fails.
func (p *edsPlugin) refuses(want string, args ...string) {
	p.Helper()
	if out, err := p.eds(args...); err == nil || !strings.Contains(out, want) {
		p.Errorf("%v: %v, want %q\n%s", args, err, want, out)
	}
}

// rows are the fields of the lines of a table, by the first field that begins with this text.
func (p *edsPlugin) rows(prefix string, args ...string) map[string][]string {
	p.Helper()
	out, err := p.eds(args...)
	if err != nil {
		p.Fatalf("%v: %v\n%s", args, err, out)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for _, field := range fields {
			if strings.HasPrefix(field, prefix) {
				rows[field] = fields
				break
			}
		}
	}
	return rows
}

func (p *edsPlugin) write(o client.Object) {
	p.Helper()
	if err := p.Create(p.Context(), o); err != nil {
		p.Fatal(err)
	}
}

func (p *edsPlugin) writeStatus(o client.Object) {
	p.Helper()
	if err := p.Status().Update(p.Context(), o); err != nil {
		p.Fatal(err)
	}
}

func (p *edsPlugin) read(o client.Object) {
	p.Helper()
	if err := p.Get(p.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		p.Fatal(err)
	}
}

// set is an ExtendedDaemonSet as its controller leaves it: with all defaults in the spec.
func (p *edsPlugin) set(name, image string) *edsv1.ExtendedDaemonSet {
	p.Helper()
	var eds edsv1.ExtendedDaemonSet
	if err := yaml.UnmarshalStrict([]byte(`
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSet
metadata:
  namespace: `+p.namespace+`
  name: `+name+`
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{}'
spec:
  strategy:
    canary:
      autoFail: {enabled: true, maxRestarts: 5}
      autoPause: {enabled: true, maxRestarts: 2}
      duration: 5m0s
      noRestartsDuration: 5m0s
      nodeSelector: {matchLabels: {}}
      replicas: 1
      validationMode: auto
    reconcileFrequency: 10s
    rollingUpdate:
      maxParallelPodCreation: 1
      maxPodSchedulerFailure: 0
      maxUnavailable: 2
      slowStartAdditiveIncrease: 1
      slowStartIntervalDuration: 1m0s
  template:
    metadata: {creationTimestamp: null}
    spec:
      containers: [{name: daemon, image: "`+image+`", resources: {}}]
      tolerations: [{operator: Exists}]
`), &eds); err != nil {
		p.Fatal(err)
	}
	p.write(&eds)
	return &eds
}

// revision is an ExtendedDaemonSetReplicaSet as the controller leaves it.
func (p *edsPlugin) revision(eds *edsv1.ExtendedDaemonSet, name, image string, is edsv1.ReplicaSetStatus) *edsv1.ExtendedDaemonSetReplicaSet {
	p.Helper()
	annotations := maps.Clone(eds.Annotations)
	annotations[edsv1.AnnotationTemplateHash] = "hash-of-" + name
	ers := &edsv1.ExtendedDaemonSetReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: eds.Namespace, Name: name, GenerateName: eds.Name + "-", Labels: map[string]string{edsv1.LabelName: eds.Name}, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(eds, edsv1.GroupVersion.WithKind("ExtendedDaemonSet"))},
		},
		Spec: edsv1.ExtendedDaemonSetReplicaSetSpec{Template: *eds.Spec.Template.DeepCopy(), TemplateGeneration: "hash-of-" + name},
	}
	ers.Spec.Template.Spec.Containers[0].Image = image
	p.write(ers)
	now := metav1.Now()
	ers.Status = edsv1.ExtendedDaemonSetReplicaSetStatus{Status: is, Desired: 1, Current: 1, Ready: 1, Available: 1, Conditions: []edsv1.Condition{
		{Type: edsv1.ConditionLastFullSync, Status: metav1.ConditionTrue, Reason: "Full sync", LastTransitionTime: now, LastUpdateTime: now},
	}}
	p.writeStatus(ers)
	return ers
}

// pod is a daemon pod as the controller makes it: bound to its node by affinity.
func (p *edsPlugin) pod(ers *edsv1.ExtendedDaemonSetReplicaSet, namespace, node string) *corev1.Pod {
	p.Helper()
	eds := ers.Labels[edsv1.LabelName]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ers.Name + "-" + node,
			Labels:      map[string]string{edsv1.LabelName: eds, edsv1.LabelReplicaSetName: ers.Name},
			Annotations: map[string]string{edsv1.AnnotationTemplateHash: ers.Spec.TemplateGeneration, edsv1.AnnotationDaemonsetPod: "true"},
		},
		Spec: *ers.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
	if namespace == ers.Namespace {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ers, edsv1.GroupVersion.WithKind("ExtendedDaemonSetReplicaSet"))}
	}
	p.write(pod)
	return pod
}

// steerCanary steers a canary from its beginning to its end.
func (p *edsPlugin) steerCanary() {
	t := p.T
	foo := p.set("foo", "registry.example/foo:2")
	v1 := p.revision(foo, "foo-aaaaa", "registry.example/foo:1", edsv1.ReplicaSetActive)
	v2 := p.revision(foo, "foo-bbbbb", "registry.example/foo:2", edsv1.ReplicaSetCanary)
	foo.Status = edsv1.ExtendedDaemonSetStatus{
		State: edsv1.StateCanary, ActiveReplicaSet: v1.Name, Canary: &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: v2.Name, Nodes: []string{"sim-0002"}},
		Desired: 2, Current: 2, Ready: 2, Available: 2, UpToDate: 1,
	}
	p.writeStatus(foo)
	p.pod(v1, foo.Namespace, "sim-0001")
	p.pod(v2, foo.Namespace, "sim-0002")
	// Pods of another ExtendedDaemonSet of the same name are not its own.
	p.pod(v2, "default", "sim-0001")

	rows := p.rows("foo", "get")
	if got := strings.Join(rows["foo"], " "); !strings.HasPrefix(got, "monitoring foo 2 2 2 1 2 0 Canary foo-aaaaa foo-bbbbb ") {
		t.Errorf("get: %s", got)
	}
	if rows = p.rows("foo-", "get-ers"); !strings.HasPrefix(strings.Join(rows["foo-bbbbb"], " "), "monitoring foo-bbbbb 1 1 1 1 0 canary ") || len(rows) != 2 {
		t.Errorf("get-ers: %v", rows)
	}
	p.says("extendeddaemonset.datadoghq.com/foo", "get", "-o", "name")
	eventually(t, "the canary's pod is ready", func(context.Context) (string, bool) {
		rows := p.rows("foo-", "canary", "pods", "foo")
		got := strings.Join(rows["foo-bbbbb-sim-0002"], " ")
		return fmt.Sprint(rows), len(rows) == 1 && strings.HasPrefix(got, "foo-bbbbb-sim-0002 1/1 Running 0 sim-0002 true ")
	})
	eventually(t, "no pod is not ready", func(context.Context) (string, bool) {
		rows := p.rows("foo-", "pods", "foo", "--select", "not-ready")
		return fmt.Sprint(rows), len(rows) == 0
	})
	if out, err := p.eds("diff", "foo"); err != nil || !strings.Contains(out, "foo-aaaaa (active)") || !strings.Contains(out, "registry.example/foo:2") {
		t.Errorf("diff: %v\n%s", err, out)
	}
	if rows = p.rows("foo-", "history", "foo"); len(rows) != 2 || strings.Join(rows["foo-bbbbb"][:4], " ") != "2 foo-bbbbb canary true" {
		t.Errorf("history: %v", rows)
	}

	p.says("ExtendedDaemonset 'monitoring/foo' deployment paused set to true", "canary", "pause", "foo")
	p.says("ExtendedDaemonset 'monitoring/foo' deployment paused set to false", "canary", "unpause", "foo")
	p.refuses("You should either fail or validate the canary first", "freeze-rollout", "foo")
	p.says("Canary replicaset 'foo-bbbbb' was validated properly for extendeddaemonset monitoring/foo.", "canary", "validate", "foo")
	p.read(foo)
	for key, want := range map[string]string{
		edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: "true", edsv1.AnnotationCanaryValid: "foo-bbbbb",
	} {
		if got := foo.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	p.says("ExtendedDaemonSetReplicaSet 'monitoring/foo' canary deployment set to failed", "canary", "fail", "foo")
	p.read(v2)
	if !edsv1.IsConditionTrue(v2.Status.Conditions, edsv1.ConditionCanaryFailed) || len(v2.Status.Conditions) != 2 {
		t.Errorf("conditions: %+v", v2.Status.Conditions)
	}
	foo.Status.State, foo.Status.Canary = edsv1.StateCanaryFailed, nil
	p.writeStatus(foo)
	p.refuses("the canary has failed", "wait", "foo")
	if out, err := p.run(filepath.Join(p.path, "check-eds"), "upgrade", "foo", "-n", p.namespace); err == nil || !strings.Contains(out, "the canary has failed") {
		t.Errorf("check-eds: %v\n%s", err, out)
	}
	p.says("ExtendedDaemonSetReplicaSet 'monitoring/foo-bbbbb' canary deployment reset", "canary", "reset", "foo")
	p.says("ExtendedDaemonset 'monitoring/foo' rolled back to the template of ExtendedDaemonSetReplicaSet 'monitoring/foo-aaaaa'", "rollback", "foo")
	p.read(foo)
	if got := foo.Spec.Template.Spec.Containers[0].Image; got != "registry.example/foo:1" {
		t.Errorf("the image is %s", got)
	}
	foo.Status.State, foo.Status.UpToDate = edsv1.StateRunning, 2
	p.writeStatus(foo)
	p.says("ExtendedDaemonset 'monitoring/foo' rolling update is now paused", "pause-rolling-update", "foo")
	p.says("ExtendedDaemonset 'monitoring/foo' rolling update is now unpaused", "unpause-rolling-update", "foo")
	p.says("ExtendedDaemonset 'monitoring/foo' rollout is now frozen", "freeze-rollout", "foo")
	p.says("ExtendedDaemonset 'monitoring/foo' rollout is now unfrozen", "unfreeze-rollout", "foo")
	if out, err := p.eds("wait", "foo", "--timeout=30s"); err != nil || !strings.Contains(out, "upgrade is now finished") {
		t.Errorf("wait: %v\n%s", err, out)
	}

	out, err := p.eds("get", "foo", "-o", "json")
	var got edsv1.ExtendedDaemonSet
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.UID != foo.UID {
		t.Errorf("get -o json: %v\n%s", err, out)
	}
	if out, err := p.run(p.kubectl, "__complete", "eds", "-n", p.namespace, "canary", "fail", ""); err != nil || !strings.Contains(out, "\nfoo\n:") {
		t.Errorf("completion: %v\n%s", err, out)
	}
	p.refuses("ExtendedDaemonSet monitoring/nope not found", "get", "nope")
}

// needRights is which rights each verb needs, and that a verb that may not see nodes goes on without.
func (p *edsPlugin) needRights() {
	t := p.T
	foo := p.set("foo", "registry.example/foo:2")
	v1 := p.revision(foo, "foo-aaaaa", "registry.example/foo:1", edsv1.ReplicaSetActive)
	v2 := p.revision(foo, "foo-bbbbb", "registry.example/foo:2", edsv1.ReplicaSetCanary)
	foo.Status = edsv1.ExtendedDaemonSetStatus{
		State: edsv1.StateCanary, ActiveReplicaSet: v1.Name, Canary: &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: v2.Name, Nodes: []string{"sim-0002"}},
	}
	p.writeStatus(foo)
	p.pod(v2, foo.Namespace, "sim-0002")
	const user = "someone"
	for _, role := range []struct {
		name, resources, verbs string
		args                   [][]string
	}{
		{"reader", "extendeddaemonsets.datadoghq.com,extendeddaemonsetreplicasets.datadoghq.com", "get,list", [][]string{
			{"get"}, {"get", "foo"}, {"get-ers"}, {"history", "foo"}, {"diff", "foo"},
		}},
		{"watcher", "extendeddaemonsets.datadoghq.com", "watch", [][]string{{"wait", "foo", "--timeout=2s"}}},
		{"pods", "pods", "list", [][]string{{"canary", "pods", "foo"}, {"pods", "foo", "--select=not-ready"}}},
		{"failer", "extendeddaemonsetreplicasets.datadoghq.com/status", "patch", [][]string{{"canary", "fail", "foo"}, {"canary", "reset", "foo"}}},
		{"writer", "extendeddaemonsets.datadoghq.com", "patch", [][]string{
			{"canary", "pause", "foo"}, {"canary", "unpause", "foo"}, {"canary", "validate", "foo"}, {"rollback", "foo"},
		}},
	} {
		as := func(args []string) (string, error) { return p.eds(append([]string{"--as", user}, args...)...) }
		if out, err := as(role.args[0]); err == nil || !strings.Contains(out, "forbidden") {
			t.Errorf("%v without the rights: %v\n%s", role.args[0], err, out)
		}
		p.mustRun(p.kubectl, "create", "role", role.name, "-n", p.namespace, "--resource="+role.resources, "--verb="+role.verbs)
		p.mustRun(p.kubectl, "create", "rolebinding", role.name, "-n", p.namespace, "--role="+role.name, "--user="+user)
		eventually(t, role.name+" has the rights", func(context.Context) (string, bool) {
			out, err := as(role.args[0])
			return out, err == nil || strings.Contains(out, "after 2s")
		})
		for _, args := range role.args[1:] {
			if out, err := as(args); err != nil {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
	}
	// All that, and no right to see nodes.
	out, err := p.eds("--as", user, "canary", "pods", "foo")
	if err != nil || !strings.Contains(out, "Nodes can't be listed") || !strings.Contains(out, "Unknown") {
		t.Errorf("pods: %v\n%s", err, out)
	}
}
