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
	u := NewUpdog("", "")
	u.binary = filepath.Join(dir, "updog")
	u.shutdown = []string{u.binary, "shutdown"} // Never this machine's.
	u.release = filepath.Join(dir, "os-release")
	write(t, u.release, "NAME=Bottlerocket\nVERSION_ID=1.1.0\n")
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

func TestUpdogCheck(t *testing.T) {
	for name, test := range map[string]struct {
		branches string
		want     Offer
		err      string
	}{
		"an update":    {branches: `echo "aws-k8s-1.15 1.2.0";;`, want: Offer{true, "1.2.0"}},
		"older":        {branches: `echo "aws-k8s-1.15 1.2.0 (v0.0)";;`, want: Offer{true, "1.2.0"}},
		"a log before": {branches: `echo '10:11:12 [INFO] [tough] loading'; echo "aws-k8s-1.15 1.2.0";;`, want: Offer{true, "1.2.0"}},
		"no name":      {branches: `echo "an update";;`, want: Offer{true, ""}},
		"silent":       {branches: `;;`},
		"none":         {branches: `echo "No update available" >&2; exit 1;;`},
		"not yet":      {branches: `echo "Update 1.2.0 exists but wave in the future" >&2; exit 1;;`},
		"it fails": {
			branches: `echo "Metadata error: Failed to fetch timestamp.json" >&2; exit 1;;`,
			err:      "check-update, exit status 1: Metadata error: Failed to fetch timestamp.json",
		},
		"it is killed": {branches: `kill -9 $$;;`, err: "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, "check-update) "+test.branches)
			got, err := u.Check(t.Context())
			failing(t, err, test.err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"check-update"}, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const (
	offers  = `check-update) echo "aws-k8s-1.15 1.2.0";;` + "\n"
	applies = offers + `update-image) echo "Starting update to 1.2.0" >&2; echo "Update applied: aws-k8s-1.15 1.2.0";;` + "\n"
	flips   = `update-apply) ;;` + "\n"
)

func TestUpdogPrepare(t *testing.T) {
	both := []string{"check-update", "update-image"}
	for name, test := range map[string]struct {
		version  string
		branches string
		err      string
		other    bool
		calls    []string
	}{
		"a version": {version: "1.2.0", branches: applies, calls: both},
		"any":       {branches: applies, calls: both},
		"not offered": {
			version: "1.3.0", branches: applies, err: "the host does not offer the wanted version: 1.3.0 is wanted, and it offers 1.2.0",
			other: true, calls: []string{"check-update"},
		},
		"none": {
			branches: `check-update) echo "No update available" >&2; exit 1;;`,
			err:      "the host does not offer the wanted version: any is wanted, and it offers none", other: true,
			calls: []string{"check-update"},
		},
		"an older one that no one asked for": {
			branches: `check-update) echo "aws-k8s-1.15 1.0.9";;`,
			err:      "the host does not offer the wanted version: it runs 1.1.0, and offers only 1.0.9, which is older", other: true,
			calls: []string{"check-update"},
		},
		"an older one, by its version-lock": {
			version: "1.0.9", branches: `check-update) echo "aws-k8s-1.15 1.0.9";;` + "\n" + `update-image) echo "Update applied: aws-k8s-1.15 1.0.9";;`, calls: both,
		},
		"gone meanwhile": {
			branches: offers + `update-image) echo "No update required" >&2;;`,
			err:      `updog update-image said "No update required"`, other: true, calls: both,
		},
		"another wave": {
			version: "1.2.0", branches: offers + `update-image) echo "Update available in later wave" >&2;;`,
			err: `updog update-image said "Update available in later wave"`, other: true, calls: both,
		},
		"a wave to come": {
			version: "1.2.0", branches: offers + `update-image) echo "Update available at 2026-12-24 00:00:00 UTC";;`,
			err: "1.2.0 is wanted, and it offers none", other: true, calls: both,
		},
		"another was fetched": {
			version: "1.2.0", branches: offers + `update-image) echo "Update applied: aws-k8s-1.15 1.3.0";;`,
			err: "1.2.0 is wanted, and it offers 1.3.0", other: true, calls: both,
		},
		"it fails": {
			version:  "1.2.0",
			branches: offers + `update-image) echo "Starting update to 1.2.0" >&2; echo "Failed writing update data to disk: I/O error" >&2; exit 1;;`,
			err:      "updog update-image, exit status 1: Starting update to 1.2.0 Failed writing update data to disk: I/O error",
			calls:    both,
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
			if got := u.prepared; err != nil && got != "" {
				t.Errorf("%s counts as prepared", got)
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
		"prepared":           {version: "1.2.0", branches: offers + flips, prepared: "1.2.0", calls: []string{"check-update", "update-apply"}},
		"whatever":           {branches: offers + flips, prepared: "1.2.0", calls: []string{"check-update", "update-apply"}},
		"by another process": {version: "1.2.0", branches: applies + flips, calls: []string{"check-update", "update-image", "check-update", "update-apply"}},
		"another": {
			version: "1.3.0", prepared: "1.2.0", branches: offers, err: "1.3.0 is wanted, and it offers 1.2.0", other: true, calls: []string{"check-update"},
		},
		"another, which is offered": {
			version: "1.2.0", prepared: "1.1.5", branches: offers, err: "1.1.5 is prepared, and it offers 1.2.0", other: true, calls: []string{"check-update"},
		},
		"not offered any more": {
			version: "1.2.0", prepared: "1.2.0", branches: `check-update) echo "aws-k8s-1.15 1.3.0";;`,
			err: "the host does not offer the wanted version: 1.2.0 is wanted, and it offers 1.3.0", other: true, calls: []string{"check-update"},
		},
		"another is offered by now": {
			prepared: "1.2.0", branches: `check-update) echo "aws-k8s-1.15 1.3.0";;`,
			err: "the host does not offer the wanted version: 1.2.0 is prepared, and it offers 1.3.0", other: true, calls: []string{"check-update"},
		},
		"it fails": {
			version: "1.2.0", prepared: "1.2.0", branches: offers + `update-apply) echo "Could not mark inactive partition for boot: it has not been marked valid for upgrade" >&2; exit 1;;`,
			err: "updog update-apply, exit status 1: Could not mark", calls: []string{"check-update", "update-apply"},
		},
		"done before": {
			version: "1.2.0", prepared: "1.2.0", branches: offers + `update-apply) echo "Could not mark inactive partition for boot: Inactive partition /dev/a is already marked for upgrade" >&2; exit 1;;`,
			calls: []string{"check-update", "update-apply"},
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
		"it fails":        {branches: `update-revert) echo "no GPT" >&2; exit 1;;`, err: "updog update-revert, exit status 1: no GPT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches+"\n"+offers+flips)
			u.prepared = "1.2.0"
			failing(t, u.Revert(t.Context()), test.err)
			failing(t, u.Perform(t.Context(), "1.2.0"), "")
			if diff := cmp.Diff([]string{"update-revert", "check-update", "update-apply"}, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUpdogRollback is signpost's, and the reboot after it is not updog's: that would look for an update first.
func TestUpdogRollback(t *testing.T) {
	for name, test := range map[string]struct {
		branches, err string
		calls         []string
	}{
		"they can boot": {branches: `rollback-to-inactive) ;;`, calls: []string{"rollback-to-inactive", "shutdown"}},
		"they can't": {
			branches: `rollback-to-inactive) echo "Inactive partition is not valid to roll back to" >&2; exit 1;;` + "\n" + `"update-apply -r") ;;`,
			err:      "signpost rollback-to-inactive, exit status 1: Inactive partition is not valid to roll back to",
			calls:    []string{"rollback-to-inactive", "update-apply -r"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches+"\nshutdown) ;;")
			u.signpost = u.binary
			failing(t, u.Rollback(t.Context()), test.err)
			failing(t, u.Reboot(t.Context()), "")
			if diff := cmp.Diff(test.calls, calls()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUpdogOnce prepares and performs twice: nothing is fetched twice.
func TestUpdogOnce(t *testing.T) {
	u, calls := scripted(t, applies+flips)
	for range 2 {
		failing(t, u.Prepare(t.Context(), "1.2.0"), "")
	}
	for range 2 {
		failing(t, u.Perform(t.Context(), "1.2.0"), "")
	}
	failing(t, u.Prepare(t.Context(), "1.2.0"), "")
	if diff := cmp.Diff([]string{"check-update", "update-image", "check-update", "check-update", "update-apply", "check-update", "update-apply", "check-update"}, calls()); diff != "" {
		t.Error(diff)
	}
}

func TestUpdogReboot(t *testing.T) {
	const again = `"update-apply -r") echo "Inactive partition /dev/a is already marked for upgrade" >&2; exit 1;;` + "\n"
	for name, test := range map[string]struct {
		branches string
		err      string
		calls    []string
	}{
		"not applied yet":           {branches: `"update-apply -r") ;;`, calls: []string{"update-apply -r"}},
		"applied":                   {branches: again + `shutdown) ;;`, calls: []string{"update-apply -r", "shutdown"}},
		"ended":                     {branches: `"update-apply -r") kill -TERM $$; sleep 9;;`, calls: []string{"update-apply -r"}},
		"ended, as a shell says it": {branches: `"update-apply -r") exit 143;;`, calls: []string{"update-apply -r"}},
		"it fails": {
			branches: again + `shutdown) echo "no such file" >&2; exit 1;;`, err: "shutdown, exit status 1: no such file", calls: []string{"update-apply -r", "shutdown"},
		},
		"nothing is prepared": {
			branches: `"update-apply -r") echo "it has not been marked valid for upgrade" >&2; exit 1;;`,
			err:      "updog update-apply -r, exit status 1: it has not been marked valid for upgrade", calls: []string{"update-apply -r"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, calls := scripted(t, test.branches)
			failing(t, u.Reboot(t.Context()), test.err)
			if diff := cmp.Diff(test.calls, calls()); diff != "" {
				t.Error(diff)
			}
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
			branches: `check-update) sleep 60;;`,
			step:     func(u *Updog) error { _, err := u.Check(t.Context()); return err },
			err:      "updog, it has not ended within 100ms",
		},
		"prepare": {
			branches: offers + `update-image) sleep 60;;`,
			step:     func(u *Updog) error { u.checkLimit = time.Minute; return u.Prepare(t.Context(), "") },
			err:      "updog, it has not ended within 100ms",
		},
		"perform": {
			branches: offers + `update-apply) sleep 60;;`,
			step: func(u *Updog) error {
				u.prepared, u.checkLimit = "1.2.0", time.Minute
				return u.Perform(t.Context(), "1.2.0")
			},
			err: "updog, it has not ended within 100ms",
		},
		"reboot": {
			branches: `"update-apply -r") sleep 0.3;;`,
			step:     func(u *Updog) error { return u.Reboot(t.Context()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, _ := scripted(t, test.branches)
			u.checkLimit, u.prepareLimit, u.performLimit = limit, limit, limit
			failing(t, test.step(u), test.err)
		})
	}
}

func TestUpdogNotThere(t *testing.T) {
	root := t.TempDir()
	u := NewUpdog("", "")
	u.binary = filepath.Join(root, "updog")
	_, err := u.Check(t.Context())
	failing(t, err, "no such file or directory")
}

func TestUpdogVersion(t *testing.T) {
	for name, test := range map[string]struct{ release, want, err string }{
		"in double quotes": {release: "NAME=Bottlerocket\n# a comment\nVERSION_ID=\"1.20.3\"\nVARIANT_ID=aws-k8s-1.30\n", want: "1.20.3"},
		"in single quotes": {release: "VERSION_ID='0.1.6'\n", want: "0.1.6"},
		"without quotes":   {release: "VERSION_ID=0.1.6", want: "0.1.6"},
		"no version":       {release: "NAME=x\n", err: "reading the host's version, there is no VERSION_ID in "},
	} {
		t.Run(name, func(t *testing.T) {
			u, _ := scripted(t, "")
			write(t, u.release, test.release)
			got, err := u.Version(t.Context())
			failing(t, err, test.err)
			if got != test.want {
				t.Errorf("version %q, want %q", got, test.want)
			}
		})
	}
	u := NewUpdog("", "")
	u.release = filepath.Join(t.TempDir(), "os-release")
	_, err := u.Version(t.Context())
	failing(t, err, "reading the host's version, open "+u.release)
}

// TestUpdogRoot reads what the host's root shows, by a link that is absolute there.
func TestUpdogRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	root := t.TempDir()
	write(t, filepath.Join(root, "usr/lib/os-release"), "VERSION_ID=1.20.3\n")
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/lib/os-release", filepath.Join(root, "etc/os-release")); err != nil {
		t.Fatal(err)
	}
	if got, err := NewUpdog(root, "").Version(t.Context()); got != "1.20.3" || err != nil {
		t.Errorf("version %q, %v", got, err)
	}
}
