// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/cluster"
)

// planDemo carries out the Plans of examples/plan.yaml.
type planDemo struct{ *demo }

// versions of the demo: what is there at first, what examples/plan.yaml brings, and one to try.
var versions = []string{"v1.0.0", "v1.1.0", "v1.2.0"}

const (
	// upgradeImage is what examples/plan.yaml names.
	upgradeImage = "moult.dev/demo-upgrade"
	// label is what examples/plan.yaml selects nodes by, and controlPlane what its two Plans share them out by.
	label        = "demo-upgrade=enabled"
	controlPlane = "node-role.kubernetes.io/control-plane"
)

func (d *planDemo) fit() error {
	if d.nodes < 0 {
		d.nodes = 20
	}
	if why := cluster.CanRunMachines(); d.machines > 0 && why != nil {
		d.say("No real machines here: %v.", why)
		d.machines = 0
	}
	if d.machines == 0 {
		d.say("All nodes are simulated: the rollout is real, but nothing is changed by it. Run as root on Linux for real machines.")
	}
	return nil
}

func (d *planDemo) steps() []step {
	settle := "Labelling the nodes"
	if d.machines > 0 {
		settle = "Putting version " + versions[0] + " of a daemon on the machines, and a workload with a PodDisruptionBudget"
	}
	return []step{
		{"Building the programs", d.build},
		{"Starting a cluster of " + d.size(), d.start},
		{"Installing Moult from config/default", d.install},
		{settle, d.settle},
		{"Applying examples/plan.yaml, which brings every node to " + versions[1], d.roll},
	}
}

func (d *planDemo) build(ctx context.Context) error {
	if err := d.buildPrograms(ctx, program{daemon, "./test/demo/upgrade"}); err != nil {
		return err
	}
	if d.machines == 0 {
		return nil
	}
	if err := d.buildOperator(ctx); err != nil {
		return err
	}
	for _, v := range versions[1:] {
		if err := image.Build(ctx, d.version(v), d.archive(v)); err != nil {
			return err
		}
	}
	return nil
}

// version is the image that brings a machine to this version. The workload is made of it too.
func (d *planDemo) version(v string) image.Spec {
	spec := d.daemonImage(upgradeImage+":"+v, v)
	if v == versions[1] {
		spec.Tags = append(spec.Tags, workloadImage)
	}
	return spec
}

func (d *planDemo) start(ctx context.Context) error {
	return d.demo.start(ctx, "", d.archive("moult"), d.archive("moult-agent"), d.archive(versions[1]), d.archive(versions[2]))
}

func (d *planDemo) install(ctx context.Context) error {
	if err := d.demo.install(ctx, filepath.Join(d.root, "config", "default")); err != nil {
		return err
	}
	// No node here is a host that updates itself, and the view is to show the Plans alone.
	if err := d.kubectl(ctx, nil, "delete", "noderollout", rolloutName); err != nil {
		return err
	}
	if d.machines == 0 {
		return d.runOutside(ctx)
	}
	return d.untilOperating(ctx)
}

// settle makes what is there before the rollout.
func (d *planDemo) settle(ctx context.Context) error {
	if err := d.kubectl(ctx, nil, "label", "node", "--all", label); err != nil {
		return err
	}
	if d.machines == 0 {
		return d.kubectl(ctx, nil, "label", "node", cluster.SimulatedNode+"0001", controlPlane+"=")
	}
	if err := d.deployWorkload(ctx); err != nil {
		return err
	}
	if err := d.installVersion(ctx, versions[0]); err != nil {
		return err
	}
	if err := d.untilServing(ctx); err != nil {
		return err
	}
	d.say("")
	return d.show()
}

// roll carries out the Plans, and shows it.
func (d *planDemo) roll(ctx context.Context) error {
	if err := d.kubectl(ctx, nil, "apply", "--server-side", "-f", filepath.Join(d.root, "examples", "plan.yaml")); err != nil {
		return err
	}
	return d.follow(ctx)
}

func (d *planDemo) prove(ctx context.Context) error {
	d.say("")
	if d.machines > 0 {
		if err := d.show(); err != nil {
			return err
		}
		if err := d.check(ctx, versions[1]); err != nil {
			return err
		}
		d.say("")
	}
	d.begins(fmt.Sprintf("Complete: %d nodes have version %s", d.machines+d.nodes, versions[1]))
	logs := ""
	if d.machines > 1 {
		logs = "\n  kubectl logs -n system-upgrade -l upgrade.cattle.io/node=machine-2 --all-containers"
	}
	d.say(afterPlan, d.cluster.Kubeconfig(), d.bin(""), logs, versions[2], d.removal())
	return nil
}

// afterPlan says what to try.
const afterPlan = `
The cluster is yours now:

  export KUBECONFIG=%s PATH=%s:$PATH

  kubectl get plans -n system-upgrade -o wide
  kubectl get events -n system-upgrade
  kubectl moult status -n system-upgrade -o wide%s

Bring the nodes to another version, and watch:

  kubectl patch plan demo-agents -n system-upgrade --type merge -p '{"spec":{"version":"%s"}}'
  kubectl moult status -n system-upgrade --watch

Remove it all: %s`
