// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// identity tells a process from a later one with the same number.
type identity struct {
	PID int `json:"pid"`
	// Started is the process's start, in clock ticks since the machine's boot.
	Started uint64 `json:"started"`
}

// identify returns the identity of a running process.
func identify(pid int) (identity, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, err
	}
	// The second field is the name in parentheses, which may contain anything. The start time is the 22nd field, and the state the third.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return identity{}, fmt.Errorf("parsing /proc/%d/stat", pid)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return identity{}, os.ErrProcessDone
	}
	started, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return identity{PID: pid, Started: started}, err
}

// alive reports whether this very process still runs.
func (i identity) alive() bool {
	current, err := identify(i.PID)
	return err == nil && current == i
}

// kill ends this very process, if it still runs, and waits until it has gone.
func (i identity) kill(ctx context.Context) error {
	if !i.alive() {
		return nil
	}
	if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing process %d, %w", i.PID, err)
	}
	return poll(ctx, 10*time.Millisecond, func() (bool, error) { return !i.alive(), nil })
}

// children starts processes that die with this one, however it dies.
//
// The kernel ties a child's fate to the thread that started it, not to the process, so one thread starts them all and never ends.
type children struct {
	requests chan func()
	once     sync.Once
}

func (c *children) start(cmd *exec.Cmd) error {
	c.once.Do(func() {
		c.requests = make(chan func())
		go func() {
			runtime.LockOSThread()
			for request := range c.requests {
				request()
			}
		}()
	})
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	c.requests <- func() { result <- cmd.Start() }
	return <-result
}

// component is one long-running program of the control plane.
type component struct {
	name string
	id   identity
	// exited is closed when it has ended; err says how.
	exited chan struct{}
	err    error
}

// run starts a program whose output goes to the log directory.
func (c *children) run(logs, name, path string, args ...string) (*component, error) {
	log, err := os.Create(filepath.Join(logs, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := c.start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s, %w", name, err)
	}
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		// It has ended already, and Wait below says how.
		id = identity{PID: cmd.Process.Pid}
	}
	p := &component{name: name, id: id, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// The names under which an executable that contains this package is started again to play another part. A test has no main function to give
// a subcommand to, and a helper program would have to be built and kept in step with the test.
const (
	supervisorName  = "moult-cluster-supervisor"
	machineInitName = "moult-machine-init"
)

// selfExecutable is this process's program, even if its file is gone by now.
const selfExecutable = "/proc/self/exe"

func init() {
	var part func(arguments []string) error
	switch os.Args[0] {
	case supervisorName:
		part = superviseMain
	case machineInitName:
		part = machineInitMain
	default:
		return
	}
	if err := part(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
