// SPDX-License-Identifier: Apache-2.0

package clouds

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/test/cluster"
)

// ImageName is the last part of an image's reference: what the Nodes of machines show that are made of it.
func ImageName(image string) string {
	return image[strings.LastIndexAny(image, "/:")+1:]
}

// simulatedHosts are simulated nodes of a cluster.
type simulatedHosts struct {
	cluster *cluster.Cluster
	taints  []corev1.Taint
}

// SimulatedHosts let a simulated node of a cluster join for each machine: with its provider id, zone and labels, and with the name of its image as
// osImage. A machine that stops is a node that has fallen silent. The nodes begin with these taints.
func SimulatedHosts(c *cluster.Cluster, taints ...corev1.Taint) Hosts {
	return &simulatedHosts{cluster: c, taints: taints}
}

func (h *simulatedHosts) Start(ctx context.Context, m Machine) error {
	return h.cluster.AddNode(ctx, cluster.NodeOptions{
		Name: m.NodeName, Zone: m.Zone, ProviderID: m.ProviderID, Labels: m.Labels, OSImage: ImageName(m.Image), NotReady: m.Sick, Taints: h.taints,
	})
}

func (h *simulatedHosts) Stop(ctx context.Context, m Machine) error {
	return h.cluster.Silence(ctx, m.NodeName)
}

// machineHosts are real machines of a cluster.
type machineHosts struct {
	cluster *cluster.Cluster
	life    sync.Map // a *sync.Mutex by name: a machine is not started and stopped at the same time
}

// MachineHosts let a real machine of a cluster join for each machine, as SimulatedHosts do. The cluster must have been started with machines.
func MachineHosts(c *cluster.Cluster) Hosts { return &machineHosts{cluster: c} }

func (h *machineHosts) lock(name string) (unlock func()) {
	life, _ := h.life.LoadOrStore(name, &sync.Mutex{})
	life.(*sync.Mutex).Lock()
	return life.(*sync.Mutex).Unlock
}

func (h *machineHosts) Start(ctx context.Context, m Machine) error {
	unlock := h.lock(m.NodeName)
	defer unlock()
	_, err := h.cluster.AddMachine(ctx, cluster.MachineOptions{
		Name: m.NodeName, Zone: m.Zone, ProviderID: m.ProviderID, Labels: m.Labels, OSImage: ImageName(m.Image), NotReady: m.Sick,
	})
	return err
}

func (h *machineHosts) Stop(ctx context.Context, m Machine) error {
	unlock := h.lock(m.NodeName)
	defer unlock()
	machine := h.cluster.Machine(m.NodeName)
	if machine == nil {
		return nil // it has never started
	}
	if err := machine.Remove(ctx); err != nil {
		return fmt.Errorf("stopping machine %s, %w", m.NodeName, err)
	}
	return nil
}

// HostRegistry passes machines on to the Hosts that are for their set.
type HostRegistry struct{ sets sync.Map }

// Use lets these Hosts start and stop the machines of a set. Nil: nothing does.
func (r *HostRegistry) Use(set string, h Hosts) { r.sets.Store(set, h) }

// Start passes it on.
func (r *HostRegistry) Start(ctx context.Context, m Machine) error {
	h, _ := r.sets.Load(m.Set)
	if h, ok := h.(Hosts); ok {
		return h.Start(ctx, m)
	}
	return nil
}

// Stop passes it on.
func (r *HostRegistry) Stop(ctx context.Context, m Machine) error {
	h, _ := r.sets.Load(m.Set)
	if h, ok := h.(Hosts); ok {
		return h.Stop(ctx, m)
	}
	return nil
}
