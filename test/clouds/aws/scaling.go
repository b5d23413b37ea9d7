// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

func (d *double) serveScaling(rw http.ResponseWriter, r *http.Request) {
	f := form(r)
	actions := map[string]func(url.Values) (any, error){
		"DescribeAutoScalingGroups":           d.describeGroups,
		"DescribeAutoScalingInstances":        d.describeInstances,
		"DescribeInstanceRefreshes":           d.describeRefreshes,
		"DescribeScalingActivities":           d.describeActivities,
		"LaunchInstances":                     d.launch,
		"SetDesiredCapacity":                  d.setCapacity,
		"TerminateInstanceInAutoScalingGroup": d.terminate,
		"UpdateAutoScalingGroup":              d.update,
		"SuspendProcesses":                    d.suspend,
		"ResumeProcesses":                     d.resume,
		"CreateOrUpdateTags":                  d.tag,
		"DeleteTags":                          d.untag,
	}
	action := f.Get("Action")
	do, ok := actions[action]
	if !ok {
		refuseScaling(rw, &refusal{"InvalidAction", "Could not find operation " + action, http.StatusBadRequest})
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	answer, err := do(f)
	if err != nil {
		refuseScaling(rw, refusalOf(err))
		return
	}
	write(rw, http.StatusOK, result{XMLName: xml.Name{Local: action}, Result: answer, Request: request})
}

type group struct {
	Name          string `xml:"AutoScalingGroupName"`
	ARN           string `xml:"AutoScalingGroupARN"`
	MinSize       int
	MaxSize       int
	Desired       int           `xml:"DesiredCapacity"`
	Cooldown      int           `xml:"DefaultCooldown"`
	Health        string        `xml:"HealthCheckType"`
	Created       string        `xml:"CreatedTime"`
	Configuration string        `xml:"LaunchConfigurationName,omitempty"`
	Lifetime      int           `xml:"MaxInstanceLifetime,omitempty"`
	Template      *templateSpec `xml:"LaunchTemplate,omitempty"`
	Mixed         *mixed        `xml:"MixedInstancesPolicy,omitempty"`
	WarmPool      *warmPool     `xml:"WarmPoolConfiguration,omitempty"`
	Instances     []instance    `xml:"Instances>member"`
	Suspended     []suspended   `xml:"SuspendedProcesses>member"`
	Tags          []tag         `xml:"Tags>member"`
	ZoneNames     []string      `xml:"AvailabilityZones>member"`
}

type templateSpec struct {
	ID      string `xml:"LaunchTemplateId"`
	Name    string `xml:"LaunchTemplateName"`
	Version string
}

type mixed struct {
	Base      int          `xml:"InstancesDistribution>OnDemandBaseCapacity"`
	Above     int          `xml:"InstancesDistribution>OnDemandPercentageAboveBaseCapacity"`
	Template  templateSpec `xml:"LaunchTemplate>LaunchTemplateSpecification"`
	Overrides []override   `xml:"LaunchTemplate>Overrides>member"`
}

type override struct {
	InstanceType     string
	WeightedCapacity string `xml:",omitempty"`
}

type warmPool struct{ MinSize int }

type suspended struct {
	Name   string `xml:"ProcessName"`
	Reason string `xml:"SuspensionReason"`
}

type tag struct {
	ResourceID   string `xml:"ResourceId"`
	ResourceType string
	Key, Value   string
	Propagate    bool `xml:"PropagateAtLaunch"`
}

type instance struct {
	ID        string        `xml:"InstanceId"`
	Group     string        `xml:"AutoScalingGroupName,omitempty"`
	Zone      string        `xml:"AvailabilityZone"`
	Lifecycle string        `xml:"LifecycleState"`
	Health    string        `xml:"HealthStatus"`
	Protected bool          `xml:"ProtectedFromScaleIn"`
	Template  *templateSpec `xml:"LaunchTemplate,omitempty"`
}

func (d *double) describeGroups(f url.Values) (any, error) {
	names := list(f, "AutoScalingGroupNames.member")
	var all []group
	for _, s := range d.world.Sets() {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			d.retry(&s)
			all = append(all, d.group(s.Name, f.Get("IncludeInstances") != "false"))
		}
	}
	page, next := paged(f, all, d.page)
	return struct {
		Groups []group `xml:"AutoScalingGroups>member"`
		Next   string  `xml:"NextToken,omitempty"`
	}{page, next}, nil
}

func (d *double) group(name string, instances bool) group {
	s, _ := d.world.Set(name)
	t := d.template(&s)
	spec := templateSpec{t.id, t.name, t.spec(&s)}
	g := group{
		Name: s.Name, ARN: "arn:aws:autoscaling:" + Region + ":000000000000:autoScalingGroup:0:autoScalingGroupName/" + s.Name,
		MinSize: s.Min, MaxSize: cmp.Or(s.Max, 10000), Desired: max(s.Capacity, d.wanted[name]), Cooldown: 300, Health: "EC2", Created: "2026-01-01T00:00:00Z",
		ZoneNames: s.Zones, Template: &spec,
	}
	if policy := s.Settings["policy"]; policy != "" || s.Settings["weights"] != "" {
		g.Template, g.Mixed = nil, &mixed{Template: spec, Overrides: []override{{InstanceType: "m7i.large"}, {InstanceType: "m7a.large"}}}
		if policy == "mixed" {
			g.Mixed.Above = 50
		}
		if s.Settings["weights"] != "" {
			g.Mixed.Overrides[0].WeightedCapacity = "2"
		}
	}
	if name := s.Settings["launchConfiguration"]; name != "" {
		g.Template, g.Configuration = nil, name
	}
	if s.Settings["warmPool"] != "" {
		g.WarmPool = &warmPool{1}
	}
	if s.Settings["lifetime"] != "" {
		g.Lifetime = 86400
	}
	for _, p := range processes(&s) {
		g.Suspended = append(g.Suspended, suspended{p, "User suspended"})
	}
	for k, v := range s.Tags {
		g.Tags = append(g.Tags, tag{s.Name, "auto-scaling-group", k, v, false})
	}
	slices.SortFunc(g.Tags, func(a, b tag) int { return strings.Compare(a.Key, b.Key) })
	for _, m := range d.world.Machines(name) {
		i := d.instance(t, &m)
		if i.Lifecycle == "Standby" {
			g.Desired--
		}
		if instances {
			g.Instances = append(g.Instances, i)
		}
	}
	return g
}

func processes(s *clouds.Set) []string {
	return slices.DeleteFunc(strings.Split(s.Settings["suspended"], ","), func(p string) bool { return p == "" })
}

func (d *double) instance(t *template, m *clouds.Machine) instance {
	i := instance{ID: m.ID, Zone: m.Zone, Health: "Healthy", Lifecycle: m.State, Template: &templateSpec{t.id, t.name, strconv.Itoa(t.models[m.Set][m.Model])}}
	switch m.State {
	case clouds.Creating:
		i.Lifecycle = "Pending"
	case clouds.Running:
		i.Lifecycle = "InService"
	case clouds.Failed:
		i.Lifecycle, i.Health = "InService", "Unhealthy"
	case clouds.Deleting:
		i.Lifecycle = "Terminating"
	}
	return i
}

func (d *double) describeInstances(f url.Values) (any, error) {
	ids := list(f, "InstanceIds.member")
	if len(ids) > 50 {
		return nil, refuse("ValidationError", "The number of instance ids that may be passed in is limited to 50")
	}
	var all []instance
	for _, s := range d.world.Sets() {
		t := d.template(&s)
		for _, m := range d.world.Machines(s.Name) {
			if len(ids) == 0 || slices.Contains(ids, m.ID) {
				i := d.instance(t, &m)
				i.Group = s.Name
				all = append(all, i)
			}
		}
	}
	page, next := paged(f, all, min(d.page, 50))
	return struct {
		Instances []instance `xml:"AutoScalingInstances>member"`
		Next      string     `xml:"NextToken,omitempty"`
	}{page, next}, nil
}

func (d *double) describeRefreshes(f url.Values) (any, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	type refresh struct {
		ID     string `xml:"InstanceRefreshId"`
		Group  string `xml:"AutoScalingGroupName"`
		Status string
	}
	status := s.Settings["refresh"]
	if s.Busy {
		status = "InProgress"
	}
	var all []refresh
	if status != "" {
		all = append(all, refresh{"refresh-1", s.Name, status})
	}
	return struct {
		Refreshes []refresh `xml:"InstanceRefreshes>member"`
	}{append(all, refresh{"refresh-0", s.Name, "Successful"})}, nil
}

func (d *double) set(f url.Values) (*clouds.Set, error) {
	name := f.Get("AutoScalingGroupName")
	s, ok := d.world.Set(name)
	if !ok {
		return nil, refuse("ValidationError", "AutoScalingGroup name not found - AutoScalingGroup %s not found", name)
	}
	return &s, nil
}
