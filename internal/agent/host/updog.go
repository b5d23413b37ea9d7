// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// updogBinary is Bottlerocket's updog, below its root.
const updogBinary = "/usr/bin/updog"

// UpdogOptions say where the host is, and how long updog may take. Each duration that is 0 has its default.
type UpdogOptions struct {
	// Root is the directory in which the host's root is mounted. updog runs in a chroot there, which needs CAP_SYS_CHROOT. Empty: the agent's own.
	Root string
	// BootIDFile holds the boot id. Default DefaultBootIDFile.
	BootIDFile string
	// Check is how long finding updates may take. Default 5m.
	Check time.Duration
	// Prepare is how long fetching one may take. Default 1h.
	Prepare time.Duration
	// Perform is how long it may take to make the next boot use it. Default 5m.
	Perform time.Duration
}

// Updog is a Bottlerocket host that is updated by its program updog, in any version.
//
// Prepare is `updog update-image`, which writes the other set of partitions with what the host offers. Perform is `updog update-apply`, which
// makes the next boot use these. updog does not report what it has written, so the Updog remembers that: a new process fetches it again.
type Updog struct {
	boot
	options UpdogOptions
	at      place
	root    string
	binary  string
	// shutdown is the command that reboots.
	shutdown []string

	// prepared is the version that update-image has written, performed whether update-apply made the next boot use it.
	prepared  string
	performed bool
}

var _ Host = (*Updog)(nil)

// NewUpdog makes one. Nothing runs before the first call.
func NewUpdog(o UpdogOptions) *Updog {
	o.Check = cmp.Or(o.Check, 5*time.Minute)
	o.Prepare = cmp.Or(o.Prepare, time.Hour)
	o.Perform = cmp.Or(o.Perform, 5*time.Minute)
	return &Updog{
		boot: boot{o.BootIDFile}, options: o, at: place{root: o.Root}, root: cmp.Or(o.Root, "/"), binary: updogBinary,
		shutdown: []string{"shutdown", "-r", "now"},
	}
}

// Version returns what the host's os-release says.
func (u *Updog) Version(context.Context) (string, error) { return osVersion(u.root) }

// noUpdates are the words by which updog says, with exit status 1, that it has no update for this host, or not yet.
var noUpdates = []string{"No update available", "wave in the future"}

// Check is `updog check-update`. Whatever that prints is an update, such as "aws-k8s-1.15 1.20.3 (v0.0)".
func (u *Updog) Check(ctx context.Context) (Offer, error) {
	r, err := u.at.runWithin(ctx, u.options.Check, u.binary, "check-update")
	if err != nil {
		return Offer{}, err
	}
	if err := r.failure(); err != nil {
		if r.code == 1 && containsAny(r.stderr, noUpdates) {
			return Offer{}, nil
		}
		return Offer{}, fmt.Errorf("running updog check-update, %w", err)
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

// Prepare is `updog update-image`, where the host offers the version.
func (u *Updog) Prepare(ctx context.Context, version string) error {
	if version != "" && u.prepared == version {
		return nil
	}
	offer, err := u.Check(ctx)
	switch {
	case err != nil:
		return err
	case !offer.Available || version != "" && offer.Version != version:
		return otherVersion(version, offer.Version)
	case offer.Version != "" && offer.Version == u.prepared:
		return nil
	}
	// From here on what was written before may be overwritten.
	u.prepared, u.performed = "", false
	r, err := u.at.runWithin(ctx, u.options.Prepare, u.binary, "update-image")
	if err != nil {
		return err
	}
	if err := r.failure(); err != nil {
		return fmt.Errorf("updog update-image, %w", err)
	}
	if said := r.stderr + "\n" + r.stdout; containsAny(said, notFetched) {
		return fmt.Errorf("updog update-image said %q, %w", brief(said), otherVersion(version, ""))
	}
	// "Starting update to V", "Update applied: VARIANT V". It may have chosen anew since the check.
	fetched := cmp.Or(lastVersion(r.stdout), lastVersion(r.stderr), offer.Version)
	if version != "" && fetched != version {
		return otherVersion(version, fetched)
	}
	u.prepared = fetched
	return nil
}

// Perform is `updog update-apply`. It prepares what this Updog has not prepared itself.
func (u *Updog) Perform(ctx context.Context, version string) error {
	if u.prepared == "" {
		if err := u.Prepare(ctx, version); err != nil {
			return err
		}
	}
	if version != "" && u.prepared != version {
		return fmt.Errorf("%w: %s is prepared", ErrOther, u.prepared)
	}
	return u.apply(ctx)
}

// apply makes the next boot use what is written. It may have been done already, by a process before this one: update-image had taken any
// older mark off.
func (u *Updog) apply(ctx context.Context) error {
	if u.performed {
		return nil
	}
	r, err := u.at.runWithin(ctx, u.options.Perform, u.binary, "update-apply")
	if err != nil {
		return err
	}
	if err := r.failure(); err != nil && !strings.Contains(r.stderr, applied) {
		return fmt.Errorf("updog update-apply, %w", err)
	}
	u.performed = true
	return nil
}

// Revert is `updog update-revert`, whoever has performed. The first versions of updog have no such command, and can't revert.
func (u *Updog) Revert(ctx context.Context) error {
	u.performed = false
	r, err := u.at.runWithin(ctx, u.options.Perform, u.binary, "update-revert")
	if err == nil && !strings.Contains(strings.ToLower(r.stderr+r.stdout), "usage:") {
		err = r.failure()
	}
	if err != nil {
		return fmt.Errorf("updog update-revert, %w", err)
	}
	return nil
}

// applied is what updog says when the next boot uses the other partitions already.
const applied = "already marked for upgrade"

// Reboot is `updog update-apply -r`. Where updog refuses because the update is applied, it is `shutdown -r now`, which updog would run.
func (u *Updog) Reboot(ctx context.Context) error {
	err := u.at.reboot(ctx, u.binary, "update-apply", "-r")
	if err != nil && strings.Contains(err.Error(), applied) {
		return u.at.reboot(ctx, u.shutdown...)
	}
	return err
}
