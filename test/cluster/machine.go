// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Machine is a real machine of a cluster, and the node of the same name.
type Machine struct {
	cluster *Cluster
	name    string
	ip      string
}

// Machines returns the cluster's machines: machine-1, machine-2 and so on.
func (c *Cluster) Machines() []*Machine {
	var machines []*Machine
	states, err := c.machineStates(context.Background())
	if err != nil {
		return nil // the cluster has ended, and has none
	}
	for _, state := range states {
		machines = append(machines, &Machine{cluster: c, name: state.Name, ip: state.IP})
	}
	return machines
}

// Machine returns the machine with that name, or nil.
func (c *Cluster) Machine(name string) *Machine {
	for _, m := range c.Machines() {
		if m.name == name {
			return m
		}
	}
	return nil
}

// LoadImage imports image archives on every machine that is on, and stays so.
func (c *Cluster) LoadImage(ctx context.Context, paths ...string) error {
	request := imagesRequest{}
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		request.Paths = append(request.Paths, path)
	}
	return c.control.call(ctx, "POST", "/images", request, nil)
}

func (c *Cluster) machineStates(ctx context.Context) ([]MachineState, error) {
	var states []MachineState
	return states, c.control.call(ctx, "GET", "/machines", nil, &states)
}

// controlPlaneLabel marks the first machine, where what wants to run beside the control plane goes.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// waitForMachines returns when every machine is ready.
func (c *Cluster) waitForMachines(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, m := range c.Machines() {
		group.Go(func() error {
			if err := m.WaitReady(ctx); err != nil {
				return err
			}
			if i > 0 {
				return nil
			}
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, controlPlaneLabel)
			_, err := c.client.CoreV1().Nodes().Patch(ctx, m.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		})
	}
	return group.Wait()
}

// Name returns the machine's name, which is its node's.
func (m *Machine) Name() string { return m.name }

// IP returns the machine's address.
func (m *Machine) IP() string { return m.ip }

// BootID returns the id of the current boot, or of none if the machine is off.
func (m *Machine) BootID() string {
	state, err := m.state(context.Background())
	if err != nil {
		return ""
	}
	return state.BootID
}

// Reboot reboots the machine and returns when its node is ready with the new boot id. What was in memory is lost, what was on disk is not.
// All pods that are not finished are started again.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.do(ctx, "reboot"); err != nil {
		return err
	}
	return m.WaitReady(ctx)
}

// Kill switches the machine off, as a power cut does.
func (m *Machine) Kill(ctx context.Context) error { return m.do(ctx, "kill") }

// Start switches the machine on and returns when its node is ready.
func (m *Machine) Start(ctx context.Context) error {
	if err := m.do(ctx, "start"); err != nil {
		return err
	}
	return m.WaitReady(ctx)
}

// Reload starts what is new in the machine's ServiceDir, and ends what is no more there.
func (m *Machine) Reload(ctx context.Context) error {
	state, err := m.state(ctx)
	if err != nil {
		return err
	}
	if state.PID == 0 {
		return m.off()
	}
	if err := unix.Kill(state.PID, unix.SIGHUP); err != nil {
		return fmt.Errorf("reloading the services of %s, %w", m.name, err)
	}
	return nil
}

// WaitReady returns when the machine's node is ready, in the machine's current boot.
func (m *Machine) WaitReady(ctx context.Context) error {
	err := poll(ctx, 100*time.Millisecond, func() (bool, error) {
		state, err := m.state(ctx)
		if err != nil {
			return false, err
		}
		node, err := m.cluster.client.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return false, nil // not registered yet
		}
		return node.Status.NodeInfo.BootID == state.BootID && nodeReady(node), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to be ready, %w", m.name, err)
	}
	return nil
}

func (m *Machine) do(ctx context.Context, verb string) error {
	return m.cluster.control.call(ctx, "POST", "/machines/"+m.name, machineRequest{Verb: verb}, nil)
}

func (m *Machine) state(ctx context.Context) (MachineState, error) {
	states, err := m.cluster.machineStates(ctx)
	if err != nil {
		return MachineState{}, err
	}
	for _, state := range states {
		if state.Name == m.name {
			return state, nil
		}
	}
	return MachineState{}, fmt.Errorf("no machine is named %s", m.name)
}

// Exec runs a program in the machine, as root, and returns what it writes.
func (m *Machine) Exec(ctx context.Context, command ...string) ([]byte, error) {
	var output bytes.Buffer
	err := m.ExecStream(ctx, nil, &output, &output, command...)
	return output.Bytes(), err
}

// ExecStream is Exec with streams of the caller's.
func (m *Machine) ExecStream(ctx context.Context, in io.Reader, out, errOut io.Writer, command ...string) error {
	state, err := m.state(ctx)
	if err != nil {
		return err
	}
	if state.PID == 0 {
		return m.off()
	}
	cmd := state.command(ctx, command...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %q on %s, %w", command, m.name, err)
	}
	return nil
}

func (m *Machine) off() error { return fmt.Errorf("%s is switched off", m.name) }

// ReadFile reads a file of the machine. One that is off can be read too.
func (m *Machine) ReadFile(path string) ([]byte, error) {
	file, err := m.open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(file)
}

// WriteFile writes a file of the machine, whose directory must exist.
func (m *Machine) WriteFile(path string, data []byte, mode fs.FileMode) error {
	file, err := m.open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.Close()
}

// open opens a file as the machine sees it. Symbolic links lead to where they lead in the machine, never out of it.
func (m *Machine) open(path string, flags uint64, mode fs.FileMode) (*os.File, error) {
	state, err := m.state(context.Background())
	if err != nil {
		return nil, err
	}
	root := filepath.Join("/proc", strconv.Itoa(state.PID), "root")
	if state.PID == 0 {
		root = state.Upper
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(dir)
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode.Perm())
	}
	file, err := unix.Openat2(dir, path, how)
	if errors.Is(err, fs.ErrNotExist) && state.PID == 0 && flags&unix.O_CREAT == 0 {
		return os.Open(path) // never written by the machine, so as it is here
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: m.name + ":" + path, Err: err}
	}
	return os.NewFile(uintptr(file), path), nil
}
