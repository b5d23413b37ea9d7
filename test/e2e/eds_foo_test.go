// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

// foo is the ExtendedDaemonSet with which users of ExtendedDaemonSet begin, with a canary of half a minute, on the test's nodes.
const foo = `
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSet
metadata:
  name: foo
spec:
  selector:
    matchLabels:
      %s: %s
  strategy:
    canary:
      replicas: 1
      duration: 30s
      autoFail:
        enabled: true
        canaryTimeout: 10m
      autoPause:
        enabled: true
        maxRestarts: 5
    rollingUpdate:
      maxParallelPodCreation: 1
      maxUnavailable: 2
      slowStartIntervalDuration: 1m
  template:
    spec:
      containers:
        - name: daemon
          image: registry.k8s.io/pause:%s
      tolerations:
        - operator: Exists
`

// loadPause gives the machines images by the names that foo has.
func loadPause(t *testing.T) {
	t.Helper()
	programs, err := cluster.Binaries(t.Context(), t.Output(), "pause")
	if err != nil {
		t.Fatal(err)
	}
	tar := filepath.Join(t.TempDir(), "pause.tar")
	spec := image.Spec{
		Tags:       []string{"registry.k8s.io/pause:3.0", "registry.k8s.io/pause:3.1"},
		Entrypoint: []string{"/pause"}, Files: map[string]image.File{"/pause": {Source: programs["pause"]}},
	}
	if err := image.Build(t.Context(), spec, tar); err != nil {
		t.Fatal(err)
	}
	if err := world.LoadImage(t.Context(), tar); err != nil {
		t.Fatal(err)
	}
}

// fooWithCanary goes through what ExtendedDaemonSet's documentation shows: a first version, a second as a canary, and then
// everywhere.
func fooWithCanary(t *testing.T, d *daemons) {
	loadPause(t)
	apply := func(version string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "foo.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, foo, target, d.selector.MatchLabels[target], version), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := kubectl(t.Context(), "apply", "-n", d.namespace, "-f", file); err != nil {
			t.Fatal(err, out)
		}
	}
	apply("3.0")
	v1 := d.settled(t, "foo").Status.ActiveReplicaSet
	if !strings.HasPrefix(v1, "foo-") {
		t.Errorf("the revision is named %s", v1)
	}
	before, generation, since, began := d.uids(t, "foo"), d.get(t, "foo").Generation, d.now(t), time.Now()

	apply("3.1")
	e := d.inCanary(t, "foo", 1)
	v2, node := e.Status.Canary.ReplicaSet, e.Status.Canary.Nodes[0]
	if e.Status.ActiveReplicaSet != v1 {
		t.Errorf("%s is active during the canary, want %s", e.Status.ActiveReplicaSet, v1)
	}
	e = d.until(t, "foo", "counts the canary", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.UpToDate == 1 && e.Status.Ready == 3 })
	if s := e.Status; s.State != edsv1.StateCanary || s.Desired != 3 || s.Current != 3 || s.Available != 3 {
		t.Errorf("during the canary: %s", statusOf(e))
	}
	for name, want := range map[string]edsv1.ExtendedDaemonSetReplicaSetStatus{
		v1: {Status: edsv1.ReplicaSetActive, Desired: 2, Current: 2, Ready: 2, Available: 2},
		v2: {Status: edsv1.ReplicaSetCanary, Desired: 1, Current: 1, Ready: 1, Available: 1},
	} {
		d.stands(t, name, want)
	}
	tried := d.podOn(t, "foo", node)
	if tried.Labels[edsv1.LabelReplicaSetCanary] != edsv1.True {
		t.Errorf("the canary's pod has labels %v", tried.Labels)
	}
	for name, want := range map[string]string{"eds": "Canary", "ers": "canary"} {
		if out, err := kubectl(t.Context(), "get", name, "-n", d.namespace); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl get %s: %v\n%s", name, err, out)
		}
	}

	e = d.settled(t, "foo")
	if e.Status.ActiveReplicaSet != v2 {
		t.Errorf("%s is active, want the canary's %s", e.Status.ActiveReplicaSet, v2)
	}
	if uid := d.uids(t, "foo")[node]; uid != tried.UID {
		t.Errorf("the canary's pod was replaced after the canary: it was %s and is %s", tried.UID, uid)
	}
	for _, p := range d.pods(t, "foo") {
		if _, ok := p.Labels[edsv1.LabelReplicaSetCanary]; ok {
			t.Errorf("pod %s still has the canary's label", p.Name)
		}
		for key, want := range map[string]string{edsv1.LabelName: "foo", edsv1.LabelReplicaSetName: v2} {
			if p.Labels[key] != want {
				t.Errorf("pod %s has label %s=%s, want %s", p.Name, key, p.Labels[key], want)
			}
		}
		if hash := d.revision(t, v2).Annotations[edsv1.AnnotationTemplateHash]; hash == "" || p.Annotations[edsv1.AnnotationTemplateHash] != hash {
			t.Errorf("pod %s has hash %q, its revision %q", p.Name, p.Annotations[edsv1.AnnotationTemplateHash], hash)
		}
	}
	if e.Generation != generation+1 {
		t.Errorf("the spec was written %d times, want once", e.Generation-generation)
	}

	all := d.history(t)
	if diff := cmp.Diff([]edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateRunning}, states(all, "foo")); diff != "" {
		t.Errorf("states (-want +got)\n%s", diff)
	}
	promoted := whenActive(all, "foo", v2)
	if after := promoted.at.Sub(saysReadySince(all, tried.UID)); after < 30*time.Second {
		t.Errorf("the canary was promoted %s after its pod was ready, want 30s", after)
	}
	for _, c := range creations(all, "foo") {
		if p := c.object; c.revision > since && p.GetUID() != tried.UID && c.revision < promoted.revision {
			t.Errorf("pod %s was made before the promotion", p.GetName())
		}
	}
	if before[node] == tried.UID {
		t.Errorf("the canary's pod on %s was there before", node)
	}
	if down := d.mostDown(t, since, of("foo")); down > 2 && !d.faltered(t, began) {
		t.Errorf("%d nodes were without a pod at once, want at most 2", down)
	}
	d.onePerNode(t, "foo")
	// The revision before stays, without pods, for a rollback.
	d.stands(t, v1, edsv1.ExtendedDaemonSetReplicaSetStatus{Status: edsv1.ReplicaSetUnknown})
	if err := d.Get(t.Context(), client.ObjectKeyFromObject(tried), tried); err != nil || tried.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the canary's pod: %v, %+v", err, tried.Status.ContainerStatuses)
	}
}
