// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"moult.dev/moult/test/bottlerocket/state"
)

// usage is what updog says when it does not understand, on standard error and with exit code 1.
const usage = `USAGE:
    updog <SUBCOMMAND> <OPTIONS>

SUBCOMMANDS:
    check-update            Show if an update is available
        [ -a | --all ]                Output all available updates, even if they're not upgrades
        [ --ignore-waves ]            Ignore release schedule when checking
                                      for a new update

    prepare                 Download update files and migration targets

    update                  Perform an update if available
        [ -i | --image version ]      Update to a specific image version
        [ -n | --now ]                Update immediately, ignoring any release schedule
        [ -r | --reboot ]             Reboot into new update on success

    update-image            Download & write an update but do not update flags
        [ -i | --image version ]      Update to a specific image version
        [ -n | --now ]                Update immediately, ignoring wave limits
        [ -t | --timestamp time ]     The timestamp to execute an update from

    update-apply            Update boot flags (after having called update-image)
        [ -r | --reboot ]             Reboot after updating boot flags

    update-revert           Revert actions done by 'update-apply'

GLOBAL OPTIONS:
    [ -j | --json ]               JSON-formatted output
    [ --log-level trace|debug|info|warn|error ]  Set logging verbosity`

// errUsage asks for the usage, after a message where it has one.
type errUsage struct{ message string }

func (e errUsage) Error() string {
	if e.message != "" {
		return e.message + "\n\n" + usage
	}
	return usage
}

// command is updog's command line. It has no -t, though its usage does.
type command struct {
	name                           string
	json, ignoreWaves, all, reboot bool
	// version is the one that is asked for; empty is the one that the host chooses.
	version string
	variant string
}

func parseUpdog(args []string, old bool) (command, error) {
	var c command
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; arg {
		case "--log-level", "-i", "--image", "--variant":
			if i++; i == len(args) {
				return c, errUsage{missing(arg)}
			}
			if err := c.set(arg, args[i]); err != nil {
				return c, err
			}
		case "-n", "--now", "--ignore-waves":
			c.ignoreWaves = true
		case "-j", "--json":
			if old {
				return c, errUsage{}
			}
			c.json = true
		case "-r", "--reboot":
			c.reboot = true
		case "-a", "--all":
			c.all = true
		default:
			if strings.HasPrefix(arg, "-") || c.name != "" {
				return c, errUsage{}
			}
			c.name = arg
		}
	}
	commands := []string{"check-update", "whats", "prepare", "update", "update-image", "update-apply"}
	if !old {
		commands = append(commands, "update-revert")
	}
	if !slices.Contains(commands, c.name) {
		return c, errUsage{}
	}
	return c, nil
}

// missing is what updog says where an option has no value.
func missing(option string) string {
	if option == "--log-level" || option == "--variant" {
		return "Did not give argument to " + option
	}
	return ""
}

// set sets an option that has a value.
func (c *command) set(option, value string) error {
	switch option {
	case "--log-level":
		if !slices.Contains([]string{"off", "trace", "debug", "info", "warn", "error"}, strings.ToLower(value)) {
			return errUsage{fmt.Sprintf("Invalid log level '%s'", value)}
		}
	case "--variant":
		c.variant = value
	default: // a version
		if strings.HasPrefix(value, "v") || state.Compare(value, "0.0.0-0") < 0 {
			return errUsage{}
		}
		c.version = value
	}
	return nil
}

// updog runs updog.
func (h host) updog(args []string) int {
	old := h.Has(state.UpdogOld)
	c, err := parseUpdog(args, old)
	if err == nil {
		err = h.obey(c, old)
	}
	if note := h.Note(strings.Join(append([]string{"updog"}, args...), " "), err); note != nil {
		fmt.Fprintln(os.Stderr, note)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// errNoUpdate is what check-update says where there is none.
var errNoUpdate = errors.New("No update available") //nolint:staticcheck // As updog says it.

func (h host) obey(c command, old bool) error {
	settings, err := h.Settings()
	if err != nil {
		return err
	}
	disk, err := h.Disk()
	if err != nil {
		return fmt.Errorf("Unable to get OS version: %w", err) //nolint:staticcheck // As updog says it.
	}
	if err := h.Delay(state.RefreshSlow); err != nil {
		return err
	}
	// It does so for every command, those too that need nothing of the repository.
	message := "Metadata error: Failed to fetch https://updates.bottlerocket.aws/2020-07-07/timestamp.json: connection refused"
	if err := h.Failure(state.RefreshFails, message); err != nil {
		return err
	}
	running := disk.Running()
	releases, err := h.Releases()
	if err != nil {
		return err
	}
	if h.Has(state.NoUpdate) {
		releases = nil
	}
	variant := running.Variant
	if c.variant != "" {
		variant = c.variant
	}
	applicable := state.Applicable(releases, variant, c.ignoreWaves || settings.IgnoreWaves, settings.Seed, time.Now())
	if c.all && (c.name == "check-update" || c.name == "whats") {
		return list(applicable, c.json, old)
	}
	chosen, err := choose(applicable, running.Version, settings.VersionLock, c.version)
	if err != nil {
		return err
	}
	switch c.name {
	case "check-update", "whats":
		if chosen == nil {
			return errNoUpdate
		}
		return show(os.Stdout, chosen, c.json, full(chosen, old))
	case "update", "update-image":
		return h.update(c, chosen, old)
	case "update-apply":
		return h.apply(c.reboot, old)
	case "update-revert":
		return h.ChangeDisk(func(d *state.Disk) error {
			d.CancelUpgrade()
			return nil
		})
	default: // prepare, which nobody has written
		return nil
	}
}

// choose is the release that a host takes: the one that it is told to take, if it may, else the one it would choose.
func choose(applicable []state.Release, running, lock, version string) (*state.Release, error) {
	if version == "" {
		return state.Choose(applicable, running, lock)
	}
	for i := range applicable {
		if state.Compare(applicable[i].Version, version) == 0 {
			return &applicable[i], nil
		}
	}
	return nil, nil
}

// full is a release in words.
func full(r *state.Release, old bool) string {
	if old {
		return fmt.Sprintf("%s %s (v0.0)", r.Variant, r.Version)
	}
	return r.Variant + " " + r.Version
}

// list shows all releases: as JSON on standard output, as text on standard error.
func list(releases []state.Release, asJSON, old bool) error {
	if asJSON {
		if releases == nil {
			releases = []state.Release{}
		}
		return show(os.Stdout, releases, true, "")
	}
	for i := range releases {
		fmt.Fprintln(os.Stderr, full(&releases[i], old))
	}
	return nil
}

func show(w io.Writer, value any, asJSON bool, text string) error {
	if !asJSON {
		_, err := fmt.Fprintln(w, text)
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// update writes an image to the other partition set, and flips the table if it is to.
func (h host) update(c command, chosen *state.Release, old bool) error {
	if chosen == nil {
		fmt.Fprintln(os.Stderr, "No update required")
		return nil
	}
	fmt.Fprintln(os.Stderr, "Starting update to", chosen.Version)
	err := h.ChangeDisk(func(d *state.Disk) error {
		d.ClearInactive()
		return nil
	})
	if err != nil {
		return err
	}
	if err := h.Delay(state.PrepareSlow); err != nil {
		return err
	}
	if err := h.Failure(state.PrepareFails, "Failed writing update data to disk: Input/output error (os error 5)"); err != nil {
		return err
	}
	err = h.ChangeDisk(func(d *state.Disk) error {
		d.WriteInactive(state.Image{Arch: chosen.Arch, Version: chosen.Version, Variant: chosen.Variant})
		return nil
	})
	if err != nil {
		return err
	}
	if c.name == "update" {
		if err := h.apply(c.reboot, old); err != nil {
			return err
		}
	}
	return show(os.Stdout, chosen, c.json, "Update applied: "+full(chosen, old))
}

// apply flips the partition table, and reboots if it is to.
func (h host) apply(reboot, old bool) error {
	if err := h.Delay(state.ActivateSlow); err != nil {
		return err
	}
	message := "Failed to modify OS disk partition table: Failed to write GPT onto device /dev/nvme0n1: Input/output error (os error 5)"
	if err := h.Failure(state.ActivateFails, message); err != nil {
		return err
	}
	if err := h.ChangeDisk((*state.Disk).UpgradeToInactive); err != nil {
		return fmt.Errorf("Could not mark inactive partition for boot: %w", err) //nolint:staticcheck // As updog says it.
	}
	if !reboot {
		return nil
	}
	if !old {
		// The host ends all programs before it reboots.
		signal.Ignore(syscall.SIGTERM)
	}
	if code := h.shutdown([]string{"-r"}); code != 0 && !old {
		return nil // it looks at whether shutdown could be run, not at what came of it
	}
	if old {
		time.Sleep(5 * time.Second) // it is ended before
	}
	return nil
}
