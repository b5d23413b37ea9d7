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

// CronWindow opens by a cron schedule, for a while.
//
// The schedule is read on the wall clock of its time zone. Where the clocks are put forward, an opening in the hour that
// they skip comes at the moment they are. Where they are put back, one in the hour that they repeat comes once, the first
// time. Only a schedule for every hour opens in every hour that passes. How long it stays open is counted in time that
// passes.
type CronWindow struct {
	schedule  cron.Schedule
	everyHour bool
	duration  time.Duration
	location  *time.Location
}

// starBit marks a field that was written as * in the schedule of the cron library.
const starBit = 1 << 63

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
	w.everyHour = spec.Hour&starBit != 0
	spec.Location = time.UTC // It is asked about wall clocks, which know no zone.
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

// Contains reports whether the window is open at t: an opening belongs to it, and its end does not.
func (w *CronWindow) Contains(t time.Time) bool {
	opens := w.after(t.Add(-w.duration))
	return !opens.IsZero() && !opens.After(t)
}

// Next is the first instant at or after t at which the window is open, or zero when it never opens.
func (w *CronWindow) Next(t time.Time) time.Time {
	if w.Contains(t) {
		return t
	}
	return w.after(t)
}

// Ends is when a window that is open at t closes, as far as that can be told without looking far ahead: at that instant it
// may be open still, but not closed before. t itself when it is not open then.
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

// after is the first opening after t, or zero when there is none.
func (w *CronWindow) after(t time.Time) time.Time {
	if w.everyHour {
		return w.afterEveryHour(t)
	}
	// Where the clocks have just been put back, what comes next may show a time that they have shown before.
	local := t.In(w.location)
	from := wall(local)
	if start, _ := local.ZoneBounds(); !start.IsZero() && t.Sub(start) <= margin {
		from = from.Add(-margin)
	}
	for at := w.schedule.Next(from); !at.IsZero(); at = w.schedule.Next(at) {
		if instant := w.instant(at); instant.After(t) {
			return instant
		}
	}
	return time.Time{}
}

// afterEveryHour looks at one stretch after the other in which the clocks are not changed.
func (w *CronWindow) afterEveryHour(t time.Time) time.Time {
	for range stretches {
		local := t.In(w.location)
		at := w.schedule.Next(wall(local))
		if at.IsZero() {
			break
		}
		_, change := local.ZoneBounds()
		if instant := local.Add(at.Sub(wall(local))); change.IsZero() || instant.Before(change) {
			return instant
		}
		t = change
		if shown := wall(change.In(w.location)); w.schedule.Next(shown.Add(-1)).Equal(shown) {
			return change.In(w.location)
		}
	}
	return time.Time{}
}

// stretches is more than there are in the five years that a schedule is searched for.
const stretches = 40

// wall is what the clocks show, as if it were UTC.
func wall(local time.Time) time.Time {
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
}

// margin is more than clocks are ever changed by.
const margin = 26 * time.Hour

// instant is the first at which the clocks show this time of day, or when they skip it, that at which they do.
func (w *CronWindow) instant(wall time.Time) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, w.location)
	start, end := at.ZoneBounds()
	_, offset := at.Zone()
	if !start.IsZero() {
		_, before := start.Add(-time.Second).Zone()
		if earlier := at.Add(time.Duration(offset-before) * time.Second); earlier.Before(start) && shows(earlier, wall) {
			return earlier // Shown twice: this is the first time.
		}
	}
	if shows(at, wall) {
		return at
	}
	// Skipped: it lies on either side of the change, which is what counts.
	if !end.IsZero() && end.Sub(at) < margin && at.Before(end) && end.Sub(at) <= at.Sub(start) {
		return end
	}
	return start
}

// shows reports whether the clocks show this time of day at an instant.
func shows(at, wall time.Time) bool {
	return at.Hour() == wall.Hour() && at.Minute() == wall.Minute() && at.Day() == wall.Day()
}

// openAt reports whether any of the windows is open, and when that changes next: when they close, or when one opens. It is
// zero when that never happens.
func openAt(windows []CronWindow, now time.Time) (open bool, next time.Time) {
	for i := range windows {
		w := &windows[i]
		if w.Contains(now) {
			if end := w.Ends(now); !open || end.After(next) {
				next = end
			}
			open = true
		} else if !open {
			if at := w.after(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return open, next
}

// zones keeps time zones, which are read from files.
var zones sync.Map

// zone is a time zone by its name.
func zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`"Local" is no IANA name: it is another zone on each machine`)
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

// closed says that windows are closed, and until when.
func closed(next time.Time) string {
	if next.IsZero() {
		return "its windows never open"
	}
	return "outside of its windows, the next opens at " + next.Format(time.RFC3339)
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
