// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"moult.dev/moult/internal/cloud"
)

// prepareImage makes an operation that sets the launch template, if that is still what has been seen: to a version that there is, or to a new one
// with another AMI.
func (s *scaleSet) prepareImage(ctx context.Context, set *cloud.Set, c cloud.Change) (*memory, error) {
	g, err := s.group(ctx, false)
	if err != nil {
		return nil, err
	}
	own := specification(g)
	if own == nil {
		return nil, cloud.Errorf(cloud.KindInvalid, "setting the image of %s, it has no launch template", s.name)
	}
	now, err := s.c.resolve(ctx, own)
	if err != nil {
		return nil, err
	}
	if set != nil && set.Image != "" && set.Image != now.String() {
		return nil, conflictf("setting the image of %s, it was %s when it was looked at, and was changed to %s", s.name, set.Image, now.String())
	}
	m := &memory{Verb: image, From: specificationText(own), Source: now.version, Template: now.id}
	if parts := reference.FindStringSubmatch(c.Image); parts != nil {
		m.Template, m.Version = parts[1], parts[2]
		_, err := s.c.resolve(ctx, &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(m.Template), Version: aws.String(m.Version)})
		return m, err
	}
	if !amiPattern.MatchString(c.Image) {
		return nil, cloud.Errorf(cloud.KindInvalid, "setting the image of %s, %q is neither LAUNCH-TEMPLATE-ID:VERSION nor the id of an AMI", s.name, c.Image)
	}
	m.Image = c.Image
	return m, nil
}

// sendImage sets the launch template, unless that has been done, or it was changed otherwise.
func (s *scaleSet) sendImage(ctx context.Context, token string, m *memory) error {
	g, err := s.group(ctx, false)
	if err != nil {
		return err
	}
	own := specification(g)
	now, was := template{}, specificationText(own)
	if own != nil {
		if now, err = s.c.resolve(ctx, own); err != nil {
			return err
		}
	}
	// The version with that AMI may also be one that was made for another group, if both are at $Latest of the template.
	if now.id == m.Template && (m.Image != "" && now.image == m.Image || m.Image == "" && now.version == m.Version) {
		return nil
	}
	if was != m.From || now.version != m.Source {
		return conflictf("setting the image of %s, its launch template was %s, version %s, and was changed to %s, version %s",
			s.name, m.From, m.Source, was, now.version)
	}
	to := m.Version
	if m.Image != "" {
		out, err := s.c.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
			LaunchTemplateId: aws.String(m.Template), SourceVersion: aws.String(m.Source), ClientToken: aws.String(token),
			VersionDescription: aws.String(madeBy + token), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String(m.Image)},
		})
		if err != nil {
			return classify("making a version of launch template "+m.Template, err)
		}
		if out.LaunchTemplateVersion == nil {
			return cloud.Errorf(cloud.KindUnavailable, "making a version of launch template %s, the answer has none", m.Template)
		}
		to = strconv.FormatInt(aws.ToInt64(out.LaunchTemplateVersion.VersionNumber), 10)
		if versionOf(own) == "$Latest" {
			return nil // which it is now
		}
	}
	in := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String(s.name)}
	next := &types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(m.Template), Version: aws.String(to)}
	if policy := g.MixedInstancesPolicy; policy != nil && policy.LaunchTemplate != nil {
		policy.LaunchTemplate.LaunchTemplateSpecification = next
		in.MixedInstancesPolicy = policy
	} else {
		in.LaunchTemplate = next
	}
	if _, err := s.c.scaling.UpdateAutoScalingGroup(ctx, in); err != nil {
		return classify("setting the launch template of "+s.name, err)
	}
	return nil
}
