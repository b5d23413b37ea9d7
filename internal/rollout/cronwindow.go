// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // Windows name time zones, and neither images nor all machines have a file of them.

	"github.com/robfig/cron/v3"

	"moult.dev/moult/api/v1alpha1"
)

// CronWindow opens by a cron schedule, for a duration.
//
// The schedule uses the wall clock of its time zone. An opening in an hour that the change to summer time skips occurs at
// the moment of the change. An opening in an hour that the change back repeats occurs once, the first time. The duration is
// elapsed time, but of a window of [NewWindow] time on the wall clock.
type CronWindow struct {
	schedule cron.Schedule
	duration time.Duration
	location *time.Location
	byWall   bool
}

// NewCronWindow reads a window.
func NewCronWindow(schedule string, duration time.Duration, location string) (CronWindow, error) {
	w := CronWindow{duration: duration}
	var err error
	if w.location, err = zone(location); err != nil {
		return w, fmt.Errorf("timeZone: %w", err)
	}
	if duration <= 0 {
		return w, fmt.Errorf("duration: %s is not positive", duration)
	}
	if strings.Contains(schedule, "TZ=") {
		return w, errors.New("schedule: the time zone goes in timeZone")
	}
	if w.schedule, err = cron.ParseStandard(schedule); err != nil {
		return w, fmt.Errorf("schedule: %w", err)
	}
	spec, ok := w.schedule.(*cron.SpecSchedule)
	if !ok {
		return w, fmt.Errorf("schedule: %q does not name times of day", schedule)
	}
	spec.Location = time.UTC // Its input is a wall clock, which has no zone.
	return w, nil
}

// NewCronWindows reads a list of windows. The error names the field.
func NewCronWindows(from []v1alpha1.Window) ([]CronWindow, error) {
	all := make([]CronWindow, 0, len(from))
	for i := range from {
		w, err := NewCronWindow(from[i].Schedule, from[i].Duration.Duration, from[i].TimeZone)
		if err != nil {
			return nil, fmt.Errorf("windows[%d].%w", i, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// Contains reports whether the window is open at t; its first instant is included, its end is not.
func (w *CronWindow) Contains(t time.Time) bool {
	next := w.after
	if w.byWall {
		t, next = wall(t.In(w.location)), w.schedule.Next
	}
	opens := next(t.Add(-w.duration))
	return !opens.IsZero() && !opens.After(t)
}

// Ends returns when a window that is open at t closes. It joins at most 16 openings: if more follow without a gap, the
// result is too early, never too late. It returns t if the window is closed at t.
func (w *CronWindow) Ends(t time.Time) time.Time {
	end := t
	for range 16 {
		opens := w.after(end.Add(-w.duration))
		if opens.IsZero() || opens.After(end) {
			break
		}
		end = opens.Add(w.duration)
	}
	return end
}

// after returns the first opening after t, or zero if there is none.
func (w *CronWindow) after(t time.Time) time.Time {
	for at := w.schedule.Next(wall(t.In(w.location))); !at.IsZero(); at = w.schedule.Next(at) {
		if instant := w.instant(at); instant.After(t) {
			return instant
		}
	}
	return time.Time{}
}

// wall returns the wall clock time as if it were UTC.
func wall(local time.Time) time.Time {
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
}

// instant returns the first instant with this wall clock time, or the moment of the change that skips it.
func (w *CronWindow) instant(clock time.Time) time.Time {
	at := time.Date(clock.Year(), clock.Month(), clock.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, w.location)
	start, end := at.ZoneBounds()
	switch shown := wall(at); {
	case shown.Before(clock):
		return end
	case shown.After(clock):
		return start
	}
	_, before := start.Add(-1).Zone()
	_, offset := at.Zone()
	if first := at.Add(time.Duration(offset-before) * time.Second); first.Before(start) {
		return first // It occurs twice.
	}
	return at
}

// openAt reports whether any of the windows is open, and when that changes next; zero if never.
func openAt(windows []CronWindow, now time.Time) (open bool, next time.Time) {
	for i := range windows {
		w := &windows[i]
		if w.Contains(now) {
			if end := w.Ends(now); !open || end.After(next) {
				next = end
			}
			open = true
		} else if !open {
			next = Earlier(next, w.after(now))
		}
	}
	return open, next
}

// zones caches time zones, which are read from files.
var zones sync.Map

// zone returns a time zone by its name.
func zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`"Local" is not an IANA name: its meaning depends on the machine`)
	}
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	location, err := time.LoadLocation(name)
	if err == nil {
		zones.Store(name, location)
	}
	return location, err
}

// closedMessage says that windows are closed, and until when.
func closedMessage(next time.Time) string {
	if next.IsZero() {
		return "its windows never open"
	}
	return "outside of its windows, the next opens at " + next.Format(time.RFC3339)
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
