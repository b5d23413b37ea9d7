// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"moult.dev/moult/internal/cloud"
)

// instancesPerCall is how many instances DescribeAutoScalingInstances takes.
const instancesPerCall = 50

// Find implements cloud.Cloud.
func (c *Cloud) Find(ctx context.Context, providerIDs []string) (map[string]cloud.Location, error) {
	byID := map[string]string{}
	var ids []string
	for _, p := range providerIDs {
		if id, ok := parseProviderID(p); ok && byID[id] == "" {
			byID[id] = p
			ids = append(ids, id)
		}
	}
	found := map[string]cloud.Location{}
	for batch := range slices.Chunk(ids, instancesPerCall) {
		in := &autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: batch}
		for pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(c.scaling, in); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, classify("finding the groups of instances", err)
			}
			for _, i := range page.AutoScalingInstances {
				id := aws.ToString(i.InstanceId)
				if p, ok := byID[id]; ok {
					found[p] = cloud.Location{ScaleSet: aws.ToString(i.AutoScalingGroupName), Machine: id}
				}
			}
		}
	}
	return found, nil
}

// parseProviderID returns the instance of aws:///ZONE/INSTANCE.
func parseProviderID(p string) (instance string, ok bool) {
	path, ok := strings.CutPrefix(p, "aws://")
	if !ok {
		return "", false
	}
	instance = path[strings.LastIndexByte(path, '/')+1:]
	return instance, strings.HasPrefix(instance, "i-") && instance != path
}
