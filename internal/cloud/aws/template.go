// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"moult.dev/moult/internal/cloud"
)

// versionKey is a numbered version of a launch template.
type versionKey struct{ id, version string }

// template is a version of a launch template.
type template struct {
	id      string
	version string
	// image is its AMI; empty where it leaves that open.
	image string
}

func (t template) String() string { return t.id + ":" + t.version }

// reference is a version of a launch template as Change.Image has it.
var reference = regexp.MustCompile(`^(lt-[0-9a-z]+):([0-9]+)$`)

// amiPattern is an image as Change.Image has it.
var amiPattern = regexp.MustCompile(`^ami-[0-9a-z]+$`)

// madeBy begins the description of a version that an operation has made; its token follows.
const madeBy = "moult "

// specification is the launch template of a group, with the version as written, such as $Latest; nil where it has none.
func specification(g *types.AutoScalingGroup) *types.LaunchTemplateSpecification {
	if g.LaunchTemplate != nil {
		return g.LaunchTemplate
	}
	if p := g.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil {
		return p.LaunchTemplate.LaunchTemplateSpecification
	}
	return nil
}

// overrides are what the machines of a group may differ in.
func overrides(g *types.AutoScalingGroup) []types.LaunchTemplateOverrides {
	if p := g.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil {
		return p.LaunchTemplate.Overrides
	}
	return nil
}

// specificationText is a specification as text, to see whether it was changed.
func specificationText(s *types.LaunchTemplateSpecification) string {
	if s == nil {
		return ""
	}
	name := aws.ToString(s.LaunchTemplateId)
	if name == "" {
		name = aws.ToString(s.LaunchTemplateName)
	}
	return name + ":" + versionOf(s)
}

// versionOf is the version of a specification, which is $Default where it says none.
func versionOf(s *types.LaunchTemplateSpecification) string {
	if v := aws.ToString(s.Version); v != "" {
		return v
	}
	return "$Default"
}

// resolve reads the version of a launch template that a specification names. KindInvalid: there is none.
func (c *Cloud) resolve(ctx context.Context, s *types.LaunchTemplateSpecification) (template, error) {
	key := versionKey{aws.ToString(s.LaunchTemplateId), versionOf(s)}
	c.mu.Lock()
	known, ok := c.templates[key]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	t, alias, err := c.version(ctx, s, false)
	if err == nil && alias {
		t, _, err = c.version(ctx, s, true)
	}
	if err != nil || alias {
		return t, err
	}
	// A numbered version never changes; where it names a parameter instead of an image, that may.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.templates[versionKey{t.id, t.version}] = t
	return t, nil
}

// version reads a version of a launch template. alias: its image is a parameter of Systems Manager, which is looked up only where follow says so.
func (c *Cloud) version(ctx context.Context, s *types.LaunchTemplateSpecification, follow bool) (t template, alias bool, err error) {
	in := &ec2.DescribeLaunchTemplateVersionsInput{Versions: []string{versionOf(s)}}
	if in.LaunchTemplateId = s.LaunchTemplateId; aws.ToString(s.LaunchTemplateId) == "" {
		in.LaunchTemplateId, in.LaunchTemplateName = nil, s.LaunchTemplateName
	}
	if follow {
		in.ResolveAlias = aws.Bool(true)
	}
	out, err := c.ec2.DescribeLaunchTemplateVersions(ctx, in, readEC2)
	if err != nil {
		err = classify("reading launch template "+specificationText(s), err)
		if cloud.KindOf(err) == cloud.KindNotFound {
			err = &cloud.Error{Kind: cloud.KindInvalid, Err: err} // it is not the group that is not there
		}
		return t, false, err
	}
	if len(out.LaunchTemplateVersions) != 1 {
		return t, false, cloud.Errorf(cloud.KindInvalid, "reading launch template %s, there is no such version", specificationText(s))
	}
	v := out.LaunchTemplateVersions[0]
	t = template{id: aws.ToString(v.LaunchTemplateId), version: strconv.FormatInt(aws.ToInt64(v.VersionNumber), 10)}
	if v.LaunchTemplateData != nil {
		t.image = aws.ToString(v.LaunchTemplateData.ImageId)
	}
	return t, strings.HasPrefix(t.image, "resolve:ssm:"), nil
}

// templates are the versions of launch templates that a group makes machines of: its own first, then those of overrides.
func (c *Cloud) templatesOf(ctx context.Context, g *types.AutoScalingGroup) ([]template, error) {
	own := specification(g)
	if own == nil {
		return nil, nil
	}
	specs := []*types.LaunchTemplateSpecification{own}
	for _, o := range overrides(g) {
		if o.LaunchTemplateSpecification != nil {
			specs = append(specs, o.LaunchTemplateSpecification)
		}
	}
	var all []template
	for _, s := range specs {
		t, err := c.resolve(ctx, s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all, nil
}

// model identifies what a group makes machines of.
func model(g *types.AutoScalingGroup, all []template) string {
	if len(all) == 0 {
		return "launch-configuration:" + aws.ToString(g.LaunchConfigurationName)
	}
	m := all[0].String()
	if all[0].image != "" {
		m += "/" + all[0].image
	}
	if g.MixedInstancesPolicy == nil {
		return m
	}
	h := sha256.New()
	fmt.Fprintln(h, all)
	if err := json.NewEncoder(h).Encode(overrides(g)); err != nil {
		fmt.Fprint(h, err)
	}
	return fmt.Sprintf("%s/%.4x", m, h.Sum(nil))
}

// upToDate reports whether an instance is made of what its group makes machines of. image is its AMI, where that is known.
func upToDate(g *types.AutoScalingGroup, all []template, i *types.Instance, image string) bool {
	if i.LaunchTemplate == nil {
		return len(all) == 0 && i.LaunchConfigurationName != nil && aws.ToString(i.LaunchConfigurationName) == aws.ToString(g.LaunchConfigurationName)
	}
	if id := aws.ToString(i.ImageId); id != "" {
		image = id
	}
	for _, t := range all {
		if aws.ToString(i.LaunchTemplate.LaunchTemplateId) != t.id || aws.ToString(i.LaunchTemplate.Version) != t.version {
			continue
		}
		if image == "" || t.image == "" || image == t.image {
			return true
		}
		for _, o := range overrides(g) {
			if aws.ToString(o.ImageId) == image {
				return true
			}
		}
	}
	return false
}

// imageName is the name of an AMI: what its maker has called it, or its id where it is not there any more.
func (c *Cloud) imageName(ctx context.Context, ami string) (string, error) {
	if ami == "" {
		return "", nil
	}
	c.mu.Lock()
	name, ok := c.images[ami]
	c.mu.Unlock()
	if ok {
		return name, nil
	}
	out, err := c.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{ami}}, readEC2)
	if err != nil {
		if err = classify("reading image "+ami, err); cloud.KindOf(err) == cloud.KindNotFound {
			return ami, nil
		}
		return "", err
	}
	if len(out.Images) != 1 || aws.ToString(out.Images[0].Name) == "" {
		return ami, nil
	}
	name = aws.ToString(out.Images[0].Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.images[ami] = name
	return name, nil
}
