// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

// The versions of the demo's daemon: see test/demo/upgrade.
const (
	oldVersion    = "v1.0.0"
	newVersion    = "v1.1.0" // as examples/plan.yaml has it
	latestVersion = "v1.2.0"

	upgradeImage = "moult.dev/demo-upgrade"
)

// showPlans carries out the Plans of examples/plan.yaml.
func showPlans(ctx context.Context, d *demo) {
	d.preferMachines(12)
	d.build(ctx, "./test/demo/upgrade")
	options := cluster.Options{Machines: d.machines, Nodes: d.nodes, MachineFiles: filepath.Join(d.dir, "machine")}
	d.try(func() error { return d.writeMachineFiles(options.MachineFiles) })
	d.start(ctx, cluster.StartDetached, options, d.version(upgradeImage, newVersion, "upgrade"), d.version(upgradeImage, latestVersion, "upgrade"))
	if d.machines == 0 {
		d.install(ctx, withoutOperator)
		d.runOperator()
		d.kubectl(ctx, "", "label", "node", cluster.SimulatedNode+"0001", "node-role.kubernetes.io/control-plane=")
	} else {
		d.install(ctx, "")
		d.labelMachines(ctx)
		d.deployWorkload(ctx)
		d.rolledOut(ctx, "deployment/moult", "-n", operators)
		d.machinesRun(ctx, oldVersion)
	}
	w := d.watch(ctx, replicas)

	d.step("Applying examples/plan.yaml, which brings every node to %s", newVersion)
	d.kubectl(ctx, "", "label", "node", "--all", "demo-upgrade=enabled")
	d.kubectl(ctx, "", "apply", "--server-side", "-f", filepath.Join(d.root, "examples", "plan.yaml"))
	d.try(func() error { return d.follow(ctx, namespace) })
	d.machinesRun(ctx, newVersion)
	if d.machines > 0 { // Simulated nodes cordon and drain nothing. The two Plans together take one node of the control plane and four others.
		d.try(func() error { return w.tell(ctx, d, 5, false, d.machineNames()...) })
	}
	d.complete(fmt.Sprintf("%d nodes have version %s", d.machines+d.nodes, newVersion), afterPlans)
}

// afterPlans says what to try.
const afterPlans = `
  kubectl get plans -n system-upgrade -o wide
  kubectl get events -n system-upgrade
  kubectl moult status -n system-upgrade -o wide
  kubectl logs -n system-upgrade -l upgrade.cattle.io/plan=demo-agents --all-containers

Bring the nodes to another version, and watch:

  kubectl patch plan demo-agents -n system-upgrade --type merge -p '{"spec":{"version":"` + latestVersion + `"}}'
  kubectl moult status -n system-upgrade --watch
`

func programOf(version string) string { return "/opt/demo/" + version + "/demo-daemon" }

// version is an image of the daemon in a version.
func (d *demo) version(repository, version string, command ...string) image.Spec {
	return image.Spec{
		Tags: []string{repository + ":" + version}, Entrypoint: []string{programOf(version)}, Cmd: command,
		Files: map[string]image.File{programOf(version): {Source: d.program("upgrade")}},
	}
}

// writeMachineFiles makes a folder of what machines have on their disks: the daemon in the old version, as a service.
func (d *demo) writeMachineFiles(folder string) error {
	program, err := os.ReadFile(d.program("upgrade"))
	return errors.Join(err,
		os.MkdirAll(filepath.Join(folder, filepath.Dir(programOf(oldVersion))), 0o755),
		os.MkdirAll(filepath.Join(folder, cluster.ServiceDir), 0o755),
		os.WriteFile(filepath.Join(folder, programOf(oldVersion)), program, 0o755),
		os.Symlink(oldVersion, filepath.Join(folder, "opt/demo/current")),
		os.Symlink("/opt/demo/current/demo-daemon", filepath.Join(folder, cluster.ServiceDir, "demo-daemon")),
	)
}

func (d *demo) machineNames() (names []string) {
	if d.err == nil {
		for _, m := range d.cluster.Machines() {
			names = append(names, m.Name())
		}
	}
	return names
}

// labelMachines labels the machines as the workload wants it.
func (d *demo) labelMachines(ctx context.Context) {
	d.kubectl(ctx, "", append(append([]string{"label", "node"}, d.machineNames()...), "moult.dev/demo=machine")...)
}

// running lists the daemons among the processes of a machine and of its containers, each with its number.
const running = `for p in /proc/[0-9]*; do case $(readlink $p/exe) in /opt/demo/*) echo ${p#/proc/} $(readlink $p/exe); esac; done; true`

// machinesRun shows which daemons run on the machines, and fails unless on each machine just one does, in this version.
func (d *demo) machinesRun(ctx context.Context, version string) {
	for _, name := range d.machineNames() {
		d.try(func() error {
			out, err := d.cluster.Machine(name).Exec(ctx, "/bin/sh", "-c", running)
			fmt.Fprintf(d, "%s runs process %s", name, out)
			if fields := strings.Fields(string(out)); err == nil && (len(fields) != 2 || fields[1] != programOf(version)) {
				err = fmt.Errorf("%s runs %q, want %s", name, out, programOf(version))
			}
			return err
		})
	}
}
