// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"moult.dev/moult/hack/build"
)

// Options says what cluster to start.
type Options struct {
	// Dir is the state directory. The default is a new one for temporary files, which Stop removes. In one given here the logs stay.
	Dir string
	// Nodes is the number of simulated nodes to begin with.
	Nodes int
	// Machines is the number of real machines. They need root.
	Machines int
	// Images are image archives to import on every machine.
	Images []string
	// MachineFiles is a directory whose files every machine has, from before its first boot on. Default none.
	MachineFiles string
	// PodSeconds is how long a Job's pod runs on a simulated node. The default is 1.
	PodSeconds float64
	// AuditLog turns on an audit log of every request's metadata.
	AuditLog bool
	// Log receives progress. The default is the test's log, or standard error.
	Log io.Writer

	// detached leaves the cluster running when this process ends.
	detached bool
}

// Cluster is a running cluster.
type Cluster struct {
	dir      string
	record   *record
	registry registry
	control  controlClient
	config   *rest.Config
	client   kubernetes.Interface
	log      io.Writer

	// The owner pipe and the supervisor, in the process that started it.
	owner    io.Closer
	process  *exec.Cmd
	reported chan struct{}
	stopOnce sync.Once
	stopErr  error

	nodesMu sync.Mutex
	nodes   int
	// named is how many simulated nodes were added by name.
	named int
}

// startTimeout bounds what a start may take once everything is built, where the caller sets no deadline: a cluster of that many nodes that
// is not ready by then never will be.
func startTimeout(nodes int) time.Duration {
	return 10*time.Minute + time.Duration(nodes)*50*time.Millisecond
}

// stopTimeout bounds how long a cluster may take to stop.
const stopTimeout = 5 * time.Minute

// Start starts a cluster. It returns when the API server and all nodes are ready.
// The cluster ends with Stop, or with this process if that comes first.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	o.PodSeconds = cmp.Or(o.PodSeconds, 1)
	if o.Log == nil {
		o.Log = os.Stderr
	}
	o.Log = &lockedWriter{w: o.Log}
	started := time.Now()
	reg, err := openRegistry()
	if err != nil {
		return nil, err
	}
	if err := reg.sweep(ctx); err != nil {
		// It is another cluster's, and this one may run all the same.
		fmt.Fprintln(o.Log, err)
	}
	sp, err := o.prepare(ctx)
	if err != nil {
		return nil, err
	}
	temporary := o.Dir == ""
	if temporary {
		if sp.Dir, err = os.MkdirTemp("", "moult-cluster-"); err != nil {
			return nil, err
		}
	} else if sp.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if !temporary {
		if err := checkDir(sp.Dir); err != nil {
			return nil, err
		}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout(o.Nodes))
		defer cancel()
	}
	sp.Registry = reg.dir
	rec, err := reg.claim(ctx, sp.Dir, temporary, o.Machines > 0, portCount)
	if err != nil {
		if temporary {
			err = errors.Join(err, os.Remove(sp.Dir))
		}
		return nil, err
	}
	sp.ID = rec.ID
	c := &Cluster{dir: sp.Dir, record: rec, registry: reg, log: o.Log, control: newControlClient(reg.socket(rec.ID))}
	defer func() {
		if err != nil {
			err = errors.Join(c.explain(err), c.Stop())
		}
	}()
	if err := c.launch(ctx, sp); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	if err := c.AddNodes(ctx, o.Nodes); err != nil {
		return nil, err
	}
	if err := c.waitForAccounts(ctx); err != nil {
		return nil, err
	}
	if err := c.waitForMachines(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "cluster with %d simulated nodes and %d machines ready in %.1fs, its state is in %s\n",
		o.Nodes, o.Machines, time.Since(started).Seconds(), sp.Dir)
	return c, nil
}

// StartDetached starts a cluster that outlives this process, until Down.
func StartDetached(ctx context.Context, o Options) (*Cluster, error) {
	if o.Dir == "" {
		return nil, errors.New("a cluster that stays needs a state directory")
	}
	o.detached = true
	return Start(ctx, o)
}

// Connect returns the running cluster whose state is in dir. Stopping it is the same as Down.
func Connect(dir string) (*Cluster, error) {
	reg, err := openRegistry()
	if err != nil {
		return nil, err
	}
	rec, err := reg.find(dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: rec.Dir, record: rec, registry: reg, log: os.Stderr, control: newControlClient(reg.socket(rec.ID))}
	return c, c.connect()
}

// Down ends the cluster whose state is in dir, whether its supervisor still runs or not, and clears up after all that have died.
func Down(ctx context.Context, dir string) error {
	reg, err := openRegistry()
	if err != nil {
		return err
	}
	rec, err := reg.find(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return reg.sweep(ctx)
	}
	if err != nil {
		return err
	}
	c := &Cluster{dir: rec.Dir, record: rec, registry: reg, control: newControlClient(reg.socket(rec.ID))}
	return errors.Join(c.Stop(), reg.sweep(ctx))
}

// prepare provides the programs that the cluster needs.
func (o Options) prepare(ctx context.Context) (spec, error) {
	s := spec{
		Nodes:      o.Nodes,
		Machines:   o.Machines,
		PodSeconds: o.PodSeconds,
		AuditLog:   o.AuditLog,
		Owned:      !o.detached,
	}
	if o.MachineFiles != "" {
		var err error
		if s.MachineFiles, err = filepath.Abs(o.MachineFiles); err != nil {
			return spec{}, err
		}
	}
	for _, image := range o.Images {
		path, err := filepath.Abs(image)
		if err != nil {
			return spec{}, err
		}
		s.Images = append(s.Images, path)
	}
	if o.Machines > 0 {
		if err := CanRunMachines(); err != nil {
			return spec{}, err
		}
		if err := installPackages(ctx, o.Log, missingPackages); err != nil {
			return spec{}, err
		}
	}
	var err error
	s.Programs, err = build.Programs(ctx, buildLog(o.Log))
	return s, err
}

// checkDir refuses a directory that has in it what a cluster would overwrite and no cluster has made.
func checkDir(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cluster.json")); err == nil {
		return nil
	}
	for _, name := range stateFiles {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s has something else named %s in it", dir, name)
		}
	}
	logs := filepath.Join(dir, "log")
	if _, err := os.Lstat(logs); err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(logs, "supervisor.log")); err != nil {
		return fmt.Errorf("%s has something else named log in it", dir)
	}
	return nil
}

// launch starts the supervisor and returns when it says that the cluster is up.
func (c *Cluster) launch(ctx context.Context, s spec) error {
	if err := removeState(s.Dir); err != nil {
		return err
	}
	logs := filepath.Join(s.Dir, "log")
	if err := os.RemoveAll(logs); err != nil {
		return err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, "cluster.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(logs, "supervisor.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	events, report, err := os.Pipe()
	if err != nil {
		return err
	}
	defer report.Close()
	watch, owner, err := os.Pipe()
	if err != nil {
		events.Close()
		return err
	}
	defer watch.Close()

	cmd := exec.Command(selfExecutable)
	cmd.Args = []string{supervisorName, path}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{report}
	if s.Owned {
		cmd.ExtraFiles = append(cmd.ExtraFiles, watch)
	}
	// In a session of its own, so that an interrupt at the terminal does not reach it before the owner is gone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		events.Close()
		owner.Close()
		return err
	}
	c.process, c.owner = cmd, owner
	return c.follow(ctx, events)
}

// follow passes on what the supervisor reports, for as long as it runs, and returns when the cluster is up or has failed.
func (c *Cluster) follow(ctx context.Context, events io.ReadCloser) error {
	up := make(chan error, 1)
	c.reported = make(chan struct{})
	go func() {
		defer close(c.reported)
		defer events.Close()
		scanner := bufio.NewScanner(events)
		for scanner.Scan() {
			var e event
			if json.Unmarshal(scanner.Bytes(), &e) != nil {
				continue
			}
			switch {
			case e.Ready:
				up <- nil
			case e.Error != "":
				select {
				case up <- errors.New(e.Error):
				default:
					fmt.Fprintln(c.log, e.Error)
				}
			default:
				fmt.Fprintln(c.log, e.Line)
			}
		}
		select {
		case up <- errors.New("the supervisor ended early"):
		default:
		}
	}()
	select {
	case err := <-up:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connect prepares clients for the cluster's API server.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	// The client's own limit would hide what a test wants to see.
	config.QPS = -1
	c.config = config
	fast := rest.CopyConfig(config)
	fast.ContentType = "application/vnd.kubernetes.protobuf"
	c.client, err = kubernetes.NewForConfig(fast)
	return err
}

// Stop ends the cluster and removes everything it has made.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if c.owner != nil {
		c.owner.Close()
	}
	// A supervisor that has an owner is on its way by now. One that has none, or
	// another one, has to be asked; if it does not answer it is gone already.
	_ = c.control.call(ctx, "POST", "/stop", nil, nil)
	if c.process != nil {
		_ = c.process.Wait() // how it ended is in its log, and what is left of it is removed below
		<-c.reported
	}
	supervisor := c.record.Supervisor
	if rec, err := c.registry.load(c.record.ID); err == nil {
		supervisor = rec.Supervisor
	}
	if supervisor.PID != os.Getpid() {
		err := poll(ctx, 20*time.Millisecond, func() (bool, error) { return !supervisor.alive(), nil })
		if err != nil {
			return errors.Join(err, supervisor.kill(context.Background()))
		}
	}
	rec, err := c.registry.load(c.record.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed, and everything with it
	}
	if err != nil {
		return err
	}
	return c.registry.remove(ctx, rec)
}

// explain adds the end of the supervisor's own log to an error, before the directory that holds it is removed.
func (c *Cluster) explain(err error) error {
	data, readErr := os.ReadFile(filepath.Join(c.dir, "log", "supervisor.log"))
	if readErr != nil || len(data) == 0 {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return fmt.Errorf("%w\nthe supervisor's log ends with\n%s", err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
}

// Config returns the configuration of a client that may do everything. It is the caller's own copy, without a rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig that may do everything.
func (c *Cluster) Kubeconfig() string { return kubeconfigPath(c.dir) }

// Dir returns the state directory. The logs of all components are below it, in log.
func (c *Cluster) Dir() string { return c.dir }

// AuditLog returns the path of the audit log.
func (c *Cluster) AuditLog() string { return auditLogPath(c.dir) }

// Binaries returns the path of each named program, after building what clusters consist of unless that has been built.
// Progress goes to log. Several processes may call it at once: one of them builds.
func Binaries(ctx context.Context, log io.Writer, names ...string) (map[string]string, error) {
	dir, err := build.Programs(ctx, log)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, name := range names {
		paths[name] = filepath.Join(dir, name)
	}
	return paths, nil
}
