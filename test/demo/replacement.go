// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/clouds/azure"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// replacementDemo gives a scale set another image, and lets its machines be replaced. The cloud is played in this process: with it all ends.
type replacementDemo struct {
	*demo
	// capacity is how many machines the scale set has.
	capacity int
	log      *muted
	cloud    *playedCloud
	process  *operator.Process
	original []clouds.Machine
	witness  *spectator
}

// replacementRollout is replacement.yaml, the NodeRollout.
//
//go:embed replacement.yaml
var replacementRollout []byte

const (
	// workersRollout and workersSet are what replacement.yaml names.
	workersRollout = "workers"
	workersSet     = "demo-workers"
	oldImage       = "flatcar-stable-1.37.1-v1-0badc0de"
	newImage       = "flatcar-stable-1.37.1-v2-0badcafe"
	// surge is how many machines more there may be at once.
	surge = 1
)

func (d *replacementDemo) fit() error {
	if why := cluster.CanRunMachines(); d.machines > 0 && why != nil {
		d.say("No real machines here: %v.", why)
		d.machines = 0
	}
	if d.machines > 0 {
		d.capacity, d.nodes = d.machines, max(d.nodes, 0)
		return nil
	}
	if d.nodes < 0 {
		d.nodes = 6
	}
	if d.capacity = d.nodes; d.capacity == 0 {
		return errors.New("this demo replaces machines: --machines or --nodes must be 1 or more")
	}
	d.say("All machines are simulated: the rollout is real, but none boots. Run as root on Linux for real machines.")
	return nil
}

func (d *replacementDemo) steps() []step {
	of := "real"
	if d.machines == 0 {
		of = "simulated"
	}
	return []step{
		{"Building the programs", d.build},
		{"Starting a cluster", d.start},
		{fmt.Sprintf("Starting a cloud: Azure's API in this process, and a scale set of %d %s machines that are made of %s", d.capacity, of, oldImage), d.startCloud},
		{"Installing Moult, and putting a workload with a PodDisruptionBudget on the machines", d.install},
		{"Making a NodeRollout of the scale set, which has nothing to do yet", d.create},
		{"Setting the scale set's image. No machine is touched by that", d.setImage},
		{"Moult replaces one machine at a time: another one joins, the old one is drained, and is deleted", d.roll},
	}
}

func (d *replacementDemo) build(ctx context.Context) error {
	if err := d.buildPrograms(ctx, program{daemon, "./test/demo/upgrade"}); err != nil {
		return err
	}
	return image.Build(ctx, d.daemonImage(workloadImage, "v1.0.0"), d.archive("web"))
}

// start starts a cluster that ends with this process. One machine is there for others to be added; it is of no scale set.
func (d *replacementDemo) start(ctx context.Context) (err error) {
	d.log = &muted{out: d.details()}
	options := cluster.Options{Dir: filepath.Join(d.dir, "cluster"), PodSeconds: podSeconds, Log: d.log}
	if d.machines > 0 {
		options.Machines, options.Nodes, options.Images = 1, d.nodes, []string{d.archive("web")}
	}
	d.cluster, err = cluster.Start(ctx, options)
	return err
}

// muted passes on what is written to it until it is muted, so that nothing gets into the view.
type muted struct {
	is  atomic.Bool
	out io.Writer
}

func (m *muted) mute() { m.is.Store(true) }

// Write is io.Writer's.
func (m *muted) Write(p []byte) (int, error) {
	if m.is.Load() {
		return len(p), nil
	}
	return m.out.Write(p)
}

// playedCloud is Azure with one scale set.
type playedCloud struct {
	*clouds.World
	env  []string
	stop func()
}

func (d *replacementDemo) startCloud(ctx context.Context) error {
	hosts := clouds.SimulatedHosts(d.cluster)
	if d.machines > 0 {
		hosts = clouds.MachineHosts(d.cluster)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	world := clouds.New(life, clouds.Options{Hosts: hosts, CreateTime: time.Second, DeleteTime: time.Second, Identify: azure.Identify})
	server := httptest.NewServer(azure.Handler(world))
	d.cloud = &playedCloud{World: world, env: azure.Env(server.URL), stop: func() {
		end()
		server.Close()
		world.Wait()
	}}
	err := world.Create(ctx, clouds.Set{
		Name: workersSet, Image: oldImage, Capacity: d.capacity,
		Zones: []string{azure.Location + "-1", azure.Location + "-2", azure.Location + "-3"}, Labels: map[string]string{"moult.dev/demo": "machine"},
	})
	d.original = world.Machines(workersSet)
	return err
}

// install starts the operator beside the cluster, where it reaches the cloud.
func (d *replacementDemo) install(ctx context.Context) (err error) {
	folder, err := d.manifests()
	if err != nil {
		return err
	}
	if err := d.demo.install(ctx, folder); err != nil {
		return err
	}
	d.process, err = operator.StartWith(d.bin("moult"), d.cluster.Kubeconfig(), d.operatorLog(), d.cloud.env,
		"--image="+image.Operator, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, workload, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	return d.untilServing(ctx)
}

func (d *replacementDemo) operatorLog() string { return filepath.Join(d.dir, "moult.log") }

// manifests makes a folder of the shipped manifests without the NodeRollout of hosts, and without a pod of the operator, as a pod would have no way
// to the cloud.
func (d *replacementDemo) manifests() (string, error) {
	folder := filepath.Join(d.dir, "manifests")
	shipped, err := filepath.Rel(folder, filepath.Join(d.root, "config", "default"))
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(withoutOperator, shipped, rolloutName)
	return folder, errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644))
}

const withoutOperator = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
replicas: [{name: moult, count: 0}]
patches:
- patch: |
    $patch: delete
    apiVersion: moult.dev/v1alpha1
    kind: NodeRollout
    metadata: {name: %s}
`

// create returns when the rollout knows the scale set.
func (d *replacementDemo) create(ctx context.Context) (err error) {
	if err := d.kubectl(ctx, replacementRollout, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	err = d.untilRollout(ctx, workersRollout, func(s *v1alpha1.NodeRolloutStatus) bool {
		return s.Counts != nil && int(s.Counts.Updated) == d.capacity && len(s.ScaleSets) == 1
	})
	if err != nil {
		return errors.Join(err, d.died())
	}
	d.witness, err = d.watch(ctx)
	return err
}

// setImage does what a person would do, and returns when the rollout has seen it.
func (d *replacementDemo) setImage(ctx context.Context) error {
	args := []string{"set-image", "-imageid", newImage, "--scale-set", workersSet}
	fmt.Fprintf(d.details(), "$ moult %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, d.bin("moult"), args...)
	cmd.Env = append([]string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH")}, d.cloud.env...)
	out, err := cmd.CombinedOutput()
	fmt.Fprintf(d.details(), "%s\n", strings.TrimRight(string(out), "\n"))
	if err != nil {
		return fmt.Errorf("setting the image, %w", err)
	}
	return d.untilRollout(ctx, workersRollout, func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.ScaleSets) == 1 && s.ScaleSets[0].Outdated > 0
	})
}

// roll shows what happens by itself.
func (d *replacementDemo) roll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-d.process.Exited():
			cancel(d.process.Died())
		case <-ctx.Done():
		}
	}()
	d.log.mute()
	if err := d.follow(ctx); err != nil {
		return errors.Join(err, d.died())
	}
	// The view ends when all machines are replaced; the last one's turn is taken off the list a moment later.
	err := d.untilRollout(ctx, workersRollout, func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.Turns) == 0 && s.Counts != nil && int(s.Counts.Updated) == d.capacity
	})
	return errors.Join(err, d.witness.end())
}

// died is why the operator is gone, or nil.
func (d *replacementDemo) died() error {
	select {
	case <-d.process.Exited():
		return d.process.Died()
	default:
		return nil
	}
}

func (d *replacementDemo) prove(ctx context.Context) error {
	d.say("")
	p := &replacementProof{capacity: d.capacity, original: d.original, gone: d.cloud.Gone(workersSet), now: d.cloud.Machines(workersSet), journal: d.cloud.Journal()}
	p.set, _ = d.cloud.Set(workersSet)
	var err error
	if p.nodes, err = d.workers(ctx); err != nil {
		return err
	}
	if d.machines > 0 {
		for _, m := range d.cluster.Machines() {
			p.running = append(p.running, m.Name())
		}
		p.real = true
	}
	if err := p.tell(d.details(), d.witness); err != nil {
		return err
	}
	d.say("")
	d.begins(fmt.Sprintf("Complete: %d machines were replaced, each once and one after the other, and nothing else is left of it", d.capacity))
	return nil
}

// end removes all. When something went wrong the logs stay.
func (d *replacementDemo) end(ctx context.Context, err error) error {
	d.begins("Removing the cluster and the cloud")
	var problems []error
	if d.witness != nil {
		problems = append(problems, d.witness.end())
	}
	if d.process != nil {
		select {
		case <-d.process.Exited(): // That has been said already.
		default:
			problems = append(problems, d.process.Stop(time.Minute))
		}
	}
	if d.cloud != nil {
		d.cloud.stop()
	}
	if d.cluster != nil {
		problems = append(problems, d.cluster.Stop())
	}
	if all := errors.Join(append(problems, err)...); all != nil {
		d.say("The logs are in %s and %s; `%s` removes them.", d.operatorLog(), filepath.Join(d.dir, "cluster", "log"), d.removal())
		return all
	}
	return remove(ctx, d.dir)
}
