// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"moult.dev/moult/internal/cloud"
)

// prepareAdd makes an operation that adds machines: by LaunchInstances, which says what it has launched and does so once for a token; for groups that
// it does not take, by the desired capacity.
func (s *scaleSet) prepareAdd(ctx context.Context, set *cloud.Set, c cloud.Change) (*memory, error) {
	g, err := s.group(ctx, true)
	if err != nil {
		return nil, err
	}
	capacity, limit := int(aws.ToInt32(g.DesiredCapacity)), int(aws.ToInt32(g.MaxSize))
	if set != nil && set.Max > 0 {
		limit = min(limit, set.Max)
	}
	if capacity+c.Add > limit {
		return nil, cloud.Errorf(cloud.KindFull, "adding %d machines to %s, it has %d of at most %d", c.Add, s.name, capacity, limit)
	}
	if takesLaunchInstances(g) {
		return &memory{Verb: launch, Add: c.Add, Zone: zoneFor(g, c.Zone)}, nil
	}
	m := &memory{Verb: scale, Add: c.Add, Capacity: capacity, Before: counted(g.Instances)}
	last, err := s.activities(ctx, 1)
	if len(last) > 0 {
		m.Activity = aws.ToString(last[0].ActivityId)
	}
	return m, err
}

// takesLaunchInstances reports whether LaunchInstances takes a group: not one that mixes on-demand and spot instances.
func takesLaunchInstances(g *types.AutoScalingGroup) bool {
	p := g.MixedInstancesPolicy
	if p == nil || p.InstancesDistribution == nil {
		return true
	}
	d := p.InstancesDistribution
	above := int32(100)
	if d.OnDemandPercentageAboveBaseCapacity != nil {
		above = *d.OnDemandPercentageAboveBaseCapacity
	}
	return above == 100 || above == 0 && aws.ToInt32(d.OnDemandBaseCapacity) == 0
}

// zoneFor is the zone that is wanted, where the group has it, or else the one with the fewest machines.
func zoneFor(g *types.AutoScalingGroup, wanted string) string {
	count := map[string]int{}
	for _, i := range g.Instances {
		if isMember(i.LifecycleState) && !isLeaving(i.LifecycleState) {
			count[aws.ToString(i.AvailabilityZone)]++
		}
	}
	best := ""
	for _, zone := range g.AvailabilityZones {
		if zone == wanted {
			return zone
		}
		if best == "" || count[zone] < count[best] {
			best = zone
		}
	}
	return best
}

// sendLaunch launches. What is answered once to a token is answered each time; that it could not be done, or not all of it, is such an answer.
func (s *scaleSet) sendLaunch(ctx context.Context, token string, m *memory) error {
	in := &autoscaling.LaunchInstancesInput{
		AutoScalingGroupName: aws.String(s.name), ClientToken: aws.String(token), RequestedCapacity: aws.Int32(int32(m.Add)),
		RetryStrategy: types.RetryStrategyNone,
	}
	if m.Zone != "" {
		in.AvailabilityZones = []string{m.Zone}
	}
	doing := fmt.Sprintf("launching %d instances in %s", m.Add, s.name)
	out, err := s.c.scaling.LaunchInstances(ctx, in)
	if err != nil {
		return classify(doing, err)
	}
	m.Machines = nil
	for _, i := range out.Instances {
		m.Machines = append(m.Machines, i.InstanceIds...)
	}
	switch {
	case len(m.Machines) >= m.Add:
		return nil
	case len(out.Errors) > 0:
		e := out.Errors[0]
		m.fail(cloud.Errorf(kindOf(aws.ToString(e.ErrorCode), aws.ToString(e.ErrorMessage), 0), "%s, %d launched, %s: %s",
			doing, len(m.Machines), aws.ToString(e.ErrorCode), aws.ToString(e.ErrorMessage)))
		return nil
	case len(m.Machines) > 0:
		m.fail(cloud.Errorf(cloud.KindFailed, "%s, %d launched", doing, len(m.Machines)))
		return nil
	}
	// Neither instances nor errors: it takes longer than an answer may.
	return cloud.Errorf(cloud.KindUnavailable, "%s, it is not known yet how that ends", doing)
}
