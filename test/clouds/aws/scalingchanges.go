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

// launched is a LaunchInstances, and its answer.
type launched struct {
	asked  string
	answer fields
}

func (d *double) launch(f url.Values) (fields, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	zones, n, token := list(f, "AvailabilityZones.member"), number(f, "RequestedCapacity"), f.Get("ClientToken")
	asked := fmt.Sprint(n, zones, f.Get("RetryStrategy"))
	if known := d.launched[s.Name+"/"+token]; known != nil {
		if known.asked != asked {
			return nil, refusal("IdempotentParameterMismatch", "the parameters differ from those of an earlier request with this token")
		}
		return known.answer, nil
	}
	if s.Settings["noLaunchInstances"] != "" || s.Settings["policy"] == "mixed" || s.Settings["warmPool"] != "" {
		return nil, refusal("UnsupportedOperation", "the group does not take LaunchInstances")
	}
	answer, err := d.launchIn(s, strings.Join(zones, ""), n)
	if err != nil {
		return nil, err
	}
	answer["AutoScalingGroupName"], answer["ClientToken"] = s.Name, token
	d.launched[s.Name+"/"+token] = &launched{asked, answer}
	return answer, nil
}

// launchIn launches as many in a zone as there is room for.
func (d *double) launchIn(s *clouds.Set, zone string, n int) (fields, error) {
	room, answer := n, fields{}
	if limit, err := strconv.Atoi(s.Settings["room"]); err == nil {
		room = min(room, limit)
	}
	why := fields{
		"InstanceType": "m7i.large", "AvailabilityZone": zone, "ErrorCode": "InsufficientInstanceCapacity",
		"ErrorMessage": "We currently do not have sufficient m7i.large capacity in the zone you requested.",
	}
	added, task, err := d.world.Add(s.Name, zone, nil, room)
	switch {
	case errors.Is(err, clouds.ErrQuota):
		why["ErrorCode"], why["ErrorMessage"] = "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows."
	case err != nil:
		return nil, err
	default:
		d.note(activity{group: s.Name, description: "Launching a new EC2 instance", cause: "LaunchInstances", task: task})
		var ids []string
		for _, m := range added {
			ids = append(ids, m.ID)
		}
		answer["Instances"] = []fields{{"InstanceType": "m7i.large", "AvailabilityZone": zone, "InstanceIds": ids}}
	}
	if len(added) < n {
		answer["Errors"] = []fields{why}
	}
	return answer, nil
}

func (d *double) terminate(f url.Values) (fields, error) {
	s, m, err := d.machine(f.Get("InstanceId"))
	if err != nil {
		return nil, err
	}
	decrement := f.Get("ShouldDecrementDesiredCapacity") == "true"
	if m.Protected {
		return nil, refusal("OperationNotPermitted",
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
	a := d.note(activity{
		group: s.Name, description: "Terminating EC2 instance: " + m.ID, task: task,
		cause: "instance " + m.ID + " was taken out of service in response to a user request",
	})
	return fields{"Activity": a.fields()}, nil
}

func (d *double) update(f url.Values) (fields, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	prefix := "LaunchTemplate."
	if s.Settings["policy"] != "" {
		prefix = "MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification."
		if !f.Has("MixedInstancesPolicy.LaunchTemplate.Overrides.member.2.InstanceType") ||
			!f.Has("MixedInstancesPolicy.InstancesDistribution.OnDemandBaseCapacity") {
			return nil, refusal("ValidationError", "the request removes parts of the policy")
		}
	}
	t := d.template(s)
	n := t.number(s, f.Get(prefix+"Version"))
	if f.Get(prefix+"LaunchTemplateId") != t.id || n == 0 {
		return nil, refusal("ValidationError", "The specified launch template version does not exist.")
	}
	if err := d.world.Edit(s.Name, func(s *clouds.Set) error { delete(s.Settings, "launchTemplate"); return nil }); err != nil {
		return nil, err
	}
	return nil, d.use(s.Name, t, n)
}

func (d *double) suspend(f url.Values) (fields, error) { return d.switchProcesses(f, true) }
func (d *double) resume(f url.Values) (fields, error)  { return d.switchProcesses(f, false) }

func (d *double) switchProcesses(f url.Values, off bool) (fields, error) {
	return nil, d.world.Edit(f.Get("AutoScalingGroupName"), func(s *clouds.Set) error {
		all := processes(s)
		for _, p := range list(f, "ScalingProcesses.member") {
			all = slices.DeleteFunc(all, func(o string) bool { return o == p })
			if off {
				all = append(all, p)
			}
		}
		s.Settings["suspended"] = strings.Join(all, ",")
		return nil
	})
}

func (d *double) tag(f url.Values) (fields, error) {
	return nil, d.world.Edit(f.Get("Tags.member.1.ResourceId"), func(s *clouds.Set) error {
		s.Tags[f.Get("Tags.member.1.Key")] = f.Get("Tags.member.1.Value")
		return nil
	})
}

func (d *double) untag(f url.Values) (fields, error) {
	return nil, d.world.Edit(f.Get("Tags.member.1.ResourceId"), func(s *clouds.Set) error {
		delete(s.Tags, f.Get("Tags.member.1.Key"))
		return nil
	})
}

// activity is something that happens to a group.
type activity struct {
	id, group, description, cause, status, message string
	task                                           *clouds.Task
}

// note notes an activity.
func (d *double) note(a activity) *activity {
	n := 0
	for _, all := range d.activities {
		n += len(all)
	}
	a.id = fmt.Sprintf("activity-%d", n+1)
	d.activities[a.group] = slices.Insert(d.activities[a.group], 0, &a)
	return &a
}

func (a *activity) fields() fields {
	if a.task != nil {
		a.status = "InProgress"
		if done, err := a.task.Done(); done && err != nil {
			a.status, a.message = "Failed", err.Error()
		} else if done {
			a.status = "Successful"
		}
	}
	return fields{
		"ActivityId": a.id, "AutoScalingGroupName": a.group, "Cause": a.cause, "StartTime": "2026-01-01T00:00:00Z", "StatusCode": a.status,
		"StatusMessage": a.message, "Description": a.description,
	}
}

func (d *double) describeActivities(f url.Values) (fields, error) {
	limit := 100
	if f.Has("MaxRecords") {
		limit = number(f, "MaxRecords")
	}
	ids := list(f, "ActivityIds.member")
	if len(ids) > 50 {
		return nil, refusal("ValidationError", "at most 50 activity ids are allowed")
	}
	var all []fields
	for _, a := range d.activities[f.Get("AutoScalingGroupName")] {
		if len(ids) == 0 || slices.Contains(ids, a.id) {
			all = append(all, a.fields())
		}
	}
	page, next := clouds.Page(all, f.Get("NextToken"), limit)
	return fields{"Activities": page, "NextToken": next}, nil
}
