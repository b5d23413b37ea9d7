// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// machine is the supervisor's side of one machine: its power switch and its cable.
type machine struct {
	supervisor *supervisor
	name       string
	index      int // from one
	dir        string
	options    MachineOptions

	mu      sync.Mutex
	boot    *boot // nil while it is powered off
	cgroups []string
	// closed says that the cluster ends, and nothing is started any more.
	closed bool
}

// boot is the time between power on and power off.
type boot struct {
	id       string
	identity identity
	// lifeline is the end of a pipe that the machine's init waits at: for word of what is ready, and for this process's death.
	lifeline *os.File
	exited   chan struct{}
	status   syscall.WaitStatus // once exited
}

// What the supervisor tells a machine's init, a line each.
const (
	networkReady = "network"
	apiReady     = "api"
)

// startMachines switches all machines on and gives them their images. Their kubelets start when the API server is ready.
func (s *supervisor) startMachines(ctx context.Context, ready <-chan struct{}) error {
	if err := checkDisk(s.spec.Dir); err != nil {
		return err
	}
	images, err := s.standardImages(ctx)
	if err != nil {
		return err
	}
	containerSpec, err := containerSpec(ctx)
	if err != nil {
		return err
	}
	var machines []*machine
	for i := range s.spec.Machines {
		name := "machine-" + strconv.Itoa(i+1)
		m := s.newMachine(i+1, MachineOptions{Name: name, Zone: zones[i%len(zones)]})
		if err := m.install(containerSpec); err != nil {
			return fmt.Errorf("installing %s, %w", m.name, err)
		}
		machines = append(machines, m)
	}
	s.mu.Lock()
	s.machines = machines
	s.lastIndex = len(machines)
	s.images = append(images, s.spec.Images...)
	s.mu.Unlock()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, m := range machines {
		group.Go(func() error {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.powerOn(groupCtx)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := importOn(ctx, s.machineStates(), append(images, s.spec.Images...), importImage); err != nil {
		return err
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, m := range machines {
		if err := m.tell(apiReady); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) newMachine(index int, o MachineOptions) *machine {
	return &machine{supervisor: s, name: o.Name, index: index, dir: filepath.Join(s.spec.Dir, "machines", o.Name), options: o}
}

// powerOn boots the machine. The caller holds its lock.
func (m *machine) powerOn(ctx context.Context) error {
	if m.boot != nil || m.closed {
		return nil
	}
	s := m.supervisor
	b := &boot{id: uuid.NewString(), exited: make(chan struct{})}
	cgroup := fmt.Sprintf("moult-%s-%s", s.spec.ID, m.name)
	// Those of the last boot's pods are empty, and yet the kubelet would spend seconds on each.
	for _, dir := range m.cgroups {
		if err := removeCgroup(ctx, dir); err != nil {
			return err
		}
	}
	cgroups, err := makeCgroups(cgroup)
	if err != nil {
		return err
	}
	m.cgroups = cgroups
	err = s.updateRecord(func(rec *record) {
		for _, dir := range cgroups {
			if !slices.Contains(rec.Cgroups, dir) {
				rec.Cgroups = append(rec.Cgroups, dir)
			}
		}
	})
	if err != nil {
		return err
	}
	config, err := m.configure(b.id, cgroup)
	if err != nil {
		return err
	}
	logs := filepath.Join(s.spec.Dir, "log", m.name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(logs, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	wait, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	b.lifeline = lifeline

	cmd := exec.Command(selfExecutable)
	cmd.Args = []string{machineInitName, config}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + toolPath, "HOME=/root"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{wait}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
	}
	if err := cmd.Start(); err != nil {
		lifeline.Close()
		return fmt.Errorf("starting %s, %w", m.name, err)
	}
	b.identity, err = identify(cmd.Process.Pid)
	m.boot = b
	go m.watch(cmd, b)
	return errors.Join(
		err,
		s.remember(b.identity),
		m.plugIn(ctx, cmd.Process.Pid),
		b.tell(networkReady),
	)
}

// powerOff ends the machine as a power cut does. The caller holds its lock.
func (m *machine) powerOff(ctx context.Context) error {
	b := m.boot
	if b == nil {
		return nil
	}
	m.boot = nil
	if err := b.identity.kill(ctx); err != nil {
		return err
	}
	<-b.exited
	return nil
}

// watch waits for a boot's end. A machine whose init ends of itself was rebooted or switched off from inside, by the system call for that:
// the kernel tells the two apart by the signal.
func (m *machine) watch(cmd *exec.Cmd, b *boot) {
	_ = cmd.Wait()
	b.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
	b.lifeline.Close()
	close(b.exited)

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot != b {
		return // this was powerOff
	}
	m.boot = nil
	s := m.supervisor
	switch {
	case m.closed:
	case b.status.Signaled() && b.status.Signal() == syscall.SIGHUP:
		s.logf("%s reboots", m.name)
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err := m.powerOn(ctx)
		if err == nil {
			err = m.boot.tell(apiReady)
		}
		if err != nil {
			s.logf("%s did not come back, %v", m.name, err)
		}
	case b.status.Signaled() && b.status.Signal() == syscall.SIGINT:
		s.logf("%s switched itself off", m.name)
	default:
		s.logf("%s stopped: %v, its logs are in %s", m.name, cmd.ProcessState, filepath.Join(s.spec.Dir, "log", m.name))
	}
}

// do carries out what a client asks of the machine.
func (m *machine) do(ctx context.Context, verb string) (MachineState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	switch verb {
	case "kill":
		err = m.powerOff(ctx)
	case "start", "reboot":
		if verb == "reboot" {
			err = m.powerOff(ctx)
		}
		if err == nil {
			err = m.powerOn(ctx)
		}
		if err == nil && m.boot != nil {
			err = m.boot.tell(apiReady)
		}
	default:
		err = fmt.Errorf("a machine cannot %q", verb)
	}
	if err != nil {
		return MachineState{}, fmt.Errorf("%s of %s, %w", verb, m.name, err)
	}
	return m.state(), nil
}

// tell sends a line to the machine's init, if the machine is on.
func (m *machine) tell(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == nil {
		return nil
	}
	return m.boot.tell(what)
}

func (b *boot) tell(what string) error {
	_, err := fmt.Fprintln(b.lifeline, what)
	return err
}

// close sees to it that the machine is not started any more.
func (m *machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

func (m *machine) state() MachineState {
	state := MachineState{
		Name:  m.name,
		IP:    m.supervisor.machineIP(m.index),
		Zone:  m.options.Zone,
		Upper: filepath.Join(m.dir, "upper"),
	}
	if m.boot != nil {
		state.PID, state.BootID = m.boot.identity.PID, m.boot.id
	}
	return state
}

func (s *supervisor) machineStates() []MachineState {
	s.mu.Lock()
	machines := slices.Clone(s.machines)
	s.mu.Unlock()
	states := []MachineState{}
	for _, m := range machines {
		m.mu.Lock()
		states = append(states, m.state())
		m.mu.Unlock()
	}
	return states
}

func (s *supervisor) machine(name string) (*machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		if m.name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no machine is named %s", name)
}

// machineConfig is what a machine's init is told in a file.
type machineConfig struct {
	Name string `json:"name"`
	// Dir holds the machine's layers and its disks, and Logs what it logs, both as seen from outside.
	Dir    string `json:"dir"`
	Logs   string `json:"logs"`
	BootID string `json:"bootID"`
	// Labels are the node's, as the kubelet takes them.
	Labels string `json:"labels"`
	// IP is the machine's address and Address the same with the network's length.
	IP      string `json:"ip"`
	Address string `json:"address"`
	Gateway string `json:"gateway"`
	// API is the address and port of the API server.
	API string `json:"api"`
	// Routes are the other machines' pod subnets, and the machines they are at.
	Routes         map[string]string `json:"routes,omitempty"`
	Kubelet        string            `json:"kubelet"`
	Cgroup         string            `json:"cgroup"`
	UnifiedCgroups bool              `json:"unifiedCgroups,omitempty"`
}

// configure writes the configuration of one boot and returns its path.
func (m *machine) configure(bootID, cgroup string) (string, error) {
	s := m.supervisor
	c := machineConfig{
		Name:           m.name,
		Dir:            m.dir,
		Logs:           filepath.Join(s.spec.Dir, "log", m.name),
		BootID:         bootID,
		Labels:         m.options.labels(),
		IP:             s.machineIP(m.index),
		Address:        fmt.Sprintf("%s/%d", s.machineIP(m.index), s.record.Subnet.Bits()),
		Gateway:        s.apiAddress(),
		API:            fmt.Sprintf("%s:%d", s.apiAddress(), s.record.Ports[portAPI]),
		Routes:         map[string]string{},
		Kubelet:        filepath.Join(s.spec.Programs, "kubelet"),
		Cgroup:         cgroup,
		UnifiedCgroups: unifiedCgroups(),
	}
	s.mu.Lock()
	for _, other := range s.machines {
		if other != m {
			c.Routes[podSubnet(other.index)] = s.machineIP(other.index)
		}
	}
	s.mu.Unlock()
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(m.dir, "machine.json")
	return path, os.WriteFile(path, data, 0o600)
}
