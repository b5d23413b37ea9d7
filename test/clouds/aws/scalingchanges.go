// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"moult.dev/moult/test/clouds"
)

// launched is what a token was answered.
type launched struct {
	asked  string
	answer launchAnswer
}

type launchAnswer struct {
	Group     string             `xml:"AutoScalingGroupName"`
	Token     string             `xml:"ClientToken"`
	Instances []launchCollection `xml:"Instances>member"`
	Errors    []launchError      `xml:"Errors>member"`
}

type launchCollection struct {
	Type string   `xml:"InstanceType"`
	Zone string   `xml:"AvailabilityZone"`
	IDs  []string `xml:"InstanceIds>member"`
}

type launchError struct {
	Type    string `xml:"InstanceType"`
	Zone    string `xml:"AvailabilityZone"`
	Code    string `xml:"ErrorCode"`
	Message string `xml:"ErrorMessage"`
}

func (d *double) launch(f url.Values) (any, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	n, err := number(f, "RequestedCapacity")
	if err != nil {
		return nil, err
	}
	token, zones := f.Get("ClientToken"), list(f, "AvailabilityZones.member")
	asked := fmt.Sprint(n, zones, f.Get("RetryStrategy"))
	if known := d.launched[s.Name+"/"+token]; known != nil {
		if known.asked != asked {
			return nil, refuse("IdempotentParameterMismatch", "the parameters differ from those of an earlier request with this token")
		}
		return known.answer, nil
	}
	switch {
	case s.Settings["noLaunchInstances"] != "" || s.Settings["policy"] == "mixed" || s.Settings["warmPool"] != "":
		return nil, refuse("UnsupportedOperation", "the group does not take LaunchInstances")
	case token == "" || n < 1 || len(zones) > 1 || len(zones) == 0 && len(s.Zones) > 1:
		return nil, refuse("ValidationError", "one Availability Zone, a token and a capacity are required")
	case slices.Contains(processes(s), "Launch"):
		return nil, refuse("ValidationError", "the process Launch is suspended")
	}
	answer, err := d.launchIn(s, strings.Join(zones, ""), n)
	if err != nil {
		return nil, err
	}
	answer.Token = token
	d.launched[s.Name+"/"+token] = &launched{asked, answer}
	return answer, nil
}

// launchIn launches as many in a zone as there is room for.
func (d *double) launchIn(s *clouds.Set, zone string, n int) (launchAnswer, error) {
	answer, room := launchAnswer{Group: s.Name}, n
	if limit, err := strconv.Atoi(s.Settings["room"]); err == nil {
		room = min(room, limit)
	}
	why := launchError{"m7i.large", zone, "InsufficientInstanceCapacity", "We currently do not have sufficient m7i.large capacity in the zone you requested."}
	if room == 0 {
		answer.Errors = append(answer.Errors, why)
		return answer, nil
	}
	added, task, err := d.world.Add(s.Name, zone, nil, room)
	switch {
	case errors.Is(err, clouds.ErrQuota):
		why.Code, why.Message = "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows."
	case err != nil:
		return answer, err
	default:
		d.note(activity{group: s.Name, description: "Launching a new EC2 instance", cause: "LaunchInstances", task: task})
		c := launchCollection{Type: "m7i.large", Zone: zone}
		for _, m := range added {
			c.IDs = append(c.IDs, m.ID)
		}
		answer.Instances = append(answer.Instances, c)
	}
	if len(added) < n {
		answer.Errors = append(answer.Errors, why)
	}
	return answer, nil
}

func (d *double) setCapacity(f url.Values) (any, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	n, err := number(f, "DesiredCapacity")
	if err != nil {
		return nil, err
	}
	delete(d.wanted, s.Name)
	return nil, d.scale(s, n)
}

// scale brings a group to a capacity, or to wanting it.
func (d *double) scale(s *clouds.Set, n int) error {
	cause := fmt.Sprintf("a user request explicitly set group desired capacity changing the desired capacity from %d to %d", s.Capacity, n)
	task, err := d.world.Scale(s.Name, n)
	switch {
	case errors.Is(err, clouds.ErrQuota):
		d.wanted[s.Name] = n
		d.note(activity{group: s.Name, description: "Launching a new EC2 instance.  Status Reason: VcpuLimitExceeded", cause: cause, status: "Failed",
			message: "You have requested more vCPU capacity than your current vCPU limit of 32 allows. Launching EC2 instance failed."})
	case err != nil:
		return err
	case n > s.Capacity:
		d.note(activity{group: s.Name, description: "Launching a new EC2 instance", cause: cause, task: task})
	case n < s.Capacity:
		d.note(activity{group: s.Name, description: "Terminating EC2 instance", cause: cause, task: task})
	}
	return nil
}

// retry tries again what there was no room for.
func (d *double) retry(s *clouds.Set) {
	if n, ok := d.wanted[s.Name]; ok && n > s.Capacity {
		delete(d.wanted, s.Name)
		if err := d.scale(s, n); err != nil {
			d.wanted[s.Name] = n
		}
	}
}

func (d *double) terminate(f url.Values) (any, error) {
	id := f.Get("InstanceId")
	decrement := f.Get("ShouldDecrementDesiredCapacity") == "true"
	for _, s := range d.world.Sets() {
		for _, m := range d.world.Machines(s.Name) {
			if m.ID == id {
				return d.terminateOne(&s, &m, decrement)
			}
		}
	}
	return nil, refuse("ValidationError", "Instance Id not found - No managed instance found for instance ID %s", id)
}

func (d *double) terminateOne(s *clouds.Set, m *clouds.Machine, decrement bool) (any, error) {
	if m.Protected {
		return nil, refuse("OperationNotPermitted",
			"The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", m.ID)
	}
	if m.State == clouds.Deleting && decrement && s.Settings["decrementsTwice"] != "" {
		if _, err := d.world.Scale(s.Name, s.Capacity-1); err != nil {
			return nil, err
		}
	}
	task, err := d.world.Delete(s.Name, []string{m.ID}, decrement || m.State == "Standby")
	if err != nil {
		return nil, err
	}
	if n, ok := d.wanted[s.Name]; ok && decrement {
		d.wanted[s.Name] = n - 1
	}
	a := d.note(activity{
		group: s.Name, description: "Terminating EC2 instance: " + m.ID, task: task,
		cause: "instance " + m.ID + " was taken out of service in response to a user request",
	})
	return struct{ Activity activityXML }{a.xml()}, nil
}

func (d *double) update(f url.Values) (any, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	prefix := "LaunchTemplate."
	if s.Settings["policy"] != "" {
		prefix = "MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification."
		if !f.Has("MixedInstancesPolicy.LaunchTemplate.Overrides.member.2.InstanceType") ||
			!f.Has("MixedInstancesPolicy.InstancesDistribution.OnDemandBaseCapacity") {
			return nil, refuse("ValidationError", "the policy would lose what it has")
		}
	}
	t := d.template(s)
	if f.Get(prefix+"LaunchTemplateId") != t.id {
		return nil, refuse("ValidationError", "The specified launch template, with template ID %s, does not exist.", f.Get(prefix+"LaunchTemplateId"))
	}
	n := t.number(s, f.Get(prefix+"Version"))
	if n == 0 {
		return nil, refuse("ValidationError", "The specified launch template version %s does not exist.", f.Get(prefix+"Version"))
	}
	if err := d.world.Edit(s.Name, func(s *clouds.Set) error { delete(s.Settings, "launchTemplate"); return nil }); err != nil {
		return nil, err
	}
	return nil, d.use(s.Name, t, n)
}

func (d *double) suspend(f url.Values) (any, error) { return d.switchProcesses(f, true) }
func (d *double) resume(f url.Values) (any, error)  { return d.switchProcesses(f, false) }

func (d *double) switchProcesses(f url.Values, off bool) (any, error) {
	return nil, d.world.Edit(f.Get("AutoScalingGroupName"), func(s *clouds.Set) error {
		all := processes(s)
		for _, p := range list(f, "ScalingProcesses.member") {
			all = slices.DeleteFunc(all, func(o string) bool { return o == p })
			if off {
				all = append(all, p)
			}
		}
		if s.Settings == nil {
			s.Settings = map[string]string{}
		}
		s.Settings["suspended"] = strings.Join(all, ",")
		return nil
	})
}

func (d *double) tag(f url.Values) (any, error) {
	return nil, d.world.Edit(f.Get("Tags.member.1.ResourceId"), func(s *clouds.Set) error {
		if s.Tags == nil {
			s.Tags = map[string]string{}
		}
		s.Tags[f.Get("Tags.member.1.Key")] = f.Get("Tags.member.1.Value")
		return nil
	})
}

func (d *double) untag(f url.Values) (any, error) {
	return nil, d.world.Edit(f.Get("Tags.member.1.ResourceId"), func(s *clouds.Set) error {
		delete(s.Tags, f.Get("Tags.member.1.Key"))
		return nil
	})
}
