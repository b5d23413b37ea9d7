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
	"golang.org/x/sync/errgroup"

	"moult.dev/moult/internal/cloud"
)

const (
	// activitiesPerCall is how many activities DescribeScalingActivities takes.
	activitiesPerCall = 50
	// terminations is how many machines are terminated at once: each needs two requests.
	terminations = 8
)

// members returns which of these machines the group still has. A group that does not exist has none.
func (s *scaleSet) members(ctx context.Context, ids []string) ([]types.Instance, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return nil, cloud.IgnoreNotFound(err)
	}
	return slices.DeleteFunc(slices.Clone(g.Instances), func(i types.Instance) bool {
		return !isMember(i.LifecycleState) || !slices.Contains(ids, aws.ToString(i.InstanceId))
	}), nil
}

// submitDelete terminates the machines. After an error followDelete terminates the rest, unless none was terminated.
func (s *scaleSet) submitDelete(ctx context.Context, m *memory) error {
	if err := s.terminateAll(ctx, m, m.Delete); len(m.Activities) == 0 {
		return err
	}
	return nil
}

// terminateAll terminates the machines that are not being terminated, and keeps in memory those for which that failed. Termination has no token, and a second
// call would lower the capacity again. So the group is read before each attempt.
func (s *scaleSet) terminateAll(ctx context.Context, m *memory, ids []string) error {
	members, err := s.members(ctx, ids)
	if err != nil {
		return err
	}
	members = slices.DeleteFunc(members, func(i types.Instance) bool { return isLeaving(i.LifecycleState) })
	activities, errs := make([]string, len(members)), make([]error, len(members))
	var group errgroup.Group
	group.SetLimit(terminations)
	for n := range members {
		group.Go(func() error {
			defer func() {
				if what := recover(); what != nil { // The caller can recover only its own goroutine.
					errs[n] = fmt.Errorf("reading the answer of AWS, %v", what)
				}
			}()
			activities[n], errs[n] = s.terminate(ctx, &members[n])
			return nil
		})
	}
	_ = group.Wait()
	m.Rest = nil
	m.Activities = append(m.Activities, slices.DeleteFunc(activities, func(a string) bool { return a == "" })...)
	for n, e := range errs {
		switch kind := cloud.KindOf(e); {
		case kind == "", kind == cloud.KindNotFound:
		case kind == cloud.KindInvalid, kind == cloud.KindDenied && len(m.Activities) > 0:
			// The other machines are deleted, and Poll ends with this error.
			m.Fail(kind, e.Error())
		default:
			m.Rest = append(m.Rest, aws.ToString(members[n].InstanceId))
			if err == nil || kind == cloud.KindUnavailable {
				err = e // It is not known whether the machine is terminated.
			}
		}
	}
	return err
}

// terminate deletes one machine and lowers the capacity, so that the group does not replace it. It returns the activity of the deletion. KindInvalid: the
// machine is protected or in standby, or AWS refuses.
func (s *scaleSet) terminate(ctx context.Context, i *types.Instance) (activity string, err error) {
	id := aws.ToString(i.InstanceId)
	if isStandby(i) {
		return "", cloud.Errorf(cloud.KindInvalid, "deleting machine %s of %s, it is in standby, where the capacity does not count it", id, s.name)
	}
	// Auto Scaling does not respect termination protection.
	protected, err := s.Protected(ctx, id)
	if err != nil {
		return "", err
	}
	if protected {
		return "", cloud.Errorf(cloud.KindInvalid, "deleting machine %s of %s, it is protected from termination", id, s.name)
	}
	out, err := s.c.scaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: aws.String(id), ShouldDecrementDesiredCapacity: aws.Bool(true),
	})
	if err != nil {
		return "", classify("deleting machine "+id+" of "+s.name, err)
	}
	return aws.ToString(out.Activity.ActivityId), nil
}

// followDelete reads whether the machines are gone. If machines stay in service and no activity is under way, their deletion has failed.
func (s *scaleSet) followDelete(ctx context.Context, m *memory) (over bool, err error) {
	if len(m.Rest) > 0 {
		return false, s.terminateAll(ctx, m, m.Rest)
	}
	members, err := s.members(ctx, m.Delete)
	if err != nil || len(members) == 0 {
		return err == nil, err
	}
	var staying []string
	for _, i := range members {
		if isLeaving(i.LifecycleState) {
			return false, nil
		}
		staying = append(staying, aws.ToString(i.InstanceId))
	}
	why := "they are in service again"
	for ids := range slices.Chunk(m.Activities, activitiesPerCall) {
		out, err := s.c.scaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
			AutoScalingGroupName: aws.String(s.name), ActivityIds: ids,
		})
		if err != nil {
			return false, classify("reading activities of "+s.name, err)
		}
		for _, a := range out.Activities {
			switch a.StatusCode {
			case types.ScalingActivityStatusCodeFailed, types.ScalingActivityStatusCodeCancelled:
				why = aws.ToString(a.StatusMessage)
			case types.ScalingActivityStatusCodeSuccessful:
			default:
				return false, nil
			}
		}
	}
	if m.Failure == "" {
		m.Fail(cloud.KindFailed, fmt.Sprintf("deleting machines %s of %s, %s", strings.Join(staying, " "), s.name, why))
	}
	return true, nil
}
