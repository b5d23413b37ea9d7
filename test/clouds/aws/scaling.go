// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

// scaling is Auto Scaling, and STS.
func (d *double) scaling() actions {
	return actions{
		"DescribeAutoScalingGroups":           d.describeGroups,
		"DescribeAutoScalingInstances":        d.describeInstances,
		"DescribeInstanceRefreshes":           d.describeRefreshes,
		"DescribeScalingActivities":           d.describeActivities,
		"LaunchInstances":                     d.launch,
		"TerminateInstanceInAutoScalingGroup": d.terminate,
		"UpdateAutoScalingGroup":              d.update,
		"SuspendProcesses":                    d.suspend,
		"ResumeProcesses":                     d.resume,
		"CreateOrUpdateTags":                  d.tag,
		"DeleteTags":                          d.untag,
		"AssumeRole":                          d.assumeRole,
	}
}

func (d *double) describeGroups(f url.Values) (fields, error) {
	names := list(f, "AutoScalingGroupNames.member")
	var all []fields
	for _, s := range d.world.Sets() {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			all = append(all, d.group(s.Name, f.Get("IncludeInstances") != "false"))
		}
	}
	page, next := clouds.Page(all, f.Get("NextToken"), d.page)
	return fields{"AutoScalingGroups": page, "NextToken": next}, nil
}

func (d *double) group(name string, instances bool) fields {
	s, _ := d.world.Set(name)
	t := d.template(&s)
	var members, suspended, tags []fields
	desired := s.Capacity
	for _, m := range d.world.Machines(name) {
		if m.State == "Standby" {
			desired--
		}
		if instances {
			members = append(members, d.instance(t, &m))
		}
	}
	for _, p := range processes(&s) {
		suspended = append(suspended, fields{"ProcessName": p, "SuspensionReason": "User suspended"})
	}
	for k, v := range s.Tags {
		tags = append(tags, fields{"ResourceId": s.Name, "ResourceType": "auto-scaling-group", "Key": k, "Value": v, "PropagateAtLaunch": false})
	}
	g := fields{
		"AutoScalingGroupName": s.Name, "MinSize": s.Min, "MaxSize": cmp.Or(s.Max, 10000), "DesiredCapacity": desired,
		"LaunchConfigurationName": s.Settings["launchConfiguration"], "Instances": members, "SuspendedProcesses": suspended, "Tags": tags,
		"AvailabilityZones": s.Zones,
	}
	spec, policy, weights := t.fieldsOf(t.spec(&s)), s.Settings["policy"], s.Settings["weights"]
	switch {
	case s.Settings["launchConfiguration"] != "":
	case policy == "" && weights == "":
		g["LaunchTemplate"] = spec
	default:
		above, weight := map[string]int{"mixed": 50}[policy], ""
		if weights != "" {
			weight = "2"
		}
		g["MixedInstancesPolicy"] = fields{
			"InstancesDistribution": fields{"OnDemandBaseCapacity": 0, "OnDemandPercentageAboveBaseCapacity": above},
			"LaunchTemplate": fields{
				"LaunchTemplateSpecification": spec,
				"Overrides":                   []fields{{"InstanceType": "m7i.large", "WeightedCapacity": weight}, {"InstanceType": "m7a.large"}},
			},
		}
	}
	if s.Settings["warmPool"] != "" {
		g["WarmPoolConfiguration"] = fields{"MinSize": 1}
	}
	if s.Settings["lifetime"] != "" {
		g["MaxInstanceLifetime"] = 86400
	}
	return g
}

// fieldsOf is a version of a template as a group and an instance show it.
func (t *template) fieldsOf(version string) fields {
	return fields{"LaunchTemplateId": t.id, "LaunchTemplateName": t.name, "Version": version}
}

func processes(s *clouds.Set) []string {
	return slices.DeleteFunc(strings.Split(s.Settings["suspended"], ","), func(p string) bool { return p == "" })
}

func (d *double) instance(t *template, m *clouds.Machine) fields {
	lifecycle, health := m.State, "Healthy"
	switch m.State {
	case clouds.Creating:
		lifecycle = "Pending"
	case clouds.Running:
		lifecycle = "InService"
	case clouds.Failed:
		lifecycle, health = "InService", "Unhealthy"
	case clouds.Deleting:
		lifecycle = "Terminating"
	}
	return fields{
		"InstanceId": m.ID, "AutoScalingGroupName": m.Set, "AvailabilityZone": m.Zone, "LifecycleState": lifecycle, "HealthStatus": health,
		"ProtectedFromScaleIn": false, "LaunchTemplate": t.fieldsOf(strconv.Itoa(t.models[m.Set][m.Model])),
	}
}

func (d *double) describeInstances(f url.Values) (fields, error) {
	ids := list(f, "InstanceIds.member")
	var all []fields
	for _, s := range d.world.Sets() {
		t := d.template(&s)
		for _, m := range d.world.Machines(s.Name) {
			if len(ids) == 0 || slices.Contains(ids, m.ID) {
				all = append(all, d.instance(t, &m))
			}
		}
	}
	page, next := clouds.Page(all, f.Get("NextToken"), min(d.page, 50))
	return fields{"AutoScalingInstances": page, "NextToken": next}, nil
}

func (d *double) describeRefreshes(f url.Values) (fields, error) {
	s, _ := d.world.Set(f.Get("AutoScalingGroupName"))
	status := s.Settings["refresh"]
	if s.Busy {
		status = "InProgress"
	}
	var all []fields
	if status != "" {
		all = append(all, fields{"InstanceRefreshId": "refresh-1", "AutoScalingGroupName": s.Name, "Status": status})
	}
	return fields{"InstanceRefreshes": append(all, fields{"InstanceRefreshId": "refresh-0", "AutoScalingGroupName": s.Name, "Status": "Successful"})}, nil
}

func (d *double) set(f url.Values) (*clouds.Set, error) {
	name := f.Get("AutoScalingGroupName")
	s, ok := d.world.Set(name)
	if !ok {
		return nil, refusal("ValidationError", "AutoScalingGroup name not found - AutoScalingGroup %s not found", name)
	}
	return &s, nil
}

// machine finds a machine with its set.
func (d *double) machine(id string) (s clouds.Set, m clouds.Machine, err error) {
	for _, s := range d.world.Sets() {
		for _, m := range d.world.Machines(s.Name) {
			if m.ID == id {
				return s, m, nil
			}
		}
	}
	return s, m, refusal("ValidationError", "Instance Id not found - No managed instance found for instance ID %s", id)
}
