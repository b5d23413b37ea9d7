// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"moult.dev/moult/internal/cloud"
)

// prepareDelete makes an operation that deletes machines, unless the group would get smaller than its minimum.
func (s *scaleSet) prepareDelete(ctx context.Context, c cloud.Change) (*memory, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return nil, err
	}
	going := 0
	for _, id := range c.Delete {
		if i := instanceIn(g, id); i != nil && isCounted(i) {
			going++
		}
	}
	capacity, least := int(aws.ToInt32(g.DesiredCapacity)), int(aws.ToInt32(g.MinSize))
	if going > 0 && capacity-going < least {
		return nil, cloud.Errorf(cloud.KindInvalid, "deleting %d machines of %s, it has %d of at least %d: lower its minimum, or let machines be added first",
			going, s.name, capacity, least)
	}
	return &memory{Verb: terminate, Machines: c.Delete}, nil
}

func instanceIn(g *types.AutoScalingGroup, id string) *types.Instance {
	for n := range g.Instances {
		if aws.ToString(g.Instances[n].InstanceId) == id {
			return &g.Instances[n]
		}
	}
	return nil
}

// sendDelete terminates those that are not on their way out. Nothing tells AWS that an order is the same as the one before, which would lower the
// capacity a second time, so it is looked before each attempt, and none is made in between.
func (s *scaleSet) sendDelete(ctx context.Context, m *memory) error {
	g, err := s.group(ctx, true)
	if cloud.KindOf(err) == cloud.KindNotFound {
		return nil // its machines went with it
	}
	if err != nil {
		return err
	}
	m.Activities = make([]string, len(m.Machines))
	for n, id := range m.Machines {
		i := instanceIn(g, id)
		if i == nil || !isMember(i.LifecycleState) || isLeaving(i.LifecycleState) {
			continue
		}
		activity, err := s.terminate(ctx, i)
		switch kind := cloud.KindOf(err); {
		case kind == cloud.KindNotFound:
		case kind == cloud.KindInvalid:
			// The others are deleted all the same, and Poll ends with this error.
			m.fail(err)
			m.Activities[n] = refusedActivity
		case err != nil:
			return err
		default:
			m.Activities[n] = activity
		}
	}
	return nil
}

// terminate deletes one machine, and returns the activity that does so. KindInvalid: it is protected, or AWS refuses.
func (s *scaleSet) terminate(ctx context.Context, i *types.Instance) (activity string, err error) {
	id := aws.ToString(i.InstanceId)
	// The group itself does not respect termination protection.
	protected, err := s.protected(ctx, id)
	if err != nil {
		return "", err
	}
	if protected {
		return "", cloud.Errorf(cloud.KindInvalid, "deleting machine %s of %s, it is protected from termination", id, s.name)
	}
	out, err := s.c.scaling.TerminateInstanceInAutoScalingGroup(ctx, &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		// The capacity does not count what is in standby.
		InstanceId: aws.String(id), ShouldDecrementDesiredCapacity: aws.Bool(!isStandby(i)),
	})
	if err != nil {
		return "", classify("deleting machine "+id+" of "+s.name, err)
	}
	if out.Activity == nil {
		return "", nil
	}
	return aws.ToString(out.Activity.ActivityId), nil
}

// refusedActivity is written in place of the activity of a machine that must not be deleted.
const refusedActivity = "-"

// pollDelete looks whether the machines are gone.
func (s *scaleSet) pollDelete(ctx context.Context, m *memory) (cloud.Progress, error) {
	g, err := s.group(ctx, true)
	if cloud.KindOf(err) == cloud.KindNotFound {
		return cloud.Progress{Done: true}, nil
	}
	if err != nil {
		return cloud.Progress{}, err
	}
	waits := map[types.LifecycleState]int{}
	var back, activities []string
	for n, id := range m.Machines {
		i := instanceIn(g, id)
		switch {
		case i == nil || !isMember(i.LifecycleState) || n < len(m.Activities) && m.Activities[n] == refusedActivity:
		case isLeaving(i.LifecycleState):
			waits[i.LifecycleState]++
		default:
			back = append(back, id)
			if n < len(m.Activities) {
				activities = append(activities, m.Activities[n])
			}
		}
	}
	if len(back) > 0 {
		return s.cameBack(ctx, back, activities)
	}
	if len(waits) > 0 {
		return cloud.Progress{Message: waitMessage(waits), After: patience}, nil
	}
	err = m.failed()
	return cloud.Progress{Done: err == nil}, err
}

func waitMessage(waits map[types.LifecycleState]int) string {
	var all []string
	for _, l := range types.LifecycleState("").Values() {
		if n := waits[l]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, l))
		}
	}
	return "machines are going: " + strings.Join(all, ", ")
}

// activitiesPerCall is how many activities DescribeScalingActivities takes.
const activitiesPerCall = 50

// cameBack says why machines are in service although AWS has accepted their deletion, or that AWS is still at it.
func (s *scaleSet) cameBack(ctx context.Context, machines, activities []string) (cloud.Progress, error) {
	var ids []string
	for _, a := range activities {
		if a != "" && len(ids) < activitiesPerCall {
			ids = append(ids, a)
		}
	}
	why := "they are in service again"
	if len(ids) > 0 {
		out, err := s.c.scaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
			AutoScalingGroupName: aws.String(s.name), ActivityIds: ids,
		}, readScaling)
		if err != nil {
			return cloud.Progress{}, classify("reading activities of "+s.name, err)
		}
		for _, a := range out.Activities {
			switch a.StatusCode {
			case types.ScalingActivityStatusCodeFailed, types.ScalingActivityStatusCodeCancelled:
				why = aws.ToString(a.StatusMessage)
			case types.ScalingActivityStatusCodeSuccessful:
			default:
				return cloud.Progress{Message: aws.ToString(a.Description), After: patience}, nil
			}
		}
	}
	return cloud.Progress{}, cloud.Errorf(cloud.KindFailed, "deleting machines %s of %s, %s", strings.Join(machines, " "), s.name, why)
}
