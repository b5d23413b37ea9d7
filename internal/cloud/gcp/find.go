// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"slices"

	"moult.dev/moult/internal/cloud"
)

// Find finds out of which groups machines are. Of the machines of a group that it does not know yet it asks about one, and then lists the group; those
// of groups that have been listed cost nothing.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]cloud.Location, error) {
	found := map[string]cloud.Location{}
	unknown := map[string]string{} // by Machine.ID
	for _, id := range providerIDs {
		if zone, name, ok := c.machineOfProviderID(id); ok {
			unknown[machineID(zone, name)] = id
		}
	}
	c.take(unknown, found)
	for _, g := range c.groups() {
		if len(unknown) == 0 {
			return found, nil
		}
		if err := c.refresh(ctx, g); err != nil {
			return nil, err
		}
		c.take(unknown, found)
	}
	for len(unknown) > 0 {
		ids := make([]string, 0, len(unknown))
		for id := range unknown {
			ids = append(ids, id)
		}
		id := slices.Min(ids)
		g, ok, err := c.maker(ctx, id)
		if err != nil {
			return nil, err
		}
		if ok && !slices.Contains(c.groups(), g) {
			if err := c.refresh(ctx, g); err != nil {
				return nil, err
			}
			c.take(unknown, found)
		}
		delete(unknown, id) // if it is still there it has left its group, or has none
	}
	return found, nil
}

// take moves those machines that are known to be of a group, or of none, out of the unknown ones.
func (c *Cloud) take(unknown map[string]string, found map[string]cloud.Location) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, providerID := range unknown {
		for g, members := range c.members {
			if members[id] {
				found[providerID] = cloud.Location{ScaleSet: g.String(), Machine: id}
				delete(unknown, id)
			}
		}
		if c.loners[id] {
			delete(unknown, id)
		}
	}
}

// groups are those that have been listed, in the order of their names.
func (c *Cloud) groups() []group {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]group, 0, len(c.members))
	for g := range c.members {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b group) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return all
}

// refresh lists a group, which may be gone.
func (c *Cloud) refresh(ctx context.Context, g group) error {
	_, err := c.list(ctx, g)
	if cloud.KindOf(err) == cloud.KindNotFound {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.members, g)
		return nil
	}
	return err
}

// maker asks which group has made a machine.
func (c *Cloud) maker(ctx context.Context, id string) (group, bool, error) {
	zone, name, _ := machineOf(id)
	instance, err := c.service.Instances.Get(c.project, zone, name).Fields("metadata/items").Context(ctx).Do()
	if err != nil {
		err = classify("reading machine "+id, err)
		if cloud.KindOf(err) == cloud.KindNotFound {
			return group{}, false, nil
		}
		return group{}, false, err
	}
	if instance.Metadata != nil {
		for _, item := range instance.Metadata.Items {
			if item.Key == "created-by" && item.Value != nil {
				if g, ok := creator(*item.Value); ok {
					return g, true, nil
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loners[id] = true
	return group{}, false, nil
}
