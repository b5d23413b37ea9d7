// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

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
	image := s.cloud.templateOf(m)
	set := cloud.Set{
		Name:  g.String(),
		Image: image, ImageName: lastPart(image), Model: image,
		Capacity: int(m.TargetSize),
		Zones:    zonesOf(g, m),
		Heals:    true,
		Unfit:    unfitReason(g, m),
		Version:  m.Fingerprint,
	}
	if m.Status != nil {
		if b := m.Status.BulkInstanceOperation; b != nil && b.InProgress {
			set.Busy = "the group makes machines in bulk"
		}
		if m.Status.Autoscaler != "" {
			if set.Max, err = s.autoscalerMaximum(ctx, g, lastPart(m.Status.Autoscaler)); err != nil {
				return cloud.Set{}, err
			}
		}
	}
	return set, nil
}

// autoscalerMaximum reads how many machines an autoscaler leaves a group. One that may not be read, or is off, bounds nothing.
func (s *scaleSet) autoscalerMaximum(ctx context.Context, g group, name string) (int, error) {
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

// zonesOf are those that a group spreads its machines over.
func zonesOf(g group, m *compute.InstanceGroupManager) []string {
	if !g.regional {
		return []string{g.location}
	}
	var all []string
	if m.DistributionPolicy != nil {
		for _, z := range m.DistributionPolicy.Zones {
			all = append(all, lastPart(z.Zone))
		}
	}
	return all
}

// unfitReason says why a group must not be touched.
func unfitReason(g group, m *compute.InstanceGroupManager) string {
	p := m.UpdatePolicy
	switch {
	case p == nil || p.Type != "OPPORTUNISTIC":
		return "updatePolicy.type is not OPPORTUNISTIC: the group replaces machines by itself"
	case len(m.Versions) > 1:
		return fmt.Sprintf("the group has %d versions: a canary update of its own is under way", len(m.Versions))
	case len(m.Versions) == 1 && isPartial(m.Versions[0]):
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
