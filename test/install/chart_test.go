// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"moult.dev/moult/test/cluster"
)

const (
	chart = "../../charts/moult"
	// namespace is the operator's, and plans that of Plans.
	namespace = "moult-system"
	plans     = "system-upgrade"
)

// run runs a program, and returns what it prints.
func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		err = errors.New(program + " " + strings.Join(args, " ") + ": " + err.Error() + "\n" + failed.String())
	}
	return string(out), err
}

// programs returns the paths of helm, which Go builds unless it has, and kubectl.
func programs(t *testing.T) (helm, kubectl string) {
	t.Helper()
	helm, err := run(t.Context(), "go", "tool", "-C", "../../tools/helm", "-n", "helm")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := cluster.Binaries(t.Context(), os.Stderr, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(helm), paths["kubectl"]
}

// objects reads manifests, and leaves out what only Helm needs.
func objects(t *testing.T, manifests string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		o := unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		for _, path := range [][]string{{"metadata", "annotations"}, {"spec", "template", "metadata", "annotations"}} {
			annotations, _, _ := unstructured.NestedMap(o.Object, path...)
			delete(annotations, "helm.sh/resource-policy")
			delete(annotations, "moult.dev/settings")
			if unstructured.RemoveNestedField(o.Object, path...); len(annotations) > 0 {
				_ = unstructured.SetNestedMap(o.Object, annotations, path...)
			}
		}
		all[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
	}
}

// template renders the chart. Helm knows no version of Kubernetes by itself when Go alone has built it.
func template(t *testing.T, helm, namespace string, values ...string) (string, error) {
	t.Helper()
	return templateFor(t, "1.35", helm, namespace, values...)
}

func templateFor(t *testing.T, version, helm, namespace string, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", "moult", chart, "--namespace", namespace, "--kube-version", version}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return run(t.Context(), helm, args...)
}

// The chart and the manifests of config have the same objects.
func TestChartEqualsManifests(t *testing.T) {
	helm, kubectl := programs(t)
	for name, tc := range map[string]struct {
		values, overlay string
	}{
		"default": {overlay: "resources: [CONFIG/default]\n"},
		"agents": {
			"hostUpdate.agents.enabled=true",
			"resources: [CONFIG/default, CONFIG/hostupdate/agents, CONFIG/hostupdate/direct-reads]\n",
		},
		"dashboard": {"dashboard.enabled=true", "resources: [CONFIG/default, CONFIG/dashboard]\n"},
		"dashboard with a certificate": {
			"dashboard.enabled=true,dashboard.tlsSecretName=moult-dashboard-tls",
			"resources: [CONFIG/default, CONFIG/dashboard]\ncomponents: [CONFIG/dashboard/certificate]\n",
		},
		"approval": {"approval.enabled=true", "resources: [CONFIG/default, CONFIG/approval]\n"},
		"replacement": {
			"replacement.enabled=true,replacement.kubeadm=true,replacement.etcdFromHost=true",
			"resources: [CONFIG/default]\ncomponents: [CONFIG/replacement, CONFIG/replacement/kubeadm, CONFIG/replacement/etcd]\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config, err := filepath.Abs("../../config")
			if err == nil {
				config, err = filepath.Rel(dir, config)
			}
			overlay := "kind: Kustomization\n" + strings.ReplaceAll(tc.overlay, "CONFIG", config)
			want, errWant := run(t.Context(), "sh", "-c", `echo "$1" >"$2/kustomization.yaml" && exec "$3" kustomize "$2"`, "sh", overlay, dir, kubectl)
			got, errGot := template(t, helm, namespace, "namespaces.createOperator=true", tc.values)
			if err := errors.Join(err, errWant, errGot); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(objects(t, want), objects(t, got)); diff != "" {
				t.Errorf("objects (-config +chart)\n%s", diff)
			}
		})
	}
}

// What is switched on by values alone is there, and a value that does not exist is refused.
func TestChartValues(t *testing.T) {
	helm, _ := programs(t)
	if _, err := run(t.Context(), helm, "lint", "--strict", chart); err != nil {
		t.Error(err)
	}
	out, err := template(t, helm, "here", "namespaces.plans=there", "replicas=2", "podDisruptionBudget.enabled=true", "crds.install=false",
		"plans.enabled=false", "hostUpdate.enabled=false", "monitoring.serviceMonitor.enabled=true", "monitoring.prometheusRule.enabled=true",
		"monitoring.dashboards.enabled=true", "monitoring.prometheusAccount.name=p", "dashboard.enabled=true", "image.digest=sha256:"+strings.Repeat("a", 64))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"kind: ServiceMonitor\n": true, "kind: PodDisruptionBudget\n": true, "kind: PrometheusRule\n": true, "moult-dashboard-fleet": true,
		"name: moult-metrics-reader\nsubjects:": true, "name: there\n": true,
		"name: moult-dashboard\n  namespace: here\n": true, "namespace: there\n": true, "kind: CustomResourceDefinition\n": false, "name: moult-agent\n": false, "namespace: system-upgrade\n": false,
		"image: moult.dev/moult:dev@sha256:aaa": true, "MOULT_CONTROLLERS: extendeddaemonset\n": true,
	} {
		if strings.Contains(out, key) != want {
			t.Errorf("the manifest has %q: %t, want %t", key, !want, want)
		}
	}
	for version, want := range map[string]bool{"1.35": true, "1.36": false} {
		out, err := templateFor(t, version, helm, namespace, "hostUpdate.agents.enabled=true")
		if has := strings.Contains(out, "name: moult-direct-reads"); err != nil || has != want {
			t.Errorf("on Kubernetes %s agents may read all Nodes: %t, want %t, %v", version, has, want, err)
		}
	}
	if _, err := template(t, helm, namespace, "plans.enable=false"); err == nil {
		t.Error("an unknown value is accepted")
	}
}
