// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"fmt"
	"net/url"
	"slices"
	"time"

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

type activityXML struct {
	ID          string `xml:"ActivityId"`
	Group       string `xml:"AutoScalingGroupName"`
	Cause       string
	Start       string `xml:"StartTime"`
	Status      string `xml:"StatusCode"`
	Message     string `xml:"StatusMessage,omitempty"`
	Description string
}

func (a *activity) xml() activityXML {
	if a.task != nil {
		a.status = "InProgress"
		if done, err := a.task.Done(); done && err != nil {
			a.status, a.message = "Failed", err.Error()
		} else if done {
			a.status = "Successful"
		}
	}
	return activityXML{a.id, a.group, a.cause, "2026-01-01T00:00:00Z", a.status, a.message, a.description}
}

func (d *double) describeActivities(f url.Values) (any, error) {
	s, err := d.set(f)
	if err != nil {
		return nil, err
	}
	ids := list(f, "ActivityIds.member")
	if len(ids) > 50 {
		return nil, refuse("ValidationError", "at most 50 activity ids")
	}
	limit := 100
	if f.Has("MaxRecords") {
		if limit, err = number(f, "MaxRecords"); err != nil {
			return nil, err
		}
	}
	var all []activityXML
	for _, a := range d.activities[s.Name] {
		if len(ids) == 0 || slices.Contains(ids, a.id) {
			all = append(all, a.xml())
		}
	}
	page, next := paged(f, all, limit)
	return struct {
		Activities []activityXML `xml:"Activities>member"`
		Next       string        `xml:"NextToken,omitempty"`
	}{page, next}, nil
}

// timestamp is a time as it stands on the wire.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
