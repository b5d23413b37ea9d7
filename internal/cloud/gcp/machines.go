// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"slices"

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
		if failed && !isMade(m) {
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

// isMade reports whether an instance has what it needs to start. Before that a group may be unable to make it, and the last attempt says why.
func isMade(m *compute.ManagedInstance) bool {
	return !slices.Contains([]string{"", "PENDING", "PROVISIONING"}, m.InstanceStatus)
}

// Find implements cloud.Cloud. It reads the group of one machine from its metadata, lists that group, and continues with the machines that are not in this
// group.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]string, error) {
	found := map[string]string{}
	unknown := map[machine]string{} // provider ids
	for _, id := range providerIDs {
		if match := machineProviderID.FindStringSubmatch(id); match != nil && match[1] == c.project {
			unknown[machine{match[2], match[3]}] = id
		}
	}
	listed := map[group]bool{}
	for m := range unknown { // It becomes smaller with each list.
		g, ok, err := c.groupOfMachine(ctx, m)
		if err != nil {
			return found, err
		}
		if !ok || listed[g] {
			continue
		}
		listed[g] = true
		managed, err := c.list(ctx, g)
		if cloud.IgnoreNotFound(err) != nil {
			return found, err
		}
		for _, i := range managed {
			other, _ := machineOf(i.Instance)
			if providerID, ok := unknown[other]; ok {
				found[providerID] = g.String()
				delete(unknown, other)
			}
		}
	}
	return found, nil
}

// groupOfMachine reads which group has made a machine. The machine may have left the group since.
func (c *Cloud) groupOfMachine(ctx context.Context, m machine) (g group, ok bool, err error) {
	instance, err := c.service.Instances.Get(c.project, m.zone, m.name).Fields("metadata/items").Context(ctx).Do()
	if err != nil {
		return group{}, false, cloud.IgnoreNotFound(classify("reading machine "+m.String(), err))
	}
	for _, item := range cloud.Value(instance.Metadata).Items {
		if item := cloud.Value(item); item.Key == "created-by" {
			g, ok = groupOf(cloud.Value(item.Value), groupPath)
		}
	}
	return g, ok, nil
}
