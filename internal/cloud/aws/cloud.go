// SPDX-License-Identifier: Apache-2.0

// Package aws is Auto Scaling groups of Amazon EC2.
//
// The SDK repeats no call here: what asks is asked again by whoever needs the answer, and what changes must first look whether it has been done.
package aws

import (
	"context"
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
