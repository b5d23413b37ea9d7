// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		writes [][][]string
		want   string
	}{
		"nothing": {writes: [][][]string{nil}, want: "" +
			"  NAME  NODE READY  \n"},
		"rows": {writes: [][][]string{{{"foo", "true"}, {"a-longer-name", ""}}}, want: "" +
			"  NAME           NODE READY  \n" +
			"  foo            true        \n" +
			"  a-longer-name              \n"},
		"rows that follow": {writes: [][][]string{{{"foo", "true"}}, {{"é", "false"}, {"longer", "x"}}, {{"b", ""}}}, want: "" +
			"  NAME  NODE READY  \n" +
			"  foo   true        \n" +
			"  é       false       \n" +
			"  longer  x           \n" +
			"  b                   \n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			table := newTable(&out)
			writeRow(table, "NAME", "NODE READY")
			for _, rows := range tc.writes {
				for _, row := range rows {
					writeRow(table, row...)
				}
				if err := table.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLayout compares with what ExtendedDaemonSet's plugin writes, byte by byte.
func TestLayout(t *testing.T) {
	const want = "" +
		"  NAMESPACE    NAME                    UP-TO-DATE  IGNORED UNRESPONSIVE NODES  REASON        CANARY RS  AGE         \n" +
		"  default      foo                     3           Rollout frozen                            -          16 seconds  \n" +
		"  kube-system  a-longer-name-of-a-set  12          Canary                      ErrImagePull  foo-abcde  1 day       \n"
	var out bytes.Buffer
	table := newTable(&out)
	writeRow(table, "NAMESPACE", "NAME", "UP-TO-DATE", "IGNORED UNRESPONSIVE NODES", "REASON", "CANARY RS", "AGE")
	writeRow(table, "default", "foo", "3", "Rollout frozen", "", "-", "16 seconds")
	writeRow(table, "kube-system", "a-longer-name-of-a-set", "12", "Canary", "ErrImagePull", "foo-abcde", "1 day")
	err := table.Flush()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestAgeText(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0:                               "0 seconds",
		time.Nanosecond:                 "0 seconds",
		time.Microsecond:                "1 microsecond",
		999 * time.Millisecond:          "999 milliseconds",
		time.Second:                     "1 second",
		16*time.Second + 999999999:      "16 seconds",
		time.Minute:                     "1 minute",
		time.Hour - 1:                   "59 minutes",
		23*time.Hour + 59*time.Minute:   "23 hours",
		day:                             "1 day",
		7*day - 1:                       "6 days",
		7 * day:                         "1 week",
		364 * day:                       "52 weeks",
		365 * day:                       "1 year",
		3 * 365 * day:                   "3 years",
		-3 * time.Second:                "-3 seconds",
		-(24*time.Hour + 1*time.Minute): "-1 day",
	} {
		if got := ageText(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
