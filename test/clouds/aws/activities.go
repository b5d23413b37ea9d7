// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"net/url"
	"slices"

	"moult.dev/moult/test/clouds"
)

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
