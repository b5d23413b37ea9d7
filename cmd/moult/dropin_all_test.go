// SPDX-License-Identifier: Apache-2.0

//go:build all

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	double "moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/cluster"
)

// Called as Ducklett's manifest calls it, and as its program that sets images is called, it does what Ducklett is for.
func TestAPIDropInForDucklett(t *testing.T) {
	const older, newer = "conducktor-flatcar-1.30.4-v0.3.0-cc9e4ddc", "conducktor-flatcar-1.31.4-v0.3.1-0badcafe"
	running := cluster.New(t, cluster.Options{}) // The keeper creates its NodeRollouts again when a test deletes them.
	c, err := client.New(running.Config(), client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	world := double.New(ctx, double.Options{
		Hosts: double.SimulatedHosts(running), CreateTime: 200 * time.Millisecond, DeleteTime: 200 * time.Millisecond, Identify: azure.Identify,
	})
	server := httptest.NewServer(azure.Handler(world))
	defer func() { cancel(); server.Close(); world.Wait() }()

	sets := map[string]int{"prod-cp": 0, "prod-agent-pool": 2, "prod-storage-pool": 1, "prod-telemetry-pool": 1}
	for name, capacity := range sets {
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "prod-"), "-")
		if err := world.Create(ctx, double.Set{Name: name, Image: older, Capacity: capacity, Labels: map[string]string{"nodegroup": group}, Tags: map[string]string{"max": "3"}}); err != nil {
			t.Fatal(err)
		}
	}
	const configuration = "# Written by us.\napiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\nkubernetesVersion: v1.30.4\nsomethingNew: {a: b}\n"
	kubeadm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, Data: map[string]string{"ClusterConfiguration": configuration}}
	if err := c.Create(ctx, kubeadm); err != nil {
		t.Fatal(err)
	}

	environment := append(azure.Env(server.URL), "CLUSTER_NAME=prod", "ARM_USE_MANAGED_IDENTITY_EXTENSION=true", "ARM_VM_TYPE=vmss", "KUBECONFIG="+running.Kubeconfig())
	var log bytes.Buffer
	operator := program(ctx, t, environment, "./ducklett", "--check-period=1", "--concurrency=2", "--v=3",
		"--controllers=replacement", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	operator.Stdout, operator.Stderr = &log, &log
	if err := operator.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = operator.Process.Signal(syscall.SIGTERM)
		if err := operator.Wait(); err != nil {
			t.Errorf("the operator ended: %v", err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	}()

	await := func(what string, holds func() (string, bool)) {
		t.Helper()
		last := ""
		if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
			said, ok := holds()
			last = said
			return ok, nil
		}); err != nil {
			t.Fatalf("%s: %v; %s", what, err, last)
		}
	}
	updated := func(image string) (string, bool) {
		nr := &v1alpha1.NodeRollout{}
		if err := c.Get(ctx, types.NamespacedName{Name: rolloutWorkers}, nr); err != nil {
			return err.Error(), false
		}
		var all corev1.NodeList
		if err := c.List(ctx, &all, client.HasLabels{"nodegroup"}); err != nil {
			return err.Error(), false
		}
		var left []string
		for _, n := range all.Items {
			if n.Status.NodeInfo.OSImage != image || n.Spec.Unschedulable || len(n.Spec.Taints) > 0 {
				left = append(left, n.Name)
			}
		}
		n := nr.Status.Counts
		return fmt.Sprintf("%d nodes, left %v, status %+v", len(all.Items), left, nr.Status), len(all.Items) == 4 && len(left) == 0 && n != nil && n.Total == 4 && n.Updated == 4 && len(nr.Status.Turns) == 0
	}
	await("the nodes are what they are to be", func() (string, bool) { return updated(older) })
	originals := map[string][]string{}
	for name := range sets {
		for _, m := range world.Machines(name) {
			originals[name] = append(originals[name], m.ID)
		}
		if gone := world.Gone(name); len(gone) > 0 {
			t.Errorf("machines of %s were replaced for nothing: %v", name, gone)
		}
	}

	out, err := program(ctx, t, environment, "/update-azure-image-tags", "-imageid", newer).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	await("the nodes are replaced", func() (string, bool) { return updated(newer) })
	for name, capacity := range sets {
		set, _ := world.Set(name)
		var gone []string
		for _, m := range world.Gone(name) {
			gone = append(gone, m.ID)
		}
		slices.Sort(gone)
		if diff := cmp.Diff(originals[name], gone); diff != "" || set.Capacity != capacity || double.ImageName(set.Image) != newer || len(world.Machines(name)) != capacity {
			t.Errorf("%s: %+v; machines that are gone (-want +got):\n%s", name, set, diff)
		}
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(kubeadm), kubeadm); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Replace(configuration, "v1.30.4", "v1.31.4", 1), kubeadm.Data["ClusterConfiguration"]); diff != "" {
		t.Errorf("kubeadm-config (-want +got):\n%s", diff)
	}
}
