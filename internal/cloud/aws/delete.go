// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"moult.dev/moult/internal/cloud"
)

// activitiesPerCall is how many activities DescribeScalingActivities takes.
const activitiesPerCall = 50

// members returns the machines to delete that the group still has. A group that does not exist has none.
func (s *scaleSet) members(ctx context.Context, m *memory) ([]types.Instance, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return nil, cloud.IgnoreNotFound(err)
	}
	return slices.DeleteFunc(g.Instances, func(i types.Instance) bool {
		id := aws.ToString(i.InstanceId)
		return !isMember(i.LifecycleState) || !slices.Contains(m.Delete, id) || slices.Contains(m.Refused, id)
	}), nil
}

// submitDelete terminates the machines that are not being terminated. Termination has no token, and a second call would lower the capacity again. So the group
// is read before each attempt.
func (s *scaleSet) submitDelete(ctx context.Context, m *memory) error {
	members, err := s.members(ctx, m)
	if err != nil {
		return err
	}
	for _, i := range members {
		if isLeaving(i.LifecycleState) {
			continue
		}
		activity, err := s.terminate(ctx, &i)
		switch cloud.KindOf(err) {
		case "":
			m.Activities = append(m.Activities, activity)
		case cloud.KindNotFound:
		case cloud.KindInvalid:
			// The other machines are deleted, and Poll ends with this error.
			m.Refused = append(m.Refused, aws.ToString(i.InstanceId))
			m.Fail(cloud.KindInvalid, err.Error())
		default:
			return err
		}
	}
	return nil
}

// terminate deletes one machine and lowers the capacity, so that the group does not replace it. It returns the activity of the deletion. KindInvalid: the
// machine is protected or in standby, or AWS refuses.
func (s *scaleSet) terminate(ctx context.Context, i *types.Instance) (activity string, err error) {
	id := aws.ToString(i.InstanceId)
	if isStandby(i) {
		return "", cloud.Errorf(cloud.KindInvalid, "deleting machine %s of %s, it is in standby, where the capacity does not count it", id, s.name)
	}
	// Auto Scaling does not respect termination protection.
	protected, err := s.protected(ctx, id)
	if err != nil {
		return "", err
	}
	if protected {
		return "", cloud.Errorf(cloud.KindInvalid, "deleting machine %s of %s, it is protected from termination", id, s.name)
	}
	out, err := s.c.scaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: aws.String(id), ShouldDecrementDesiredCapacity: aws.Bool(true),
	}, func(o *autoscaling.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return "", classify("deleting machine "+id+" of "+s.name, err)
	}
	return aws.ToString(out.Activity.ActivityId), nil
}

// followDelete reads whether the machines are gone. If a machine is in service and no activity is under way, its deletion has failed.
func (s *scaleSet) followDelete(ctx context.Context, m *memory) (cloud.Progress, error) {
	members, err := s.members(ctx, m)
	if err != nil || len(members) == 0 {
		return cloud.Progress{Done: err == nil}, err
	}
	var leaving, staying []string
	for _, i := range members {
		if id := aws.ToString(i.InstanceId); isLeaving(i.LifecycleState) {
			leaving = append(leaving, fmt.Sprintf("%s is %s", id, i.LifecycleState))
		} else {
			staying = append(staying, id)
		}
	}
	if len(staying) == 0 {
		return cloud.Progress{Message: strings.Join(leaving, ", ")}, nil
	}
	why := "they are in service again"
	if len(m.Activities) > 0 {
		out, err := s.c.scaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
			AutoScalingGroupName: aws.String(s.name), ActivityIds: m.Activities[:min(len(m.Activities), activitiesPerCall)],
		})
		if err != nil {
			return cloud.Progress{}, classify("reading activities of "+s.name, err)
		}
		for _, a := range out.Activities {
			switch a.StatusCode {
			case types.ScalingActivityStatusCodeFailed, types.ScalingActivityStatusCodeCancelled:
				why = aws.ToString(a.StatusMessage)
			case types.ScalingActivityStatusCodeSuccessful:
			default:
				return cloud.Progress{Message: aws.ToString(a.Description)}, nil
			}
		}
	}
	m.Fail(cloud.KindFailed, fmt.Sprintf("deleting machines %s of %s, %s", strings.Join(staying, " "), s.name, why))
	return cloud.Progress{Done: true}, nil
}
