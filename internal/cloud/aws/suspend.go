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
