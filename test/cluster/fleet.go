// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// MachineOptions says what a machine is like that is added to a cluster that runs.
type MachineOptions struct {
	// Name of it, and of its node: a DNS label. No other machine of the cluster may have it at the same time.
	Name string `json:"name"`
	// Zone it is in. The default is one in turn, as the other machines have them.
	Zone string `json:"zone,omitempty"`
	// ProviderID is what its node's spec.providerID says. Default: nothing.
	ProviderID string `json:"providerID,omitempty"`
	// Labels of its node, beside those of each node. The kubelet refuses most of those that end in kubernetes.io.
	Labels map[string]string `json:"labels,omitempty"`
	// OSImage is what its node's status.nodeInfo.osImage says. The default is what this machine runs.
	OSImage string `json:"osImage,omitempty"`
	// NotReady makes a machine whose node is never ready: its pods have no network.
	NotReady bool `json:"notReady,omitempty"`
}

// labels are those of the node, as the kubelet takes them.
func (o MachineOptions) labels() string {
	all := []string{corev1.LabelTopologyZone + "=" + o.Zone}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		all = append(all, key+"="+o.Labels[key])
	}
	return strings.Join(all, ",")
}

// AddMachine adds a machine to a cluster that was started with some. It has the files and images that the others have. AddMachine returns when its node is
// ready, or with NotReady when it is switched on; after an error nothing is left of it but its node, if that had come already.
func (c *Cluster) AddMachine(ctx context.Context, o MachineOptions) (*Machine, error) {
	var state MachineState
	// Not interrupted, so that it is known what there is.
	if err := c.control.call(context.WithoutCancel(ctx), "POST", "/machines", o, &state); err != nil {
		return nil, fmt.Errorf("adding machine %s, %w", o.Name, err)
	}
	m := &Machine{cluster: c, name: state.Name, ip: state.IP}
	err := context.Cause(ctx)
	if err == nil && !o.NotReady {
		err = m.WaitReady(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adding machine %s, %w", o.Name, err), m.Remove(context.WithoutCancel(ctx)))
	}
	return m, nil
}

// Remove switches off a machine that was added by AddMachine, as a power cut does, and removes all of it but its logs. Its node stays, and is not ready
// some time later. It is an error if there is no such machine.
func (m *Machine) Remove(ctx context.Context) error {
	return m.cluster.control.call(ctx, "DELETE", "/machines/"+m.name, nil, nil)
}

// maxIndex bounds the index of a machine, which is a part of its address.
const maxIndex = 240

// addMachine makes a machine, switches it on and gives it its images.
func (s *supervisor) addMachine(ctx context.Context, o MachineOptions) (_ MachineState, err error) {
	m, images, err := s.register(o)
	if err != nil {
		return MachineState{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.removeMachine(o.Name))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout(0))
	defer cancel()
	if err := m.setUp(ctx); err != nil {
		return MachineState{}, err
	}
	if err := s.route(ctx, m, "replace"); err != nil {
		return MachineState{}, err
	}
	if err := importOn(ctx, []MachineState{m.current()}, images, importImage); err != nil {
		return MachineState{}, err
	}
	if err := m.tell(apiReady); err != nil {
		return MachineState{}, err
	}
	s.logf("%s added", m.name)
	return m.current(), nil
}

// setUp installs a new machine and switches it on.
func (m *machine) setUp(ctx context.Context) error {
	containerSpec, err := containerSpec(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("%s was removed at once", m.name)
	}
	if err := m.install(containerSpec); err != nil {
		return fmt.Errorf("installing %s, %w", m.name, err)
	}
	return m.powerOn(ctx)
}

// register gives a new machine its index, and returns the images that it is to have.
func (s *supervisor) register(o MachineOptions) (*machine, []string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[int]bool{}
	for _, other := range s.machines {
		if other.name == o.Name {
			return nil, nil, fmt.Errorf("there is a machine named %s already", o.Name)
		}
		taken[other.index] = true
	}
	switch {
	case !s.record.Subnet.IsValid() || s.lastIndex == 0:
		return nil, nil, errors.New("the cluster was started without machines")
	case o.Name == "" || o.Name != filepath.Base(o.Name) || strings.HasPrefix(o.Name, "."):
		return nil, nil, fmt.Errorf("a machine can't be named %q", o.Name)
	case len(taken) == maxIndex:
		return nil, nil, errors.New("there is no address for one more machine")
	}
	// The next one each time: a node may outlive its machine, and keeps the address.
	for {
		s.lastIndex = s.lastIndex%maxIndex + 1
		if !taken[s.lastIndex] {
			break
		}
	}
	o.Zone = cmp.Or(o.Zone, zones[(s.lastIndex-1)%len(zones)])
	m := s.newMachine(s.lastIndex, o)
	s.machines = append(slices.Clip(s.machines), m)
	var images []string
	for _, path := range s.images {
		// What a test has loaded is perhaps no more there.
		if _, err := os.Stat(path); err == nil {
			images = append(images, path)
		}
	}
	return m, images, nil
}

// removeMachine takes a machine away that was added.
func (s *supervisor) removeMachine(name string) error {
	m, err := s.machine(name)
	if err != nil {
		return err
	}
	if m.index <= s.spec.Machines && m.name == fmt.Sprintf("machine-%d", m.index) {
		return fmt.Errorf("%s was not added", name)
	}
	// Whoever asked may have gone, and it is done all the same.
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := m.scrap(ctx); err != nil {
		return fmt.Errorf("removing %s, %w", name, err)
	}
	if err := s.route(ctx, m, "del"); err != nil {
		return err
	}
	s.mu.Lock()
	s.machines = slices.DeleteFunc(slices.Clone(s.machines), func(other *machine) bool { return other == m })
	s.mu.Unlock()
	s.logf("%s removed", name)
	return nil
}

// scrap switches the machine off for ever, and removes what it has.
func (m *machine) scrap(ctx context.Context) error {
	s := m.supervisor
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if err := m.powerOff(ctx); err != nil {
		return err
	}
	_ = ip(ctx, "link", "del", m.link()) // the kernel has done so if it was quick
	for _, dir := range m.cgroups {
		if err := removeCgroup(ctx, dir); err != nil {
			return err
		}
	}
	err := s.updateRecord(func(rec *record) {
		rec.Cgroups = slices.DeleteFunc(rec.Cgroups, func(dir string) bool { return slices.Contains(m.cgroups, dir) })
	})
	if err != nil {
		return err
	}
	if err := unmountBelow(m.dir); err != nil {
		return err
	}
	errs := []error{os.RemoveAll(m.dir)}
	for _, suffix := range []string{".crt", ".key", ".kubeconfig"} {
		errs = append(errs, removeFile(s.ca.path(m.name+suffix)))
	}
	return errors.Join(errs...)
}

// current is the machine's state.
func (m *machine) current() MachineState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state()
}

// route tells the other machines where the pods of one are, or are no more. Those that are switched off are told when they boot.
func (s *supervisor) route(ctx context.Context, to *machine, verb string) error {
	for _, other := range s.machineStates() {
		if other.Name == to.name || other.PID == 0 {
			continue
		}
		var output []byte
		err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
			var err error
			output, err = other.command(ctx, "ip", "route", verb, podSubnet(to.index), "via", s.machineIP(to.index)).CombinedOutput()
			if err == nil || verb == "del" {
				return true, nil
			}
			// It boots in this moment, or is switched off.
			_, gone := os.Stat(filepath.Join("/proc", fmt.Sprint(other.PID)))
			return errors.Is(gone, fs.ErrNotExist), nil
		})
		if err != nil {
			return fmt.Errorf("telling %s the way to %s, %w: %s", other.Name, to.name, err, output)
		}
	}
	return nil
}
