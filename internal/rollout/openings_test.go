// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// schedule is a window whose openings are found without cron: by looking at the clocks every minute.
type schedule struct {
	v1alpha1.Window
	// matches says for a wall clock, as if it were UTC, whether the schedule names this minute.
	matches func(wall time.Time) bool
}

func scheduled(text, zone string, lasts time.Duration, matches func(time.Time) bool) schedule {
	return schedule{Window: v1alpha1.Window{Schedule: text, TimeZone: zone, Duration: metav1.Duration{Duration: lasts}}, matches: matches}
}

func at(hour, minute int) func(time.Time) bool {
	return func(wall time.Time) bool { return wall.Hour() == hour && wall.Minute() == minute }
}

func hourly(minute int) func(time.Time) bool {
	return func(wall time.Time) bool { return wall.Minute() == minute }
}

// openings are the instants in a span of time at which a schedule opens. The clocks are read every minute: what they show
// for the first time is an opening if the schedule names it, and so is the minute at which they skip one that it names.
func (s *schedule) openings(from, to time.Time) []time.Time {
	location, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		panic(err)
	}
	var all []time.Time
	var shown time.Time
	for t := from.Add(-2 * 24 * time.Hour).Truncate(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		_, offset := t.In(location).Zone()
		wall := t.UTC().Add(time.Duration(offset) * time.Second)
		opens := false
		if shown.IsZero() {
			shown = wall.Add(-time.Minute)
		}
		for shown.Before(wall) {
			shown = shown.Add(time.Minute)
			opens = opens || s.matches(shown)
		}
		if opens && !t.Before(from) {
			all = append(all, t)
		}
	}
	return all
}

// The windows of the simulation, with their openings.
var (
	schedules = []schedule{
		scheduled("0 22 * * *", "Europe/Berlin", 6*time.Hour, at(22, 0)),
		scheduled("30 2 * * *", "America/New_York", 3*time.Hour, at(2, 30)),
		scheduled("30 9 * * 1-5", "America/New_York", 4*time.Hour, func(w time.Time) bool {
			return w.Weekday() >= time.Monday && w.Weekday() <= time.Friday && at(9, 30)(w)
		}),
		scheduled("0 */6 * * *", "", 2*time.Hour, func(w time.Time) bool { return w.Hour()%6 == 0 && w.Minute() == 0 }),
		scheduled("@daily", "Africa/Cairo", 20*time.Hour, at(0, 0)),
		scheduled("15 * * * *", "Australia/Lord_Howe", 10*time.Minute, hourly(15)),
		scheduled("0 0 * * 6", "", 48*time.Hour, func(w time.Time) bool { return w.Weekday() == time.Saturday && at(0, 0)(w) }),
		scheduled("0 22 * * 5,6", "Europe/Berlin", 6*time.Hour, func(w time.Time) bool { return w.Weekday() >= time.Friday && at(22, 0)(w) }),
		scheduled("0 0 30 2 *", "Europe/Berlin", time.Hour, func(time.Time) bool { return false }),
	}
	never = schedules[len(schedules)-1].Window

	openingsOf = sync.OnceValue(func() map[v1alpha1.Window][]time.Time {
		all := map[v1alpha1.Window][]time.Time{}
		for i := range schedules {
			if schedules[i].Window != never {
				all[schedules[i].Window] = schedules[i].openings(noon.AddDate(0, -1, -10), noon.AddDate(1, 4, 0))
			}
		}
		return all
	})
)

// open reports whether any of these windows of the simulation is open; none is always.
func open(windows []v1alpha1.Window, now time.Time) bool {
	return len(windows) == 0 || slices.ContainsFunc(windows, func(w v1alpha1.Window) bool {
		all := openingsOf()[w]
		i, _ := slices.BinarySearchFunc(all, now, func(at, now time.Time) int {
			if at.After(now) {
				return 1
			}
			return -1
		})
		return i > 0 && now.Before(all[i-1].Add(w.Duration.Duration))
	})
}
