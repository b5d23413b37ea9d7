// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// instantOf returns a time between 1970 and 2106.
func instantOf(seconds uint32) time.Time { return time.Unix(int64(seconds), 0).UTC() }

// FuzzWindow finds windows that open before now, or late.
func FuzzWindow(f *testing.F) {
	f.Add("mon", "2", "22:00", "03:00", "", uint32(1_700_000_000))
	f.Add("Sunday", "0", "02:30", "2am", "America/New_York", uint32(1_710_054_000))
	f.Add("x", "", "25:00", "", "Local", uint32(0))
	f.Add("sa", "su", "00:00:00", "00:00", "Pacific/Apia", uint32(1_325_203_200))
	f.Add("1", "6", "11:59pm", "3pm", "../../etc/passwd", uint32(1<<31))
	f.Fuzz(func(t *testing.T, day, other, start, end, zone string, seconds uint32) {
		w, err := NewWindow([]string{day, other}, start, end, zone)
		if err != nil {
			return
		}
		now := instantOf(seconds)
		if next := opensNext(w, now); next.Before(now) || next.Sub(now) > 16*24*time.Hour {
			t.Errorf("at %s it opens at %s", now, next)
		}
	})
}

// FuzzCronWindow finds windows that open in the past, end before they open, or take long to read.
func FuzzCronWindow(f *testing.F) {
	f.Add("0 2 * * 1-5", int64(time.Hour), "Europe/Berlin", uint32(1_700_000_000))
	f.Add("30 * * * *", int64(time.Minute), "Australia/Lord_Howe", uint32(1_712_415_600))
	f.Add("0 0 30 2 *", int64(1<<62), "", uint32(0))
	f.Add("@every 1s", int64(1), "UTC", uint32(1))
	f.Add("@hourly", int64(2*time.Hour), "UTC", uint32(1<<31))
	f.Add("TZ=UTC * * * * *", int64(1), "", uint32(1))
	f.Add("*/99999999999 0-23/2 ? * *", int64(-1), "Nowhere", uint32(1))
	f.Fuzz(func(t *testing.T, schedule string, duration int64, zone string, seconds uint32) {
		w, err := NewCronWindow(schedule, time.Duration(duration), zone)
		if err != nil {
			return
		}
		now := instantOf(seconds)
		if end := w.Ends(now); end.Before(now) || w.Contains(now) != end.After(now) {
			t.Errorf("at %s it ends at %s, open: %t", now, end, w.Contains(now))
		}
		next := w.after(now)
		if next.IsZero() {
			return
		}
		if !next.After(now) || !w.Contains(next) || next.Sub(now) > 6*366*24*time.Hour {
			t.Errorf("after %s it opens at %s", now, next)
		}
		if again := w.after(next); !again.IsZero() && !again.After(next) {
			t.Errorf("after %s it opens at %s", next, again)
		}
	})
}

// FuzzParseAmount finds amounts that are outside of 0 and all, or are written differently than they are read.
func FuzzParseAmount(f *testing.F) {
	for _, text := range []string{"10%", "0%", "100%", "101%", "-1%", "+1%", "1", "%", "", "007%", "1_0%", "4294967296%"} {
		f.Add(text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, total int) {
		a, err := ParseAmount(intstr.FromString(text))
		if err != nil {
			return
		}
		total = min(max(total, 0), 1<<20)
		if down, up, one := a.Down(total), a.Up(total), a.AtLeastOne(total); down < 0 || down > up || up > total || one < down || one > max(up, 1) {
			t.Errorf("%q of %d: %d, %d, %d", text, total, down, up, one)
		}
		if again, err := ParseAmount(intstr.FromString(a.String())); err != nil || again != a {
			t.Errorf("%q is %v, which is read as %v, %v", text, a, again, err)
		}
	})
}
