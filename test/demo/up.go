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
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/status"
	"moult.dev/moult/test/cluster"
)

const (
	namespace = "system-upgrade"
	// podSeconds is how long a Job's pod runs on a simulated node.
	podSeconds = 2
)

// workload is three pods for the machines, of which one may be missing at a time.
//
//go:embed workload.yaml
var workload []byte

// demo is one run, of whatever kind.
type demo struct {
	dir, name       string
	machines, nodes int

	*narrator
	cluster *cluster.Cluster
	// root is the checkout's.
	root string
}

func (d *demo) up(ctx context.Context, k kind) (err error) {
	d.narrator = newNarrator(os.Stdout)
	if err := k.fit(); err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if p, ok := k.(passing); ok {
			err = p.end(context.WithoutCancel(ctx), err)
		} else if err != nil && d.cluster != nil {
			d.say("What is there is left for you to look at; `%s` removes it. The logs are in %s.", d.removal(), filepath.Join(d.cluster.Dir(), "log"))
		}
	}()
	for _, s := range k.steps() {
		d.begins(s.title)
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return k.prove(ctx)
}

// begin finds out where things are, and removes what is left from before.
func (d *demo) begin(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("asking the go command for the module, %w", err)
	}
	d.root = filepath.Dir(strings.TrimSpace(string(out)))
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
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
	machines, simulated := fmt.Sprintf("%d real machines", d.machines), fmt.Sprintf("%d simulated nodes", d.nodes)
	switch {
	case d.machines == 0:
		return simulated
	case d.nodes == 0:
		return machines
	default:
		return machines + " and " + simulated
	}
}

// start starts the cluster, with these images on its machines, and with the files of a folder, if that is not "".
func (d *demo) start(ctx context.Context, files string, images ...string) (err error) {
	options := cluster.Options{
		Dir: filepath.Join(d.dir, "cluster"), Machines: d.machines, Nodes: d.nodes, PodSeconds: podSeconds, Log: d.details(),
	}
	if d.machines > 0 {
		options.Images, options.MachineFiles = images, files
	}
	d.cluster, err = cluster.StartDetached(ctx, options)
	return err
}

// install applies a folder of manifests, after the definitions of the kinds that are in it, which are known a moment later.
func (d *demo) install(ctx context.Context, folder string) error {
	if err := d.kubectl(ctx, nil, "apply", "--server-side", "-k", filepath.Join(d.root, "config", "crd")); err != nil {
		return err
	}
	var err error
	_ = wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		err = d.kubectl(ctx, nil, "apply", "--server-side", "-k", folder)
		return err == nil, nil
	})
	return err
}

// untilOperating returns when the operator's pod is ready.
func (d *demo) untilOperating(ctx context.Context) error {
	return d.kubectl(ctx, nil, "rollout", "status", "deployment/moult", "-n", namespace, "--timeout=2m")
}

// deployWorkload puts a workload on the machines, and returns when it is available.
func (d *demo) deployWorkload(ctx context.Context) error {
	for _, m := range d.cluster.Machines() {
		if err := d.kubectl(ctx, nil, "label", "node", m.Name(), "moult.dev/demo=machine"); err != nil {
			return err
		}
	}
	return d.kubectl(ctx, workload, "apply", "--server-side", "-f", "-")
}

// untilServing returns when the workload is available.
func (d *demo) untilServing(ctx context.Context) error {
	return d.kubectl(ctx, nil, "rollout", "status", "deployment/web", "--timeout=2m")
}

// follow shows all rollouts until they are complete.
func (d *demo) follow(ctx context.Context) error {
	d.say("")
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return status.Follow(ctx, clock.RealClock{}, streams, d.cluster.Config(), namespace)
}

// removal is the command that removes the demo.
func (d *demo) removal() string {
	if d.dir == stateDir() {
		return "make demo-down"
	}
	return "make demo-down DIR=" + d.dir
}
