// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/cluster"
)

const examplesDir = "../../examples/"

// exampleTest is how a file of examples/ is tried.
type exampleTest struct {
	file string
	// names are those that can't be here, each with the one in its place.
	names []string
	try   func(*testing.T, *example)
}

// examples are in the order in which they are tried.
var examples = []exampleTest{
	{"try/kustomization.yaml", nil, exampleScript},
	{"budget.yaml", nil, exampleBudgets},
	{"bottlerocket/budget.yaml", nil, exampleBudgets},
	{"plan.yaml", nil, examplePlans},
	{"plan-with-waves.yaml", nil, exampleWaves},
	{"noderollout-bottlerocket.yaml", nil, exampleHosts},
	{"bottlerocket/noderollout.yaml", nil, exampleHosts},
	{"noderollout.yaml", []string{"1.20.3", newVersion}, exampleTiers},
	{"noderollout-sentinel.yaml", nil, exampleSentinel},
	{"noderollout-replacement.yaml", []string{
		"11111111-2222-3333-4444-555555555555", azure.SubscriptionID, "resourceGroup: prod, credential: Workload", "resourceGroup: " + azure.ResourceGroup,
	}, exampleMachines},
	{"extendeddaemonset-canary.yaml", nil, exampleCanary},
	{"extendeddaemonset.yaml", nil, exampleDaemon},
	{"extendeddaemonset-exclude.yaml", nil, exampleExclude},
	{"extendeddaemonset-surge.yaml", nil, exampleSurge},
}

// elsewhere are the files that no row of examples applies by its own, and where they are tested.
var elsewhere = map[string]string{
	"try/nodes.yaml":                     "try/kustomization.yaml",
	"try/plan.yaml":                      "try/kustomization.yaml",
	"extendeddaemonset-canary-next.yaml": "extendeddaemonset-canary.yaml",
	"extendeddaemonsetsetting-pool.yaml": "extendeddaemonset-canary.yaml",
	"extendeddaemonsetsetting.yaml":      "extendeddaemonset.yaml",
	"bottlerocket/kustomization.yaml":    "it is config/default with two files that are tried: TestOwnExamplesAreValid, TestExampleHasNoneOfTheLimits",
	"ducklett/kustomization.yaml":        "its cloud is Azure: TestOwnExamplesAreValid, and its flags in cmd/moult/ducklett_test.go",
	"ducklett/secret.yaml":               "ducklett/kustomization.yaml",
	"argocd/argocd-cm.yaml":              "test/gitops",
}

// TestExamples applies each file of examples/ as it is. The operator accepts it, the preview names its nodes, and it becomes complete. What would
// take hours or waits for the night is then applied in a hurry. It has the cluster for itself, because examples select all nodes.
func TestExamples(t *testing.T) {
	takeMachines(t, machines)
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
		files, err := filepath.Glob(examplesDir + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := strings.TrimPrefix(f, examplesDir)
			if elsewhere[name] == "" && !slices.ContainsFunc(examples, func(e exampleTest) bool { return e.file == name }) {
				t.Errorf("no test applies %s: add it to examples", f)
			}
		}
	}
	exampleImages(t)
	for _, row := range examples {
		t.Run(row.file, func(t *testing.T) { row.try(t, newExample(t, row.file, row.names...)) })
	}
}

// exampleImages gives the machines the images that examples name. All are a shell, and answer on the ports of the probes.
func exampleImages(t *testing.T) {
	t.Helper()
	shell, err := image.Shell(t.Context(), "/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	job, daemon := shell, shell
	job.Tags, job.Entrypoint = []string{"moult.dev/demo-upgrade:v1.1.0", "docker.io/library/busybox:1.37"}, []string{"true"}
	daemon.Tags = []string{
		"registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.10", "quay.io/prometheus/node-exporter:v1.9.1", "cr.fluentbit.io/fluent/fluent-bit:4.0.3",
	}
	daemon.Files = map[string]image.File{"/index.html": {Content: []byte("well\n")}}
	maps.Copy(daemon.Files, shell.Files)
	daemon.Entrypoint = []string{"sh", "-c", "httpd -p 9100; httpd -p 2020; " + sleeper}
	for name, spec := range map[string]image.Spec{"job": job, "daemon": daemon} {
		tar := filepath.Join(t.TempDir(), name+".tar")
		if err := image.Build(t.Context(), spec, tar); err != nil {
			t.Fatal(err)
		}
		if err := world.LoadImage(t.Context(), tar); err != nil {
			t.Fatal(err)
		}
	}
}

// example is a file of examples/ with names that are here.
type example struct {
	file, text string
	machines   []*cluster.Machine
}

func newExample(t *testing.T, file string, names ...string) *example {
	t.Helper()
	text, err := os.ReadFile(examplesDir + file)
	if err != nil {
		t.Fatal(err)
	}
	return &example{file: file, text: strings.NewReplacer(names...).Replace(string(text)), machines: world.Machines()[:machines]}
}

// applyText applies manifests, which are deleted when the test ends, and returns the path of a file with them.
func applyText(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			out, err := kubectl(ctx, "get", "-f", path, "-o", "yaml")
			t.Logf("%v\n%s", err, out)
		}
		if out, err := kubectl(ctx, "delete", "--ignore-not-found", "-f", path); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	if out, err := kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "-f", path); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// apply applies the file, and waits until the operator has accepted each of its objects.
func (e *example) apply(t *testing.T) {
	t.Helper()
	path := applyText(t, e.file, e.text)
	eventually(t, "the operator accepts "+e.file, func(ctx context.Context) (string, bool) {
		out, err := kubectl(ctx, "get", "-f", path, "-o", "json")
		var one object
		var all struct{ Items []object }
		if err != nil || json.Unmarshal([]byte(out), &one) != nil || json.Unmarshal([]byte(out), &all) != nil {
			return fmt.Sprint(err, out), false
		}
		for _, o := range append(all.Items, one) {
			if o.Kind != "List" && !o.accepted() {
				return out, false
			}
		}
		return "", true
	})
}

// object is what tells whether an object is accepted.
type object struct {
	Kind     string
	Metadata struct{ Generation int64 }
	Status   struct {
		ObservedGeneration int64
		Conditions         []metav1.Condition
	}
}

func (o *object) accepted() bool {
	return o.Kind == "ExtendedDaemonsetSetting" || o.Status.ObservedGeneration == o.Metadata.Generation && len(o.Status.Conditions) > 0 &&
		!slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool { return strings.Contains(c.Reason, "Invalid") })
}

var (
	night = regexp.MustCompile(`(?m)^ *windows:\n( *- \{schedule: .*\n)+`)
	times = regexp.MustCompile(`\b(soak|duration|noRestartsDuration|minimumAge|wait): \d+[hms]`)
	whole = regexp.MustCompile(`\b(minReadySeconds|seconds): \d+`)
)

// hurry applies the file once more, without the hours of the night, and with a second in place of each time for which something is watched.
func (e *example) hurry(t *testing.T) {
	t.Helper()
	text := e.text
	e.text = whole.ReplaceAllString(times.ReplaceAllString(night.ReplaceAllString(text, ""), "$1: 1s"), "$1: 1")
	if e.text == text {
		t.Errorf("%s is as fast as it is", e.file)
	}
	e.apply(t)
}

// previews checks that the preview of a rollout names these nodes.
func previews(t *testing.T, rollout string, nodes ...string) {
	t.Helper()
	says(t, []string{"preview", rollout, "-n", rolloutNamespace(rollout), "--all"}, nodes...)
}

// completes waits until a rollout is complete. A person approves each wave that waits for it.
func completes(t *testing.T, rollout string, approvals int) {
	t.Helper()
	for range approvals {
		eventually(t, "approving "+rollout, func(context.Context) (string, bool) {
			out, err := moult(t, "approve", rollout, "-n", rolloutNamespace(rollout))
			return out, err == nil
		})
	}
	says(t, []string{"status", rollout, "-n", rolloutNamespace(rollout), "--until-complete", "--timeout=" + patience.String()}, "Complete")
}

func rolloutNamespace(rollout string) string {
	if strings.HasPrefix(rollout, "eds/") {
		return metav1.NamespaceDefault
	}
	return namespace
}

func resumes(t *testing.T, rollout string) {
	t.Helper()
	says(t, []string{"resume", rollout}, "resumed")
}

// label labels a node until the test ends.
func label(t *testing.T, node, key, value string) {
	t.Helper()
	labelNode(t, node, key, value)
	t.Cleanup(func() { labelNode(t, node, key, nil) })
}

// exampleScript is what `make try` runs.
func exampleScript(t *testing.T, _ *example) {
	programs, err := cluster.Binaries(t.Context(), t.Output(), "kubectl", "kwok")
	if err != nil {
		t.Fatal(err)
	}
	programs["moult"] = world.program
	if programs["kubectl-moult"], err = builtPlugin(); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for name, program := range programs {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "../../hack/try.sh")
	cmd.Env = append(os.Environ(), "BIN="+bin, "KUBECONFIG="+world.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "5 of 5 updated") {
		t.Errorf("%v\n%s", err, out)
	}
}

func exampleBudgets(t *testing.T, e *example) { e.apply(t) }

func examplePlans(t *testing.T, e *example) {
	label(t, e.machines[0].Name(), "node-role.kubernetes.io/control-plane", "")
	for _, m := range e.machines {
		label(t, m.Name(), "demo-upgrade", "enabled")
	}
	e.apply(t)
	previews(t, "demo-servers", e.machines[0].Name())
	completes(t, "demo-servers", 0)
	completes(t, "demo-agents", 0)
	if n := get(t, "demo-servers").Status.Counts.Total + get(t, "demo-agents").Status.Counts.Total; n != machines {
		t.Errorf("the Plans have %d nodes", n)
	}
}

func exampleWaves(t *testing.T, e *example) {
	t.Cleanup(func() { remove(t, "os-workers") })
	e.apply(t)
	previews(t, "os-workers", e.machines[0].Name(), e.machines[1].Name())
	e.hurry(t)
	resumes(t, "os-workers")
	completes(t, "os-workers", 1)
	for _, m := range e.machines {
		if got := lines(t, m, "/etc/hello-version"); !slices.Equal(got, []string{"v1"}) {
			t.Errorf("%s has %v", m.Name(), got)
		}
		released(t, m.Name(), false)
	}
}

// exampleHosts updates a host. What is not in a hurry is complete as it is.
func exampleHosts(t *testing.T, e *example) {
	h := newHost(t, e.machines[0], byUpdateAPI)
	e.apply(t)
	previews(t, "nr/bottlerocket", h.machine.Name())
	if strings.Contains(e.text, "soak:") {
		e.hurry(t)
	}
	rolledOut(t, "bottlerocket", 1)
	h.shows(t, newVersion)
}

func exampleTiers(t *testing.T, e *example) {
	networkPods(t)
	production := e.machines[0].Name()
	for i, tier := range []string{"production", "test", "pets"} {
		newHost(t, e.machines[i], byUpdateAPI)
		label(t, e.machines[i].Name(), "example.com/tier", tier)
	}
	e.apply(t)
	previews(t, "nr/production", production)
	rolloutIs(t, "look-only", "looks at a host", func(s *v1alpha1.NodeRolloutStatus) bool { return s.Counts.Total == 1 && s.Counts.Updated == 0 })
	rolledOut(t, "test", 1)
	e.hurry(t)
	resumes(t, "nr/production")
	for _, hook := range [][2]string{
		{v1alpha1.LabelBeforeReboot, "example.com/storage-is-ready"}, {v1alpha1.LabelAfterReboot, "example.com/storage-is-back"},
	} {
		eventually(t, production+" has the label "+hook[0], func(context.Context) (string, bool) {
			got := node(t, production).Labels
			return fmt.Sprint(got), got[hook[0]] == "true"
		})
		patchNode(t, production, map[string]any{"metadata": map[string]any{"annotations": map[string]any{hook[1]: "true"}}})
	}
	rolledOut(t, "production", 1)
	if n := rollout(t, "look-only").Status.Counts; n.Updated != 0 {
		t.Errorf("look-only: %+v", n)
	}
}

// networkPods makes the pods that examples want to be ready on a node before it counts as healthy.
func networkPods(t *testing.T) {
	t.Helper()
	applyText(t, "cilium.yaml", `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template:
    metadata: {labels: {k8s-app: cilium}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: agent, image: registry.k8s.io/pause:3.9}]
`)
}

func exampleSentinel(t *testing.T, e *example) {
	h := newHost(t, e.machines[0], bySentinel)
	boot := h.machine.BootID()
	e.apply(t)
	previews(t, "nr/reboots", h.machine.Name())
	e.hurry(t)
	rolledOut(t, "reboots", 1)
	h.updatedOnce(t, boot)
}

func exampleMachines(t *testing.T, e *example) {
	networkPods(t)
	p := newPool(t, "example", poolOptions{capacity: 2})
	p.setImage(t, newImage)
	e.apply(t)
	previews(t, "nr/workers", p.nodes(t)[0].Name, p.nodes(t)[1].Name)
	e.hurry(t)
	resumes(t, "nr/workers")
	rolledOut(t, "workers", 2)
	p.settled(t, newImage, 2)
}

// exampleCanary is the walk-through of a canary, to the resources of a pool.
func exampleCanary(t *testing.T, e *example) {
	d := &daemons{namespace: metav1.NamespaceDefault}
	e.apply(t)
	completes(t, "eds/pause", 0)
	newExample(t, "extendeddaemonset-canary-next.yaml").apply(t)
	eventually(t, "the canary is ready", func(ctx context.Context) (string, bool) {
		out, err := kubectl(ctx, "get", "eds", "pause", "-o", "jsonpath={.status.state} {.status.canary.nodes}")
		return fmt.Sprint(out, err), strings.HasPrefix(out, "Canary [")
	})
	d.eds(t, "canary", "validate", "pause")
	completes(t, "eds/pause", 0)
	large := e.machines[0].Name()
	label(t, large, "node-type", "xxl")
	newExample(t, "extendeddaemonsetsetting-pool.yaml").apply(t)
	podHas(t, "pause", large, "300Mi")
}

func exampleDaemon(t *testing.T, e *example) {
	e.apply(t)
	previews(t, "eds/node-exporter", e.machines[0].Name())
	completes(t, "eds/node-exporter", 0)
	large := e.machines[0].Name()
	label(t, large, corev1.LabelInstanceTypeStable, "m7i.48xlarge")
	newExample(t, "extendeddaemonsetsetting.yaml").apply(t)
	e.nextVersion(t)
	completes(t, "eds/node-exporter", 0)
	podHas(t, "node-exporter", large, "128Mi")
	podHas(t, "node-exporter", e.machines[1].Name(), "33Mi")
}

// nextVersion applies the file in a hurry with another template, as the first version of a daemon takes neither canary nor waves.
func (e *example) nextVersion(t *testing.T) {
	t.Helper()
	e.text = strings.NewReplacer("50m, memory: 32Mi", "50m, memory: 33Mi", "50m, memory: 64Mi", "50m, memory: 65Mi").Replace(e.text)
	e.hurry(t)
}

// podHas waits until the daemon's pod on a node requests so much memory.
func podHas(t *testing.T, app, node, memory string) {
	t.Helper()
	eventually(t, app+" on "+node+" has "+memory, func(ctx context.Context) (string, bool) {
		out, err := kubectl(ctx, "get", "pods", "-l", "app="+app, "--field-selector", "spec.nodeName="+node,
			"-o", "jsonpath={.items[*].spec.containers[0].resources.requests.memory} {.items[*].status.phase}")
		return fmt.Sprint(out, err), out == memory+" Running"
	})
}

func exampleExclude(t *testing.T, e *example) {
	e.apply(t)
	completes(t, "eds/pause-elsewhere", 0)
	excluded := e.machines[0].Name()
	label(t, excluded, "extendeddaemonset.datadoghq.com/exclude", "pause-elsewhere")
	eventually(t, "its pod is deleted", func(ctx context.Context) (string, bool) {
		out, err := kubectl(ctx, "get", "pods", "-o", "name", "-l", "app=pause-elsewhere", "--field-selector", "spec.nodeName="+excluded)
		return fmt.Sprint(out, err), err == nil && out == ""
	})
	completes(t, "eds/pause-elsewhere", 0)
}

func exampleSurge(t *testing.T, e *example) {
	e.apply(t)
	previews(t, "eds/log-shipper", e.machines[0].Name())
	completes(t, "eds/log-shipper", 0)
	e.nextVersion(t)
	completes(t, "eds/log-shipper", 1)
	podHas(t, "log-shipper", e.machines[0].Name(), "65Mi")
}
