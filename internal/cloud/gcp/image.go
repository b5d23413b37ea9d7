// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"regexp"
	"strings"

	"google.golang.org/api/compute/v1"
)

// template is an instance template's URL without the part that says which server has it: projects/P/global/instanceTemplates/T.
func (c *Cloud) template(link string) string {
	_, path, ok := strings.Cut("/"+link, "/projects/")
	switch {
	case ok:
		return "projects/" + path
	case strings.HasPrefix(link, "global/"), strings.HasPrefix(link, "regions/"):
		return "projects/" + c.project + "/" + link
	case link != "" && !strings.Contains(link, "/"):
		return "projects/" + c.project + "/global/instanceTemplates/" + link
	}
	return link
}

// templateName is the name of an instance template.
var templateName = regexp.MustCompile(`^projects/[a-z0-9.:-]+/(global|regions/[a-z0-9-]+)/instanceTemplates/[A-Za-z0-9._-]+$`)

// templateOf is the template that the group makes new machines of.
func (c *Cloud) templateOf(m *compute.InstanceGroupManager) string {
	for _, v := range m.Versions {
		if !isPartial(v) {
			return c.template(v.InstanceTemplate)
		}
	}
	return c.template(m.InstanceTemplate)
}

// isPartial reports whether a version is for a part of the machines. Compute Engine sets TargetSize for all of them.
func isPartial(v *compute.InstanceGroupManagerVersion) bool {
	return v.TargetSize != nil && (v.TargetSize.Fixed != 0 || v.TargetSize.Percent != 0 && v.TargetSize.Percent != 100)
}
