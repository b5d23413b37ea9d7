// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/bottlerocket"
	"moult.dev/moult/test/cluster"
)

// bottlerocketDemo lets machines that look like hosts of Bottlerocket bring themselves to a release.
type bottlerocketDemo struct {
	*demo
	before  map[string]hostState
	witness *witness
}

const (
	oldRelease = "1.19.5"
	newRelease = "1.20.0"
	// rolloutName is that of the NodeRollout in the shipped manifests.
	rolloutName = "bottlerocket"
)

func (d *bottlerocketDemo) fit() error {
	d.nodes = max(d.nodes, 0)
	if err := cluster.CanRunMachines(); err != nil {
		return fmt.Errorf("this demo reboots real machines, and there can be none here: run it as root on Linux (%w)", err)
	}
	if d.machines < 1 {
		return errors.New("this demo reboots real machines: --machines must be 1 or more")
	}
	return nil
}

func (d *bottlerocketDemo) steps() []step {
	return []step{
		{"Building the programs", d.build},
		{fmt.Sprintf("Starting a cluster of %s, which are hosts of Bottlerocket %s, or look so", d.size(), oldRelease), d.start},
		{"Putting a workload with a PodDisruptionBudget on them", d.settle},
		{"Installing Moult from config/default, which labels the hosts by itself", d.install},
		{fmt.Sprintf("There is a release %s: the NodeRollout that is installed takes one host at a time to it", newRelease), d.roll},
	}
}

func (d *bottlerocketDemo) build(ctx context.Context) error {
	if err := d.buildPrograms(ctx, program{daemon, "./test/demo/upgrade"}); err != nil {
		return err
	}
	if err := d.buildOperator(ctx); err != nil {
		return err
	}
	if err := image.Build(ctx, d.daemonImage(workloadImage, "v1.0.0"), d.archive("web")); err != nil {
		return err
	}
	double, err := bottlerocket.Build(ctx, d.bin(""))
	if err != nil {
		return err
	}
	return double.WriteFiles(d.hostFiles(), bottlerocket.Options{
		Interface: v1alpha1.InterfaceUpdateAPI, Version: oldRelease, Releases: bottlerocket.Releases(newRelease),
	})
}

// hostFiles is a folder of what machines have on their disks, so that they are hosts from their first boot on.
func (d *bottlerocketDemo) hostFiles() string { return filepath.Join(d.dir, "host") }

func (d *bottlerocketDemo) start(ctx context.Context) error {
	return d.demo.start(ctx, d.hostFiles(), d.archive("moult"), d.archive("moult-agent"), d.archive("web"))
}

// settle makes what is there before Moult.
func (d *bottlerocketDemo) settle(ctx context.Context) error {
	if err := d.deployWorkload(ctx); err != nil {
		return err
	}
	if err := d.untilServing(ctx); err != nil {
		return err
	}
	var err error
	d.before, err = d.look(ctx)
	return err
}

// install returns when Moult's rollout knows of a host.
func (d *bottlerocketDemo) install(ctx context.Context) (err error) {
	if d.witness, err = d.watch(ctx); err != nil {
		return err
	}
	folder, err := d.manifests()
	if err != nil {
		return err
	}
	if err := d.demo.install(ctx, folder); err != nil {
		return err
	}
	if err := d.untilOperating(ctx); err != nil {
		return err
	}
	// What has no hosts yet looks complete.
	return d.until(ctx, func(counts v1alpha1.UnitCounts) bool { return counts.Total > 0 })
}

// until returns when the counts of the rollout are so.
func (d *bottlerocketDemo) until(ctx context.Context, so func(v1alpha1.UnitCounts) bool) error {
	return d.untilRollout(ctx, rolloutName, func(s *v1alpha1.NodeRolloutStatus) bool { return s.Counts != nil && so(*s.Counts) })
}

// manifests makes a folder of the shipped manifests, changed in one thing: a machine of the demo is a container, and what it
// shows as its boot id can't be seen from a pod in it, unless it is mounted.
func (d *bottlerocketDemo) manifests() (string, error) {
	folder := filepath.Join(d.dir, "manifests")
	shipped, err := filepath.Rel(folder, filepath.Join(d.root, "config", "default"))
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(kustomization, shipped)
	return folder, errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644))
}

const kustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
patches:
- target: {kind: DaemonSet, name: moult-agent-update-api}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --boot-id-file=/.demo/boot_id}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: demo-boot-id, mountPath: /.demo/boot_id, readOnly: true}}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: demo-boot-id, hostPath: {path: /proc/sys/kernel/random/boot_id, type: File}}}
`

// roll shows what happens by itself.
func (d *bottlerocketDemo) roll(ctx context.Context) error {
	for {
		if err := d.follow(ctx); err != nil {
			return err
		}
		// It ends when all hosts that are labelled are updated, and the last one may be labelled after that.
		var now v1alpha1.UnitCounts
		err := d.until(ctx, func(counts v1alpha1.UnitCounts) bool {
			now = counts
			return int(counts.Total) == d.machines
		})
		if err != nil {
			return err
		}
		if now.Updated == now.Total {
			return d.witness.stop()
		}
	}
}

func (d *bottlerocketDemo) prove(ctx context.Context) error {
	after, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.say("")
	if err := d.compare(after); err != nil {
		return err
	}
	if err := d.witness.tell(d.details(), d.machines); err != nil {
		return err
	}
	status, err := nodesStatus(ctx, d.cluster.Config())
	if err != nil {
		return err
	}
	d.say("\nThe README of the Bottlerocket update operator asks for the state of nodes so:\n\n  %s\n\n%s\n", nodesStatusCommand, status)
	d.begins(fmt.Sprintf("Complete: %d hosts run %s, and have booted once, one after the other", d.machines, newRelease))
	d.say(afterBottlerocket, d.cluster.Kubeconfig(), d.bin(""), d.removal())
	return nil
}

// afterBottlerocket says what to try.
const afterBottlerocket = `
The cluster is yours now:

  export KUBECONFIG=%s PATH=%s:$PATH

  kubectl get noderollouts
  kubectl describe noderollout bottlerocket
  kubectl moult status -n system-upgrade -o wide
  kubectl moult why machine-1
  kubectl logs -n system-upgrade -l app.kubernetes.io/name=moult-agent --prefix

Remove it all: %s`
