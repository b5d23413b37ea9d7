// SPDX-License-Identifier: Apache-2.0

// Package aws is Auto Scaling groups of Amazon EC2.
//
// The SDK repeats no call here: what asks is asked again by whoever needs the answer, and what changes must first look whether it has been done.
package aws

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"

	"moult.dev/moult/internal/cloud"
)

// Options says where the groups are, and by whose rights they are changed. The rest, such as credentials and AWS_ENDPOINT_URL, is the SDK's.
type Options struct {
	// Region of the groups. Default: what the environment or the machine says.
	Region string
	// RoleARN is a role to assume. Default: none.
	RoleARN string
}

// Cloud is the Auto Scaling groups of an account in a region.
type Cloud struct {
	scaling *autoscaling.Client
	ec2     *ec2.Client

	mu sync.Mutex
	// templates and images are what does not change: numbered versions of launch templates, and the names of images.
	templates map[versionKey]template
	images    map[string]string
}

// New makes a Cloud. It finds the credentials that are used, and asks for none yet.
func New(ctx context.Context, o Options) (*Cloud, error) { return open(ctx, o) }

func open(ctx context.Context, o Options, load ...func(*config.LoadOptions) error) (*Cloud, error) {
	// What the SDK would log is in the errors.
	load = append(load, config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), config.WithLogger(logging.Nop{}))
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	c, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, cloud.Errorf(cloud.KindDenied, "configuring AWS, %w", err)
	}
	if c.Region == "" {
		if c, err = config.LoadDefaultConfig(ctx, append(load, config.WithEC2IMDSRegion())...); err != nil {
			return nil, cloud.Errorf(cloud.KindInvalid, "configuring AWS, there is no region: give one in provider.aws.region or AWS_REGION: %w", err)
		}
	}
	if o.RoleARN != "" {
		role := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(c), o.RoleARN, func(a *stscreds.AssumeRoleOptions) { a.RoleSessionName = "moult" })
		c.Credentials = aws.NewCredentialsCache(role)
	}
	return &Cloud{
		scaling: autoscaling.NewFromConfig(c), ec2: ec2.NewFromConfig(c),
		templates: map[versionKey]template{}, images: map[string]string{},
	}, nil
}

// again repeats a call once whose connection broke: now and then that of an earlier one is used just as it is closed.
var again = retry.NewStandard(func(o *retry.StandardOptions) {
	o.MaxAttempts = 2
	o.Retryables = []retry.IsErrorRetryable{retry.RetryableConnectionError{}}
	o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 100 * time.Millisecond, nil })
})

// readScaling and readEC2 are for calls that change nothing. Others are sent again by those who know what that does.
func readScaling(o *autoscaling.Options) { o.Retryer = again }
func readEC2(o *ec2.Options)             { o.Retryer = again }

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
			page, err := pages.NextPage(ctx, readScaling)
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

// parseProviderID is the instance of aws:///ZONE/INSTANCE.
func parseProviderID(p string) (instance string, ok bool) {
	path, ok := strings.CutPrefix(p, "aws://")
	if !ok {
		return "", false
	}
	instance = path[strings.LastIndexByte(path, '/')+1:]
	return instance, strings.HasPrefix(instance, "i-") && instance != path
}

// providerID is the other way.
func providerID(zone, instance string) string { return "aws:///" + zone + "/" + instance }

// ScaleSet implements cloud.Cloud.
func (c *Cloud) ScaleSet(name string) cloud.ScaleSet { return &scaleSet{c: c, name: name} }

// scaleSet is an Auto Scaling group.
type scaleSet struct {
	c    *Cloud
	name string
}

var (
	_ cloud.Cloud     = (*Cloud)(nil)
	_ cloud.ScaleSet  = (*scaleSet)(nil)
	_ cloud.Suspender = (*scaleSet)(nil)
)
