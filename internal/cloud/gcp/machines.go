// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"time"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// Machines reads all machines of the group.
func (s *scaleSet) Machines(ctx context.Context, _ ...string) ([]cloud.Machine, error) {
	g, err := s.locate(ctx)
	if err != nil {
		return nil, err
	}
	m, err := s.cloud.get(ctx, g)
	if err != nil {
		return nil, err
	}
	managed, err := s.cloud.list(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := s.cloud.readBirths(ctx, managed); err != nil {
		return nil, err
	}
	wanted := s.cloud.templateOf(m)
	all := make([]cloud.Machine, 0, len(managed))
	for _, m := range managed {
		all = append(all, s.cloud.machine(m, wanted))
	}
	return all, nil
}

// machine says of a managed instance what a rollout needs.
func (c *Cloud) machine(m *compute.ManagedInstance, wanted string) cloud.Machine {
	state, message := stateOf(m)
	machine := cloud.Machine{State: state, Message: message, UpToDate: m.Version != nil && c.template(m.Version.InstanceTemplate) == wanted && wanted != ""}
	zone, name, ok := machineOf(m.Instance)
	if !ok {
		// It waits for a place, and can't be told by its zone yet.
		machine.ID = "instances/" + m.Name
		return machine
	}
	machine.ID, machine.ProviderID, machine.NodeName, machine.Zone = machineID(zone, name), c.providerID(zone, name), name, zone
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.born[m.Id]
	machine.Created, machine.Protected = b.created, b.protected
	return machine
}

// stateOf is the state of a machine: by what the group does with it, else by the instance's status.
func stateOf(m *compute.ManagedInstance) (cloud.State, string) {
	_, text := lastError(m)
	switch m.CurrentAction {
	case "CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING":
		if text != "" {
			return cloud.Failed, text
		}
		return cloud.Creating, ""
	case "DELETING", "ABANDONING":
		return cloud.Deleting, text
	}
	switch m.InstanceStatus {
	case "RUNNING":
		return cloud.Running, ""
	case "STOPPING", "STOPPED", "PENDING_STOP", "TERMINATED", "SUSPENDING", "SUSPENDED":
		return cloud.Stopped, text
	case "DEPROVISIONING":
		return cloud.Deleting, text
	case "":
		if text != "" {
			return cloud.Failed, text
		}
	}
	return cloud.Creating, ""
}

// readBirths reads when machines were made that were not seen yet, and whether they are protected; those that were are asked for again. A machine that the
// group makes anew under its old name is another one here. What may not be read stays unknown, or as it was.
func (c *Cloud) readBirths(ctx context.Context, managed []*compute.ManagedInstance) error {
	ask, ids := map[string]bool{}, map[uint64]bool{}
	c.mu.Lock()
	for _, m := range managed {
		if b, ok := c.born[m.Id]; ok && !b.protected || m.Id == 0 {
			continue
		}
		if zone, _, ok := machineOf(m.Instance); ok {
			ask[zone], ids[m.Id] = true, true
		}
	}
	c.mu.Unlock()
	for zone := range ask {
		err := c.service.Instances.List(c.project, zone).MaxResults(page).Fields("items(id,creationTimestamp,deletionProtection)", "nextPageToken").
			Pages(ctx, func(p *compute.InstanceList) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, i := range p.Items {
					if !ids[i.Id] {
						continue
					}
					created, _ := time.Parse(time.RFC3339, i.CreationTimestamp) // zero is unknown
					c.born[i.Id] = birth{created: created, protected: i.DeletionProtection}
				}
				return nil
			})
		if err != nil {
			err = classify("listing the machines of zone "+zone, err)
			if kind := cloud.KindOf(err); kind != cloud.KindDenied && kind != cloud.KindNotFound {
				return err
			}
		}
	}
	return nil
}

// birth is what is asked but once of a machine, as long as it is not protected.
type birth struct {
	created time.Time
	// protected is true where Compute Engine is told to refuse its deletion.
	protected bool
}
