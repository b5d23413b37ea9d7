// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"

	"moult.dev/moult/internal/cloud"
)

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
