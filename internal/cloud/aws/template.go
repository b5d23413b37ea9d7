// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"moult.dev/moult/internal/cloud"
)

// template is a version of a launch template, with its AMI; empty where it has none.
type template struct{ id, version, image string }

func (t template) String() string { return t.id + ":" + t.version }

// reference is a version of a launch template as Change.Image has it, and amiPattern an AMI.
var (
	reference  = regexp.MustCompile(`^(lt-[0-9a-z]+):([0-9]+)$`)
	amiPattern = regexp.MustCompile(`^ami-[0-9a-z]+$`)
)

// specification is the launch template of a group, with the version as written, such as $Latest; nil where it has none.
func specification(g *types.AutoScalingGroup) *types.LaunchTemplateSpecification {
	return cmp.Or(g.LaunchTemplate, cloud.Value(cloud.Value(g.MixedInstancesPolicy).LaunchTemplate).LaunchTemplateSpecification)
}

// overrides are what the machines of a group may differ in.
func overrides(g *types.AutoScalingGroup) []types.LaunchTemplateOverrides {
	return cloud.Value(cloud.Value(g.MixedInstancesPolicy).LaunchTemplate).Overrides
}

// specificationText is a specification as text, to see later if it was changed. A missing version is $Default.
func specificationText(s *types.LaunchTemplateSpecification) string {
	return cmp.Or(aws.ToString(s.LaunchTemplateId), aws.ToString(s.LaunchTemplateName)) + ":" + versionOf(s)
}

func versionOf(s *types.LaunchTemplateSpecification) string {
	return cmp.Or(aws.ToString(s.Version), "$Default")
}

// resolve reads the version of a launch template that a specification names; empty for none. KindInvalid: there is no such version.
func (c *Cloud) resolve(ctx context.Context, s *types.LaunchTemplateSpecification) (template, error) {
	if s == nil {
		return template{}, nil
	}
	in := &ec2.DescribeLaunchTemplateVersionsInput{Versions: []string{versionOf(s)}, ResolveAlias: aws.Bool(true)}
	if in.LaunchTemplateId = s.LaunchTemplateId; aws.ToString(s.LaunchTemplateId) == "" {
		in.LaunchTemplateId, in.LaunchTemplateName = nil, s.LaunchTemplateName
	}
	out, err := c.ec2.DescribeLaunchTemplateVersions(ctx, in)
	if err != nil {
		return template{}, classify("reading launch template "+specificationText(s), err)
	}
	if len(out.LaunchTemplateVersions) != 1 {
		return template{}, cloud.Errorf(cloud.KindInvalid, "reading launch template %s, there is no such version", specificationText(s))
	}
	v := out.LaunchTemplateVersions[0]
	return template{
		id: aws.ToString(v.LaunchTemplateId), version: strconv.FormatInt(aws.ToInt64(v.VersionNumber), 10),
		image: aws.ToString(cloud.Value(v.LaunchTemplateData).ImageId),
	}, nil
}

// model identifies the version, AMI and overrides that a group makes machines of.
func model(g *types.AutoScalingGroup, own template) string {
	m := own.String() + "/" + own.image
	if g.MixedInstancesPolicy == nil {
		return m
	}
	h := sha256.New()
	fmt.Fprintln(h, []template{own})
	_ = json.NewEncoder(h).Encode(overrides(g)) // Plain data always encodes.
	return fmt.Sprintf("%s/%.4x", m, h.Sum(nil))
}

// upToDate reports whether an instance has the launch template version and AMI of its group. image is its AMI, if known.
func upToDate(own template, i *types.Instance, image string) bool {
	image = cmp.Or(aws.ToString(i.ImageId), image)
	has := cloud.Value(i.LaunchTemplate)
	return own.id != "" && aws.ToString(has.LaunchTemplateId) == own.id && aws.ToString(has.Version) == own.version &&
		(image == "" || own.image == "" || image == own.image)
}

// imageName is the name of an AMI, or its id where it no longer exists.
func (c *Cloud) imageName(ctx context.Context, ami string) (string, error) {
	if ami == "" {
		return "", nil
	}
	out, err := c.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{ami}})
	if err != nil || len(out.Images) != 1 {
		return ami, cloud.IgnoreNotFound(classify("reading image "+ami, err))
	}
	return cmp.Or(aws.ToString(out.Images[0].Name), ami), nil
}
