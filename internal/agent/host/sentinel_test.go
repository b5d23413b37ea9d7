// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// local is a sentinel on this machine, without a host to enter.
func local(t *testing.T, o SentinelOptions) *Sentinel {
	t.Helper()
	o.Root = "/"
	return NewSentinel(o)
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
	failing(t, err, "it no longer needs a reboot")
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
	shell := func(script string) []string { return []string{"sh", "-c", script} }
	for name, test := range map[string]struct {
		command []string
		want    bool
		err     string
	}{
		"needed":              {command: []string{"true"}, want: true},
		"needed, by its path": {command: []string{"/bin/true"}, want: true},
		"not needed":          {command: []string{"false"}},
		"another status":      {command: shell("exit 3")},
		"127":                 {command: shell("exit 127"), err: "running the sentinel command, sh, exit status 127"},
		"killed":              {command: shell("kill -9 $$"), err: "running the sentinel command, sh, signal: killed"},
		"output":              {command: shell("echo no >&2; no-such-cmd"), err: "exit status 127: no "},
		"no such command":     {command: []string{"no-such-command"}, err: "running no-such-command, no such command in /usr/local/sbin:"},
		"no such path":        {command: []string{"/no/such/command"}, err: "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			offer, err := local(t, SentinelOptions{Command: test.command}).Check(t.Context())
			failing(t, err, test.err)
			if offer.Available != test.want {
				t.Errorf("available %t, want %t", offer.Available, test.want)
			}
		})
	}
}

func TestSentinelHangs(t *testing.T) {
	s := local(t, SentinelOptions{Command: []string{"sleep", "60"}})
	s.checkLimit = 100 * time.Millisecond
	_, err := s.Check(t.Context())
	failing(t, err, "running the sentinel command, running sleep, it has not ended within 100ms")
}

func TestSentinelReboot(t *testing.T) {
	for script, want := range map[string]string{
		"true":                         "",
		"kill $$; sleep 9":             "",
		"exit 143":                     "",
		"echo not allowed >&2; exit 1": "sh -c echo not allowed >&2; exit 1, exit status 1: not allowed",
	} {
		t.Run(script, func(t *testing.T) {
			s := local(t, SentinelOptions{Command: []string{"true"}, RebootCommand: []string{"sh", "-c", script}})
			failing(t, s.Reboot(t.Context()), want)
		})
	}
	rebooted := filepath.Join(t.TempDir(), "rebooted")
	s := local(t, SentinelOptions{Command: []string{"false"}, RebootCommand: []string{"touch", rebooted}})
	failing(t, s.Reboot(t.Context()), "it no longer needs a reboot")
	if _, err := os.Stat(rebooted); err == nil {
		t.Error("it was rebooted all the same")
	}
}
