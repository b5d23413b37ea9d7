// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lifelineFile is the pipe from the supervisor, after the standard three files.
const lifelineFile = 3

// sigRebootNow is what systemd takes for an order to reboot (SIGRTMIN+5).
const sigRebootNow = syscall.Signal(34 + 5)

const containerdSocket = "/run/containerd/containerd.sock"

// The directories in which a machine may have programs of its own, each of them executable. What they print is in the cluster's
// logs, by the machine's name.
const (
	// BootDir has what is run at every boot, in the order of the names and each to its end, before anything else.
	BootDir = "/etc/machine/boot"
	// ServiceDir has what runs from then on, beside the kubelet, and is started again whenever it ends. See Machine.Reload.
	ServiceDir = "/etc/machine/services"
)

// machineInit is the first process of a machine. It sets the machine up, keeps the container runtime and the kubelet running, with what the
// machine has of its own, and collects orphans. When it ends, the kernel ends every other process of the machine.
type machineInit struct {
	config   machineConfig
	lifeline *bufio.Reader
	logs     *os.Root
	services map[int]*service // by process number
	own      map[string]*service
}

// service is a program that is started again whenever it ends.
type service struct {
	name string
	args []string
	env  []string
	log  *os.File
	// pid is its process number, or 0 while it does not run.
	pid int
	// gone says that it is not to be started any more.
	gone bool
}

// machineInitMain is the main function of a machine's init.
func machineInitMain(args []string) error {
	// Namespaces belong to threads, and so do the parents of processes.
	runtime.LockOSThread()
	syscall.Umask(0o022)
	i := &machineInit{services: map[int]*service{}, own: map[string]*service{}}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &i.config); err != nil {
		return err
	}
	pipe := os.NewFile(lifelineFile, "lifeline")
	syscall.CloseOnExec(lifelineFile)
	i.lifeline = bufio.NewReader(pipe)
	return i.run()
}

func (i *machineInit) run() error {
	c := i.config
	var err error
	if i.logs, err = os.OpenRoot(c.Logs); err != nil {
		return err
	}
	containerd, err := i.newService("containerd", nil, findTool("containerd"), "--config", "/etc/containerd/config.toml")
	if err != nil {
		return err
	}
	kubelet, err := i.newService("kubelet", kubeletEnvironment, c.kubelet()...)
	if err != nil {
		return err
	}
	if err := i.await(networkReady); err != nil {
		return err
	}
	if err := c.enterRoot(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return err
	}
	if err := c.configureNetwork(context.Background()); err != nil {
		return err
	}
	log.Printf("booted with id %s", c.BootID)
	steps, err := i.programs(BootDir)
	if err != nil {
		return err
	}
	return i.serve(steps, containerd, kubelet)
}

// serve runs the boot's own programs, one after the other, and then keeps the services running until the machine ends.
func (i *machineInit) serve(steps []*service, containerd, kubelet *service) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	// As the first process of a namespace it gets only signals that it handles.
	// Both a plain `busybox reboot` and those that speak to systemd send one.
	orders := make(chan os.Signal, 1)
	signal.Notify(orders, syscall.SIGTERM, syscall.SIGINT, sigRebootNow)
	reloads := make(chan os.Signal, 1)
	signal.Notify(reloads, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)

	ended := make(chan error, 1)
	api := make(chan struct{}, 1)
	go func() {
		err := i.await(apiReady)
		if err == nil {
			api <- struct{}{}
			_, err = io.Copy(io.Discard, i.lifeline)
		}
		ended <- err
	}()

	restart := make(chan *service, 8)
	var step *service
	next := func() error {
		for len(steps) > 0 {
			step, steps = steps[0], steps[1:]
			err := i.start(step)
			if err == nil {
				return nil
			}
			log.Print(err)
		}
		step = nil
		return errors.Join(i.start(containerd), i.reload())
	}
	if err := next(); err != nil {
		return err
	}
	for {
		select {
		case <-api:
			// The kubelet gives up where there is no container runtime.
			go func() {
				_ = poll(context.Background(), 50*time.Millisecond, func() (bool, error) { return listening(containerdSocket), nil })
				restart <- kubelet
			}()
		case <-children:
			for _, s := range i.reap() {
				if s != step {
					time.AfterFunc(500*time.Millisecond, func() { restart <- s })
				} else if err := next(); err != nil {
					return err
				}
			}
		case s := <-restart:
			if err := i.start(s); err != nil && i.own[s.name] == s {
				log.Print(err)
				delete(i.own, s.name) // until a person puts it right, and says so
			} else if err != nil {
				return err
			}
		case <-reloads:
			if step != nil {
				continue // it is looked at when the boot is done
			}
			if err := i.reload(); err != nil {
				return err
			}
		case <-orders:
			unix.Sync()
			return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
		case err := <-ended:
			return err // the supervisor has gone, and the machine goes with it
		}
	}
}

// await reads a line from the supervisor.
func (i *machineInit) await(want string) error {
	line, err := i.lifeline.ReadString('\n')
	if err != nil {
		return fmt.Errorf("waiting for the supervisor, %w", err)
	}
	if line != want+"\n" {
		return fmt.Errorf("the supervisor said %q instead of %q", line, want)
	}
	return nil
}

// newService opens a service's log, which lies outside of the machine's root.
func (i *machineInit) newService(name string, env []string, args ...string) (*service, error) {
	file, err := i.logs.OpenFile(name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &service{name: name, args: args, env: append(os.Environ(), env...), log: file}, nil
}

// programs are those in a directory of the machine's.
func (i *machineInit) programs(dir string) ([]*service, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []*service
	for _, entry := range entries {
		s, err := i.newService(entry.Name(), nil, filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// reload starts the machine's own services that are new, and ends those that are no more.
func (i *machineInit) reload() error {
	all, err := i.programs(ServiceDir)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, s := range all {
		there[s.name] = true
		if i.own[s.name] != nil {
			s.log.Close()
			continue
		}
		if err := i.start(s); err != nil {
			log.Print(err)
			s.log.Close()
			continue
		}
		i.own[s.name] = s
	}
	for name, s := range i.own {
		if there[name] {
			continue
		}
		delete(i.own, name)
		s.gone = true
		if s.pid != 0 {
			_ = syscall.Kill(-s.pid, syscall.SIGKILL) // unless it has ended by itself
		}
	}
	return nil
}

// start starts a service, unless it is gone.
func (i *machineInit) start(s *service) error {
	if s.gone {
		return nil
	}
	pid, err := syscall.ForkExec(s.args[0], s.args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   s.env,
		Files: []uintptr{0, s.log.Fd(), s.log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("starting %s, %w", s.name, err)
	}
	i.services[pid], s.pid = s, pid
	return nil
}

// reap collects every process that has ended and returns the services among them.
func (i *machineInit) reap() []*service {
	var ended []*service
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return ended
		}
		if s := i.services[pid]; s != nil {
			delete(i.services, pid)
			s.pid = 0
			log.Printf("%s ended (exit %d, signal %d)", s.name, status.ExitStatus(), status.Signal())
			ended = append(ended, s)
		}
	}
}

// listening reports whether something accepts connections at a socket.
func listening(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
