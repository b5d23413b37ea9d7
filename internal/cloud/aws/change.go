// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"moult.dev/moult/internal/cloud"
)

// planAdd chooses the zone: the wanted one, or the one with the fewest machines if the group does not have it.
func (s *scaleSet) planAdd(ctx context.Context, set *cloud.Set, m *memory) error {
	if len(set.Zones) == 0 || slices.Contains(set.Zones, m.Zone) {
		return nil
	}
	g, err := s.group(ctx, true)
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, i := range g.Instances {
		if isMember(i.LifecycleState) && !isLeaving(i.LifecycleState) {
			count[aws.ToString(i.AvailabilityZone)]++
		}
	}
	m.Zone = slices.MinFunc(set.Zones, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
	return nil
}

// submitAdd launches instances. LaunchInstances gives each token the same answer each time, even if it launched too few.
func (s *scaleSet) submitAdd(ctx context.Context, m *memory) error {
	doing := fmt.Sprintf("launching %d instances in %s", m.Add, s.name)
	out, err := s.c.scaling.LaunchInstances(ctx, &autoscaling.LaunchInstancesInput{
		AutoScalingGroupName: aws.String(s.name), AvailabilityZones: []string{m.Zone}, ClientToken: aws.String(m.Token),
		RequestedCapacity: aws.Int32(int32(m.Add)), RetryStrategy: types.RetryStrategyNone,
	})
	if err != nil {
		return classify(doing, err)
	}
	for _, i := range out.Instances {
		m.Added = append(m.Added, i.InstanceIds...)
	}
	switch {
	case len(m.Added) >= m.Add:
	case len(out.Errors) > 0:
		text := cloud.CodeAndMessage(aws.ToString(out.Errors[0].ErrorCode), aws.ToString(out.Errors[0].ErrorMessage))
		kind, why := cloud.KindOfAnswer(rules, text, cloud.KindFailed), fmt.Sprintf("%s, %d launched, %s", doing, len(m.Added), text)
		if len(m.Added) == 0 && (kind == cloud.KindDenied || kind == cloud.KindThrottled) {
			return cloud.Errorf(cloud.KindConflict, "%s", why) // AWS repeats its answer to this token: another operation is prepared.
		}
		m.Fail(kind, why)
	case len(m.Added) > 0:
		m.Fail(cloud.KindFailed, fmt.Sprintf("%s, %d launched", doing, len(m.Added)))
	default: // The launch takes longer than the call.
		return cloud.Errorf(cloud.KindUnavailable, "%s, the result is not known yet", doing)
	}
	return nil
}

// planImage checks the image, and records the launch template that it replaces. The image is a version of a launch template, or an AMI for a new
// version of the group's own.
func (s *scaleSet) planImage(ctx context.Context, set *cloud.Set, m *memory) error {
	m.Source = set.Image
	if parts := reference.FindStringSubmatch(m.Image); parts != nil {
		_, err := s.c.resolve(ctx, &types.LaunchTemplateSpecification{LaunchTemplateId: &parts[1], Version: &parts[2]})
		return err
	}
	if !amiPattern.MatchString(m.Image) {
		return cloud.Errorf(cloud.KindInvalid, "setting the image of %s, %q is neither LAUNCH-TEMPLATE-ID:VERSION nor the id of an AMI", s.name, m.Image)
	}
	return nil
}

// submitImage sets the launch template, unless the group has it already. KindConflict: the group has another template than when the operation was planned.
func (s *scaleSet) submitImage(ctx context.Context, m *memory) error {
	g, err := s.group(ctx, false)
	if err != nil {
		return err
	}
	own := specification(g)
	if own == nil {
		return cloud.Errorf(cloud.KindConflict, "setting the image of %s, it has no launch template any more", s.name)
	}
	now, err := s.c.resolve(ctx, own)
	if err != nil {
		return err
	}
	to, source := reference.FindStringSubmatch(m.Image), reference.FindStringSubmatch(m.Source)
	next := types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(now.id)}
	switch {
	case to != nil && now.String() == m.Image:
		return nil
	case to == nil && source != nil && now.id == source[1] && now.image == m.Image:
		return nil // Groups at $Latest share a template: another of them has made the version.
	case now.String() != m.Source:
		return cloud.Errorf(cloud.KindConflict, "setting the image of %s, its launch template was changed from %s to %s", s.name, m.Source, now)
	case to != nil:
		next.LaunchTemplateId, next.Version = &to[1], &to[2]
	default:
		if next.Version, err = s.c.newVersion(ctx, now, m); err != nil || versionOf(own) == "$Latest" {
			return err
		}
	}
	*own = next // It is a part of g.
	_, err = s.c.scaling.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String(s.name), LaunchTemplate: g.LaunchTemplate, MixedInstancesPolicy: g.MixedInstancesPolicy,
	})
	return classify("setting the launch template of "+s.name, err)
}

// newVersion makes a version of a launch template with another AMI, once for a token, and returns its number.
func (c *Cloud) newVersion(ctx context.Context, from template, m *memory) (*string, error) {
	out, err := c.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateId: aws.String(from.id), SourceVersion: aws.String(from.version), ClientToken: aws.String(m.Token),
		VersionDescription: aws.String("moult " + m.Token), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String(m.Image)},
	})
	if err != nil {
		return nil, classify("making a version of launch template "+from.id, err)
	}
	return aws.String(strconv.FormatInt(aws.ToInt64(out.LaunchTemplateVersion.VersionNumber), 10)), nil
}

const (
	// rebalance is the process that launches and terminates instances to balance zones.
	rebalance = "AZRebalance"
	// suspendedTag is the group's tag that says that Moult suspended the process.
	suspendedTag = "moult.dev/suspended"
)

// Suspend implements cloud.Suspender: it suspends the process AZRebalance, which would terminate an undrained machine after one was added. The tag is
// written first and removed last, so that only what Moult suspended is resumed.
func (s *scaleSet) Suspend(ctx context.Context, on bool) error {
	g, err := s.group(ctx, false)
	if err != nil {
		return err
	}
	tagged := slices.ContainsFunc(g.Tags, func(t types.TagDescription) bool { return aws.ToString(t.Key) == suspendedTag })
	suspended := slices.ContainsFunc(g.SuspendedProcesses, func(p types.SuspendedProcess) bool { return aws.ToString(p.ProcessName) == rebalance })
	tags := []types.Tag{{
		ResourceId: aws.String(s.name), ResourceType: aws.String("auto-scaling-group"), Key: aws.String(suspendedTag), Value: aws.String(rebalance),
		PropagateAtLaunch: aws.Bool(false),
	}}
	name, processes, api := aws.String(s.name), []string{rebalance}, s.c.scaling
	if on && !suspended {
		if _, err = api.CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: tags}); err == nil {
			_, err = api.SuspendProcesses(ctx, &autoscaling.SuspendProcessesInput{AutoScalingGroupName: name, ScalingProcesses: processes})
		}
	}
	if !on && tagged {
		if _, err = api.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{AutoScalingGroupName: name, ScalingProcesses: processes}); err == nil {
			_, err = api.DeleteTags(ctx, &autoscaling.DeleteTagsInput{Tags: tags})
		}
	}
	return classify("suspending or resuming process "+rebalance+" of "+s.name, err)
}
