// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// insideWindow starts units only while the windows are open.
func insideWindow(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	return p.windowReason, p.windowMessage
}

// lookAtWindow evaluates the windows once for the whole pass.
func (p *pass) lookAtWindow() {
	s := p.strategy
	if s.WindowError != "" {
		p.windowReason, p.windowMessage = v1alpha1.ReasonWindowInvalid, s.WindowError
		return
	}
	var opens []time.Time
	if s.Window != nil && !s.Window.Contains(p.now) {
		opens = append(opens, s.Window.Next(p.now))
	}
	if len(s.Windows) > 0 {
		if open, next := openAt(s.Windows, p.now); !open {
			opens = append(opens, next)
		}
	}
	if len(opens) == 0 {
		return // A window that closes starts nothing, so the pass need not wake for it.
	}
	p.windowReason = v1alpha1.ReasonOutsideWindow
	p.windowMessage = "current time is not within configured window"
	if slices.ContainsFunc(opens, time.Time.IsZero) {
		p.windowMessage += ", and it never opens"
		return
	}
	next := slices.MaxFunc(opens, time.Time.Compare)
	p.wake(next)
	p.windowMessage += ", it opens at " + next.Format(time.RFC3339)
}

// Window is a daily time window on some days of the week, as in kured and system-upgrade-controller. It includes the whole
// second of its end. If the start is later than the end, it runs over midnight; days then applies to the current day on
// both sides of midnight.
type Window struct {
	days       [7]bool
	start, end clockTime
	location   *time.Location
}

type clockTime struct{ hour, minute, second int }

// on is this time of day on the day of t.
func (c clockTime) on(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), c.hour, c.minute, c.second, 0, t.Location())
}

func (c clockTime) after(d clockTime) bool {
	return c.hour*3600+c.minute*60+c.second > d.hour*3600+d.minute*60+d.second
}

// NewWindow reads a window in system-upgrade-controller's form. An empty location is UTC.
func NewWindow[Day ~string](days []Day, start, end, location string) (*Window, error) {
	w := &Window{}
	for _, d := range days {
		n, ok := weekdays[strings.ToLower(string(d))]
		if !ok {
			return nil, fmt.Errorf("invalid weekday: %s", d)
		}
		w.days[n] = true
	}
	var err error
	if w.location, err = zone(location); err != nil {
		return nil, err
	}
	if w.start, err = parseClock(start); err != nil {
		return nil, err
	}
	if w.end, err = parseClock(end); err != nil {
		return nil, err
	}
	return w, nil
}

var weekdays = func() map[string]time.Weekday {
	names := make(map[string]time.Weekday, 28)
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		for _, form := range []string{name, name[:3], name[:2], fmt.Sprint(int(d))} {
			names[form] = d
		}
	}
	return names
}()

func parseClock(text string) (clockTime, error) {
	for _, layout := range []string{"15:04", "15:04:05", "03:04pm", "15", "03pm", "3pm"} {
		if t, err := time.Parse(layout, text); err == nil {
			return clockTime{t.Hour(), t.Minute(), t.Second()}, nil
		}
	}
	return clockTime{}, fmt.Errorf("invalid time format: %s", text)
}

// Contains reports whether the window is open at t.
func (w *Window) Contains(t time.Time) bool {
	t = t.In(w.location)
	if !w.days[t.Weekday()] {
		return false
	}
	fromStart := !t.Before(w.start.on(t))
	tillEnd := t.Before(w.end.on(t).Add(time.Second))
	if w.start.after(w.end) {
		return fromStart || tillEnd
	}
	return fromStart && tillEnd
}

// quarter divides every offset of a time zone, and so the instants of midnight and of clock changes. daysAhead limits the search of Next: a week, and
// another week in case a clock change skips the window.
const (
	quarter   = 15 * time.Minute
	daysAhead = 15 * 24 * time.Hour
)

// Next returns the first instant at or after t at which the window is open, or zero if it never opens. It opens at its start, at midnight if it runs
// over midnight and only the later day is listed, or at a clock change.
func (w *Window) Next(t time.Time) time.Time {
	if w.Contains(t) {
		return t.In(w.location)
	}
	start := (time.Duration(w.start.minute)*time.Minute + time.Duration(w.start.second)*time.Second) % quarter
	for at := t.Truncate(quarter); at.Before(t.Add(daysAhead)); at = at.Add(quarter) {
		for _, opens := range []time.Time{at, at.Add(start)} {
			if !opens.Before(t) && w.Contains(opens) {
				return opens.In(w.location)
			}
		}
	}
	return time.Time{}
}
