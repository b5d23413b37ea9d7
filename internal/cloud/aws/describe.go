// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"moult.dev/moult/internal/cloud"
)

// maxTag is the tag by which people bound a group below its MaxSize.
const maxTag = "max"

// group reads the group, with its instances where they are wanted.
func (s *scaleSet) group(ctx context.Context, instances bool) (*types.AutoScalingGroup, error) {
	in := &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{s.name}}
	if !instances {
		in.IncludeInstances = aws.Bool(false)
	}
	for pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(s.c.scaling, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx, readScaling)
		if err != nil {
			return nil, classify("reading Auto Scaling group "+s.name, err)
		}
		for _, g := range page.AutoScalingGroups {
			if aws.ToString(g.AutoScalingGroupName) == s.name {
				return &g, nil
			}
		}
	}
	return nil, cloud.Errorf(cloud.KindNotFound, "reading Auto Scaling group %s, there is none of that name", s.name)
}

// Describe implements cloud.ScaleSet.
func (s *scaleSet) Describe(ctx context.Context) (cloud.Set, error) {
	g, err := s.group(ctx, false)
	if err != nil {
		return cloud.Set{}, err
	}
	set := cloud.Set{
		Name: s.name, Capacity: int(aws.ToInt32(g.DesiredCapacity)), Min: int(aws.ToInt32(g.MinSize)), Max: int(aws.ToInt32(g.MaxSize)), Heals: true,
	}
	if takesLaunchInstances(g) {
		set.Zones = slices.Sorted(slices.Values(g.AvailabilityZones))
	}
	limit, unfit := limitOf(g)
	if limit > 0 {
		set.Max = min(set.Max, limit)
	}
	if set.Unfit = unfitReason(g); set.Unfit == "" {
		set.Unfit = unfit
	}
	all, err := s.c.templatesOf(ctx, g)
	switch {
	case cloud.KindOf(err) == cloud.KindInvalid:
		set.Unfit = err.Error()
	case err != nil:
		return cloud.Set{}, err
	default:
		set.Model = model(g, all)
	}
	if len(all) > 0 {
		set.Image, set.ImageID = all[0].String(), all[0].image
		if set.ImageName, err = s.c.imageName(ctx, all[0].image); err != nil {
			return cloud.Set{}, err
		}
	}
	set.Busy, err = s.busy(ctx, g)
	return set, err
}

// limitOf is what people bound a group to by its tag; 0 where they don't, or where it is no number, which makes the group unfit.
func limitOf(g *types.AutoScalingGroup) (limit int, unfit string) {
	for _, t := range g.Tags {
		if aws.ToString(t.Key) != maxTag {
			continue
		}
		n, err := strconv.Atoi(aws.ToString(t.Value))
		if err != nil || n < 1 {
			return 0, fmt.Sprintf("its tag %s is %q, which is no number of machines", maxTag, aws.ToString(t.Value))
		}
		return n, ""
	}
	return 0, ""
}

// unfitReason says why a group must not be touched.
func unfitReason(g *types.AutoScalingGroup) string {
	switch {
	case g.Operator != nil && aws.ToString(g.Operator.Principal) != "":
		return "it is managed by " + aws.ToString(g.Operator.Principal) + ", which alone may change it"
	case specification(g) == nil && aws.ToString(g.LaunchConfigurationName) != "":
		return "it makes machines of launch configuration " + aws.ToString(g.LaunchConfigurationName) + ": give it a launch template"
	case specification(g) == nil:
		return "it has no launch template"
	case aws.ToInt32(g.MaxInstanceLifetime) > 0:
		return "it replaces machines by itself: its maximum instance lifetime is set"
	case g.WarmPoolConfiguration != nil && g.WarmPoolConfiguration.Status == "":
		return "it has a warm pool, whose machines may be of another image"
	case hasWeights(g):
		return "its capacity is no number of machines: it has weights, or a capacity type other than units"
	}
	for _, p := range g.SuspendedProcesses {
		if name := aws.ToString(p.ProcessName); name == "Launch" || name == "Terminate" {
			return "its process " + name + " is suspended"
		}
	}
	return ""
}

func hasWeights(g *types.AutoScalingGroup) bool {
	if t := aws.ToString(g.DesiredCapacityType); t != "" && t != "units" {
		return true
	}
	return slices.ContainsFunc(overrides(g), func(o types.LaunchTemplateOverrides) bool {
		w := aws.ToString(o.WeightedCapacity)
		return w != "" && w != "1"
	})
}

// busy says what AWS does with the group at present.
func (s *scaleSet) busy(ctx context.Context, g *types.AutoScalingGroup) (string, error) {
	if status := aws.ToString(g.Status); status != "" {
		return "it is being deleted: " + status, nil
	}
	out, err := s.c.scaling.DescribeInstanceRefreshes(ctx, &autoscaling.DescribeInstanceRefreshesInput{
		AutoScalingGroupName: aws.String(s.name), MaxRecords: aws.Int32(5),
	}, readScaling)
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
