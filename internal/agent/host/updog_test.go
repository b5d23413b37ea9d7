// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scripted is an updog that a shell plays. Each call is noted in the file calls; what $* is chooses the branch.
func scripted(t *testing.T, branches string) (*Updog, func() []string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "updog"), "#!/bin/sh\necho \"$*\" >>"+dir+"/calls\ncase \"$*\" in\n"+branches+"\n*) echo USAGE: >&2; exit 1;;\nesac\n")
	u := NewUpdog(UpdogOptions{})
	u.binary = filepath.Join(dir, "updog")
	// The root's os-release is not this machine's.
	u.root = dir
	write(t, filepath.Join(dir, "etc/os-release"), "NAME=Bottlerocket\nVERSION_ID=1.1.0\n")
	return u, func() []string {
		data, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	// A program that another test is about to start has the file open for writing until it is started.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

const (
	oneJSON  = `{\n  "variant": "aws-k8s-1.15",\n  "arch": "x86_64",\n  "version": "1.2.0",\n  "max_version": "1.2.0",\n  "waves": {"0": "2020-01-01T00:00:00Z"},\n  "images": {"boot": "b", "root": "r", "hash": "h"}\n}\n`
	listJSON = `[{"variant":"aws-k8s-1.15","version":"1.2.0"},{"variant":"aws-k8s-1.15","version":"1.1.5"}]\n`
)

func TestUpdogCheck(t *testing.T) {
	for name, test := range map[string]struct {
		branches string
		want     Offer
		err      string
		calls    []string
	}{
		"JSON":       {branches: `"check-update --json") printf '` + oneJSON + `';;`, want: Offer{true, "1.2.0"}},
		"a list":     {branches: `"check-update --json") printf '` + listJSON + `';;`, want: Offer{true, "1.2.0"}},
		"empty list": {branches: `"check-update --json") echo '[]';;`},
		"a log before": {
			branches: `"check-update --json") echo '10:11:12 [INFO] [tough] loading'; echo '[INFO] more'; printf '` + oneJSON + `';;`, want: Offer{true, "1.2.0"},
		},
		"none":    {branches: `"check-update --json") echo "No update available" >&2; exit 1;;`},
		"not yet": {branches: `"check-update --json") echo "Update 1.2.0 exists but wave in the future" >&2; exit 1;;`},
		"it fails": {
			branches: `"check-update --json") echo "Metadata error: Failed to fetch timestamp.json" >&2; exit 1;;`,
			err:      "check-update --json, exit status 1: Metadata error: Failed to fetch timestamp.json",
		},
		"it is killed":    {branches: `"check-update --json") kill -9 $$;;`, err: "ended by signal killed"},
		"no version":      {branches: `"check-update --json") echo '{"flavor":"x"}';;`, err: "the update has no version"},
		"broken off":      {branches: `"check-update --json") printf '{ "version": "1.2';;`, err: "reading its answer, unexpected EOF"},
		"no JSON":         {branches: `"check-update --json") echo hello;;`, err: "its answer is no JSON: hello"},
		"text":            {branches: `check-update) echo "aws-k8s-1.15 1.2.0 (v0.0)";;`, want: Offer{true, "1.2.0"}, calls: []string{"check-update --json", "check-update"}},
		"newer text":      {branches: `check-update) echo "aws-k8s-1.15 1.2.0";;`, want: Offer{true, "1.2.0"}, calls: []string{"check-update --json", "check-update"}},
		"text, no name":   {branches: `check-update) echo "an update";;`, want: Offer{true, ""}, calls: []string{"check-update --json", "check-update"}},
		"text, none":      {branches: `check-update) echo "No update available" >&2; exit 1;;`, calls: []string{"check-update --json", "check-update"}},
		"text, it fails":  {branches: `check-update) echo "no network" >&2; exit 1;;`, err: "check-update, exit status 1: no network", calls: []string{"check-update --json", "check-update"}},
		"text and silent": {branches: `check-update) ;;`, calls: []string{"check-update --json", "check-update"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches)
			got, err := u.Check(t.Context())
			failing(t, err, test.err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			want := test.calls
			if want == nil {
				want = []string{"check-update --json"}
			}
			if diff := cmp.Diff(want, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUpdogCheckAgain asks an old updog twice: it is asked for JSON once.
func TestUpdogCheckAgain(t *testing.T) {
	u, calls := scripted(t, `check-update) echo "aws-k8s-1.15 1.2.0 (v0.0)";;`)
	for range 2 {
		if _, err := u.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"check-update --json", "check-update", "check-update"}, calls()); diff != "" {
		t.Error(diff)
	}
}

const (
	offers  = `"check-update --json") echo '{"version":"1.2.0"}';;` + "\n"
	applies = `"update-image -i 1.2.0"|update-image) echo "Starting update to 1.2.0" >&2; echo "Update applied: aws-k8s-1.15 1.2.0";;` + "\n"
	flips   = `update-apply) ;;` + "\n"
)

func TestUpdogPrepare(t *testing.T) {
	for name, test := range map[string]struct {
		version  string
		branches string
		err      string
		other    bool
		calls    []string
	}{
		"a version":   {version: "v1.2.0", branches: applies, calls: []string{"update-image -i 1.2.0"}},
		"whatever":    {branches: offers + applies, calls: []string{"check-update --json", "update-image"}},
		"the present": {version: "1.1.0", branches: applies, err: "preparing 1.1.0, the host runs 1.1.0 already", other: true},
		"not there": {
			version: "1.2.0", branches: `"update-image -i 1.2.0") echo "No update required" >&2;;`,
			err: "the host has not 1.2.0 to offer, nor anything else", other: true, calls: []string{"update-image -i 1.2.0"},
		},
		"whatever, not there": {
			branches: `"check-update --json") echo "No update available" >&2; exit 1;;`,
			err:      "preparing the update, the host has nothing to offer any more", other: true, calls: []string{"check-update --json"},
		},
		"whatever, gone": {
			branches: offers + `update-image) echo "No update required" >&2;;`,
			err:      "the host has nothing to offer any more", other: true, calls: []string{"check-update --json", "update-image"},
		},
		"another wave": {
			version: "1.2.0", branches: `"update-image -i 1.2.0") echo "Update available in later wave" >&2;;`,
			err: `updog update-image said "Update available in later wave", the host has not 1.2.0`, other: true, calls: []string{"update-image -i 1.2.0"},
		},
		"a wave to come": {
			version: "1.2.0", branches: `"update-image -i 1.2.0") echo "Update available at 2026-12-24 00:00:00 UTC";;`,
			err: "the host has not 1.2.0 to offer", other: true, calls: []string{"update-image -i 1.2.0"},
		},
		"another": {
			version: "1.2.0", branches: `"update-image -i 1.2.0") echo "Update applied: aws-k8s-1.15 1.3.0";;`,
			err: "the host has 1.3.0 to offer, not 1.2.0", other: true, calls: []string{"update-image -i 1.2.0"},
		},
		"it fails": {
			version: "1.2.0", branches: `"update-image -i 1.2.0") echo "Starting update to 1.2.0" >&2; echo "Failed writing update data to disk: I/O error" >&2; exit 1;;`,
			err: "preparing 1.2.0, updog update-image, exit status 1: Starting update to 1.2.0; Failed writing update data to disk: I/O error", calls: []string{"update-image -i 1.2.0"},
		},
		"an updog without -i": {
			version: "1.2.0", branches: offers + `update-image) echo "Update applied: aws-k8s-1.15 1.2.0";;`,
			calls: []string{"update-image -i 1.2.0", "check-update --json", "update-image"},
		},
		"an updog without -i that offers another": {
			version: "1.3.0", branches: offers + `update-image) echo "Update applied: aws-k8s-1.15 1.2.0";;`,
			err: "the host has 1.2.0 to offer, not 1.3.0", other: true, calls: []string{"update-image -i 1.3.0", "check-update --json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches)
			err := u.Prepare(t.Context(), test.version)
			failing(t, err, test.err)
			if got := errors.Is(err, ErrOther); got != test.other {
				t.Errorf("ErrOther %t, want %t", got, test.other)
			}
			if diff := cmp.Diff(test.calls, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUpdogPerform performs what was prepared, by this process or not.
func TestUpdogPerform(t *testing.T) {
	for name, test := range map[string]struct {
		version  string
		branches string
		prepared string
		err      string
		other    bool
		calls    []string
	}{
		"prepared":           {version: "1.2.0", branches: flips, prepared: "1.2.0", calls: []string{"update-apply"}},
		"whatever":           {branches: flips, prepared: "1.2.0", calls: []string{"update-apply"}},
		"by another process": {version: "1.2.0", branches: applies + flips, calls: []string{"update-image -i 1.2.0", "update-apply"}},
		"another":            {version: "1.3.0", prepared: "1.2.0", err: "performing 1.3.0, 1.2.0 is prepared", other: true},
		"it fails": {
			version: "1.2.0", prepared: "1.2.0", branches: `update-apply) echo "Could not mark inactive partition for boot: it has not been marked valid for upgrade" >&2; exit 1;;`,
			err: "performing 1.2.0, updog update-apply, exit status 1: Could not mark", calls: []string{"update-apply"},
		},
		"done before": {
			version: "1.2.0", prepared: "1.2.0", branches: `update-apply) echo "Could not mark inactive partition for boot: Inactive partition /dev/a is already marked for upgrade" >&2; exit 1;;`,
			calls: []string{"update-apply"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches)
			u.prepared = test.prepared
			err := u.Perform(t.Context(), test.version)
			failing(t, err, test.err)
			if got := errors.Is(err, ErrOther); got != test.other {
				t.Errorf("ErrOther %t, want %t", got, test.other)
			}
			if diff := cmp.Diff(test.calls, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUpdogRevert takes back what was performed, by this process or not; then it can be performed again.
func TestUpdogRevert(t *testing.T) {
	for name, test := range map[string]struct {
		branches, err string
	}{
		"reverted":        {branches: `update-revert) ;;`},
		"no such command": {branches: `update-revert) echo "USAGE: updog <SUBCOMMAND>" >&2; exit 1;;`},
		"it fails":        {branches: `update-revert) echo "no GPT" >&2; exit 1;;`, err: "reverting the update, updog update-revert, exit status 1: no GPT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches+flips)
			u.prepared, u.performed = "1.2.0", true
			failing(t, u.Revert(t.Context()), test.err)
			failing(t, u.Perform(t.Context(), "1.2.0"), "")
			if diff := cmp.Diff([]string{"update-revert", "update-apply"}, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUpdogOnce prepares and performs twice: nothing is done twice.
func TestUpdogOnce(t *testing.T) {
	u, calls := scripted(t, applies+flips)
	for range 2 {
		failing(t, u.Prepare(t.Context(), "1.2.0"), "")
	}
	for range 2 {
		failing(t, u.Perform(t.Context(), "1.2.0"), "")
	}
	failing(t, u.Prepare(t.Context(), "1.2.0"), "")
	if diff := cmp.Diff([]string{"update-image -i 1.2.0", "update-apply"}, calls()); diff != "" {
		t.Error(diff)
	}
}

func TestUpdogReboot(t *testing.T) {
	for name, test := range map[string]struct {
		branches string
		err      string
	}{
		"taken":                     {branches: `"update-apply -r") ;;`},
		"ended":                     {branches: `"update-apply -r") kill -TERM $$; sleep 9;;`},
		"ended, as a shell says it": {branches: `"update-apply -r") exit 143;;`},
		"it fails": {
			branches: `"update-apply -r") echo "Failed to reboot: no such file" >&2; exit 1;;`,
			err:      "rebooting, updog update-apply -r, exit status 1: Failed to reboot: no such file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, _ := scripted(t, test.branches)
			failing(t, u.Reboot(t.Context()), test.err)
		})
	}
}

// TestUpdogHangs has an updog that does not end. The reboot alone may take as long as it does.
func TestUpdogHangs(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, test := range map[string]struct {
		branches string
		step     func(*Updog) error
		err      string
	}{
		"check": {
			branches: `"check-update --json") sleep 60;;`,
			step:     func(u *Updog) error { _, err := u.Check(t.Context()); return err },
			err:      "updog, it has not ended within 100ms",
		},
		"prepare": {
			branches: `"update-image -i 1.2.0") sleep 60;;`,
			step:     func(u *Updog) error { return u.Prepare(t.Context(), "1.2.0") },
			err:      "updog, it has not ended within 100ms",
		},
		"prepare whatever": {
			branches: offers + `update-image) sleep 60;;`,
			step:     func(u *Updog) error { u.options.Check = time.Minute; return u.Prepare(t.Context(), "") },
			err:      "updog, it has not ended within 100ms",
		},
		"perform": {
			branches: `update-apply) sleep 60;;`,
			step:     func(u *Updog) error { u.prepared = "1.2.0"; return u.Perform(t.Context(), "1.2.0") },
			err:      "updog, it has not ended within 100ms",
		},
		"reboot": {
			branches: `"update-apply -r") sleep 0.3;;`,
			step:     func(u *Updog) error { return u.Reboot(t.Context()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, _ := scripted(t, test.branches)
			u.options = UpdogOptions{Check: limit, Prepare: limit, Perform: limit}
			failing(t, test.step(u), test.err)
		})
	}
}

func TestUpdogNotThere(t *testing.T) {
	root := t.TempDir()
	u := NewUpdog(UpdogOptions{})
	u.binary = filepath.Join(root, "updog")
	u.root = "/"
	_, err := u.Check(t.Context())
	failing(t, err, "no such file or directory")
	there, err := u.Present()
	failing(t, err, "")
	if there {
		t.Error("it is there")
	}
	write(t, filepath.Join(root, "updog"), "#!/bin/sh\n")
	if there, err = u.Present(); err != nil || !there {
		t.Errorf("it is not there: %v", err)
	}
}
