// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// spec tells the supervisor what to run. It lies in the state directory.
type spec struct {
	ID       string   `json:"id"`
	Registry string   `json:"registry"`
	Dir      string   `json:"dir"`
	Nodes    int      `json:"nodes"`
	Machines int      `json:"machines"`
	Images   []string `json:"images,omitempty"`
	// MachineFiles is a directory of files for each machine, or empty.
	MachineFiles string `json:"machineFiles,omitempty"`

	PodSeconds float64 `json:"podSeconds"`
	AuditLog   bool    `json:"auditLog,omitempty"`
	Programs   string  `json:"programs"`
	// Owned says that the cluster ends with the process at the other end of the owner pipe.
	Owned bool `json:"owned"`
}

// The ports of a cluster, as indexes into its record's.
const (
	portEtcd = iota
	portEtcdPeer
	portAPI
	portCount
)

// The files that the supervisor is started with, after the standard three.
const (
	eventsFile = 3 // what it reports
	ownerFile  = 4 // ends when the owner does
)

// event is a line of what the supervisor reports to whoever started it.
type event struct {
	Line  string `json:"line,omitempty"`
	Error string `json:"error,omitempty"`
	Ready bool   `json:"ready,omitempty"`
}

// supervisor runs one cluster: it starts every process, and takes all down.
type supervisor struct {
	spec     spec
	registry registry
	ca       *authority
	children children
	stop     context.CancelCauseFunc
	done     <-chan struct{} // closed when the cluster has to end

	events struct {
		sync.Mutex
		*json.Encoder
	}

	mu         sync.Mutex
	record     *record
	components []*component
	machines   []*machine
	// lastIndex is that of the last machine that was made, and images what every machine is to have.
	lastIndex int
	images    []string
}

// superviseMain is the main function of the supervisor.
func superviseMain(args []string) error {
	syscall.Umask(0o022)
	// The programs that it starts have no part in these.
	syscall.CloseOnExec(eventsFile)
	syscall.CloseOnExec(ownerFile)
	s := &supervisor{}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &s.spec); err != nil {
		return err
	}
	s.registry = registry{s.spec.Registry}
	s.events.Encoder = json.NewEncoder(os.NewFile(eventsFile, "events"))

	ctx, cancel := context.WithCancelCause(context.Background())
	s.stop, s.done = cancel, ctx.Done()
	s.stopOnSignal()
	if s.spec.Owned {
		s.stopWithOwner(os.NewFile(ownerFile, "owner"))
	}
	err = s.run(ctx)
	if err != nil {
		s.report(event{Error: err.Error()})
	}
	// Whatever became of it, nothing may stay behind.
	s.stop(errStopped)
	cleanupCtx, cancelCleanup := context.WithTimeout(context.Background(), stopTimeout)
	defer cancelCleanup()
	return errors.Join(err, s.teardown(cleanupCtx))
}

// errStopped is why a cluster ends that nothing is wrong with.
var errStopped = errors.New("the cluster was stopped")

func (s *supervisor) stopOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP)
	go func() {
		<-signals
		s.stop(errStopped)
	}()
}

// stopWithOwner stops when the other end of the pipe is closed, be it by the owner's death. Nothing is ever written to it.
func (s *supervisor) stopWithOwner(pipe *os.File) {
	go func() {
		_, _ = io.Copy(io.Discard, pipe)
		s.stop(errStopped)
	}()
}

// run starts the cluster and returns when it has to end.
func (s *supervisor) run(ctx context.Context) error {
	rec, err := s.registry.load(s.spec.ID)
	if err != nil {
		return err
	}
	s.record = rec
	if rec.Supervisor, err = identify(os.Getpid()); err != nil {
		return err
	}
	if err := s.registry.save(rec); err != nil {
		return err
	}
	control, err := s.serveControl()
	if err != nil {
		return err
	}
	defer control.Close()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.report(event{Ready: true})
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// start brings everything up and returns when the API server is ready and every
// machine has its images. That the nodes become ready is for the caller to see.
func (s *supervisor) start(ctx context.Context) error {
	var err error
	if s.ca, err = newAuthority(filepath.Join(s.spec.Dir, "pki")); err != nil {
		return err
	}
	admin := identityOf{user: "moult-test-admin", group: "system:masters"}
	if err := s.ca.writeKubeconfig(kubeconfigPath(s.spec.Dir), s.apiURL(), "admin", admin); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	apiReady := make(chan struct{})
	if s.spec.Machines > 0 {
		if err := s.makeBridge(ctx); err != nil {
			return err
		}
		group.Go(func() error { return s.startMachines(ctx, apiReady) })
	}
	group.Go(func() error {
		if err := s.startEtcd(); err != nil {
			return err
		}
		if err := s.startAPIServer(); err != nil {
			return err
		}
		if err := s.waitForAPI(ctx); err != nil {
			return err
		}
		s.logf("API server ready at %s", s.apiURL())
		close(apiReady)
		if err := s.startControllerManager(); err != nil {
			return err
		}
		if err := s.startScheduler(); err != nil {
			return err
		}
		return s.startKwok()
	})
	return group.Wait()
}

// startComponent runs a program of the control plane and watches over it.
func (s *supervisor) startComponent(name string, args ...string) error {
	p, err := s.children.run(filepath.Join(s.spec.Dir, "log"), name, filepath.Join(s.spec.Programs, name), args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.components = append(s.components, p)
	s.mu.Unlock()
	go func() {
		<-p.exited
		select {
		case <-s.done:
			return // it was told to
		default:
		}
		s.logf("%v", p.failure(s.spec.Dir))
	}()
	return s.remember(p.id)
}

// remember puts a process on record.
func (s *supervisor) remember(id identity) error {
	return s.updateRecord(func(rec *record) { rec.Processes = append(rec.Processes, id) })
}

func (s *supervisor) updateRecord(change func(*record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.record)
	return s.registry.save(s.record)
}

// failed says which component of the control plane has ended, if one has.
func (s *supervisor) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.components {
		select {
		case <-p.exited:
			return p.failure(s.spec.Dir)
		default:
		}
	}
	return nil
}

func (p *component) failure(dir string) error {
	return fmt.Errorf("%s ended (%w), its log is %s", p.name, p.err, filepath.Join(dir, "log", p.name+".log"))
}

// teardown removes the cluster, whatever of it there is by now.
func (s *supervisor) teardown(ctx context.Context) error {
	if s.record == nil {
		return nil
	}
	s.mu.Lock()
	machines := s.machines
	s.mu.Unlock()
	for _, m := range machines {
		m.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registry.remove(ctx, s.record)
}

func (s *supervisor) report(e event) {
	s.events.Lock()
	defer s.events.Unlock()
	// Nobody may be listening any more.
	_ = s.events.Encode(e)
}

// logf reports progress, to whoever started the cluster and into its log.
func (s *supervisor) logf(format string, args ...any) {
	log.Printf(format, args...)
	s.report(event{Line: fmt.Sprintf(format, args...)})
}

// pool returns the authority's certificate as a client needs it.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func kubeconfigPath(dir string) string { return filepath.Join(dir, "kubeconfig") }
