// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"moult.dev/moult/test/tier"
)

// clock is when the first of the windows opens.
func clock(windows []CronWindow) [3]int {
	s := windows[0].schedule.(*cron.SpecSchedule)
	return [3]int{bits.TrailingZeros64(s.Hour), bits.TrailingZeros64(s.Minute), bits.TrailingZeros64(s.Second)}
}

func TestNewWindowTimes(t *testing.T) {
	for text, want := range map[string][3]int{
		"22:04":    {22, 4, 0},
		"00:00":    {0, 0, 0},
		"9:05":     {9, 5, 0},
		"23:59:59": {23, 59, 59},
		"07:00:01": {7, 0, 1},
		"10:30pm":  {22, 30, 0},
		"10:30am":  {10, 30, 0},
		"12:00am":  {0, 0, 0},
		"12:15pm":  {12, 15, 0},
		"22":       {22, 0, 0},
		"07":       {7, 0, 0},
		"10pm":     {22, 0, 0},
		"03pm":     {15, 0, 0},
		"3pm":      {15, 0, 0},
		"12am":     {0, 0, 0},
	} {
		t.Run(text, func(t *testing.T) {
			w, err := NewWindow(everyDay, text, "23:00", "UTC")
			if err != nil || clock(w) != want {
				t.Errorf("as the start: %v, %v; want %v", w, err, want)
			}
			w, err = NewWindow(everyDay, "00:00", text, "UTC")
			if last := noon.Truncate(24 * time.Hour).Add(w[0].duration - time.Second); err != nil || [3]int{last.Hour(), last.Minute(), last.Second()} != want {
				t.Errorf("as the end: %v, %v; want %v", w, err, want)
			}
		})
	}
}

func TestNewWindowDays(t *testing.T) {
	forms := [7][]string{
		{"0", "su", "sun", "sunday"},
		{"1", "mo", "mon", "monday"},
		{"2", "tu", "tue", "tuesday"},
		{"3", "we", "wed", "wednesday"},
		{"4", "th", "thu", "thursday"},
		{"5", "fr", "fri", "friday"},
		{"6", "sa", "sat", "saturday"},
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		for _, form := range append(forms[day], strings.ToUpper(forms[day][3])) {
			w := window(t, "00:00", "23:59:59", form)
			for other := time.Sunday; other <= time.Saturday; other++ {
				// The first of November 2026 is a Sunday.
				at := time.Date(2026, 11, 1+int(other), 12, 0, 0, 0, time.UTC)
				if got, want := isOpen(w, at), other == day; got != want {
					t.Errorf("a window on %q is open on %s: %v", form, other, got)
				}
			}
		}
	}
}

func TestNewWindowErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		days             []string
		start, end, zone string
		want             string
	}{
		"no start":            {everyDay, "", "23:00", "", "invalid time format: "},
		"no end":              {everyDay, "22:00", "", "", "invalid time format: "},
		"an hour too many":    {everyDay, "24:00", "23:00", "", "invalid time format: 24:00"},
		"a minute too many":   {everyDay, "22:00", "22:60", "", "invalid time format: 22:60"},
		"a second too many":   {everyDay, "22:00", "22:00:60", "", "invalid time format: 22:00:60"},
		"an hour past noon":   {everyDay, "13pm", "22:00", "", "invalid time format: 13pm"},
		"a space":             {everyDay, "10 pm", "22:00", "", "invalid time format: 10 pm"},
		"a capital":           {everyDay, "10PM", "22:00", "", "invalid time format: 10PM"},
		"a word":              {everyDay, "noon", "22:00", "", "invalid time format: noon"},
		"a day too many":      {[]string{"mo", "7"}, "22:00", "23:00", "", "invalid weekday: 7"},
		"no day that is one":  {[]string{"someday"}, "22:00", "23:00", "", "invalid weekday: someday"},
		"a place unknownNode": {everyDay, "22:00", "23:00", "Europe/Atlantis", "unknown time zone Europe/Atlantis"},
		"a way out":           {everyDay, "22:00", "23:00", "../etc/passwd", "time: invalid location name"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewWindow(tc.days, tc.start, tc.end, tc.zone)
			if err == nil || err.Error() != tc.want || w != nil {
				t.Errorf("got %v, %v; want %q", w, err, tc.want)
			}
		})
	}
}

// parse reads an instant, such as "2026-11-21T21:59:59.5Z".
func parse(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// November 20, 2026 is a Friday. "never" is a window that does not open again.
func TestWindow(t *testing.T) {
	const never = "never"
	type ask struct {
		at   string
		open bool
		next string // "" is at itself
	}
	for name, tc := range map[string]struct {
		days             []string
		start, end, zone string
		asks             []ask
	}{
		"from the start to the last nanosecond of the end's second": {
			days: everyDay, start: "22:00", end: "23:30",
			asks: []ask{
				{"2026-11-20T21:59:59.999999999Z", false, "2026-11-20T22:00:00Z"},
				{"2026-11-20T22:00:00Z", true, ""},
				{"2026-11-20T22:45:00.5Z", true, ""},
				{"2026-11-20T23:30:00Z", true, ""},
				{"2026-11-20T23:30:00.999999999Z", true, ""},
				{"2026-11-20T23:30:01Z", false, "2026-11-21T22:00:00Z"},
				{"2026-11-20T00:00:00Z", false, "2026-11-20T22:00:00Z"},
			},
		},
		"with seconds": {
			days: everyDay, start: "22:00:30", end: "22:00:31",
			asks: []ask{
				{"2026-11-20T22:00:29.999999999Z", false, "2026-11-20T22:00:30Z"},
				{"2026-11-20T22:00:30Z", true, ""},
				{"2026-11-20T22:00:31.999999999Z", true, ""},
				{"2026-11-20T22:00:32Z", false, "2026-11-21T22:00:30Z"},
			},
		},
		"for one second": {
			days: everyDay, start: "12:00", end: "12:00",
			asks: []ask{
				{"2026-11-20T11:59:59Z", false, "2026-11-20T12:00:00Z"},
				{"2026-11-20T12:00:00.999999999Z", true, ""},
				{"2026-11-20T12:00:01Z", false, "2026-11-21T12:00:00Z"},
			},
		},
		"all day": {
			days: everyDay, start: "00:00", end: "23:59:59",
			asks: []ask{
				{"2026-11-20T00:00:00Z", true, ""},
				{"2026-11-20T23:59:59.999999999Z", true, ""},
			},
		},
		"on one day of the week": {
			days: []string{"mo"}, start: "08:00", end: "09:00",
			asks: []ask{
				{"2026-11-20T08:30:00Z", false, "2026-11-23T08:00:00Z"},
				{"2026-11-23T08:30:00Z", true, ""},
				{"2026-11-23T09:00:01Z", false, "2026-11-30T08:00:00Z"},
			},
		},
		"on no day": {
			start: "08:00", end: "09:00",
			asks: []ask{{"2026-11-20T08:30:00Z", false, never}},
		},
		// The weekday that counts is that of the moment: Saturday 22:00-04:00 is Saturday before four and after ten.
		"over midnight on one day": {
			days: []string{"sat"}, start: "22:00", end: "04:00",
			asks: []ask{
				{"2026-11-20T23:59:59.999999999Z", false, "2026-11-21T00:00:00Z"},
				{"2026-11-21T00:00:00Z", true, ""},
				{"2026-11-21T04:00:00.999999999Z", true, ""},
				{"2026-11-21T04:00:01Z", false, "2026-11-21T22:00:00Z"},
				{"2026-11-21T22:00:00Z", true, ""},
				{"2026-11-21T23:59:59.999999999Z", true, ""},
				{"2026-11-22T00:00:00Z", false, "2026-11-28T00:00:00Z"},
				{"2026-11-22T03:00:00Z", false, "2026-11-28T00:00:00Z"},
			},
		},
		"over midnight on two days that follow": {
			days: []string{"sat", "sun"}, start: "22:00", end: "04:00",
			asks: []ask{
				{"2026-11-21T23:00:00Z", true, ""},
				{"2026-11-22T03:00:00Z", true, ""},
				{"2026-11-22T04:00:01Z", false, "2026-11-22T22:00:00Z"},
				{"2026-11-23T00:00:00Z", false, "2026-11-28T00:00:00Z"},
			},
		},
		"over midnight every day": {
			days: everyDay, start: "22:00", end: "04:00",
			asks: []ask{
				{"2026-11-20T12:00:00Z", false, "2026-11-20T22:00:00Z"},
				{"2026-11-20T23:59:59.999999999Z", true, ""},
				{"2026-11-21T00:00:00Z", true, ""},
			},
		},
		"over midnight, all but a moment": {
			days: everyDay, start: "00:00:02", end: "00:00",
			asks: []ask{
				{"2026-11-20T00:00:00.999999999Z", true, ""},
				{"2026-11-20T00:00:01Z", false, "2026-11-20T00:00:02Z"},
				{"2026-11-20T00:00:02Z", true, ""},
			},
		},
		"in a zone, where the day is another": {
			days: []string{"sat"}, start: "00:00", end: "01:00", zone: "Asia/Tokyo",
			asks: []ask{
				{"2026-11-20T14:59:59Z", false, "2026-11-20T15:00:00Z"},
				{"2026-11-20T15:00:00Z", true, ""},
				{"2026-11-20T16:00:00.999999999Z", true, ""},
				{"2026-11-20T16:00:01Z", false, "2026-11-27T15:00:00Z"},
			},
		},
		"in a zone, asked in another": {
			days: []string{"fri"}, start: "17:00", end: "18:00", zone: "America/New_York",
			asks: []ask{
				{"2026-11-20T23:30:00+01:00", true, ""},
				{"2026-11-21T00:00:01.5+01:00", false, "2026-11-27T17:00:00-05:00"},
			},
		},
		"in a zone a quarter of an hour off": {
			days: []string{"fri"}, start: "23:45", end: "23:50", zone: "Asia/Kathmandu",
			asks: []ask{
				{"2026-11-20T17:59:59Z", false, "2026-11-20T18:00:00Z"},
				{"2026-11-20T18:00:00Z", true, ""},
			},
		},
		"without a zone is UTC": {
			days: everyDay, start: "22:00", end: "23:00", zone: "",
			asks: []ask{{"2026-11-20T22:00:00Z", true, ""}, {"2026-11-20T22:00:00+01:00", false, "2026-11-20T22:00:00Z"}},
		},
		// On March 29, 2026 Berlin has no time from 02:00 to 03:00; on October 25 it has that hour twice.
		"before the hour that is left out": {
			days: everyDay, start: "01:00", end: "01:30", zone: "Europe/Berlin",
			asks: []ask{{"2026-03-29T00:30:01Z", false, "2026-03-29T23:00:00Z"}},
		},
		"across the hour that is left out": {
			days: everyDay, start: "01:30", end: "03:30", zone: "Europe/Berlin",
			asks: []ask{
				{"2026-03-29T00:29:59Z", false, "2026-03-29T00:30:00Z"},
				{"2026-03-29T01:00:00Z", true, ""},
				{"2026-03-29T01:30:01Z", false, "2026-03-29T23:30:00Z"},
			},
		},
		"across the hour that comes twice": {
			days: everyDay, start: "01:30", end: "03:30", zone: "Europe/Berlin",
			asks: []ask{
				{"2026-10-24T23:30:00Z", true, ""},
				{"2026-10-25T00:30:00Z", true, ""},
				{"2026-10-25T01:30:00Z", true, ""},
				{"2026-10-25T02:30:01Z", false, "2026-10-26T00:30:00Z"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := mustWindow(t, tc.days, tc.start, tc.end, tc.zone)
			for _, a := range tc.asks {
				at := parse(t, a.at)
				if got := isOpen(w, at); got != a.open {
					t.Errorf("open at %s: %v", a.at, got)
				}
				var want time.Time
				switch a.next {
				case "":
					want = at
				case never:
				default:
					want = parse(t, a.next)
				}
				if got := opensNext(w, at); !got.Equal(want) {
					t.Errorf("at %s it opens next at %s, want %s", a.at, got, want)
				}
			}
		})
	}
}

// Around each change of the clocks a window is open by the clock on the wall: asked for every minute of the four hours around the
// change, and many of a week before and after.
func TestWindowAtClockChanges(t *testing.T) {
	const before, after = 7 * 24 * time.Hour, 7 * 24 * time.Hour
	seconds := func(text string) int {
		at, err := parseClock(text)
		if err != nil {
			t.Fatal(err)
		}
		return at.Hour()*3600 + at.Minute()*60 + at.Second()
	}
	changes := []struct {
		name, zone string
		at         time.Time
	}{
		{"Berlin in spring", "Europe/Berlin", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},
		{"Berlin in autumn", "Europe/Berlin", time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)},
		{"New York in spring", "America/New_York", time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)},
		{"New York in autumn", "America/New_York", time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)},
		{"Lord Howe in autumn, by half an hour", "Australia/Lord_Howe", time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC)},
		{"Havana in spring, at midnight", "America/Havana", time.Date(2026, 3, 8, 5, 0, 0, 0, time.UTC)},
		{"Beirut in spring, at midnight", "Asia/Beirut", time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC)},
		{"Cairo in autumn, at midnight", "Africa/Cairo", time.Date(2026, 10, 29, 21, 0, 0, 0, time.UTC)},
	}
	if !tier.All {
		changes = changes[:1]
	}
	for _, change := range changes {
		for _, days := range [][]string{everyDay, {"sun"}, {"sat"}, {"fri", "mon"}} {
			for _, hours := range [][2]string{
				{"02:30", "03:00"}, {"01:30", "02:15"}, {"02:00", "01:59:59"}, {"23:30", "02:30"}, {"00:00", "00:30"}, {"23:45", "00:15"},
			} {
				name := change.name + ": " + strings.Join(days, ",") + " " + hours[0] + "-" + hours[1]
				t.Run(name, func(t *testing.T) {
					w := mustWindow(t, days, hours[0], hours[1], change.zone)
					from, to := seconds(hours[0]), seconds(hours[1])
					for i := range int((before + after) / time.Minute) {
						at := change.at.Add(time.Duration(i)*time.Minute - before)
						if near := at.Sub(change.at).Abs() < 125*time.Minute; !near && i%181 != 0 {
							continue
						}
						local := at.In(w[0].location)
						clock := local.Hour()*3600 + local.Minute()*60 + local.Second()
						want := slices.ContainsFunc(days, func(d string) bool { return weekdays[d] == local.Weekday() }) &&
							(from <= to && from <= clock && clock <= to || from > to && (from <= clock || clock <= to))
						if isOpen(w, at) != want {
							t.Fatalf("at %s it is open: %t", local, !want)
						}
						if next := opensNext(w, at); next.Before(at) || next.Sub(at) > 15*24*time.Hour {
							t.Fatalf("at %s it opens next at %s", local, next)
						}
					}
				})
			}
		}
	}
}
