// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

const (
	// rebalance is the process that launches and terminates instances to even out zones.
	rebalance = "AZRebalance"
	// suspendedTag is the group's tag that says that Moult has suspended the process.
	suspendedTag = "moult.dev/suspended"
)

// Suspend implements cloud.Suspender: it suspends the process AZRebalance, which would answer an added machine by terminating another one undrained.
func (s *scaleSet) Suspend(ctx context.Context, on bool) error {
	g, err := s.group(ctx, false)
	if err != nil {
		return err
	}
	ours := slices.ContainsFunc(g.Tags, func(t types.TagDescription) bool { return aws.ToString(t.Key) == suspendedTag })
	suspended := slices.ContainsFunc(g.SuspendedProcesses, func(p types.SuspendedProcess) bool { return aws.ToString(p.ProcessName) == rebalance })
	tag := types.Tag{
		ResourceId: aws.String(s.name), ResourceType: aws.String("auto-scaling-group"), Key: aws.String(suspendedTag), Value: aws.String(rebalance),
		PropagateAtLaunch: aws.Bool(false),
	}
	if on {
		if suspended {
			return nil // by us or by others
		}
		if !ours {
			if _, err := s.c.scaling.CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: []types.Tag{tag}}); err != nil {
				return classify("tagging "+s.name, err)
			}
		}
		_, err := s.c.scaling.SuspendProcesses(ctx, &autoscaling.SuspendProcessesInput{
			AutoScalingGroupName: aws.String(s.name), ScalingProcesses: []string{rebalance},
		})
		if err != nil {
			return classify("suspending process "+rebalance+" of "+s.name, err)
		}
		return nil
	}
	if !ours {
		return nil
	}
	if suspended {
		_, err := s.c.scaling.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{
			AutoScalingGroupName: aws.String(s.name), ScalingProcesses: []string{rebalance},
		})
		if err != nil {
			return classify("resuming process "+rebalance+" of "+s.name, err)
		}
	}
	if _, err := s.c.scaling.DeleteTags(ctx, &autoscaling.DeleteTagsInput{Tags: []types.Tag{tag}}); err != nil {
		return classify("untagging "+s.name, err)
	}
	return nil
}
