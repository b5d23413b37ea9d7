// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a daemon may take to come back.
const patience = 30 * time.Second

func prepare(context.Context) error {
	_, err := stage()
	return err
}

// upgrade can be run again wherever it was interrupted.
func upgrade(ctx context.Context) error {
	version, err := stage()
	if err != nil {
		return err
	}
	before, err := os.Readlink(filepath.Join(host, home, "current"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := relink(home+"/current", version); err != nil {
		return fmt.Errorf("switching over, %w", err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	content := fmt.Sprintf("VERSION=%s\nPREVIOUS=%s\nSINCE=%s\nPLAN=%s\n", version, before, now, os.Getenv("SYSTEM_UPGRADE_PLAN_NAME"))
	if err := replace(release, content); err != nil {
		return fmt.Errorf("writing %s, %w", release, err)
	}
	fmt.Printf("switched %s from %s to %s\n", os.Getenv("SYSTEM_UPGRADE_NODE_NAME"), before, version)
	return restart(ctx, version)
}

// restart ends the machine's daemon. Its service starts it again, from the files that are current now.
func restart(ctx context.Context, version string) error {
	daemons, err := find(current, "daemon")
	if err != nil {
		return err
	}
	if len(daemons) == 0 {
		fmt.Println("no daemon runs here")
		return nil
	}
	for _, pid := range daemons {
		fmt.Println("restarting the daemon, process", pid)
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("ending process %d, %w", pid, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var now report
		if text, err := os.ReadFile(filepath.Join(host, running)); err == nil && json.Unmarshal(text, &now) == nil && now.Version == version {
			fmt.Printf("the daemon runs %s, process %d\n", now.Version, now.PID)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemon runs %q and not %s, %w", now.Version, version, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// find returns the processes with this command line. A Plan's pods see all those of their machine.
func find(args ...string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	want := strings.Join(args, "\x00") + "\x00"
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that has ended meanwhile has no command line any more.
		if line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && string(line) == want {
			found = append(found, pid)
		}
	}
	return found, nil
}
