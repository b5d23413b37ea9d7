// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"

	"moult.dev/moult/test/clouds"
)

func (d *double) serveEC2(rw http.ResponseWriter, r *http.Request) {
	f := form(r)
	actions := map[string]func(url.Values) (any, error){
		"DescribeInstances":              d.instances,
		"DescribeInstanceAttribute":      d.attribute,
		"DescribeImages":                 d.images,
		"DescribeLaunchTemplateVersions": d.versions,
		"CreateLaunchTemplateVersion":    d.createVersion,
	}
	action := f.Get("Action")
	do, ok := actions[action]
	if !ok {
		refuseEC2(rw, &refusal{"InvalidAction", "The action " + action + " is not valid for this web service.", http.StatusBadRequest})
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	answer, err := do(f)
	if err != nil {
		refuseEC2(rw, refusalOf(err))
		return
	}
	write(rw, http.StatusOK, answer)
}

type vm struct {
	ID      string `xml:"instanceId"`
	Image   string `xml:"imageId"`
	Code    int    `xml:"instanceState>code"`
	State   string `xml:"instanceState>name"`
	DNS     string `xml:"privateDnsName"`
	Launch  string `xml:"launchTime"`
	Zone    string `xml:"placement>availabilityZone"`
	Message string `xml:"stateReason>message,omitempty"`
}

type reservation struct {
	ID        string `xml:"reservationId"`
	Instances []vm   `xml:"instancesSet>item"`
}

// instances answers for those of one group, by the tag that the group gives them.
func (d *double) instances(f url.Values) (any, error) {
	if f.Get("Filter.1.Name") != "tag:aws:autoscaling:groupName" {
		return nil, refuse("InvalidParameterValue", "the only filter is that of the group")
	}
	var all []reservation
	machines := d.world.Machines(f.Get("Filter.1.Value.1"))
	for _, m := range append(machines, d.world.Gone(f.Get("Filter.1.Value.1"))...) {
		v := vm{ID: m.ID, Image: ImageID(m.Image), Code: 16, State: "running", DNS: m.NodeName, Launch: timestamp(m.Created), Zone: m.Zone, Message: m.Message}
		switch m.State {
		case clouds.Creating:
			v.Code, v.State = 0, "pending"
		case clouds.Deleting:
			v.Code, v.State = 32, "shutting-down"
			if !slices.ContainsFunc(machines, func(o clouds.Machine) bool { return o.ID == m.ID }) {
				v.Code, v.State = 48, "terminated"
			}
		}
		all = append(all, reservation{"r-" + m.ID, []vm{v}})
	}
	page, next := paged(f, all, d.page)
	return struct {
		XMLName      xml.Name      `xml:"DescribeInstancesResponse"`
		Reservations []reservation `xml:"reservationSet>item"`
		Next         string        `xml:"nextToken,omitempty"`
	}{Reservations: page, Next: next}, nil
}

func (d *double) attribute(f url.Values) (any, error) {
	if f.Get("Attribute") != "disableApiTermination" {
		return nil, refuse("InvalidParameterValue", "the only attribute is disableApiTermination")
	}
	for _, s := range d.world.Sets() {
		for _, m := range d.world.Machines(s.Name) {
			if m.ID == f.Get("InstanceId") {
				return struct {
					XMLName   xml.Name `xml:"DescribeInstanceAttributeResponse"`
					ID        string   `xml:"instanceId"`
					Protected bool     `xml:"disableApiTermination>value"`
				}{ID: m.ID, Protected: m.Protected}, nil
			}
		}
	}
	return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", f.Get("InstanceId"))
}

func (d *double) images(f url.Values) (any, error) {
	type image struct {
		ID   string `xml:"imageId"`
		Name string `xml:"name"`
	}
	var all []image
	for _, id := range list(f, "ImageId") {
		name, ok := imageName(id)
		if !ok {
			return nil, refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		all = append(all, image{id, name})
	}
	return struct {
		XMLName xml.Name `xml:"DescribeImagesResponse"`
		Images  []image  `xml:"imagesSet>item"`
	}{Images: all}, nil
}

type versionXML struct {
	ID          string `xml:"launchTemplateId"`
	Name        string `xml:"launchTemplateName"`
	Number      int    `xml:"versionNumber"`
	Description string `xml:"versionDescription,omitempty"`
	Image       string `xml:"launchTemplateData>imageId"`
}

func (t *template) xml(n int) versionXML {
	v := t.versions[n-1]
	return versionXML{t.id, t.name, n, v.description, ImageID(v.image)}
}

func (d *double) versions(f url.Values) (any, error) {
	id := f.Get("LaunchTemplateId")
	if id == "" {
		id = f.Get("LaunchTemplateName")
	}
	t, s := d.templateByID(id)
	if t == nil {
		return nil, refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	}
	var all []versionXML
	for _, spec := range list(f, "LaunchTemplateVersion") {
		n := t.number(s, spec)
		if n == 0 {
			return nil, refuse("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", spec, t.id)
		}
		v := t.xml(n)
		if s.Settings["alias"] != "" && f.Get("ResolveAlias") != "true" {
			v.Image = "resolve:ssm:/moult/image"
		}
		all = append(all, v)
	}
	return struct {
		XMLName  xml.Name     `xml:"DescribeLaunchTemplateVersionsResponse"`
		Versions []versionXML `xml:"launchTemplateVersionSet>item"`
	}{Versions: all}, nil
}

func (d *double) createVersion(f url.Values) (any, error) {
	t, _ := d.templateByID(f.Get("LaunchTemplateId"))
	if t == nil {
		return nil, refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template does not exist.")
	}
	name, ok := imageName(f.Get("LaunchTemplateData.ImageId"))
	if !ok {
		return nil, refuse("InvalidAMIID.Malformed", "Invalid id: %q", f.Get("LaunchTemplateData.ImageId"))
	}
	token := f.Get("ClientToken")
	n := slices.IndexFunc(t.versions, func(v version) bool { return token != "" && v.token == token }) + 1
	if n == 0 {
		t.versions = append(t.versions, version{name, f.Get("VersionDescription"), token})
		n = len(t.versions)
		for _, s := range d.world.Sets() {
			d.template(&s) // those at $Latest are of it now
		}
	}
	return struct {
		XMLName xml.Name   `xml:"CreateLaunchTemplateVersionResponse"`
		Version versionXML `xml:"launchTemplateVersion"`
	}{Version: t.xml(n)}, nil
}
