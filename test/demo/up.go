// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/status"
	"moult.dev/moult/test/cluster"
)

const (
	namespace = "system-upgrade"
	// label is what examples/plan.yaml selects nodes by, and controlPlane what its two Plans share them out by.
	label        = "demo-upgrade=enabled"
	controlPlane = "node-role.kubernetes.io/control-plane"
	// podSeconds is how long a Job's pod runs on a simulated node.
	podSeconds = 2
)

// workload is three pods for the machines, of which one may be missing at a time.
//
//go:embed workload.yaml
var workload []byte

// demo is one run.
type demo struct {
	dir             string
	machines, nodes int

	*steps
	cluster *cluster.Cluster
	// root is the checkout's.
	root string
}

func (d *demo) up(ctx context.Context) (err error) {
	d.steps = newSteps(os.Stdout)
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil && d.cluster != nil {
			d.say("What is there is left for you to look at; `%s` removes it. The logs are in %s.", d.removal(), filepath.Join(d.cluster.Dir(), "log"))
		}
	}()
	settle := "Labelling the nodes"
	if d.machines > 0 {
		settle = "Putting version " + versions[0] + " of a daemon on the machines, and a workload with a PodDisruptionBudget"
	}
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Building the programs", d.build},
		{"Starting a cluster of " + d.size(), d.start},
		{"Installing Moult from config/default", d.install},
		{settle, d.settle},
		{"Applying examples/plan.yaml, which brings every node to " + versions[1], d.roll},
	} {
		d.begins(step.title)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return d.prove(ctx)
}

// begin checks what can be known before anything starts, and removes what is left from before.
func (d *demo) begin(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("asking the go command for the module, %w", err)
	}
	d.root = filepath.Dir(strings.TrimSpace(string(out)))
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if why := cluster.CanRunMachines(); d.machines > 0 && why != nil {
		d.say("No real machines here: %v.", why)
		d.machines = 0
	}
	if d.machines == 0 {
		d.say("All nodes are simulated: the rollout is real, but nothing is changed by it. Run as root on Linux for real machines.")
	}
	if there(d.dir) {
		d.begins("Removing the last demo")
		if err := remove(ctx, d.dir); err != nil {
			return err
		}
	}
	return claim(d.dir)
}

func (d *demo) size() string {
	simulated := fmt.Sprintf("%d simulated nodes", d.nodes)
	if d.machines == 0 {
		return simulated
	}
	return fmt.Sprintf("%d real machines and %s", d.machines, simulated)
}

func (d *demo) start(ctx context.Context) (err error) {
	options := cluster.Options{
		Dir: filepath.Join(d.dir, "cluster"), Machines: d.machines, Nodes: d.nodes, PodSeconds: podSeconds, Log: d.details(),
	}
	if d.machines > 0 {
		options.Images = d.images()
	}
	d.cluster, err = cluster.StartDetached(ctx, options)
	return err
}

func (d *demo) install(ctx context.Context) error {
	if err := d.kubectl(ctx, nil, "apply", "--server-side", "-k", filepath.Join(d.root, "config", "default")); err != nil {
		return err
	}
	if d.machines == 0 {
		return d.runOutside(ctx)
	}
	return d.kubectl(ctx, nil, "rollout", "status", "deployment/moult", "-n", namespace, "--timeout=2m")
}

// settle makes what is there before the rollout.
func (d *demo) settle(ctx context.Context) error {
	if err := d.kubectl(ctx, nil, "label", "node", "--all", label); err != nil {
		return err
	}
	if d.machines == 0 {
		return d.kubectl(ctx, nil, "label", "node", cluster.SimulatedNode+"0001", controlPlane+"=")
	}
	for _, m := range d.cluster.Machines() {
		if err := d.kubectl(ctx, nil, "label", "node", m.Name(), "moult.dev/demo=machine"); err != nil {
			return err
		}
	}
	if err := d.kubectl(ctx, workload, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	if err := d.installVersion(ctx, versions[0]); err != nil {
		return err
	}
	if err := d.kubectl(ctx, nil, "rollout", "status", "deployment/web", "--timeout=2m"); err != nil {
		return err
	}
	d.say("")
	return d.show()
}

// roll carries out the Plans, and shows it.
func (d *demo) roll(ctx context.Context) error {
	if err := d.kubectl(ctx, nil, "apply", "--server-side", "-f", filepath.Join(d.root, "examples", "plan.yaml")); err != nil {
		return err
	}
	d.say("")
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return status.Follow(ctx, clock.RealClock{}, streams, d.cluster.Config(), namespace)
}

// prove shows that the machines have changed, and says what to try next.
func (d *demo) prove(ctx context.Context) error {
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
	d.say(next, d.cluster.Kubeconfig(), d.bin(""), logs, versions[2], d.removal())
	return nil
}

// removal is the command that removes the demo.
func (d *demo) removal() string {
	if d.dir == stateDir() {
		return "make demo-down"
	}
	return "make demo-down DIR=" + d.dir
}

// next says what to try.
const next = `
The cluster is yours now:

  export KUBECONFIG=%s PATH=%s:$PATH

  kubectl get plans -n system-upgrade -o wide
  kubectl get events -n system-upgrade
  kubectl moult status -n system-upgrade -o wide%s

Bring the nodes to another version, and watch:

  kubectl patch plan demo-agents -n system-upgrade --type merge -p '{"spec":{"version":"%s"}}'
  kubectl moult status -n system-upgrade --watch

Remove it all: %s`
