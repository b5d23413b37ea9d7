// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"moult.dev/moult/internal/cloud"
)

// Machines implements cloud.ScaleSet.
func (s *scaleSet) Machines(ctx context.Context) ([]cloud.Machine, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return nil, err
	}
	own, err := s.c.resolve(ctx, specification(g))
	if err != nil && cloud.KindOf(err) != cloud.KindInvalid {
		return nil, err
	}
	instances, err := s.instances(ctx)
	if err != nil {
		return nil, err
	}
	var machines []cloud.Machine
	for _, i := range g.Instances {
		if !isMember(i.LifecycleState) {
			continue
		}
		id, zone := aws.ToString(i.InstanceId), aws.ToString(i.AvailabilityZone)
		vm := instances[id]
		m := cloud.Machine{
			ID: id, ProviderID: "aws:///" + zone + "/" + id, Zone: zone, UpToDate: upToDate(own, &i, aws.ToString(vm.ImageId)), Created: aws.ToTime(vm.LaunchTime),
		}
		m.State, m.Message = stateOf(&i, vm)
		if isStandby(&i) {
			m.Aside = "it is in standby, where the capacity does not count it: put it back into service, or terminate it"
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// instances reads the group's instances from EC2, by id.
func (s *scaleSet) instances(ctx context.Context) (map[string]ec2types.Instance, error) {
	in := &ec2.DescribeInstancesInput{
		Filters:    []ec2types.Filter{{Name: aws.String("tag:aws:autoscaling:groupName"), Values: []string{s.name}}},
		MaxResults: aws.Int32(1000),
	}
	all := map[string]ec2types.Instance{}
	for pages := ec2.NewDescribeInstancesPaginator(s.c.ec2, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, classify("reading instances of "+s.name, err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				all[aws.ToString(i.InstanceId)] = i
			}
		}
	}
	return all, nil
}

// isMember reports whether the group still has an instance in that state. A retained instance is no member: the group has terminated it, and does not count it.
func isMember(l types.LifecycleState) bool {
	switch l {
	case types.LifecycleStateTerminated, types.LifecycleStateTerminatingRetained, types.LifecycleStateDetaching, types.LifecycleStateDetached:
		return false
	}
	return !strings.HasPrefix(string(l), "Warmed:")
}

// isLeaving reports whether the group terminates an instance in that state. The capacity does not count such instances.
func isLeaving(l types.LifecycleState) bool { return strings.HasPrefix(string(l), "Terminating") }

func isStandby(i *types.Instance) bool {
	return i.LifecycleState == types.LifecycleStateStandby || i.LifecycleState == types.LifecycleStateEnteringStandby
}

// stateOf is the state of an instance, by its group and by EC2, and why it has failed.
func stateOf(i *types.Instance, vm ec2types.Instance) (cloud.State, string) {
	lifecycle, name := i.LifecycleState, cloud.Value(vm.State).Name
	switch {
	case isLeaving(lifecycle), name == ec2types.InstanceStateNameShuttingDown, name == ec2types.InstanceStateNameTerminated:
		return cloud.Deleting, ""
	case strings.HasPrefix(string(lifecycle), "Pending"):
		return cloud.Creating, ""
	case isStandby(i), name == ec2types.InstanceStateNameStopping, name == ec2types.InstanceStateNameStopped:
		return cloud.Stopped, ""
	case strings.EqualFold(aws.ToString(i.HealthStatus), "Unhealthy"):
		return cloud.Failed, cmp.Or(aws.ToString(cloud.Value(vm.StateReason).Message), "the group reports it unhealthy")
	case lifecycle == types.LifecycleStateInService:
		return cloud.Running, ""
	}
	return cloud.Failed, "its lifecycle state is " + string(lifecycle)
}

// Protected implements cloud.Protector: it reports whether an instance has termination protection.
func (s *scaleSet) Protected(ctx context.Context, id string) (bool, error) {
	out, err := s.c.ec2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		Attribute: ec2types.InstanceAttributeNameDisableApiTermination, InstanceId: aws.String(id),
	})
	if err != nil {
		return false, cloud.IgnoreNotFound(classify("reading termination protection of "+id, err))
	}
	return aws.ToBool(cloud.Value(out.DisableApiTermination).Value), nil
}

// instancesPerCall is how many instances DescribeAutoScalingInstances takes.
const instancesPerCall = 50

// providerID is aws:///ZONE/INSTANCE. The API refuses a whole request for one ID of another form.
var providerID = regexp.MustCompile(`^aws://.*/(i-[a-z0-9]{1,17})$`)

// Find implements cloud.Cloud.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]string, error) {
	byID := map[string]string{}
	for _, p := range providerIDs {
		if match := providerID.FindStringSubmatch(p); match != nil {
			byID[match[1]] = p
		}
	}
	found := map[string]string{}
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(byID)), instancesPerCall) {
		in := &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: batch}
		for pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(c.scaling, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return found, classify("finding the groups of instances", err)
			}
			for _, i := range page.AutoScalingInstances {
				found[byID[aws.ToString(i.InstanceId)]] = aws.ToString(i.AutoScalingGroupName)
			}
		}
	}
	return found, nil
}
