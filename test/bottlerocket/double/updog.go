// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"moult.dev/moult/test/bottlerocket/state"
)

// errUsage is what updog says when it does not understand.
var errUsage = errors.New("USAGE:\n    updog <SUBCOMMAND> <OPTIONS>")

// command is updog's command line.
type command struct {
	name         string
	json, reboot bool
	// version is the wanted one; empty is the one that the host chooses.
	version string
}

func parseUpdog(args []string, old bool) (c command, err error) {
	commands := []string{"check-update", "update-image", "update-apply", "update-revert"}
	if old {
		commands = commands[:3]
	}
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--json" && !old:
			c.json = true
		case arg == "-r":
			c.reboot = true
		case arg == "-i" && i+1 < len(args):
			i++
			c.version = args[i]
		case c.name == "" && slices.Contains(commands, arg):
			c.name = arg
		default:
			return c, errUsage
		}
	}
	if c.name == "" {
		return c, errUsage
	}
	return c, nil
}

// updog runs updog and returns its exit code.
func (h host) updog(args []string, stdout, stderr io.Writer) int {
	old := h.Has(state.UpdogOld)
	c, err := parseUpdog(args, old)
	if err == nil {
		err = h.obey(&c, old, stdout, stderr)
	}
	if err := errors.Join(err, h.Note(strings.Join(append([]string{"updog"}, args...), " "), err)); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func (h host) obey(c *command, old bool, stdout, stderr io.Writer) error {
	// It does so for every command, those too that need nothing of the repository.
	chosen, err := h.choose(c.version)
	if err != nil {
		return err
	}
	switch c.name {
	case "check-update":
		if chosen == nil {
			return errors.New("No update available") //nolint:staticcheck // As updog says it.
		}
		if c.json {
			return json.NewEncoder(stdout).Encode(chosen)
		}
		fmt.Fprintln(stdout, full(chosen, old))
	case "update-image":
		if chosen == nil {
			fmt.Fprintln(stderr, "No update required")
			return nil
		}
		fmt.Fprintln(stderr, "Starting update to", chosen.Version)
		if err := h.writeImage(chosen.Version); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "Update applied: "+full(chosen, old))
	case "update-apply":
		if err := h.apply(); err != nil || !c.reboot {
			return err
		}
		if !old {
			signal.Ignore(syscall.SIGTERM) // The host ends all programs before it reboots.
		}
		if h.shutdown([]string{"-r"}); old {
			time.Sleep(5 * time.Second) // The reboot ends it before.
		}
	case "update-revert":
		return h.ChangeDisk(func(d *state.Disk) error { d.Next, d.Booted = false, false; return nil })
	}
	return nil
}

// choose is the release that the host takes, or nil.
func (h host) choose(version string) (*state.Release, error) {
	disk, err := h.Disk()
	if err != nil {
		return nil, err
	}
	if err := h.Failure(state.RefreshFails); err != nil {
		return nil, err
	}
	releases, err := h.Releases()
	if err != nil {
		return nil, err
	}
	return state.Choose(releases, disk.Running, version), nil
}

// full is a release in words.
func full(r *state.Release, old bool) string {
	if old {
		return fmt.Sprintf("%s %s (v0.0)", state.Variant, r.Version)
	}
	return state.Variant + " " + r.Version
}

// writeImage writes an image to the other set of partitions.
func (h host) writeImage(version string) error {
	if err := h.ChangeDisk(func(d *state.Disk) error { *d = state.Disk{Running: d.Running}; return nil }); err != nil {
		return err
	}
	slow, err := h.Delay(state.PrepareSlow)
	if err != nil {
		return err
	}
	time.Sleep(slow)
	if err := h.Failure(state.PrepareFails); err != nil {
		return err
	}
	return h.ChangeDisk(func(d *state.Disk) error { d.Other = version; return nil })
}

// apply makes the other set of partitions the next to boot.
func (h host) apply() error {
	if err := h.Failure(state.ActivateFails); err != nil {
		return err
	}
	return h.ChangeDisk(func(d *state.Disk) error {
		switch {
		case d.Next || d.Booted:
			return errors.New("Could not mark inactive partition for boot: Inactive partition /dev/nvme0n1 is already marked for upgrade") //nolint:staticcheck // As updog says it.
		case d.Other == "":
			return errors.New("Could not mark inactive partition for boot: Inactive partition /dev/nvme0n1 has not been marked valid for upgrade") //nolint:staticcheck // As updog says it.
		}
		d.Next = true
		return nil
	})
}

// signpost makes the other set the next to boot, as it is.
func (h host) signpost(args []string) error {
	err := errors.New("this machine knows only rollback-to-inactive")
	if slices.Equal(args, []string{"rollback-to-inactive"}) {
		err = h.ChangeDisk(func(d *state.Disk) error {
			if !d.Next && !d.Booted {
				return errors.New("Inactive partition is not valid to roll back to") //nolint:staticcheck // As signpost says it.
			}
			d.Next = true
			return nil
		})
	}
	return errors.Join(err, h.Note("signpost "+strings.Join(args, " "), err))
}
