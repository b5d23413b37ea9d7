// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"net/url"
	"slices"

	"moult.dev/moult/test/clouds"
)

// ec2 is EC2.
func (d *double) ec2() actions {
	return actions{
		"DescribeInstances":              d.instances,
		"DescribeInstanceAttribute":      d.attribute,
		"DescribeImages":                 d.images,
		"DescribeLaunchTemplateVersions": d.versions,
		"CreateLaunchTemplateVersion":    d.createVersion,
	}
}

// instances answers for those of one group, by the tag that the group gives them.
func (d *double) instances(f url.Values) (fields, error) {
	var all []fields
	set := f.Get("Filter.1.Value.1")
	machines := d.world.Machines(set)
	for _, m := range append(machines, d.world.Gone(set)...) {
		code, state := 16, "running"
		switch m.State {
		case clouds.Creating:
			code, state = 0, "pending"
		case clouds.Deleting:
			code, state = 32, "shutting-down"
			if !slices.ContainsFunc(machines, func(o clouds.Machine) bool { return o.ID == m.ID }) {
				code, state = 48, "terminated"
			}
		}
		all = append(all, fields{"reservationId": "r-" + m.ID, "instancesSet": []fields{{
			"instanceId": m.ID, "imageId": ImageID(m.Image), "instanceState": fields{"code": code, "name": state}, "privateDnsName": m.NodeName,
			"launchTime": m.Created.UTC().Format("2006-01-02T15:04:05.000Z"), "placement": fields{"availabilityZone": m.Zone}, "stateReason": fields{"message": m.Message},
		}}})
	}
	page, next := clouds.Page(all, f.Get("NextToken"), d.page)
	return fields{"reservationSet": page, "nextToken": next}, nil
}

func (d *double) attribute(f url.Values) (fields, error) {
	_, m, err := d.machine(f.Get("InstanceId"))
	return fields{"instanceId": m.ID, "disableApiTermination": fields{"value": m.Protected}}, err
}

func (d *double) images(f url.Values) (fields, error) {
	var all []fields
	for _, id := range list(f, "ImageId") {
		all = append(all, fields{"imageId": id, "name": imageName(id)})
	}
	return fields{"imagesSet": all}, nil
}

func (t *template) fields(n int) fields {
	v := t.versions[n-1]
	return fields{
		"launchTemplateId": t.id, "launchTemplateName": t.name, "versionNumber": n, "versionDescription": v.description,
		"launchTemplateData": fields{"imageId": ImageID(v.image)},
	}
}

func (d *double) versions(f url.Values) (fields, error) {
	id := cmp.Or(f.Get("LaunchTemplateId"), f.Get("LaunchTemplateName"))
	t, s, err := d.templateByID(id)
	if err != nil {
		return nil, err
	}
	var all []fields
	for _, spec := range list(f, "LaunchTemplateVersion") {
		n := t.number(s, spec)
		if n == 0 {
			return nil, refusal("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", spec, t.id)
		}
		v := t.fields(n)
		if s.Settings["alias"] != "" && f.Get("ResolveAlias") != "true" {
			v["launchTemplateData"] = fields{"imageId": "resolve:ssm:/moult/image"}
		}
		all = append(all, v)
	}
	return fields{"launchTemplateVersionSet": all}, nil
}

func (d *double) createVersion(f url.Values) (fields, error) {
	t, _, err := d.templateByID(f.Get("LaunchTemplateId"))
	if err != nil {
		return nil, err
	}
	token := f.Get("ClientToken")
	n := slices.IndexFunc(t.versions, func(v version) bool { return token != "" && v.token == token }) + 1
	if n == 0 {
		t.versions = append(t.versions, version{imageName(f.Get("LaunchTemplateData.ImageId")), f.Get("VersionDescription"), token})
		n = len(t.versions)
		for _, s := range d.world.Sets() {
			d.template(&s) // those at $Latest are of it now
		}
	}
	return fields{"launchTemplateVersion": t.fields(n)}, nil
}
