// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"maps"
	"slices"

	"moult.dev/moult/internal/cloud"
)

// Find implements cloud.Cloud. It reads the group of one machine from its metadata, lists that group, and continues with the machines that are not in this
// group.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]cloud.Location, error) {
	found := map[string]cloud.Location{}
	unknown := map[string]string{} // provider ids by Machine.ID
	for _, id := range providerIDs {
		if zone, name, ok := c.machineOfProviderID(id); ok {
			unknown[machineID(zone, name)] = id
		}
	}
	listed := map[group]bool{}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		if unknown[id] == "" {
			continue
		}
		g, ok, err := c.groupOfMachine(ctx, id)
		if err != nil {
			return nil, err
		}
		if !ok || listed[g] {
			continue
		}
		listed[g] = true
		managed, err := c.list(ctx, g)
		if cloud.IgnoreNotFound(err) != nil {
			return nil, err
		}
		for _, i := range managed {
			zone, name, _ := machineOf(i.Instance)
			machine := machineID(zone, name)
			if providerID := unknown[machine]; providerID != "" {
				found[providerID] = cloud.Location{ScaleSet: g.String(), Machine: machine}
				unknown[machine] = ""
			}
		}
	}
	return found, nil
}

// groupOfMachine reads which group has made a machine. The machine may have left the group since.
func (c *Cloud) groupOfMachine(ctx context.Context, id string) (group, bool, error) {
	zone, name, _ := machineOf(id)
	instance, err := c.service.Instances.Get(c.project, zone, name).Fields("metadata/items").Context(ctx).Do()
	if err != nil {
		return group{}, false, cloud.IgnoreNotFound(classify("reading machine "+id, err))
	}
	if instance.Metadata == nil {
		return group{}, false, nil
	}
	for _, item := range instance.Metadata.Items {
		if item.Key == "created-by" && item.Value != nil {
			g, ok := groupFromMetadata(*item.Value)
			return g, ok, nil
		}
	}
	return group{}, false, nil
}
