// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Updog is a Bottlerocket host that is updated by its program updog, in any version.
//
// Prepare is `updog update-image`, which writes the offered version to the other set of partitions. Perform is `updog update-apply`, which
// makes the next boot use these. updog does not report what is written, so Updog remembers the version. A new process fetches it again.
type Updog struct {
	boot
	at place
	// The files on the host of updog, signpost and os-release(5), and the command that reboots.
	binary, signpost, release string
	shutdown                  []string
	// Limits of how long updog may take: to find updates, to fetch one, and to make the next boot use it.
	checkLimit, prepareLimit, performLimit time.Duration

	// prepared is the version that update-image has written.
	prepared string
	// returns is true if the next boot uses the other partitions as they are.
	returns bool
}

var _ Host = (*Updog)(nil)

// NewUpdog makes an Updog for the host whose root is mounted in this directory; empty means the agent's own root. updog runs in a chroot there,
// which needs CAP_SYS_CHROOT. Nothing runs before the first call.
func NewUpdog(root, bootIDFile string) *Updog {
	return &Updog{
		boot: boot{bootIDFile}, at: place{root: root},
		binary: "/usr/bin/updog", signpost: "/usr/bin/signpost", release: "/etc/os-release", shutdown: []string{"shutdown", "-r", "now"},
		checkLimit: 5 * time.Minute, prepareLimit: time.Hour, performLimit: 5 * time.Minute,
	}
}

// run runs a command of updog. The result is nil where it did not run to its end.
func (u *Updog) run(ctx context.Context, limit time.Duration, command string) (*result, error) {
	r, err := u.at.runWithin(ctx, limit, u.binary, command)
	if err == nil && r.failure() != nil {
		err = fmt.Errorf("updog %s, %w", command, r.failure())
	}
	return r, err
}

// Version returns the VERSION_ID of the host's os-release.
func (u *Updog) Version(context.Context) (string, error) {
	var data []byte
	err := u.at.do(func() (err error) {
		data, err = os.ReadFile(u.release)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the host's version, %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_ID="); ok {
			return strings.Trim(value, `"'`), nil
		}
	}
	return "", errors.New("reading the host's version, there is no VERSION_ID in " + u.release)
}

// noUpdates are the words by which updog says, with exit status 1, that it has no update for this host, or not yet.
var noUpdates = []string{"No update available", "wave in the future"}

// Check is `updog check-update`. Any output on stdout is an update, such as "aws-k8s-1.15 1.20.3 (v0.0)".
func (u *Updog) Check(ctx context.Context) (Offer, error) {
	r, err := u.run(ctx, u.checkLimit, "check-update")
	switch {
	case r != nil && r.code == 1 && containsAny(r.stderr, noUpdates):
		return Offer{}, nil
	case err != nil:
		return Offer{}, err
	}
	return Offer{Available: strings.TrimSpace(r.stdout) != "", Version: lastVersion(r.stdout)}, nil
}

// versionWord is a version among other words.
var versionWord = regexp.MustCompile(`(?:^|\s)v?([0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?)(?:\s|$)`)

// lastVersion returns the version in the last line that has one; empty if there is none.
func lastVersion(text string) string {
	version := ""
	for line := range strings.Lines(text) {
		if found := versionWord.FindStringSubmatch(line); found != nil {
			version = found[1]
		}
	}
	return version
}

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// notFetched are the words by which updog says, with exit status 0, that it has fetched nothing.
var notFetched = []string{"No update required", "Update available at", "in later wave"}

// Prepare is `updog update-image`, if the host offers the version. It fetches an older version than the running one only if that version is
// wanted by name. A host with a version-lock may offer an older version.
func (u *Updog) Prepare(ctx context.Context, version string) error {
	offer, err := u.offered(ctx, version)
	if err != nil || offer != "" && offer == u.prepared {
		return err
	}
	// update-image may overwrite what was written before.
	u.prepared = ""
	r, err := u.run(ctx, u.prepareLimit, "update-image")
	if err != nil {
		return err
	}
	if said := r.stderr + "\n" + r.stdout; containsAny(said, notFetched) {
		return fmt.Errorf("updog update-image said %q, %w", brief(said), otherVersion(version, ""))
	}
	// "Starting update to V", "Update applied: VARIANT V". It may have chosen anew since the check.
	fetched := cmp.Or(lastVersion(r.stdout), lastVersion(r.stderr), offer)
	if version != "" && fetched != version {
		return otherVersion(version, fetched)
	}
	u.prepared = fetched
	return nil
}

// offered returns the version that the host offers now. It fails if another version is wanted. If no version is wanted by name, it also fails
// if the offer is older than the running version.
func (u *Updog) offered(ctx context.Context, version string) (string, error) {
	offer, err := u.Check(ctx)
	switch {
	case err != nil:
		return "", err
	case !offer.Available || version != "" && offer.Version != version:
		return "", otherVersion(version, offer.Version)
	case version != "" || offer.Version == "":
		return offer.Version, nil
	}
	runs, err := u.Version(ctx)
	older, offerErr := utilversion.ParseSemantic(offer.Version)
	newer, runsErr := utilversion.ParseSemantic(runs)
	if err == nil && offerErr == nil && runsErr == nil && older.LessThan(newer) {
		err = fmt.Errorf("%w: it runs %s, and offers only %s, which is older", ErrOther, runs, offer.Version)
	}
	return offer.Version, err
}

// Perform is `updog update-apply`, if the host still offers the prepared version. If this process has not prepared the update, Perform prepares it
// first. An earlier process may already have applied it. That is no error, because update-image removes any older mark.
func (u *Updog) Perform(ctx context.Context, version string) error {
	if u.prepared == "" {
		if err := u.Prepare(ctx, version); err != nil {
			return err
		}
	}
	if offer, err := u.offered(ctx, version); err != nil || offer != u.prepared {
		return cmp.Or(err, fmt.Errorf("%w: %s is prepared, and it offers %s", ErrOther, u.prepared, offer))
	}
	r, err := u.run(ctx, u.performLimit, "update-apply")
	if err != nil && (r == nil || !strings.Contains(r.stderr, applied)) {
		return err
	}
	return nil
}

// Rollback is `signpost rollback-to-inactive`. signpost refuses if the other partitions can't boot.
func (u *Updog) Rollback(ctx context.Context) error {
	r, err := u.at.runWithin(ctx, u.performLimit, u.signpost, "rollback-to-inactive")
	if err == nil && r.failure() != nil {
		err = fmt.Errorf("signpost rollback-to-inactive, %w", r.failure())
	}
	u.returns = err == nil
	return err
}

// Revert is `updog update-revert`, also after an earlier process. The first versions of updog have no such command, and can't revert.
func (u *Updog) Revert(ctx context.Context) error {
	u.returns = false
	r, err := u.run(ctx, u.performLimit, "update-revert")
	if r != nil && strings.Contains(strings.ToLower(r.stderr+r.stdout), "usage:") {
		return nil
	}
	return err
}

// applied is the text of updog when the next boot already uses the other partitions.
const applied = "already marked for upgrade"

// Reboot is `updog update-apply -r`. After Rollback, or if updog refuses because the update is already applied, it is `shutdown -r now`, as in updog.
func (u *Updog) Reboot(ctx context.Context) error {
	if u.returns {
		return u.at.reboot(ctx, u.shutdown...)
	}
	err := u.at.reboot(ctx, u.binary, "update-apply", "-r")
	if err != nil && strings.Contains(err.Error(), applied) {
		return u.at.reboot(ctx, u.shutdown...)
	}
	return err
}
