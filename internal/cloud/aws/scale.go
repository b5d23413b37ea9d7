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

// counted returns the ids of the instances that the desired capacity counts.
func counted(instances []types.Instance) []string {
	var ids []string
	for _, i := range instances {
		if isCounted(&i) {
			ids = append(ids, aws.ToString(i.InstanceId))
		}
	}
	return ids
}

// isCounted reports whether an instance is one of those that the desired capacity counts.
func isCounted(i *types.Instance) bool {
	return isMember(i.LifecycleState) && !isLeaving(i.LifecycleState) && !isStandby(i)
}

func isStandby(i *types.Instance) bool {
	return i.LifecycleState == types.LifecycleStateStandby || i.LifecycleState == types.LifecycleStateEnteringStandby
}

// tally is what has become of a group since an operation was prepared.
type tally struct {
	capacity int
	// gone is how many of the machines that there were do not count any more; live is how many count, and added those of them that are new.
	gone, live int
	added      []string
}

func (s *scaleSet) tally(ctx context.Context, m *memory) (tally, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return tally{}, err
	}
	t := tally{capacity: int(aws.ToInt32(g.DesiredCapacity)), gone: len(m.Before)}
	for _, id := range counted(g.Instances) {
		t.live++
		if slices.Contains(m.Before, id) {
			t.gone--
		} else {
			t.added = append(t.added, id)
		}
	}
	return t, nil
}

// sendScale raises the desired capacity, unless that has been done. A change of it has no token: whether it was done shows by what the capacity would
// be if none of the machines that have gone since had taken its place with it.
func (s *scaleSet) sendScale(ctx context.Context, m *memory) error {
	t, err := s.tally(ctx, m)
	if err != nil {
		return err
	}
	switch had := t.capacity + t.gone; {
	case had >= m.Capacity+m.Add, len(t.added) >= m.Add:
		return nil
	case had != m.Capacity:
		return conflictf("adding %d machines to %s, its capacity was %d, and was changed to %d since",
			m.Add, s.name, m.Capacity, t.capacity)
	}
	return s.setCapacity(ctx, t.capacity+m.Add)
}

func (s *scaleSet) setCapacity(ctx context.Context, n int) error {
	_, err := s.c.scaling.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{
		AutoScalingGroupName: aws.String(s.name), DesiredCapacity: aws.Int32(int32(n)), HonorCooldown: aws.Bool(false),
	})
	if err != nil {
		return classify(fmt.Sprintf("setting the desired capacity of %s to %d", s.name, n), err)
	}
	return nil
}

// pollScale looks for the new machines. Where AWS has failed to launch them, and would try for ever, the capacity is taken back.
func (s *scaleSet) pollScale(ctx context.Context, m *memory) (cloud.Progress, error) {
	t, err := s.tally(ctx, m)
	if err != nil {
		return cloud.Progress{}, err
	}
	p := cloud.Progress{Added: t.added[:min(len(t.added), m.Add)], After: patience}
	missing := m.Add - len(p.Added)
	if missing == 0 {
		return cloud.Progress{Done: true, Added: p.Added}, nil
	}
	p.Message = fmt.Sprintf("%d of %d machines are there", len(p.Added), m.Add)
	wanted := t.capacity - t.live
	failure, err := s.failure(ctx, m.Activity)
	switch {
	case err != nil:
		return cloud.Progress{}, err
	case failure == "" && wanted > 0:
		return p, nil
	case failure == "":
		return p, cloud.Errorf(cloud.KindFailed, "adding %d machines to %s, its capacity was lowered again, to %d", m.Add, s.name, t.capacity)
	}
	if wanted > 0 {
		if err := s.setCapacity(ctx, t.capacity-min(wanted, missing)); err != nil {
			return cloud.Progress{}, sendError(err)
		}
	}
	kind := cloud.KindFailed
	if noRoom.MatchString(failure) {
		kind = cloud.KindQuota
	}
	return p, cloud.Errorf(kind, "adding %d machines to %s, %s", m.Add, s.name, failure)
}

// failure is why AWS has failed to launch, if that is the last that it has tried since an activity.
func (s *scaleSet) failure(ctx context.Context, since string) (string, error) {
	activities, err := s.activities(ctx, 20)
	if err != nil {
		return "", err
	}
	for _, a := range activities {
		if aws.ToString(a.ActivityId) == since {
			return "", nil
		}
		if !strings.HasPrefix(aws.ToString(a.Description), "Launching") {
			continue
		}
		if a.StatusCode == types.ScalingActivityStatusCodeFailed || a.StatusCode == types.ScalingActivityStatusCodeCancelled {
			return aws.ToString(a.StatusMessage), nil
		}
		return "", nil
	}
	return "", nil
}

// activities reads the group's last activities, the newest first.
func (s *scaleSet) activities(ctx context.Context, n int32) ([]types.Activity, error) {
	out, err := s.c.scaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
		AutoScalingGroupName: aws.String(s.name), MaxRecords: aws.Int32(n),
	}, readScaling)
	if err != nil {
		return nil, classify("reading activities of "+s.name, err)
	}
	return out.Activities, nil
}
