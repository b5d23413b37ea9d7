// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/tier"
)

func cronWindow(t testing.TB, text string, lasts time.Duration, zone string) *CronWindow {
	t.Helper()
	w, err := NewCronWindow(text, lasts, zone)
	if err != nil {
		t.Fatal(err)
	}
	return &w
}

// The next openings after an instant, in the zone's own time.
func TestCronWindowOpens(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule, zone, after string
		want                  []string
	}{
		"every night":           {"0 22 * * *", "", "2026-11-20T12:00:00Z", []string{"2026-11-20T22:00:00Z", "2026-11-21T22:00:00Z"}},
		"not at the instant":    {"0 22 * * *", "", "2026-11-20T22:00:00Z", []string{"2026-11-21T22:00:00Z"}},
		"a nanosecond before":   {"0 22 * * *", "", "2026-11-20T21:59:59.999999999Z", []string{"2026-11-20T22:00:00Z"}},
		"working days":          {"0 9 * * 1-5", "Asia/Kolkata", "2026-11-20T12:00:00Z", []string{"2026-11-23T09:00:00+05:30", "2026-11-24T09:00:00+05:30"}},
		"a day or a weekday":    {"0 0 1 * 0", "", "2026-11-20T12:00:00Z", []string{"2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z", "2026-12-01T00:00:00Z"}},
		"@monthly":              {"@monthly", "Europe/Berlin", "2026-11-20T12:00:00Z", []string{"2026-12-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"}},
		"a leap day":            {"0 3 29 2 *", "", "2026-11-20T12:00:00Z", []string{"2028-02-29T03:00:00Z"}},
		"never":                 {"0 0 30 2 *", "", "2026-11-20T12:00:00Z", []string{""}},
		"never, every hour":     {"0 * 30 2 *", "Europe/Berlin", "2026-11-20T12:00:00Z", []string{""}},
		"skipped in Berlin":     {"30 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", []string{"2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"}},
		"two skipped in Berlin": {"15,45 2 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", []string{"2027-03-28T03:00:00+02:00", "2027-03-29T02:15:00+02:00"}},
		"skipped and at three":  {"30 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", []string{"2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00"}},
		"twice in Berlin":       {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		"twice, asked between":  {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"2026-10-26T02:30:00+01:00"}},
		"at three in Berlin":    {"0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"}},
		"every hour, put back": {"30 * * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", []string{
			"2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T03:30:00+01:00",
		}},
		"every hour, put forward": {"30 * * * *", "Europe/Berlin", "2027-03-28T00:00:00Z", []string{
			"2027-03-28T01:30:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T03:30:00+02:00",
		}},
		"skipped in New York": {"30 2 * * *", "America/New_York", "2027-03-14T00:00:00Z", []string{"2027-03-14T03:00:00-04:00", "2027-03-15T02:30:00-04:00"}},
		"twice in New York":   {"30 1 * * *", "America/New_York", "2026-11-01T00:00:00Z", []string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		"half an hour back":   {"45 1 * * *", "Australia/Lord_Howe", "2027-04-03T00:00:00Z", []string{"2027-04-04T01:45:00+11:00", "2027-04-05T01:45:00+10:30"}},
		"half an hour ahead":  {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		"every hour there": {"45 * * * *", "Australia/Lord_Howe", "2027-04-03T14:00:00Z", []string{
			"2027-04-04T01:45:00+11:00", "2027-04-04T02:45:00+10:30",
		}},
		"no midnight in Sao Paulo": {"0 0 * * *", "America/Sao_Paulo", "2017-10-14T12:00:00Z", []string{"2017-10-15T01:00:00-02:00", "2017-10-16T00:00:00-02:00"}},
		"midnight twice there":     {"30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00:00Z", []string{"2018-02-17T23:30:00-02:00", "2018-02-18T23:30:00-03:00"}},
		"no midnight in Cairo":     {"0 0 * * 5", "Africa/Cairo", "2026-04-20T12:00:00Z", []string{"2026-04-24T01:00:00+03:00", "2026-05-01T00:00:00+03:00"}},
		"every hour of that day":   {"0 * 24 4 *", "Africa/Cairo", "2026-04-20T12:00:00Z", []string{"2026-04-24T01:00:00+03:00", "2026-04-24T02:00:00+03:00"}},
		"a day left out in Samoa":  {"0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", []string{"2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := cronWindow(t, tc.schedule, time.Hour, tc.zone)
			at := parse(t, tc.after)
			for _, want := range tc.want {
				at = w.after(at)
				got := ""
				if !at.IsZero() {
					got = at.In(w.location).Format(time.RFC3339)
				}
				if got != want {
					t.Fatalf("got %q, want %q", got, want)
				}
			}
		})
	}
}

func TestCronWindow(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule, zone string
		lasts          time.Duration
		at             string
		open           bool
		next, ends     string // "" is at itself, "never" is not at all
	}{
		"before":               {"0 22 * * *", "", time.Hour, "2026-11-20T21:59:59Z", false, "2026-11-20T22:00:00Z", ""},
		"at its opening":       {"0 22 * * *", "", time.Hour, "2026-11-20T22:00:00Z", true, "", "2026-11-20T23:00:00Z"},
		"inside":               {"0 22 * * *", "", time.Hour, "2026-11-20T22:30:00Z", true, "", "2026-11-20T23:00:00Z"},
		"at its end":           {"0 22 * * *", "", time.Hour, "2026-11-20T23:00:00Z", false, "2026-11-21T22:00:00Z", ""},
		"six hours of ten":     {"0 22 * * *", "Europe/Berlin", 6 * time.Hour, "2026-10-25T01:59:59Z", true, "", "2026-10-25T02:00:00Z"},
		"six hours, in spring": {"0 22 * * *", "Europe/Berlin", 6 * time.Hour, "2027-03-28T02:59:59Z", true, "", "2027-03-28T03:00:00Z"},
		"one meets the next":   {"0 */2 * * *", "", 2 * time.Hour, "2026-11-20T12:30:00Z", true, "", "2026-11-21T20:00:00Z"},
		"one overlaps":         {"0 12,13 * * *", "", 90 * time.Minute, "2026-11-20T12:30:00Z", true, "", "2026-11-20T14:30:00Z"},
		"it never opens":       {"0 0 31 4 *", "", time.Hour, "2026-11-20T12:30:00Z", false, "never", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := cronWindow(t, tc.schedule, tc.lasts, tc.zone)
			at := parse(t, tc.at)
			if got := w.Contains(at); got != tc.open {
				t.Errorf("open: %v", got)
			}
			for what, pair := range map[string][2]string{
				"next": {tell(nextOpen(w, at)), tc.next}, "ends": {tell(w.Ends(at)), tc.ends},
			} {
				want := pair[1]
				if want == "" {
					want = tell(at)
				}
				if pair[0] != want {
					t.Errorf("%s: got %s, want %s", what, pair[0], want)
				}
			}
		})
	}
}

func tell(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.UTC().Format(time.RFC3339)
}

func TestNewCronWindowErrors(t *testing.T) {
	for want, w := range map[string]v1alpha1.Window{
		"windows[0].timeZone: unknown time zone Europe/Atlantis":                                             {Schedule: "0 0 * * *", TimeZone: "Europe/Atlantis", Duration: *duration(time.Hour)},
		"windows[0].duration: 0s is not positive":                                                            {Schedule: "0 0 * * *"},
		"windows[0].schedule: the time zone goes in timeZone":                                                {Schedule: "CRON_TZ=UTC 0 0 * * *", Duration: *duration(time.Hour)},
		`windows[0].schedule: "@every 1h" does not name times of day`:                                        {Schedule: "@every 1h", Duration: *duration(time.Hour)},
		"windows[0].schedule: end of range (61) above maximum (59): 61":                                      {Schedule: "61 0 * * *", Duration: *duration(time.Hour)},
		"windows[0].schedule: expected exactly 5 fields, found 6: [0 0 * * * *]":                             {Schedule: "0 0 * * * *", Duration: *duration(time.Hour)},
		"windows[0].schedule: failed to parse int from soon: strconv.Atoi: parsing \"soon\": invalid syntax": {Schedule: "soon 0 * * *", Duration: *duration(time.Hour)},
	} {
		if _, err := NewCronWindows([]v1alpha1.Window{w}); err == nil || err.Error() != want {
			t.Errorf("%v: got %v, want %s", w, err, want)
		}
	}
}

// fieldsOf reads a schedule into what its fields name, without the cron library.
func fieldsOf(t testing.TB, text, zone string, lasts time.Duration) schedule {
	t.Helper()
	fields := strings.Fields(text)
	var named [5][]int
	for i, bounds := range [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		for part := range strings.SplitSeq(fields[i], ",") {
			span, by, _ := strings.Cut(part, "/")
			step, err := strconv.Atoi(by)
			if err != nil {
				step = 1
			}
			from, to := bounds[0], bounds[1]
			if span != "*" {
				low, high, ranged := strings.Cut(span, "-")
				if from, err = strconv.Atoi(low); err != nil {
					t.Fatal(err)
				}
				if to = from; ranged {
					if to, err = strconv.Atoi(high); err != nil {
						t.Fatal(err)
					}
				}
			}
			for n := from; n <= to; n += step {
				named[i] = append(named[i], n)
			}
		}
	}
	return schedule{
		Window: v1alpha1.Window{Schedule: text, TimeZone: zone, Duration: metav1.Duration{Duration: lasts}},
		matches: func(wall time.Time) bool {
			if !slices.Contains(named[0], wall.Minute()) || !slices.Contains(named[1], wall.Hour()) || !slices.Contains(named[3], int(wall.Month())) {
				return false
			}
			day, weekday := slices.Contains(named[2], wall.Day()), slices.Contains(named[4], int(wall.Weekday()))
			if fields[2] == "*" || fields[4] == "*" {
				return day && weekday
			}
			return day || weekday
		},
	}
}

// Around every change of the clocks, in zones that change them in odd ways, the openings are those that one finds by looking
// at the clocks every minute.
func TestCronWindowAgainstClocks(t *testing.T) {
	years := map[string]int{
		"Europe/Berlin": 2026, "America/New_York": 2026, "Australia/Lord_Howe": 2026, "America/Sao_Paulo": 2017, "Africa/Cairo": 2026,
		"Africa/Casablanca": 2026, "America/Havana": 2026, "Asia/Beirut": 2026, "Pacific/Apia": 2011, "Antarctica/Troll": 2026,
		"America/Nuuk": 2026, "Asia/Tehran": 2021, "Asia/Kathmandu": 2026, "UTC": 2026,
	}
	for zone, year := range years {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(year, 1, 1, 12, 0, 0, 0, time.UTC)
		spans := []time.Time{begin}
		for at := begin; ; {
			_, end := at.In(location).ZoneBounds()
			if end.IsZero() || end.After(begin.AddDate(1, 0, 0)) {
				break
			}
			spans, at = append(spans, end), end
		}
		for _, text := range []string{
			"30 2 * * *", "0 0 * * *", "45 1 * * *", "59 23 * * *", "*/20 * * * *", "7 * * * 0,1,5", "0 3 * * *", "10,40 0-3 * * *", "*/7 */3 * * *", "0 1 1-31/2 * 6",
			"* 2 * * *",
		} {
			s := fieldsOf(t, text, zone, 50*time.Minute)
			w := cronWindow(t, text, 50*time.Minute, zone)
			for _, span := range spans {
				from, to := span.Add(-30*time.Hour), span.Add(36*time.Hour)
				want := s.openings(from, to)
				var got []time.Time
				for at := w.after(from.Add(-1)); !at.IsZero() && !at.After(to); at = w.after(at) {
					got = append(got, at)
				}
				if !slices.EqualFunc(want, got, time.Time.Equal) {
					t.Fatalf("%q in %s around %s:\n got %v\nwant %v", text, zone, span, got, want)
				}
			}
		}
	}
}

// Over a year, Contains, Next and Ends agree with one another and with the openings.
func TestCronWindowYear(t *testing.T) {
	step := 61 * time.Minute
	if tier.All {
		step = 7 * time.Minute
	}
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, s := range []schedule{
		fieldsOf(t, "0 22 * * 5,6", "Europe/Berlin", 6*time.Hour),
		fieldsOf(t, "30 2 * * *", "America/New_York", 23*time.Hour),
		fieldsOf(t, "15 * * * *", "Australia/Lord_Howe", 20*time.Minute),
		fieldsOf(t, "0 */8 1 * *", "Africa/Cairo", 7*time.Minute),
	} {
		w := cronWindow(t, s.Schedule, s.Duration.Duration, s.TimeZone)
		all := s.openings(from.Add(-48*time.Hour), from.AddDate(1, 2, 0))
		next := 0
		for at := from; at.Before(from.AddDate(1, 0, 0)); at = at.Add(step) {
			for !all[next].After(at) {
				next++
			}
			open := next > 0 && at.Before(all[next-1].Add(s.Duration.Duration))
			if got := w.Contains(at); got != open {
				t.Fatalf("%q in %s is open at %s: %v", s.Schedule, s.TimeZone, at, got)
			}
			wantNext, wantEnd := at, at
			if !open {
				wantNext = all[next]
			} else {
				wantEnd = all[next-1].Add(s.Duration.Duration)
			}
			if got := nextOpen(w, at); !got.Equal(wantNext) {
				t.Fatalf("%q in %s opens next after %s at %s, want %s", s.Schedule, s.TimeZone, at, got, wantNext)
			}
			if got := w.Ends(at); !got.Equal(wantEnd) {
				t.Fatalf("%q in %s ends after %s at %s, want %s", s.Schedule, s.TimeZone, at, got, wantEnd)
			}
		}
	}
}

// nextOpen returns the first instant at or after t at which the window is open.
func nextOpen(w *CronWindow, t time.Time) time.Time {
	if w.Contains(t) {
		return t
	}
	return w.after(t)
}

func TestOpenAt(t *testing.T) {
	night := *cronWindow(t, "0 22 * * *", time.Hour, "")
	late := *cronWindow(t, "30 22 * * *", time.Hour, "")
	nowhen := *cronWindow(t, "0 0 30 2 *", time.Hour, "")
	for name, tc := range map[string]struct {
		windows []CronWindow
		at      string
		open    bool
		next    string
	}{
		"the first to open":       {[]CronWindow{late, night, nowhen}, "2026-11-20T12:00:00Z", false, "2026-11-20T22:00:00Z"},
		"until the last closes":   {[]CronWindow{night, late}, "2026-11-20T22:45:00Z", true, "2026-11-20T23:30:00Z"},
		"one is open, one is not": {[]CronWindow{late, night}, "2026-11-20T22:15:00Z", true, "2026-11-20T23:00:00Z"},
		"none ever":               {[]CronWindow{nowhen}, "2026-11-20T22:15:00Z", false, "never"},
	} {
		t.Run(name, func(t *testing.T) {
			open, next := openAt(tc.windows, parse(t, tc.at))
			if open != tc.open || tell(next) != tc.next {
				t.Errorf("got %v, %s; want %v, %s", open, tell(next), tc.open, tc.next)
			}
		})
	}
}
