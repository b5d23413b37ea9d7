// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

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
	for _, windows := range [][]CronWindow{s.Window, s.Windows} {
		if open, next := openAt(windows, p.now); !open && len(windows) > 0 {
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

// NewWindow reads a daily window on some days of the week in the form of kured and system-upgrade-controller. It includes the whole second of
// its end. If the start is later than the end, it runs over midnight; days then applies to the current day on both sides of midnight. An empty
// location is UTC.
func NewWindow[Day ~string](days []Day, start, end, location string) ([]CronWindow, error) {
	var on uint64
	for _, d := range days {
		n, ok := weekdays[strings.ToLower(string(d))]
		if !ok {
			return nil, fmt.Errorf("invalid weekday: %s", d)
		}
		on |= 1 << n
	}
	in, err := zone(location)
	if err != nil {
		return nil, err
	}
	from, err := parseClock(start)
	if err != nil {
		return nil, err
	}
	last, err := parseClock(end)
	if err != nil {
		return nil, err
	}
	opens := func(at, last time.Time) CronWindow {
		const always = ^uint64(0)
		return CronWindow{byWall: true, location: in, duration: last.Sub(at) + time.Second, schedule: &cron.SpecSchedule{
			Second: 1 << at.Second(), Minute: 1 << at.Minute(), Hour: 1 << at.Hour(), Dom: always, Month: always, Dow: on, Location: time.UTC,
		}}
	}
	if midnight := from.Truncate(24 * time.Hour); from.After(last) {
		return []CronWindow{opens(from, midnight.Add(24*time.Hour-time.Second)), opens(midnight, last)}, nil
	}
	return []CronWindow{opens(from, last)}, nil
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

func parseClock(text string) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05", "03:04pm", "15", "03pm", "3pm"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("invalid time format: %s", text)
}
