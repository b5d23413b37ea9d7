// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// scaleSet is one group.
type scaleSet struct {
	cloud *Cloud
	name  string
}

// birth is what is asked but once of a machine, as long as it is not protected.
type birth struct {
	created time.Time
	// protected is true where Compute Engine is told to refuse its deletion.
	protected bool
}

// locate finds out where the group is, if its name does not say so.
func (s *scaleSet) locate(ctx context.Context) (group, error) {
	if g, ok := groupOf(s.name); ok {
		return g, nil
	}
	if s.name == "" || strings.Contains(s.name, "/") {
		return group{}, cloud.Errorf(cloud.KindInvalid, "%q names no managed instance group: zones/ZONE/NAME, regions/REGION/NAME, or NAME", s.name)
	}
	c := s.cloud
	c.mu.Lock()
	g, ok := c.located[s.name]
	c.mu.Unlock()
	if ok {
		return g, nil
	}
	var found []group
	for _, location := range c.locations {
		g := group{regional: !isZone(location), location: location, name: s.name}
		_, err := c.get(ctx, g)
		switch cloud.KindOf(err) {
		case "":
			found = append(found, g)
		case cloud.KindNotFound:
		default:
			return group{}, err
		}
	}
	switch len(found) {
	case 0:
		return group{}, cloud.Errorf(cloud.KindNotFound, "no managed instance group %s in project %s, locations %q", s.name, c.project, c.locations)
	case 1:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.located[s.name] = found[0]
		return found[0], nil
	}
	return group{}, cloud.Errorf(cloud.KindInvalid, "there are several managed instance groups %s: name one of %v", s.name, found)
}

// Describe reads how the group is set up, and its autoscaler if it has one.
func (s *scaleSet) Describe(ctx context.Context) (cloud.Set, error) {
	g, err := s.locate(ctx)
	if err != nil {
		return cloud.Set{}, err
	}
	m, err := s.cloud.get(ctx, g)
	if err != nil {
		return cloud.Set{}, err
	}
	image := s.cloud.wanted(m)
	set := cloud.Set{
		Name:  g.String(),
		Image: image, ImageName: last(image), Model: image,
		Capacity: int(m.TargetSize),
		Zones:    zones(g, m),
		Heals:    true,
		Unfit:    unfit(g, m),
		Version:  m.Fingerprint,
	}
	if m.Status != nil {
		if b := m.Status.BulkInstanceOperation; b != nil && b.InProgress {
			set.Busy = "the group makes machines in bulk"
		}
		if m.Status.Autoscaler != "" {
			if set.Max, err = s.maximum(ctx, g, last(m.Status.Autoscaler)); err != nil {
				return cloud.Set{}, err
			}
		}
	}
	return set, nil
}

// maximum reads how many machines an autoscaler leaves a group. One that may not be read, or is off, bounds nothing.
func (s *scaleSet) maximum(ctx context.Context, g group, name string) (int, error) {
	a, err := s.cloud.autoscaler(ctx, g, name)
	if err != nil {
		err = classify("reading autoscaler "+name, err)
		if kind := cloud.KindOf(err); kind == cloud.KindDenied || kind == cloud.KindNotFound {
			return 0, nil
		}
		return 0, err
	}
	if p := a.AutoscalingPolicy; p != nil && p.Mode != "OFF" {
		return int(p.MaxNumReplicas), nil
	}
	return 0, nil
}

// wanted is the template that the group makes new machines of.
func (c *Cloud) wanted(m *compute.InstanceGroupManager) string {
	for _, v := range m.Versions {
		if !partial(v) {
			return c.template(v.InstanceTemplate)
		}
	}
	return c.template(m.InstanceTemplate)
}

// partial reports whether only some machines are to be of a version. What the API has calculated is not said by anybody.
func partial(v *compute.InstanceGroupManagerVersion) bool {
	return v.TargetSize != nil && (v.TargetSize.Fixed != 0 || v.TargetSize.Percent != 0 && v.TargetSize.Percent != 100)
}

// zones are those that a group spreads its machines over.
func zones(g group, m *compute.InstanceGroupManager) []string {
	if !g.regional {
		return []string{g.location}
	}
	var all []string
	if m.DistributionPolicy != nil {
		for _, z := range m.DistributionPolicy.Zones {
			all = append(all, last(z.Zone))
		}
	}
	return all
}

// unfit says why a group must not be touched.
func unfit(g group, m *compute.InstanceGroupManager) string {
	p := m.UpdatePolicy
	switch {
	case p == nil || p.Type != "OPPORTUNISTIC":
		return "updatePolicy.type is not OPPORTUNISTIC: the group replaces machines by itself"
	case len(m.Versions) > 1:
		return fmt.Sprintf("the group has %d versions: a canary update of its own is under way", len(m.Versions))
	case len(m.Versions) == 1 && partial(m.Versions[0]):
		return "the only version of the group has a targetSize: a canary update of its own is under way"
	case len(m.Versions) == 0 && m.InstanceTemplate == "":
		return "the group has no instance template"
	case g.regional && p.InstanceRedistributionType != "NONE":
		return "updatePolicy.instanceRedistributionType is not NONE: the group deletes machines by itself to even out its zones"
	case m.TargetSizePolicy != nil && m.TargetSizePolicy.Mode == "BULK":
		return "targetSizePolicy.mode is BULK: the group can't add single machines"
	}
	return ""
}

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
	if err := s.cloud.learn(ctx, managed); err != nil {
		return nil, err
	}
	wanted := s.cloud.wanted(m)
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

// stateOf says how a machine stands: by what the group does with it and, while it does nothing, by what runs.
func stateOf(m *compute.ManagedInstance) (cloud.State, string) {
	_, text := trouble(m)
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

// learn reads when machines were made that were not seen yet, and whether they are protected; those that were are asked for again. A machine that the
// group makes anew under its old name is another one here. What may not be read stays unknown, or as it was.
func (c *Cloud) learn(ctx context.Context, managed []*compute.ManagedInstance) error {
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
