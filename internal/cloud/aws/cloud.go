// SPDX-License-Identifier: Apache-2.0

// Package aws is Auto Scaling groups of Amazon EC2.
//
//	cloud.go       New, and what is kept of an operation
//	describe.go    Describe: the settings of a group
//	machines.go    Find: the groups of nodes; Machines: the instances of a group
//	template.go    launch templates: what instances are made of
//	change.go      machines are added, the launch template is set, and AZRebalance is suspended
//	delete.go      machines are deleted
//	error.go       the kinds of AWS's answers
//
// Every call may be repeated, except TerminateInstanceInAutoScalingGroup: it lowers the capacity each time.
package aws

import (
	"context"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// Cloud is the Auto Scaling groups of an account in a region.
type Cloud struct {
	scaling *autoscaling.Client
	ec2     *ec2.Client
}

// New makes a Cloud. It finds the credentials, and requests none yet. The SDK reads the rest from the environment, such as AWS_ENDPOINT_URL. Tests load other
// settings.
func New(ctx context.Context, p *v1alpha1.AWSProvider, load ...func(*config.LoadOptions) error) (*Cloud, error) {
	// Callers repeat failed calls. The errors say what the SDK would log.
	load = append(load, config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), config.WithLogger(logging.Nop{}), config.WithEC2IMDSRegion(),
		config.WithAPIOptions([]func(*middleware.Stack) error{onlyRead}), config.WithRegion(p.Region))
	c, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, cloud.Errorf(cloud.KindInvalid, "configuring AWS, if there is no region set provider.aws.region or AWS_REGION: %w", err)
	}
	if p.RoleARN != "" {
		role := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(c), p.RoleARN, func(a *stscreds.AssumeRoleOptions) { a.RoleSessionName = "moult" })
		c.Credentials = aws.NewCredentialsCache(role)
	}
	return &Cloud{scaling: autoscaling.NewFromConfig(c), ec2: ec2.NewFromConfig(c)}, nil
}

// onlyRead hides the WriteTo of request bodies. The SDK closes a body as soon as the answer begins, and a closed body fails in WriteTo, but not in Read.
// On a busy machine net/http may look at the body once more after that, and then closes the connection in the middle of the answer.
func onlyRead(stack *middleware.Stack) error {
	hide := middleware.FinalizeMiddlewareFunc("OnlyRead", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if r, ok := in.Request.(*smithyhttp.Request); ok && r.IsStreamSeekable() {
			body, _ := r.GetStream().(io.ReadSeeker)
			hidden, err := r.SetStream(struct{ io.ReadSeeker }{body})
			if err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("preparing a request, %w", err)
			}
			in.Request = hidden
		}
		return next.HandleFinalize(ctx, in)
	})
	return stack.Finalize.Add(hide, middleware.Before)
}

// ScaleSet implements cloud.Cloud.
func (c *Cloud) ScaleSet(name string) cloud.ScaleSet {
	s := &scaleSet{c: c, name: name}
	return struct {
		cloud.ScaleSet
		cloud.Suspender
		cloud.Protector
	}{cloud.NewScaleSet(s), s, s}
}

// Look implements cloud.Cloud.
func (c *Cloud) Look(name string) cloud.ScaleSet {
	return cloud.NewScaleSet(&scaleSet{c: c, name: name, seen: cloud.Seen[string, *types.AutoScalingGroup]{}})
}

// scaleSet is an Auto Scaling group.
type scaleSet struct {
	c    *Cloud
	name string
	seen cloud.Seen[string, *types.AutoScalingGroup]
}

// memory is what is kept of an operation.
type memory struct {
	cloud.Memory
	// Activities delete the machines. Rest are machines that are still to be terminated, if an earlier one was.
	Activities []string `json:"activities,omitempty"`
	Rest       []string `json:"rest,omitempty"`
	// Source is the version of the launch template before the image is set.
	Source string `json:"source,omitempty"`
}

// Plan implements cloud.Driver.
func (s *scaleSet) Plan(ctx context.Context, set *cloud.Set, m *memory) error {
	switch {
	case m.Add > 0:
		return s.planAdd(ctx, set, m)
	case m.Image != "":
		return s.planImage(ctx, set, m)
	}
	return nil
}

// Submit implements cloud.Driver.
func (s *scaleSet) Submit(ctx context.Context, m *memory) error {
	switch {
	case m.Add > 0:
		return s.submitAdd(ctx, m)
	case m.Image != "":
		return s.submitImage(ctx, m)
	}
	return s.submitDelete(ctx, m)
}

// Follow implements cloud.Driver. Additions and images are done when they are sent.
func (s *scaleSet) Follow(ctx context.Context, m *memory) (over bool, err error) {
	if len(m.Delete) > 0 {
		return s.followDelete(ctx, m)
	}
	return true, nil
}
