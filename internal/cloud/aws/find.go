// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
)

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
