// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"moult.dev/moult/internal/cloud"
)

// Machines implements cloud.ScaleSet.
func (s *scaleSet) Machines(ctx context.Context, inTurn ...string) ([]cloud.Machine, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return nil, err
	}
	if len(g.Instances) == 0 {
		return nil, nil
	}
	all, err := s.c.templatesOf(ctx, g)
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
			ID: id, ProviderID: providerID(zone, id), Zone: zone, UpToDate: upToDate(g, all, &i, aws.ToString(vm.ImageId)), Created: aws.ToTime(vm.LaunchTime),
		}
		m.State, m.Message = stateOf(&i, vm)
		if isStandby(&i) {
			m.Aside = "it is in standby, where the capacity does not count it: put it back into service, or terminate it"
		}
		if m.State != cloud.Deleting && slices.Contains(inTurn, id) {
			if m.Protected, err = s.protected(ctx, id); err != nil {
				return nil, err
			}
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// instances reads what EC2 says of the group's instances, by id.
func (s *scaleSet) instances(ctx context.Context) (map[string]ec2types.Instance, error) {
	in := &ec2.DescribeInstancesInput{
		Filters:    []ec2types.Filter{{Name: aws.String("tag:aws:autoscaling:groupName"), Values: []string{s.name}}},
		MaxResults: aws.Int32(1000),
	}
	all := map[string]ec2types.Instance{}
	for pages := ec2.NewDescribeInstancesPaginator(s.c.ec2, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx, readEC2)
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

// isMember reports whether an instance in that state is the group's still. One that its lifecycle policy retains is not: the group has terminated it, its
// capacity does not count it, and whoever has set the policy is to terminate it for good.
func isMember(l types.LifecycleState) bool {
	switch l {
	case types.LifecycleStateTerminated, types.LifecycleStateTerminatingRetained, types.LifecycleStateDetaching, types.LifecycleStateDetached:
		return false
	}
	return !strings.HasPrefix(string(l), "Warmed:")
}

// isLeaving reports whether an instance in that state is on its way out. Capacity does not count it.
func isLeaving(l types.LifecycleState) bool { return strings.HasPrefix(string(l), "Terminating") }

// stateOf is the state of an instance, by its group and by EC2.
func stateOf(i *types.Instance, vm ec2types.Instance) (cloud.State, string) {
	name, reason := ec2types.InstanceStateName(""), ""
	if vm.State != nil {
		name = vm.State.Name
	}
	if vm.StateReason != nil {
		reason = aws.ToString(vm.StateReason.Message)
	}
	l := string(i.LifecycleState)
	switch {
	case isLeaving(i.LifecycleState):
		return cloud.Deleting, ""
	case name == ec2types.InstanceStateNameShuttingDown || name == ec2types.InstanceStateNameTerminated:
		return cloud.Deleting, reason
	case strings.HasPrefix(l, "Pending"):
		return cloud.Creating, reason
	case i.LifecycleState == types.LifecycleStateStandby || i.LifecycleState == types.LifecycleStateEnteringStandby:
		return cloud.Stopped, "it is in standby"
	case name == ec2types.InstanceStateNameStopping || name == ec2types.InstanceStateNameStopped:
		return cloud.Stopped, reason
	case strings.HasPrefix(l, "ReplacingRootVolume"):
		return cloud.Creating, "its root volume is being replaced"
	case strings.EqualFold(aws.ToString(i.HealthStatus), "Unhealthy"):
		if reason == "" {
			reason = "the group finds it unhealthy"
		}
		return cloud.Failed, reason
	case i.LifecycleState == types.LifecycleStateInService || i.LifecycleState == types.LifecycleStateRootVolumeReplaced:
		return cloud.Running, ""
	}
	return cloud.Failed, "its lifecycle state is " + l
}

// protected reports whether EC2 is told to refuse the termination of an instance. EC2 tells it of one instance a call.
func (s *scaleSet) protected(ctx context.Context, id string) (bool, error) {
	out, err := s.c.ec2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		Attribute: ec2types.InstanceAttributeNameDisableApiTermination, InstanceId: aws.String(id),
	}, readEC2)
	if err != nil {
		err = classify("reading termination protection of "+id, err)
		if cloud.KindOf(err) == cloud.KindNotFound {
			return false, nil
		}
		return false, err
	}
	return out.DisableApiTermination != nil && aws.ToBool(out.DisableApiTermination.Value), nil
}
