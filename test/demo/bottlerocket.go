// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/cluster"
)

const (
	oldRelease = "1.19.5"
	newRelease = "1.20.0"
)

// bootID shows the agent the boot id that a machine shows, which is not that of the kernel that pods see.
const bootID = `patches:
- target: {kind: DaemonSet, name: moult-agent-update-api}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --boot-id-file=/.demo/boot_id}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: demo-boot-id, mountPath: /.demo/boot_id, readOnly: true}}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: demo-boot-id, hostPath: {path: /proc/sys/kernel/random/boot_id, type: File}}}
`

// showHosts lets machines that look like Bottlerocket hosts bring themselves to a release.
func showHosts(ctx context.Context, d *demo) {
	d.needMachines()
	d.build(ctx, "./test/bottlerocket/double")
	files := filepath.Join(d.dir, "host")
	d.try(func() error {
		return bottlerocket.Program(d.program("double")).WriteFiles(files, bottlerocket.Options{
			Interface: v1alpha1.InterfaceUpdateAPI, Version: oldRelease, Releases: bottlerocket.Releases(newRelease),
		})
	})
	d.start(ctx, cluster.StartDetached, cluster.Options{Machines: d.machines, MachineFiles: files})
	machines := d.machineNames()
	d.labelMachines(ctx)
	d.deployWorkload(ctx)
	d.hostsRun(ctx, oldRelease)
	w := d.watch(ctx, replicas)
	d.install(ctx, bootID)

	d.step("Applying examples/noderollout-bottlerocket.yaml, which labels the hosts and takes one at a time to release %s", newRelease)
	d.kubectl(ctx, "", "apply", "--server-side", "-f", filepath.Join(d.root, "examples", "noderollout-bottlerocket.yaml"))
	// A rollout without hosts looks complete, and so does one whose last host is not labelled yet.
	until(ctx, d, &v1alpha1.NodeRollout{}, "", "bottlerocket", func(r *v1alpha1.NodeRollout) bool {
		return r.Status.Counts != nil && int(r.Status.Counts.Total) == d.machines
	})
	d.try(func() error { return d.follow(ctx, namespace) })
	d.hostsRun(ctx, newRelease)
	d.try(func() error { return w.tell(ctx, d, 1, false, machines...) })
	for _, name := range machines {
		d.try(func() error {
			if n := w.bootsOf(name) - 1; n != 1 {
				return fmt.Errorf("%s has rebooted %d times", name, n)
			}
			return nil
		})
	}
	d.show(ctx, "get", "nodes", "-L", "bottlerocket.aws/updater-interface-version")
	d.complete(fmt.Sprintf("%d hosts run %s, and have rebooted once, one after the other", d.machines, newRelease), afterHosts)
}

// afterHosts says what to try.
const afterHosts = `
  kubectl describe noderollout bottlerocket
  kubectl moult status -n system-upgrade -o wide
  kubectl moult why machine-1
  kubectl logs -n system-upgrade -l app.kubernetes.io/name=moult-agent --prefix
  make get-nodes-status KUBECONFIG=$KUBECONFIG
`

// hostsRun shows the releases that the machines run, and fails unless each runs this one, and its Node says so.
func (d *demo) hostsRun(ctx context.Context, release string) {
	want := fmt.Sprintf("Bottlerocket OS %s (%s)", release, bottlerocket.Variant)
	for _, name := range d.machineNames() {
		d.try(func() error {
			m, n := d.cluster.Machine(name), &corev1.Node{}
			is, err := bottlerocket.Open(m).OSRelease(ctx, "PRETTY_NAME")
			if err != nil {
				return err
			}
			fmt.Fprintf(d, "%s runs %s, in boot %.8s\n", name, is, m.BootID())
			if err := d.client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
				return err
			}
			if told := n.Status.NodeInfo; is != want || told.OSImage != want || told.BootID != m.BootID() {
				return fmt.Errorf("%s runs %q and its Node tells of %q in boot %s, want %q", name, is, told.OSImage, told.BootID, want)
			}
			return nil
		})
	}
}
