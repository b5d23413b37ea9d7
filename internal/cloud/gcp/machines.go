// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// Machines reads all machines of the group.
func (s *scaleSet) Machines(ctx context.Context) ([]cloud.Machine, error) {
	g, m, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	managed, err := s.list(ctx, g)
	if err != nil {
		return nil, err
	}
	wanted := s.cloud.templateOf(m)
	all := make([]cloud.Machine, 0, len(managed))
	for _, m := range managed {
		all = append(all, s.cloud.machine(m, wanted))
	}
	return all, nil
}

// machine is a managed instance as a rollout needs it. The group does not say when it was made.
func (c *Cloud) machine(m *compute.ManagedInstance, wanted string) cloud.Machine {
	now := cloud.Machine{
		ID: "instances/" + m.Name, State: stateOf(m), Message: lastError(m),
		UpToDate: wanted != "" && c.template(cloud.Value(m.Version).InstanceTemplate) == wanted,
	}
	if at, ok := machineOf(m.Instance); ok { // Else it waits for a zone.
		now.ID, now.ProviderID, now.NodeName, now.Zone = at.String(), "gce://"+c.project+"/"+at.zone+"/"+at.name, at.name, at.zone
	}
	return now
}

// stateOf is the state of a machine: by what the group does with it, else by the instance's status.
func stateOf(m *compute.ManagedInstance) cloud.State {
	failed := lastError(m) != ""
	switch m.CurrentAction {
	case "CREATING", "CREATING_WITHOUT_RETRIES", "RECREATING":
		if failed {
			return cloud.Failed
		}
		return cloud.Creating
	case "DELETING", "ABANDONING":
		return cloud.Deleting
	}
	switch m.InstanceStatus {
	case "RUNNING":
		return cloud.Running
	case "STOPPING", "STOPPED", "PENDING_STOP", "TERMINATED", "SUSPENDING", "SUSPENDED":
		return cloud.Stopped
	case "DEPROVISIONING":
		return cloud.Deleting
	case "":
		if failed {
			return cloud.Failed
		}
	}
	return cloud.Creating
}
