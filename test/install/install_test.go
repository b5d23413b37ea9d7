// SPDX-License-Identifier: Apache-2.0

// Package install installs Moult as its users do, by Helm and by kubectl, upgrades it in the middle of a rollout, and removes it.
//
// MOULT_DIST names the folder of a release, from which everything comes that it installs.
package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/internal/cli/moult"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/tier"
)

const (
	patience = 10 * time.Minute
	machines = 2
	// removed selects what an uninstall removes.
	removed = "moult.dev/uninstall!=keep"
)

// world is a cluster in which Moult is installed.
type world struct {
	*testing.T
	client.Client
	cluster       *cluster.Cluster
	helm, kubectl string
	// chart and manifest are files of the release.
	chart, manifest string
}

// Load implements source.Config.
func (w *world) Load() (*rest.Config, string, error) { return w.cluster.Config(), plans, nil }

func newWorld(t *testing.T) *world {
	log.SetLogger(logr.Discard())
	w := &world{T: t}
	w.helm, w.kubectl = programs(t)
	dist := os.Getenv("MOULT_DIST")
	charts, err := filepath.Glob(filepath.Join(dist, "moult-*.tgz"))
	if err != nil || len(charts) != 1 {
		t.Fatalf("MOULT_DIST must name the folder of a release, which `make release` builds: %q has the charts %v, %v", dist, charts, err)
	}
	w.chart, w.manifest = charts[0], filepath.Join(dist, "install.yaml")
	w.cluster = cluster.New(t, cluster.Options{Machines: machines, AuditLog: true, Images: []string{filepath.Join(dist, "images/moult.tar")}})
	t.Setenv("KUBECONFIG", w.cluster.Kubeconfig())
	t.Setenv("PATH", filepath.Dir(w.kubectl)+":"+os.Getenv("PATH"))
	scheme := runtime.NewScheme()
	err = upgradev1.AddToScheme(scheme)
	if err == nil {
		w.Client, err = client.New(w.cluster.Config(), client.Options{Scheme: scheme})
	}
	if err != nil {
		t.Fatal(err)
	}
	// Nodes of every kind: what Moult could take them for.
	for i, labels := range []map[string]string{
		{}, {"bottlerocket.aws/updater-interface-version": "2.0.0"}, {"bottlerocket.aws/updater-interface-version": "1.0.0"},
		{"thar.amazonaws.com/platform-version": "1.0.0"}, {"moult.dev/updater-interface-version": "sentinel"},
		{"node-role.kubernetes.io/control-plane": ""},
	} {
		o := cluster.NodeOptions{Name: fmt.Sprintf("kind-%d", i), Labels: labels, OSImage: "Bottlerocket OS 1.19.5 (simulated)"}
		if err := w.cluster.AddNode(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		// What is to run in earnest runs on machines.
		w.must(w.kubectl, "taint", "node", o.Name, "simulated=:NoSchedule")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(run(context.WithoutCancel(t.Context()), w.kubectl, "get", "pods,plans,jobs,events", "-A"))
		}
	})
	return w
}

func (w *world) must(program string, args ...string) string {
	w.Helper()
	out, err := run(w.Context(), program, args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) eventually(what string, holds func(context.Context) (string, bool)) {
	w.Helper()
	seen := ""
	if err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (ok bool, _ error) {
		seen, ok = holds(ctx)
		return ok, nil
	}); err != nil {
		w.Fatalf("%s: %s", what, seen)
	}
}

// way is a way to install Moult. Each returns when the operator is ready.
type way struct{ install, upgrade, uninstall func() }

func (w *world) byHelm() way {
	args := []string{"moult", w.chart, "--namespace", namespace, "--wait", "--timeout", patience.String()}
	return way{
		install: func() {
			w.must(w.helm, append([]string{"install", "--create-namespace", "--set", "dashboard.enabled=true"}, args...)...)
			w.dashboard()
		},
		upgrade: func() {
			const values = "replicas=2,podDisruptionBudget.enabled=true,hostUpdate.agents.enabled=true"
			w.must(w.helm, append([]string{"upgrade", "--set", values}, args...)...)
		},
		uninstall: func() {
			manifest := filepath.Join(w.TempDir(), "manifest.yaml")
			w.must("sh", "-c", `"$1" get manifest moult -n "$2" >"$3"`, "sh", w.helm, namespace, manifest)
			w.must(w.helm, "uninstall", "moult", "--namespace", namespace, "--wait")
			w.gone(manifest)
		},
	}
}

// dashboard looks at the web pages, by their Service and with the token of their own account.
func (w *world) dashboard() {
	w.Helper()
	token := strings.TrimSpace(w.must(w.kubectl, "create", "token", "-n", namespace, "moult-dashboard"))
	forward := exec.CommandContext(w.Context(), w.kubectl, "port-forward", "-n", namespace, "service/moult-dashboard", ":443")
	forwarded, err := forward.StdoutPipe()
	if err := errors.Join(err, forward.Start()); err != nil {
		w.Fatal(err)
	}
	defer func() { _ = forward.Process.Kill(); _ = forward.Wait() }()
	var port int
	if _, err := fmt.Fscanf(forwarded, "Forwarding from 127.0.0.1:%d ", &port); err != nil {
		w.Fatalf("forwarding a port, %v", err)
	}
	viewer := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer viewer.CloseIdleConnections()
	w.eventually("the pages show the fleet", func(ctx context.Context) (string, bool) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", port), http.NoBody)
		if err != nil {
			return err.Error(), false
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := viewer.Do(r)
		if err != nil {
			return err.Error(), false
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.Status, err, string(body)), answer.StatusCode == http.StatusOK && strings.Contains(string(body), "<h1>Fleet</h1>")
	})
}

func (w *world) byKubectl() way {
	apply := func() {
		w.must(w.kubectl, "apply", "--server-side", "--force-conflicts", "-f", w.manifest)
		w.must(w.kubectl, "rollout", "status", "-n", namespace, "deployment/moult", "--timeout="+patience.String())
	}
	return way{
		install: apply,
		upgrade: func() {
			w.must(w.kubectl, "rollout", "restart", "-n", namespace, "deployment/moult")
			apply()
		},
		uninstall: func() {
			w.must(w.kubectl, "delete", "-f", w.manifest, "-l", removed)
			w.gone(w.manifest)
		},
	}
}

// gone checks that what an uninstall removes is not there, and that the rest is.
func (w *world) gone(manifest string) {
	w.Helper()
	left := w.must(w.kubectl, "get", "--ignore-not-found", "-o", "name", "-f", manifest, "-l", removed)
	kept := w.must(w.kubectl, "get", "--ignore-not-found", "-o", "name", "-f", manifest, "-l", strings.ReplaceAll(removed, "!", ""))
	const kinds = 6
	if left != "" || strings.Count(kept, "customresourcedefinition") != kinds || !strings.Contains(kept, "namespace/"+plans) {
		w.Errorf("left is\n%sand kept is\n%s", left, kept)
	}
}

// plan creates a Plan over these nodes, one at a time. Its Jobs end when the file of its name is on their machine.
func (w *world) plan(name string, nodes ...string) *upgradev1.Plan {
	w.Helper()
	p := &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: plans},
		Spec: upgradev1.PlanSpec{
			Concurrency: 1, Version: "v1", ServiceAccountName: "system-upgrade", Cordon: true,
			NodeSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes},
			}},
			Upgrade: &upgradev1.ContainerSpec{
				Image: image.Busybox, Command: []string{"sh", "-c", "until test -e /host/var/" + name + "; do sleep 0.2; done"},
			},
		},
	}
	if err := w.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
	return p
}

// end lets the Plan's Jobs end, waits until it is complete, and looks at the machines and Jobs.
func (w *world) end(p *upgradev1.Plan) {
	w.Helper()
	for _, m := range w.cluster.Machines() {
		if err := m.WriteFile("/var/"+p.Name, nil, 0o600); err != nil {
			w.Fatal(err)
		}
	}
	w.eventually("the Plan is complete", func(ctx context.Context) (string, bool) {
		err := w.Get(ctx, client.ObjectKeyFromObject(p), p)
		c := p.Status.Condition(upgradev1.ConditionComplete)
		return fmt.Sprintf("%+v %v", p.Status, err), err == nil && c != nil && c.Status == metav1.ConditionTrue
	})
	if made := w.requests(func(e *audit.Event) bool {
		return e.Verb == "create" && e.Object.Resource == "jobs" && strings.HasPrefix(e.Object.Name, "apply-"+p.Name+"-on-")
	}); made != machines {
		w.Errorf("%d Jobs were made for %d machines", made, machines)
	}
}

// requests counts requests of the operator and agents that were allowed.
func (w *world) requests(are func(*audit.Event) bool) (n int) {
	w.Helper()
	requests, err := audit.Open(w.cluster.AuditLog())
	if err != nil {
		w.Fatal(err)
	}
	if err := requests.Read(`"userAgent":"moult`, func(e *audit.Event) {
		if !e.Refused() && are(e) {
			n++
		}
	}); err != nil {
		w.Fatal(err)
	}
	_ = requests.Close()
	return n
}

func nodeWrite(e *audit.Event) bool {
	return e.Object.Resource == "nodes" && (e.Verb == "patch" || e.Verb == "update" || e.Verb == "delete")
}

// moult runs a command of the plugin.
func (w *world) moult(command string) (string, error) {
	var out bytes.Buffer
	plugin := moult.NewCommand(clock.RealClock{}, genericiooptions.IOStreams{Out: &out, ErrOut: &out}, w)
	plugin.SetArgs([]string{command})
	err := plugin.ExecuteContext(w.Context())
	return out.String(), err
}

// Moult is installed, changes nothing until a person asks for it, carries out a Plan, is upgraded in the middle of the next, and is removed. What
// was installed by Helm is installed again by kubectl, over definitions and namespaces that stayed.
func TestInstall(t *testing.T) {
	w := newWorld(t)
	for i, by := range []way{w.byHelm(), w.byKubectl()} {
		before := w.requests(nodeWrite)
		by.install()
		// A Plan that selects nothing shows that the operator is at work.
		p := w.plan(fmt.Sprintf("none-%d", i), "none")
		w.eventually("a Plan is looked at", func(ctx context.Context) (string, bool) {
			err := w.Get(ctx, client.ObjectKeyFromObject(p), p)
			return fmt.Sprint(p.Status, err), err == nil && p.Status.Condition(upgradev1.ConditionReady) != nil
		})
		if out, err := w.moult("check"); err != nil {
			t.Errorf("of a new install the check says %v\n%s", err, out)
		}
		if tier.All && i == 0 {
			<-time.After(5 * time.Minute)
		}
		if n := w.requests(nodeWrite) - before; n != 0 {
			t.Errorf("a new install wrote to nodes %d times", n)
		}
		all := []string{w.cluster.Machines()[0].Name(), w.cluster.Machines()[1].Name()}
		w.end(w.plan(fmt.Sprintf("first-%d", i), all...))

		p = w.plan(fmt.Sprintf("second-%d", i), all...)
		var during []string
		w.eventually("the rollout is in progress", func(ctx context.Context) (string, bool) {
			err := w.Get(ctx, client.ObjectKeyFromObject(p), p)
			during = p.Status.Applying
			return fmt.Sprint(during, err), len(during) == 1
		})
		by.upgrade()
		if out, err := w.moult("uninstall-check"); err == nil || !strings.Contains(out, "plan.upgrade.cattle.io/"+p.Name+" -n "+plans+" changes "+during[0]) {
			t.Errorf("in the middle of a rollout the check says %v\n%s", err, out)
		}
		w.end(p)

		by.uninstall()
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Errorf("the Plan is not kept: %v", err)
		}
		// Labels say what a Plan has done: without them it would run again. The command below each finding removes it.
		w.must(w.kubectl, "delete", "plans", "-n", plans, "--all")
		out, _ := w.moult("uninstall-check")
		w.must("sh", "-c", `echo "$1" | sed -n 's/^  //p' | sh -e`, "sh", out)
		out, err := w.moult("uninstall-check")
		if diff := cmp.Diff("Nothing of Moult is left on nodes, and no rollout is in progress.\n", out); diff != "" || err != nil {
			t.Errorf("the check says %v (-want +got)\n%s", err, diff)
		}
		if cordoned := w.must(w.kubectl, "get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"); cordoned != "" {
			t.Errorf("left cordoned is %s", cordoned)
		}
	}
}
