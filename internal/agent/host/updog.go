// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// updogBinary is where Bottlerocket has updog, below its root.
const updogBinary = "/usr/bin/updog"

// UpdogOptions say where the host is, and how long updog may take. Each duration that is 0 is its default.
type UpdogOptions struct {
	// Root is the directory in which the host's root is mounted; updog runs in a chroot there, which needs CAP_SYS_CHROOT. Empty: the agent's own.
	Root string
	// BootIDFile is where the boot id is. Default DefaultBootIDFile.
	BootIDFile string
	// Check is how long finding updates may take. Default 5m.
	Check time.Duration
	// Prepare is how long fetching one may take. Default 1h.
	Prepare time.Duration
	// Perform is how long making it the next boot's may take. Default 5m.
	Perform time.Duration
}

// Updog is a Bottlerocket host that is updated by its program updog.
//
// Prepare is `updog update-image`, which writes the other set of partitions, and Perform is `updog update-apply`, which makes the next
// boot one into these. Updog can't be asked what it has fetched, so the Updog remembers that itself: a new one fetches it again.
type Updog struct {
	boot
	options UpdogOptions
	at      place
	root    string
	binary  string

	// textOnly is set once this updog turned out to know no --json.
	textOnly bool
	// prepared is the version that update-image has written, performed whether update-apply made it the next boot's.
	prepared  string
	performed bool
}

var _ Host = (*Updog)(nil)

// NewUpdog makes one. Nothing is run before the first call.
func NewUpdog(o UpdogOptions) *Updog {
	o.Check = cmp.Or(o.Check, 5*time.Minute)
	o.Prepare = cmp.Or(o.Prepare, time.Hour)
	o.Perform = cmp.Or(o.Perform, 5*time.Minute)
	return &Updog{boot: boot{o.BootIDFile}, options: o, at: place{root: o.Root}, root: cmp.Or(o.Root, "/"), binary: updogBinary}
}

// Present tells whether the host has updog, without running it.
func (u *Updog) Present() (bool, error) {
	info, err := os.Stat(filepath.Join(u.root, u.binary))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for updog, %w", err)
	}
	return info.Mode().IsRegular() && info.Mode()&0o111 != 0, nil
}

// Version is what the host's os-release says.
func (u *Updog) Version(context.Context) (string, error) {
	return osVersion(u.root)
}

// Check is `updog check-update`.
func (u *Updog) Check(ctx context.Context) (Offer, error) {
	args := []string{"check-update"}
	if !u.textOnly {
		args = append(args, "--json")
	}
	o, err := u.at.within(ctx, u.options.Check, append([]string{u.binary}, args...)...)
	if err != nil {
		return Offer{}, err
	}
	if o.code != 0 && !u.textOnly && isUsage(o) {
		u.textOnly = true
		return u.Check(ctx)
	}
	offer, err := readCheck(o, !u.textOnly)
	if err != nil {
		return Offer{}, fmt.Errorf("running updog %s, %w", strings.Join(args, " "), err)
	}
	return offer, nil
}

// noUpdates are the words by which updog says, with exit status 1, that it has no update for this host, or not yet.
var noUpdates = []string{"No update available", "wave in the future"}

// readCheck reads what check-update has said.
func readCheck(o *outcome, inJSON bool) (Offer, error) {
	if err := o.failure(); err != nil {
		for _, words := range noUpdates {
			if o.code == 1 && strings.Contains(o.stderr, words) {
				return Offer{}, nil
			}
		}
		return Offer{}, err
	}
	if inJSON {
		return readUpdate(o.stdout)
	}
	// Whatever it prints is an update.
	said := strings.TrimSpace(o.stdout)
	return Offer{Available: said != "", Version: lastVersion(said)}, nil
}

// readUpdate reads an update as JSON, or the first of a list of them. There may be lines of the log before.
func readUpdate(text string) (Offer, error) {
	type update struct {
		Version string `json:"version"`
	}
	start := jsonStart.FindStringIndex(text)
	if start == nil {
		if strings.TrimSpace(text) == "" {
			return Offer{}, nil
		}
		return Offer{}, fmt.Errorf("its answer is no JSON: %s", brief(text))
	}
	text = text[start[0]:]
	var all []update
	if text[0] == '[' {
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&all); err != nil {
			return Offer{}, fmt.Errorf("reading its answer, %w", err)
		}
	} else {
		all = make([]update, 1)
		if err := json.NewDecoder(strings.NewReader(text)).Decode(&all[0]); err != nil {
			return Offer{}, fmt.Errorf("reading its answer, %w", err)
		}
	}
	if len(all) == 0 {
		return Offer{}, nil
	}
	if all[0].Version == "" {
		return Offer{}, errors.New("reading its answer, the update has no version")
	}
	return Offer{Available: true, Version: bareVersion(all[0].Version)}, nil
}

var (
	// jsonStart is where an object or a list begins: alone on its line, or before a string or an object.
	jsonStart = regexp.MustCompile(`(?m)^[{[](?:\s*$|\s*["{\]])`)
	// aVersion is a version among other words.
	aVersion = regexp.MustCompile(`(?:^|\s)v?([0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?)(?:\s|$)`)
)

// lastVersion is the version in the last line that has one, such as "1.20.3" of "aws-k8s-1.15 1.20.3 (v0.0)"; empty if there is none.
func lastVersion(text string) string {
	version := ""
	for line := range strings.Lines(text) {
		if found := aVersion.FindStringSubmatch(line); found != nil {
			version = found[1]
		}
	}
	return version
}

// isUsage tells whether updog has not understood what it was asked.
func isUsage(o *outcome) bool {
	return strings.Contains(strings.ToLower(o.stderr+o.stdout), "usage:")
}

// Prepare is `updog update-image`, with -i where a version is wanted.
func (u *Updog) Prepare(ctx context.Context, version string) error {
	if err := u.prepare(ctx, version); err != nil {
		return fmt.Errorf("preparing %s, %w", cmp.Or(version, "the update"), err)
	}
	return nil
}

func (u *Updog) prepare(ctx context.Context, version string) error {
	version = bareVersion(version)
	if version != "" {
		if u.prepared == version {
			return nil
		}
		runs, err := u.Version(ctx)
		if err != nil {
			return err
		}
		if sameVersion(runs, version) {
			return otherError(fmt.Sprintf("the host runs %s already", runs))
		}
	} else {
		// It may have been fetched before; then it still is what the host would take.
		offer, err := u.Check(ctx)
		switch {
		case err != nil:
			return err
		case !offer.Available:
			return other("", "")
		case offer.Version != "" && offer.Version == u.prepared:
			return nil
		}
	}

	// From here on what was written before may be overwritten.
	u.prepared, u.performed = "", false
	o, err := u.image(ctx, version)
	if err != nil {
		return err
	}
	if err := o.failure(); err != nil {
		return fmt.Errorf("updog update-image, %w", err)
	}
	said := o.stderr + "\n" + o.stdout
	for _, words := range []string{"No update required", "Update available at", "in later wave"} {
		if strings.Contains(said, words) {
			return fmt.Errorf("updog update-image said %q, %w", brief(said), other(version, ""))
		}
	}
	// "Starting update to V", "Update applied: VARIANT V".
	got := cmp.Or(lastVersion(o.stdout), lastVersion(o.stderr), version)
	if version != "" && got != version {
		return other(version, got)
	}
	u.prepared = got
	return nil
}

// image runs update-image. The first versions of updog can't be told which version they are to fetch; they fetch what they offer.
func (u *Updog) image(ctx context.Context, version string) (*outcome, error) {
	if version == "" {
		return u.at.within(ctx, u.options.Prepare, u.binary, "update-image")
	}
	o, err := u.at.within(ctx, u.options.Prepare, u.binary, "update-image", "-i", version)
	if err != nil || o.code == 0 || !isUsage(o) {
		return o, err
	}
	offer, err := u.Check(ctx)
	if err != nil {
		return nil, err
	}
	if offer.Version != version {
		return nil, other(version, offer.Version)
	}
	return u.at.within(ctx, u.options.Prepare, u.binary, "update-image")
}

// alreadyApplied is what update-apply says where the next boot is one into the other partitions already.
const alreadyApplied = "already marked for upgrade"

// Perform is `updog update-apply`. What this Updog has not prepared itself it prepares before.
func (u *Updog) Perform(ctx context.Context, version string) error {
	version = bareVersion(version)
	if err := u.perform(ctx, version); err != nil {
		return fmt.Errorf("performing %s, %w", cmp.Or(version, "the update"), err)
	}
	return nil
}

func (u *Updog) perform(ctx context.Context, version string) error {
	switch {
	case u.prepared == "":
		if err := u.prepare(ctx, version); err != nil {
			return err
		}
	case version != "" && u.prepared != version:
		return otherError(fmt.Sprintf("%s is prepared", u.prepared))
	}
	if u.performed {
		return nil
	}
	o, err := u.at.within(ctx, u.options.Perform, u.binary, "update-apply")
	if err != nil {
		return err
	}
	// It has been broken off before, after it was done: update-image had taken any older mark off.
	if err := o.failure(); err != nil && !strings.Contains(o.stderr, alreadyApplied) {
		return fmt.Errorf("updog update-apply, %w", err)
	}
	u.performed = true
	return nil
}

// Revert is `updog update-revert`, whoever has performed. The first versions of updog know no such command, and can't take it back.
func (u *Updog) Revert(ctx context.Context) error {
	u.performed = false
	o, err := u.at.within(ctx, u.options.Perform, u.binary, "update-revert")
	if err == nil && !isUsage(o) {
		err = o.failure()
	}
	if err != nil {
		return fmt.Errorf("reverting the update, updog update-revert, %w", err)
	}
	return nil
}

// Reboot is `updog update-apply -r`, or `shutdown -r now` where that has been applied and there is such a program. The reboot may
// end either before it ends by itself, which is no failure; neither has a limit of its own, for a host may take its time to go down.
func (u *Updog) Reboot(ctx context.Context) error {
	if u.performed {
		if err := u.shutDown(ctx); !errors.Is(err, errNoCommand) {
			return err
		}
	}
	o, err := u.at.run(ctx, u.binary, "update-apply", "-r")
	if err != nil {
		return fmt.Errorf("rebooting, %w", err)
	}
	if ended(o) {
		return nil
	}
	if err := o.failure(); err != nil {
		if strings.Contains(o.stderr, alreadyApplied) {
			return u.shutDown(ctx)
		}
		return fmt.Errorf("rebooting, updog update-apply -r, %w", err)
	}
	return nil
}

// shutDown reboots the host as updog would.
func (u *Updog) shutDown(ctx context.Context) error {
	o, err := u.at.run(ctx, "shutdown", "-r", "now")
	if err != nil {
		return fmt.Errorf("rebooting, %w", err)
	}
	if ended(o) {
		return nil
	}
	if err := o.failure(); err != nil {
		return fmt.Errorf("rebooting, shutdown -r now, %w", err)
	}
	return nil
}

// ended tells whether a command was ended as everything is when the host goes down.
func ended(o *outcome) bool {
	// A shell says by 128 and the signal that what it ran was ended.
	return o.signal == syscall.SIGTERM || o.signal == syscall.SIGHUP || o.code == 128+int(syscall.SIGTERM) || o.code == 128+int(syscall.SIGHUP)
}
