// SPDX-License-Identifier: Apache-2.0

// Package operator runs the operator as a process of its own, outside of the cluster: what is measured, or killed, is the
// program that users run.
package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"moult.dev/moult/hack/build"
)

// UserAgent is what the operator's requests begin their user agent with.
const UserAgent = "moult/"

// Build compiles the operator, as a release is compiled, and returns its path, which is in dir.
func Build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "moult")
	return path, build.Program{Name: "the operator", Package: "moult.dev/moult/cmd/moult", Output: path}.Build(ctx, io.Discard)
}

// Process is a running operator.
type Process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	err    error // how it ended, once exited is closed
}

// Start runs `moult controller` with these environment variables, each as "NAME=value", and arguments. What it prints is added to the file log.
func Start(program, kubeconfig, log string, env []string, args ...string) (*Process, error) {
	return Run(program, log, env, append([]string{"controller", "--kubeconfig=" + kubeconfig}, args...)...)
}

// Run runs any program in the same way.
func Run(program, log string, env []string, args ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting the operator, %w", err)
	}
	defer file.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = file, file
	// Nothing of what it reads from the environment: its settings are those of args and env alone.
	cmd.Env = append([]string{"HOME=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // It ends with whoever started it, however that ends.

	p := &Process{cmd: cmd, log: log, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that starts it, not to the process, so that the thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the operator, %w", err)
	}
	return p, nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Died is the error to report when the process has ended and should not have.
func (p *Process) Died() error {
	<-p.exited
	how := "without an error"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("the operator ended by itself (%s)\n%s", how, Tail(p.log, 20))
}

// Kill ends the process as a power cut does, and returns when it is gone. It reports whether it was still running.
func (p *Process) Kill() bool {
	if !p.running() {
		return false
	}
	_ = p.cmd.Process.Kill() // Unless it has ended meanwhile, which is waited for now.
	<-p.exited
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Stop asks the process to end and returns when it is gone. One that does not end in time is killed, which is an error.
func (p *Process) Stop(patience time.Duration) error {
	if !p.running() {
		return p.Died()
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && p.running() {
		return fmt.Errorf("stopping the operator, %w", err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("the operator did not end in %s after it was asked to", patience)
	}
}

func (p *Process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Tail is the end of a log, for an error.
func Tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return fmt.Sprintf("%s ends with\n%s", path, bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
