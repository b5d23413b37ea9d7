// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"moult.dev/moult/internal/cloud"
)

// group reads the group, with or without its instances.
func (s *scaleSet) group(ctx context.Context, instances bool) (*types.AutoScalingGroup, error) {
	return s.seen.Read(s.name, func() (*types.AutoScalingGroup, error) {
		out, err := s.c.scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: []string{s.name}, IncludeInstances: aws.Bool(instances || s.seen != nil),
		})
		if err != nil {
			return nil, classify("reading Auto Scaling group "+s.name, err)
		}
		if len(out.AutoScalingGroups) != 1 {
			return nil, cloud.Errorf(cloud.KindNotFound, "reading Auto Scaling group %s, there is none of that name", s.name)
		}
		return &out.AutoScalingGroups[0], nil
	})
}

// Describe implements cloud.ScaleSet.
func (s *scaleSet) Describe(ctx context.Context) (cloud.Set, error) {
	g, err := s.group(ctx, false)
	if err != nil {
		return cloud.Set{}, err
	}
	set := cloud.Set{
		Name: s.name, Capacity: int(aws.ToInt32(g.DesiredCapacity)), Min: int(aws.ToInt32(g.MinSize)), Max: int(aws.ToInt32(g.MaxSize)),
		Zones: slices.Sorted(slices.Values(g.AvailabilityZones)), Unfit: unfitReason(g),
	}
	for _, t := range g.Tags {
		if aws.ToString(t.Key) == cloud.TagMax {
			set.LimitTo(aws.ToString(t.Value))
		}
	}
	own, err := s.c.resolve(ctx, specification(g))
	if cloud.KindOf(err) == cloud.KindInvalid {
		set.Unfit, err = err.Error(), nil
	}
	if err != nil {
		return cloud.Set{}, err
	}
	if own.id != "" {
		set.Image, set.ImageID, set.Model = own.String(), own.image, model(g, own)
		if set.ImageName, err = s.c.imageName(ctx, own.image); err != nil {
			return cloud.Set{}, err
		}
	}
	set.Busy, err = s.busyReason(ctx, g)
	set.BusyByOthers = set.Busy != ""
	return set, err
}

// unfitReason says why a group must not be touched.
func unfitReason(g *types.AutoScalingGroup) string {
	switch {
	case g.Operator != nil && aws.ToString(g.Operator.Principal) != "":
		return "it is managed by " + aws.ToString(g.Operator.Principal) + ", which alone may change it"
	case specification(g) == nil:
		return "it has no launch template: give it one in place of its launch configuration"
	case aws.ToInt32(g.MaxInstanceLifetime) > 0:
		return "it replaces machines by itself: its maximum instance lifetime is set"
	case g.WarmPoolConfiguration != nil && g.WarmPoolConfiguration.Status == "":
		return "it has a warm pool, whose machines may be of another image"
	case hasWeights(g):
		return "its capacity is no number of machines: it has weights, or a capacity type other than units"
	case slices.ContainsFunc(overrides(g), func(o types.LaunchTemplateOverrides) bool {
		return o.LaunchTemplateSpecification != nil || aws.ToString(o.ImageId) != ""
	}):
		return "an override of its mixed instances policy has a launch template or an image of its own: make a group of each"
	case mixesSpot(g):
		return "its mixed instances policy has on-demand and spot instances, to which AWS offers no safe way to add one: make a group of each"
	}
	for _, p := range g.SuspendedProcesses {
		if name := aws.ToString(p.ProcessName); name == "Launch" || name == "Terminate" {
			return "its process " + name + " is suspended"
		}
	}
	return ""
}

func hasWeights(g *types.AutoScalingGroup) bool {
	return cmp.Or(aws.ToString(g.DesiredCapacityType), "units") != "units" || slices.ContainsFunc(overrides(g), func(o types.LaunchTemplateOverrides) bool {
		return cmp.Or(aws.ToString(o.WeightedCapacity), "1") != "1"
	})
}

// mixesSpot reports whether a group mixes on-demand and spot instances. LaunchInstances refuses such a group. SetDesiredCapacity has no token: a repeated or
// late request could add a machine twice, or make AWS terminate one.
func mixesSpot(g *types.AutoScalingGroup) bool {
	d := cloud.Value(cloud.Value(g.MixedInstancesPolicy).InstancesDistribution)
	onDemand := *cmp.Or(d.OnDemandPercentageAboveBaseCapacity, aws.Int32(100))
	return onDemand < 100 && (onDemand > 0 || aws.ToInt32(d.OnDemandBaseCapacity) > 0)
}

// busyReason says which instance refresh is under way, or that the group is being deleted.
func (s *scaleSet) busyReason(ctx context.Context, g *types.AutoScalingGroup) (string, error) {
	if status := aws.ToString(g.Status); status != "" {
		return "it is being deleted: " + status, nil
	}
	out, err := s.c.scaling.DescribeInstanceRefreshes(ctx, &autoscaling.DescribeInstanceRefreshesInput{
		AutoScalingGroupName: aws.String(s.name), MaxRecords: aws.Int32(5),
	})
	if err != nil {
		return "", classify("reading instance refreshes of "+s.name, err)
	}
	for _, r := range out.InstanceRefreshes {
		switch r.Status {
		case types.InstanceRefreshStatusPending, types.InstanceRefreshStatusInProgress, types.InstanceRefreshStatusCancelling,
			types.InstanceRefreshStatusRollbackInProgress, types.InstanceRefreshStatusBaking:
			return fmt.Sprintf("instance refresh %s is %s", aws.ToString(r.InstanceRefreshId), r.Status), nil
		}
	}
	return "", nil
}
