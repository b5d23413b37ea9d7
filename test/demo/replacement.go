// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/cluster"
)

// workersRollout is the NodeRollout workers of the scale set demo-workers.
//
//go:embed replacement.yaml
var workersRollout string

const (
	workersSet = "demo-workers"
	oldImage   = "flatcar-stable-1.37.1-v1-0badc0de"
	newImage   = "flatcar-stable-1.37.1-v2-0badcafe"
)

// showReplacement gives a scale set another image, and lets its machines be replaced. The cloud is simulated in this process: with it all ends.
func showReplacement(ctx context.Context, d *demo) {
	d.preferMachines(0)
	capacity, options := d.machines, cluster.Options{Machines: 1, Nodes: d.nodes} // One machine is there for others to be added, and is in no scale set.
	if d.machines == 0 {
		capacity, options = max(d.nodes, 3), cluster.Options{}
	}
	d.build(ctx)
	d.start(ctx, cluster.Start, options)
	if d.err != nil {
		return
	}
	hosts := clouds.SimulatedHosts(d.cluster)
	if d.machines > 0 {
		hosts = clouds.MachineHosts(d.cluster)
	}
	life, end := context.WithCancel(ctx)
	cloud := clouds.New(life, clouds.Options{Hosts: hosts, CreateTime: time.Second, DeleteTime: time.Second, Identify: azure.Identify})
	server := httptest.NewServer(azure.Handler(cloud))
	defer func() {
		d.step("Removing the cluster and the cloud")
		end()
		server.Close()
		d.err = errors.Join(d.err, d.cluster.Stop())
		stopOperator(d.dir)
		d.try(func() error { return remove(context.WithoutCancel(ctx), d.dir) })
	}()
	d.step("Starting a cloud: Azure's API in this process, and a scale set of %d machines that are made of %s", capacity, oldImage)
	d.try(func() error {
		return cloud.Create(ctx, clouds.Set{
			Name: workersSet, Image: oldImage, Capacity: capacity,
			Zones: []string{azure.Location + "-1", azure.Location + "-2", azure.Location + "-3"}, Labels: map[string]string{"moult.dev/demo": "machine"},
		})
	})
	original := map[string]bool{}
	var names []string
	for _, m := range cloud.Machines(workersSet) {
		original[m.NodeName], names = true, append(names, m.NodeName)
	}
	d.install(ctx, withoutOperator)
	d.runOperator(azure.Env(server.URL)...)
	d.deployWorkload(ctx)

	d.step("Creating a NodeRollout of the scale set, which has nothing to do yet")
	d.kubectl(ctx, workersRollout, "apply", "--server-side", "-f", "-")
	isIdle := func(r *v1alpha1.NodeRollout) bool {
		s := &r.Status
		return s.Counts != nil && int(s.Counts.Updated) == capacity && len(s.ScaleSets) == 1 && len(s.Turns) == 0
	}
	until(ctx, d, &v1alpha1.NodeRollout{}, "", "workers", isIdle)
	w := d.watch(ctx, replicas)

	d.step("Setting the scale set's image. No machine is touched by that")
	d.setImage(ctx, azure.Env(server.URL))
	until(ctx, d, &v1alpha1.NodeRollout{}, "", "workers", func(r *v1alpha1.NodeRollout) bool {
		return len(r.Status.ScaleSets) == 1 && r.Status.ScaleSets[0].Outdated > 0
	})
	d.step("Moult replaces one machine at a time: another one joins, the old one is drained, and is deleted")
	d.try(func() error { return d.follow(ctx, namespace) })
	until(ctx, d, &v1alpha1.NodeRollout{}, "", "workers", isIdle)
	d.try(func() error { return w.tell(ctx, d, 1, true, names...) })
	d.try(func() error { return d.areReplaced(ctx, cloud, original) })
	d.complete(fmt.Sprintf("%d machines were replaced, each once and one after the other", capacity), "")
}

// setImage does what a person would do.
func (d *demo) setImage(ctx context.Context, environment []string) {
	d.try(func() error {
		args := []string{"set-image", "-imageid", newImage, "--scale-set", workersSet}
		cmd := exec.CommandContext(ctx, d.program("moult"), args...)
		cmd.Env = append([]string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH")}, environment...)
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(d, "$ moult %s\n%s", strings.Join(args, " "), out)
		return err
	})
}

// areReplaced fails unless the scale set consists of as many other machines, of the new image and with nodes that are ready and free, and kept its
// capacity.
func (d *demo) areReplaced(ctx context.Context, cloud *clouds.World, original map[string]bool) error {
	nodes := &corev1.NodeList{}
	if err := d.client.List(ctx, nodes, client.MatchingLabels{"moult.dev/demo": "machine"}); err != nil {
		return err
	}
	fit := map[string]bool{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		fit[n.Name] = n.Status.NodeInfo.OSImage == newImage && isReady(n) && !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationClaims] == ""
	}
	machines := cloud.Machines(workersSet)
	for _, m := range machines {
		fmt.Fprintf(d, "%s is %s, of image %s\n", m.NodeName, m.State, clouds.ImageName(m.Image))
		runs := d.machines == 0 || d.cluster.Machine(m.NodeName) != nil
		if original[m.NodeName] || clouds.ImageName(m.Image) != newImage || m.State != clouds.Running || !runs || !fit[m.NodeName] {
			return fmt.Errorf("%s is not a new machine of %s, whose node is ready and free", m.NodeName, newImage)
		}
	}
	capacity := len(original)
	if gone := len(cloud.Gone(workersSet)); gone != capacity || len(machines) != capacity || len(fit) != capacity {
		return fmt.Errorf("%d machines were deleted, and there are %d with %d nodes, want %d", gone, len(machines), len(fit), capacity)
	}
	return keepsCapacity(cloud, capacity)
}

// keepsCapacity fails if the scale set was ever smaller than its capacity, or larger by more than one.
func keepsCapacity(cloud *clouds.World, capacity int) error {
	now := capacity
	for _, c := range cloud.Journal() {
		changed, mine := strings.CutPrefix(c.Detail, workersSet+" ")
		switch {
		case !mine || c.Outcome != "":
		case c.Name == "Add":
			now += len(strings.Fields(changed))
		case c.Name == "Delete":
			now -= len(strings.Fields(changed))
		}
		if now < capacity || now > capacity+1 {
			return fmt.Errorf("the scale set had %d machines, want %d, or one more", now, capacity)
		}
	}
	return nil
}
