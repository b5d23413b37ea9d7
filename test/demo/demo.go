// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/build"
	"moult.dev/moult/hack/image"
	"moult.dev/moult/internal/cli/moult"
	"moult.dev/moult/test/cluster"
)

const (
	namespace = "system-upgrade"
	operators = "moult-system" // The operator's own namespace.
	// patience bounds what waits for the cluster. Builds may take as long as they need.
	patience = 15 * time.Minute
	// replicas is how many pods the workload has.
	replicas = 3
)

// workload is pods on the machines, one of which may be missing at a time.
//
//go:embed workload.yaml
var workload string

// demo is one run, of any kind. Its methods do nothing after one of them has failed: err says why.
type demo struct {
	machines, nodes int
	began           time.Time
	dir, root       string
	err             error

	cluster *cluster.Cluster
	client  client.Client
	// operatorEnded receives why the operator ended, where it runs outside of the cluster.
	operatorEnded chan error

	// quiet keeps what the cluster reports out of the live view.
	quiet atomic.Bool
}

func (d *demo) try(do func() error) {
	if d.err == nil {
		d.err = do()
	}
}

// begin finds the checkout, and takes the state directory from an earlier demo.
func (d *demo) begin(ctx context.Context, dir string) {
	d.try(func() error {
		out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
		if err != nil {
			return fmt.Errorf("asking the go command for the module, %w", err)
		}
		d.root = filepath.Dir(strings.TrimSpace(string(out)))
		if d.dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(d.dir, marker)); err == nil {
			fmt.Println("Removing the last demo")
		}
		return errors.Join(claim(ctx, d.dir), os.MkdirAll(d.program(""), 0o755))
	})
}

// needMachines fails where there can be no real machines, and takes no simulated nodes.
func (d *demo) needMachines() {
	d.nodes = 0
	d.try(func() error {
		err := cluster.CanRunMachines()
		if err == nil && d.machines < 1 {
			err = errors.New("--machines must be 1 or more")
		}
		if err != nil {
			return fmt.Errorf("this demo is about what runs on real machines, as root on Linux: %w", err)
		}
		return nil
	})
}

// preferMachines takes so many simulated nodes if the number was not given, and simulated nodes alone where there can be no real machines.
func (d *demo) preferMachines(nodes int) {
	if d.nodes < 0 {
		d.nodes = nodes
	}
	if why := cluster.CanRunMachines(); why != nil {
		fmt.Printf("No real machines here: %v.\n", why)
		d.machines = 0
	}
	if d.machines == 0 {
		fmt.Println("All nodes are simulated: the rollout is real, but it changes nothing. Run as root on Linux for real machines.")
	}
}

// step says what comes next, with the seconds since the beginning.
func (d *demo) step(format string, args ...any) {
	if d.err == nil {
		fmt.Printf("%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// Write indents the lines of a step's details.
func (d *demo) Write(p []byte) (int, error) {
	if !d.quiet.Load() {
		fmt.Printf("         %s\n", strings.ReplaceAll(strings.TrimRight(string(p), "\n"), "\n", "\n         "))
	}
	return len(p), nil
}

func (d *demo) program(name string) string { return filepath.Join(d.dir, "bin", name) }

// build builds the cluster's programs, and packages of this checkout that are needed before it starts.
func (d *demo) build(ctx context.Context, packages ...string) {
	d.step("Building what is not built yet; the first time that takes minutes")
	d.try(func() error {
		paths, err := cluster.Binaries(ctx, d, "kubectl")
		if err != nil {
			return err
		}
		for link, target := range map[string]string{"kubectl": paths["kubectl"], "kubectl-eds": "kubectl-moult", "kubectl_complete-moult": "kubectl-moult"} {
			err = errors.Join(err, os.Symlink(target, d.program(link)))
		}
		return errors.Join(err, d.compile(ctx, packages...))
	})
}

// compile builds programs of this checkout.
func (d *demo) compile(ctx context.Context, packages ...string) error {
	for _, p := range packages {
		name := filepath.Base(p)
		program := build.Program{Name: name, Dir: d.root, Package: p, Output: d.program(name), LDFlags: "-X main.version=demo", Env: []string{"GOOS=linux"}}
		if err := program.Build(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// start starts the cluster, and meanwhile builds Moult. The machines get Moult's images and these.
func (d *demo) start(ctx context.Context, start func(context.Context, cluster.Options) (*cluster.Cluster, error), o cluster.Options, images ...image.Spec) {
	d.step("Starting a cluster with %d real machines and %d simulated nodes, and building Moult", o.Machines, o.Nodes)
	d.try(func() error {
		group, groupCtx := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			ctx, cancel := context.WithTimeout(groupCtx, patience)
			defer cancel()
			o.Dir, o.PodSeconds, o.Log = filepath.Join(d.dir, "cluster"), 1, d
			d.cluster, err = start(ctx, o)
			return err
		})
		var archives []string
		group.Go(func() error {
			if err := d.compile(groupCtx, "./cmd/moult", "./cmd/moult-agent"); err != nil || o.Machines == 0 {
				return err
			}
			images = append(images, image.Program(image.Operator, d.program("moult"), ""), image.Program(image.Agent, d.program("moult-agent"), ""))
			for i, spec := range images {
				archives = append(archives, filepath.Join(d.dir, "images", fmt.Sprintf("%d.tar", i)))
				if err := image.Build(groupCtx, spec, archives[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err := group.Wait(); err != nil {
			return err
		}
		group, groupCtx = errgroup.WithContext(ctx)
		if o.Machines > 0 {
			group.Go(func() error { return d.cluster.LoadImage(groupCtx, archives...) })
		}
		group.Go(func() error { return d.compile(groupCtx, "./cmd/kubectl-moult") })
		if err := group.Wait(); err != nil {
			return err
		}
		scheme := runtime.NewScheme()
		err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), edsv1.AddToScheme(scheme))
		if err == nil {
			d.client, err = client.New(d.cluster.Config(), client.Options{Scheme: scheme})
		}
		return err
	})
}

const (
	// kustomization is config/default and the agents, with what a demo changes in it.
	kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%[1]s/default, %[1]s/hostupdate/agents]\n%[2]s"
	// withoutOperator is for an operator outside of the cluster: on a simulated node its pod would only look as if it ran.
	withoutOperator = "replicas: [{name: moult, count: 0}]\n"
)

// install installs Moult from config/default, with these changes.
func (d *demo) install(ctx context.Context, changes string) {
	d.step("Installing Moult from config/default")
	folder := filepath.Join(d.dir, "manifests")
	d.try(func() error {
		shipped, err := filepath.Rel(folder, filepath.Join(d.root, "config"))
		text := fmt.Appendf(nil, kustomization, shipped, changes)
		return errors.Join(err, os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o644))
	})
	d.kubectl(ctx, "", "apply", "--server-side", "-k", folder)
	d.kubectl(ctx, "", "wait", "--for=condition=established", "--timeout="+patience.String(), "crds", "--all")
}

// runOperator starts the operator as a process beside the cluster. It writes its number itself, so that it is known however soon this process ends.
func (d *demo) runOperator(environment ...string) {
	d.try(func() error {
		script := `echo $$ >"$1"; exec "$2" controller --kubeconfig="$3" --image="$4" --metrics-bind-address=0 --health-probe-bind-address=0 >>"$5" 2>&1`
		log := filepath.Join(d.dir, "moult.log")
		cmd := exec.Command("/bin/sh", "-c", script, "sh", filepath.Join(d.dir, pidFile), d.program("moult"), d.cluster.Kubeconfig(), image.Operator, log)
		cmd.Env = append([]string{"HOME=" + d.dir, "PATH=" + os.Getenv("PATH")}, environment...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("starting the operator, %w", err)
		}
		d.operatorEnded = make(chan error, 1)
		go func() { d.operatorEnded <- fmt.Errorf("the operator ended (%w), its log is %s", cmd.Wait(), log) }()
		fmt.Fprintf(d, "The operator runs outside of the cluster, as process %d; its log is %s.\n", cmd.Process.Pid, log)
		return nil
	})
}

// deployWorkload puts the workload on the machines, and returns when it is available.
func (d *demo) deployWorkload(ctx context.Context) {
	d.step("Putting a workload with a PodDisruptionBudget on the machines")
	d.kubectl(ctx, workload, "apply", "--server-side", "-f", "-")
	d.rolledOut(ctx, "deployment/web")
}

func (d *demo) rolledOut(ctx context.Context, args ...string) {
	d.kubectl(ctx, "", append([]string{"rollout", "status", "--timeout=" + patience.String()}, args...)...)
}

// kubectl runs kubectl on the demo's cluster, and returns what it prints.
func (d *demo) kubectl(ctx context.Context, stdin string, args ...string) (out string) {
	d.try(func() (err error) {
		out, err = d.run(ctx, stdin, args...)
		return err
	})
	return out
}

func (d *demo) run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.program("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.cluster.Kubeconfig(), "PATH="+d.program("")+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // with the thread that starts it
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("running kubectl %s, %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// show runs kubectl, or one of its plugins, as a person would, and shows what it prints.
func (d *demo) show(ctx context.Context, args ...string) {
	if out := d.kubectl(ctx, "", args...); d.err == nil {
		fmt.Fprintf(d, "$ kubectl %s\n%s", strings.Join(args, " "), out)
	}
}

// follow shows all rollouts live until they are complete. It returns an error if one has stalled.
func (d *demo) follow(ctx context.Context, namespace string) error {
	if d.err != nil {
		return d.err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		select {
		case err := <-d.operatorEnded:
			fail(err)
		case <-ctx.Done():
		}
	}()
	d.quiet.Store(true)
	defer d.quiet.Store(false)
	fmt.Println()
	defer fmt.Println()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	plugin := moult.NewCommand(clock.RealClock{}, streams, target{d.cluster.Config(), namespace})
	plugin.SetArgs([]string{"status", "--until-complete"})
	return plugin.ExecuteContext(ctx)
}

// target is the cluster and namespace that the plugin shows.
type target struct {
	config    *rest.Config
	namespace string
}

func (t target) Load() (*rest.Config, string, error) { return t.config, t.namespace, nil }

// until waits until an object of the cluster is so, and returns it. An API server that does not answer is asked again.
func until[T client.Object](ctx context.Context, d *demo, empty T, namespace, name string, so func(T) bool) (now T) {
	d.try(func() error {
		var last error
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			now = empty.DeepCopyObject().(T) // Decoding keeps fields that a later answer does not have.
			if last = d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, now); apierrors.IsNotFound(last) {
				return false, last
			}
			return last == nil && so(now), nil
		})
		if err != nil {
			return fmt.Errorf("waiting for %T %s, %w", empty, name, errors.Join(err, last))
		}
		return nil
	})
	return now
}

// complete ends the demo, and says what to try.
func (d *demo) complete(text, try string) {
	d.step("Complete: %s", text)
	if d.err == nil && try != "" {
		fmt.Printf("\nThe cluster is yours now:\n\n  export KUBECONFIG=%s PATH=%s:$PATH\n%s  kubectl moult ui    # the same as live web pages, at http://127.0.0.1:8090/\n\nRemove it all: %s\n", d.cluster.Kubeconfig(), d.program(""), try, d.removal())
	}
}

// removal is the command that removes the demo.
func (d *demo) removal() string {
	if d.dir == stateDir() {
		return "make demo-down"
	}
	return "make demo-down DIR=" + d.dir
}
