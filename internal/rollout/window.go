// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// insideWindow starts units only while the windows are open; each one, not only the first.
func insideWindow(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	return p.windowReason, p.windowMessage
}

// lookAtWindow asks the windows once for the whole pass.
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
		return // Nothing that waits for another reason may start after it has closed, but nothing changes by that either.
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

// Window is a daily time window on some days of the week, as kured and system-upgrade-controller have it: from the start
// to the last nanosecond of the end's second; when the start is later than the end it runs over midnight; and the weekday
// that counts is that of the moment asked about, before and after midnight alike.
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
func NewWindow(days []string, start, end, location string) (*Window, error) {
	w := &Window{}
	for _, d := range days {
		n, ok := weekdays[strings.ToLower(d)]
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

// daysAhead is how far Next looks: a week, and another for a window that a change of the clocks takes away.
const daysAhead = 15

// Next is the first instant at or after t at which the window is open, or zero when it never opens. It is exact but for
// days on which the clocks change, where it is exact to the minute.
func (w *Window) Next(t time.Time) time.Time {
	t = t.In(w.location)
	if w.Contains(t) {
		return t
	}
	for day := range daysAhead {
		from, to := w.midnight(t, day), w.midnight(t, day+1)
		// Midnight matters too: it is where a window that runs over it opens when only the later day is named.
		opens := []time.Time{from, w.start.on(from)}
		if !from.Add(24 * time.Hour).Equal(to) {
			for at := from; at.Before(to); at = at.Add(time.Minute) {
				opens = append(opens, at)
			}
		}
		slices.SortFunc(opens, time.Time.Compare)
		for _, at := range opens {
			if !at.Before(t) && w.Contains(at) {
				return at
			}
		}
	}
	return time.Time{}
}

// midnight is the first instant of the day so many days after that of t, which is not always at 0:00.
func (w *Window) midnight(t time.Time, days int) time.Time {
	date := time.Date(t.Year(), t.Month(), t.Day()+days, 12, 0, 0, 0, w.location).Day()
	first := time.Date(t.Year(), t.Month(), t.Day()+days, 0, 0, 0, 0, w.location)
	for first.Day() != date {
		first = first.Add(time.Minute)
	}
	return first
}
