// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"

	"google.golang.org/api/compute/v1"

	"moult.dev/moult/internal/cloud"
)

// Describe reads the settings of the group, and its autoscaler if it has one.
func (s *scaleSet) Describe(ctx context.Context) (cloud.Set, error) {
	g, m, err := s.read(ctx)
	if err != nil {
		return cloud.Set{}, err
	}
	image := s.cloud.templateOf(m)
	set := cloud.Set{
		Name:  g.String(),
		Image: image, ImageName: cloud.LastPart(image), Model: image,
		Capacity: int(m.TargetSize),
		Zones:    zonesOf(g, m),
		Unfit:    unfitReason(g, m),
		Version:  m.Fingerprint,
	}
	if name := cloud.LastPart(cloud.Value(m.Status).Autoscaler); name != "" {
		set.Max, err = s.autoscalerMaximum(ctx, g, name)
	}
	return set, err
}

// autoscalerMaximum reads the maximum of an autoscaler; 0 if it is off, or if the credentials may not read it.
func (s *scaleSet) autoscalerMaximum(ctx context.Context, g group, name string) (int, error) {
	a, err := s.cloud.autoscaler(ctx, g, name)
	of := cloud.Value(cloud.Value(a).AutoscalingPolicy) // Zero after an error.
	if kind := cloud.KindOf(err); kind == cloud.KindDenied || kind == cloud.KindNotFound || of.Mode == "OFF" {
		return 0, nil
	}
	return int(of.MaxNumReplicas), err
}

// zonesOf are the zones of a group.
func zonesOf(g group, m *compute.InstanceGroupManager) []string {
	if !g.regional {
		return []string{g.location}
	}
	var all []string
	for _, z := range cloud.Value(m.DistributionPolicy).Zones {
		all = append(all, cloud.LastPart(z.Zone))
	}
	return all
}

// templateOf is the template that the group makes new machines of.
func (c *Cloud) templateOf(m *compute.InstanceGroupManager) string {
	for _, v := range m.Versions {
		if !isPartial(v) {
			return c.template(v.InstanceTemplate)
		}
	}
	return c.template(m.InstanceTemplate)
}

// isPartial reports whether a version is for a part of the machines. Compute Engine sets TargetSize for all of them.
func isPartial(v *compute.InstanceGroupManagerVersion) bool {
	return v.TargetSize != nil && (v.TargetSize.Fixed != 0 || v.TargetSize.Percent != 0 && v.TargetSize.Percent != 100)
}

// unfitReason says why a group must not be touched.
func unfitReason(g group, m *compute.InstanceGroupManager) string {
	p := cloud.Value(m.UpdatePolicy)
	switch {
	case p.Type != "OPPORTUNISTIC":
		return "updatePolicy.type is not OPPORTUNISTIC: the group replaces machines by itself"
	case len(m.Versions) > 1, len(m.Versions) == 1 && isPartial(m.Versions[0]):
		return "the group has several versions, or one with a targetSize: a canary update of its own is under way"
	case len(m.Versions) == 0 && m.InstanceTemplate == "":
		return "the group has no instance template"
	case g.regional && p.InstanceRedistributionType != "NONE":
		return "updatePolicy.instanceRedistributionType is not NONE: the group deletes machines by itself to even out its zones"
	case cloud.Value(m.TargetSizePolicy).Mode == "BULK":
		return "targetSizePolicy.mode is BULK: the group can't add single machines"
	}
	return ""
}
