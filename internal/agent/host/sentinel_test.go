// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// local is a sentinel on this machine, without a host to enter.
func local(t *testing.T, o SentinelOptions) *Sentinel {
	t.Helper()
	o.Root = "/"
	s, err := NewSentinel(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSentinelFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "reboot-required")
	s := local(t, SentinelOptions{File: file})
	check := func(want bool) {
		t.Helper()
		offer, err := s.Check(t.Context())
		failing(t, err, "")
		if offer.Available != want || offer.Version != "" {
			t.Errorf("offer %v, want %t", offer, want)
		}
	}
	check(false)
	err := s.Prepare(t.Context(), "")
	failing(t, err, "the host needs no reboot any more")
	if !errors.Is(err, ErrOther) {
		t.Error("it is no ErrOther")
	}
	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, "")
	check(true)
	failing(t, s.Prepare(t.Context(), ""), "")
	failing(t, s.Perform(t.Context(), ""), "")
	err = s.Perform(t.Context(), "1.2.0")
	failing(t, err, "this host's updates have no names such as 1.2.0")
	if !errors.Is(err, ErrOther) {
		t.Error("it is no ErrOther")
	}
	if version, err := s.Version(t.Context()); version != "" || err != nil {
		t.Errorf("version %q, %v", version, err)
	}
}

func TestSentinelCommand(t *testing.T) {
	for command, test := range map[string]struct {
		want bool
		err  string
	}{
		"true":                             {want: true},
		"/bin/true":                        {want: true},
		"false":                            {},
		`sh -c "exit 3"`:                   {},
		`sh -c 'test "$HOME$MOULT" = ""'`:  {want: true},
		`sh -c 'exit 127'`:                 {err: "asking the sentinel, sh, exit status 127"},
		`sh -c 'kill -9 $$'`:               {err: "asking the sentinel, sh, ended by signal killed"},
		`sh -c 'echo no >&2; no-such-cmd'`: {err: "exit status 127: no; "},
		"no-such-command":                  {err: "running no-such-command, no such command in /usr/local/sbin:"},
		"/no/such/command":                 {err: "no such file or directory"},
	} {
		t.Run(command, func(t *testing.T) {
			offer, err := local(t, SentinelOptions{Command: command}).Check(t.Context())
			failing(t, err, test.err)
			if offer.Available != test.want {
				t.Errorf("available %t, want %t", offer.Available, test.want)
			}
		})
	}
}

func TestSentinelHangs(t *testing.T) {
	s := local(t, SentinelOptions{Command: "sleep 60", Check: 100 * time.Millisecond})
	_, err := s.Check(t.Context())
	failing(t, err, "asking the sentinel, running sleep, it has not ended within 100ms")
}

func TestSentinelReboot(t *testing.T) {
	for command, want := range map[string]string{
		"true":                                 "",
		"sh -c 'kill $$; sleep 9'":             "",
		"sh -c 'exit 143'":                     "",
		"sh -c 'echo not allowed >&2; exit 1'": "rebooting by sh -c echo not allowed >&2; exit 1, exit status 1: not allowed",
	} {
		t.Run(command, func(t *testing.T) {
			failing(t, local(t, SentinelOptions{Command: "true", RebootCommand: command}).Reboot(t.Context()), want)
		})
	}
	rebooted := filepath.Join(t.TempDir(), "rebooted")
	err := local(t, SentinelOptions{Command: "false", RebootCommand: "touch " + rebooted}).Reboot(t.Context())
	failing(t, err, "rebooting, the host needs no reboot any more")
	if _, err := os.Stat(rebooted); err == nil {
		t.Error("it was rebooted all the same")
	}
}

func TestNewSentinel(t *testing.T) {
	for name, test := range map[string]struct {
		options SentinelOptions
		err     string
	}{
		"defaults":          {},
		"an open quote":     {SentinelOptions{Command: "sh -c 'x"}, "reading the sentinel's command \"sh -c 'x\", a quote is not closed"},
		"no command":        {SentinelOptions{Command: "  "}, "there is no command"},
		"an empty command":  {SentinelOptions{RebootCommand: "''"}, "reading the command that reboots \"''\", there is no command"},
		"an unknown signal": {SentinelOptions{RebootSignal: "SIGNONE"}, `reading the signal that reboots, there is no signal "SIGNONE"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewSentinel(test.options)
			failing(t, err, test.err)
		})
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"39": 39, "SIGRTMIN+5": 39, "RTMIN+5": 39, "rtmin+5": 39, "SIGRTMIN": 34, "SIGRTMAX-14": 50, "RTMAX": 64,
		"SIGINT": syscall.SIGINT, "INT": syscall.SIGINT, " term ": syscall.SIGTERM, "2": 2,
		"0": 0, "65": 0, "-1": 0, "RTMIN5": 0, "RTMIN+31": 0, "RTMAX+1": 0, "RTMIN+x": 0, "": 0, "SIG": 0,
	} {
		got, err := parseSignal(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
}
