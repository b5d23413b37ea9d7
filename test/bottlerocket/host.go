// SPDX-License-Identifier: Apache-2.0

// Package bottlerocket makes hosts that only look like those of Bottlerocket: machines of the test cluster, which really reboot,
// and directories, for tests of what speaks to a host.
//
//	program, err := bottlerocket.Build(ctx, dir)
//	host, err := program.Install(ctx, machine, bottlerocket.Options{Interface: v1alpha1.InterfaceUpdateAPI, Version: "1.19.0", Releases: releases})
//	host.SetFault(ctx, state.BootFails, "")
//	…
//	host.Uninstall(ctx)
//
// A host has two sets of partitions, a repository with releases, updog, signpost and, where Options say so, the Update API on /run/api.sock.
// A reboot boots the set that is next, and shows its version in /etc/os-release before the kubelet starts. What is in memory is
// lost: the Update API's status is uninitialized after a reboot.
//
// Package double is the programs. Package state is what a host has on its disk, and the list of faults. It is a package of its own
// so that the program on the machines stays small.
//
// Images are names, and nothing is fetched. A minute of `shutdown -r` is a second. systemctl and shutdown know only reboots.
package bottlerocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"moult.dev/moult/test/bottlerocket/state"
)

// Host is a host that was made.
type Host struct{ place }

// place is where a host is.
type place interface {
	read(path string) ([]byte, error)
	write(ctx context.Context, path string, data []byte) error
	remove(ctx context.Context, path string) error
}

// patience is how long a host may be away before an operation on it fails.
const patience = 30 * time.Second

// persist tries again while a host is away.
func persist(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// SetFault injects a fault; see package state for their list and what values they take.
func (h *Host) SetFault(ctx context.Context, f state.Fault, value string) error {
	path := filepath.Join(state.FaultDir, string(f))
	return persist(ctx, func() error { return h.write(ctx, path, []byte(value+"\n")) })
}

// ClearFault ends a fault.
func (h *Host) ClearFault(ctx context.Context, f state.Fault) error {
	path := filepath.Join(state.FaultDir, string(f))
	return persist(ctx, func() error { return h.remove(ctx, path) })
}

// Publish makes these the releases that there are.
func (h *Host) Publish(ctx context.Context, releases []state.Release) error {
	data, err := json.Marshal(releases)
	if err != nil {
		return err
	}
	return persist(ctx, func() error { return h.write(ctx, state.RepositoryFile, data) })
}

// NeedReboot makes a host that is not of Bottlerocket one that needs a reboot.
func (h *Host) NeedReboot(ctx context.Context) error {
	return persist(ctx, func() error { return h.write(ctx, state.SentinelFile, nil) })
}

// Journal is what was done on the host, in order.
func (h *Host) Journal(ctx context.Context) ([]state.Entry, error) {
	var all []state.Entry
	return all, persist(ctx, func() error {
		data, err := h.read(state.JournalFile)
		if err == nil {
			all, err = state.ParseJournal(data)
		}
		return err
	})
}

// Boots are those of the host, from the one that it was made in on.
func (h *Host) Boots(ctx context.Context) ([]state.Entry, error) { return h.done(ctx, state.EventBoot) }

// Orders are the orders to reboot that the host has taken and carries out.
func (h *Host) Orders(ctx context.Context) ([]state.Entry, error) {
	return h.done(ctx, state.EventReboot)
}

func (h *Host) done(ctx context.Context, what string) ([]state.Entry, error) {
	all, err := h.Journal(ctx)
	var some []state.Entry
	for _, e := range all {
		if e.What == what {
			some = append(some, e)
		}
	}
	return some, err
}

// OSRelease is a field of /etc/os-release, such as VERSION_ID.
func (h *Host) OSRelease(ctx context.Context, field string) (value string, err error) {
	err = persist(ctx, func() error {
		data, err := h.read(state.OSReleaseFile)
		for line := range strings.Lines(string(data)) {
			if name, text, ok := strings.Cut(strings.TrimSpace(line), "="); ok && name == field {
				value = strings.Trim(text, `"`)
			}
		}
		return err
	})
	if err == nil && value == "" {
		err = fmt.Errorf("%s has no %s", state.OSReleaseFile, field)
	}
	return value, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
