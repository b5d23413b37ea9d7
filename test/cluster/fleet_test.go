// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"moult.dev/moult/test/cluster"
)

// testFleet adds machines to a cluster that runs, and takes them away again.
func testFleet(t *testing.T, c *cluster.Cluster, client kubernetes.Interface, first *cluster.Machine) {
	before := traces(t, c)
	added := addMachines(t, c,
		cluster.MachineOptions{
			Name: "pool-a", Zone: "zone-x", ProviderID: "test:///pool/a", OSImage: "image-7", Labels: map[string]string{"test.moult.dev/pool": "p"},
		},
		cluster.MachineOptions{Name: "pool-b", NotReady: true},
	)
	a, b := added[0], added[1]

	n := getNode(t, client, a.Name())
	want := []string{"test:///pool/a", "zone-x", "image-7", "p", a.IP()}
	got := []string{
		n.Spec.ProviderID, n.Labels[corev1.LabelTopologyZone], n.Status.NodeInfo.OSImage, n.Labels["test.moult.dev/pool"], n.Status.Addresses[0].Address,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the added node (-want +got):\n%s", diff)
	}
	for _, o := range []cluster.MachineOptions{{Name: a.Name()}, {Name: first.Name()}, {}, {Name: "../x"}} {
		if _, err := c.AddMachine(t.Context(), o); err == nil {
			t.Errorf("a machine was added as %q", o.Name)
		}
	}
	if err := first.Remove(t.Context()); err == nil {
		t.Error("a machine was removed that the cluster was started with")
	}
	// Pods of both see each other, as does whoever boots later.
	reach(t, client, a, first)
	reach(t, client, first, a)
	if err := a.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	reach(t, client, a, first)
	expect(t, time.Minute, "the node of the other one", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Nodes().Get(ctx, b.Name(), metav1.GetOptions{})
		return err == nil, nil
	})
	expectReady(t, client, b.Name(), corev1.ConditionFalse)

	for _, m := range added {
		if err := m.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Remove(t.Context()); err == nil {
			t.Errorf("%s was removed twice", m.Name())
		}
		if c.Machine(m.Name()) != nil {
			t.Errorf("%s is there still", m.Name())
		}
	}
	if err := a.WaitNotReady(t.Context()); err == nil {
		t.Error("what is gone was waited for")
	}
	expect(t, time.Minute, "the node to be silent", func(ctx context.Context) (bool, error) {
		n, err := client.CoreV1().Nodes().Get(ctx, a.Name(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }), nil
	})
	if diff := cmp.Diff(before, traces(t, c)); diff != "" {
		t.Errorf("what the machines leave behind (-before +after):\n%s", diff)
	}
	routes, err := first.Exec(t.Context(), "ip", "route")
	if err != nil || strings.Contains(string(routes), a.IP()) {
		t.Errorf("routes of %s: %v\n%s", first.Name(), err, routes)
	}
	// The name is free again, the address is not used again so soon.
	for _, m := range []*cluster.Machine{a, b} {
		if err := client.CoreV1().Nodes().Delete(t.Context(), m.Name(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	again := addMachines(t, c, cluster.MachineOptions{Name: a.Name()})[0]
	if slices.Contains([]string{a.IP(), b.IP()}, again.IP()) {
		t.Errorf("the address %s is used again", again.IP())
	}
	loadWhileRemoved(t, c, again)
	if err := client.CoreV1().Nodes().Delete(t.Context(), a.Name(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// One that nobody waits for any more does not stay.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.AddMachine(ctx, cluster.MachineOptions{Name: "pool-c"}); err == nil || c.Machine("pool-c") != nil {
		t.Errorf("adding a machine without waiting for it: %v", err)
	}
	if diff := cmp.Diff(before, traces(t, c)); diff != "" {
		t.Errorf("what the machines leave behind (-before +after):\n%s", diff)
	}
}

// loadWhileRemoved gives all machines an image, and reboots and removes one of them that has not taken it yet.
func loadWhileRemoved(t *testing.T, c *cluster.Cluster, m *cluster.Machine) {
	t.Helper()
	path := kubectlImage(t)
	loaded := make(chan error, 1)
	for _, leave := range []func(context.Context) error{m.Reboot, m.Remove} {
		if out, err := m.Exec(t.Context(), "busybox", "killall", "-STOP", "containerd"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		go func() { loaded <- c.LoadImage(t.Context(), path) }()
		select {
		case err := <-loaded:
			t.Fatalf("loading an image where nothing takes it: %v", err)
		case <-time.After(3 * time.Second):
		}
		if err := leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-loaded; err != nil {
			t.Errorf("loading an image: %v", err)
		}
		if c.Machine(m.Name()) == nil {
			return
		}
		images, err := m.Exec(t.Context(), "ctr", "--namespace=k8s.io", "images", "ls", "-q")
		if err != nil || !strings.Contains(string(images), kubectl) {
			t.Errorf("images after a reboot: %v\n%s", err, images)
		}
	}
}

// addMachines adds machines at once.
func addMachines(t *testing.T, c *cluster.Cluster, options ...cluster.MachineOptions) []*cluster.Machine {
	t.Helper()
	all := make([]*cluster.Machine, len(options))
	group, ctx := errgroup.WithContext(t.Context())
	for i, o := range options {
		group.Go(func() (err error) {
			all[i], err = c.AddMachine(ctx, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return all
}

// reach runs a server on one machine, and asks it from another.
func reach(t *testing.T, client kubernetes.Interface, to, from *cluster.Machine) {
	t.Helper()
	name := fmt.Sprintf("serve-%s-%s", to.Name(), to.BootID()[:8])
	server := runOnMachine(t, client, to.Name(), name, nil, cluster.ShellImage, "sh", "-c", "while :; do echo here | nc -l -p 8080; done")
	var address string
	expect(t, time.Minute, "the server to run", func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(server.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "job-name=" + name})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		address = pods.Items[0].Status.PodIP
		return pods.Items[0].Status.Phase == corev1.PodRunning && address != "", nil
	})
	expect(t, time.Minute, to.Name()+"'s pod to be reached from "+from.Name(), func(ctx context.Context) (bool, error) {
		out, err := from.Exec(ctx, "timeout", "2", "busybox", "nc", address, "8080")
		return err == nil && string(out) == "here\n", nil
	})
	now, background := int64(0), metav1.DeletePropagationBackground
	if err := client.BatchV1().Jobs(server.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, PropagationPolicy: &background,
	}); err != nil {
		t.Fatal(err)
	}
}

// traces are what machines of a cluster leave on this one.
func traces(t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir(), "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct{ ID string }
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	var all []string
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if strings.Contains(link.Name, spec.ID) {
			all = append(all, link.Name)
		}
	}
	for _, pattern := range []string{"/machines/*", "/pki/pool*"} {
		paths, err := filepath.Glob(c.Dir() + pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, paths...)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} {
		paths, err := filepath.Glob(pattern + spec.ID + "*")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, paths...)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, c.Dir()) {
			all = append(all, line)
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		command, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && strings.Contains(string(command), filepath.Base(c.Dir())) && strings.Contains(string(command), "pool") {
			all = append(all, entry.Name()+string(command))
		}
	}
	return all
}
