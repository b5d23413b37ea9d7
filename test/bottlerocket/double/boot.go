// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/google/uuid"

	"moult.dev/moult/test/bottlerocket/state"
)

// sentinelFile says that a host which is not of Bottlerocket needs a reboot.
const sentinelFile = "/run/reboot-required"

// boot is what happens between power on and the first service.
func (h host) boot() error {
	for h.Has(state.BootHangs) {
		time.Sleep(50 * time.Millisecond)
	}
	if err := h.Delay(state.BootSlow); err != nil {
		return err
	}
	if h.Has(state.StillNeeded) {
		if err := h.Replace(sentinelFile, nil); err != nil {
			return err
		}
	}
	_, err := os.Stat(h.Path(state.DiskFile))
	if errors.Is(err, fs.ErrNotExist) {
		return h.Note(state.EventBoot, nil) // nothing of Bottlerocket's
	}
	if err != nil {
		return err
	}
	var running state.Image
	err = h.ChangeDisk(func(d *state.Disk) error {
		running = d.Boot(func(state.Image) bool { return !h.Has(state.BootFails) })
		return nil
	})
	if err != nil {
		return err
	}
	if err := h.Replace(state.OSReleaseFile, state.OSRelease(running)); err != nil {
		return err
	}
	return h.Note(state.EventBoot, nil)
}

// rebootDirectory reboots a host that is a directory.
func (h host) rebootDirectory() error {
	for _, path := range []string{state.StatusFile, state.LockFile, sentinelFile} {
		if err := os.Remove(h.Path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := h.Replace(state.BootIDFile, []byte(uuid.NewString()+"\n")); err != nil {
		return err
	}
	return h.boot()
}
