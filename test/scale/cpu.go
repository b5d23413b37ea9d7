// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is what /proc counts processor time in.
const tick = 10 * time.Millisecond

// processor reads how much processor time a running process has used.
type processor struct{ stat string }

// processorOf finds the one process that runs a program.
func processorOf(program string) (processor, error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return processor{}, err
	}
	for _, link := range links {
		path, err := os.Readlink(link)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission): // It has ended, or is somebody else's.
		case err != nil:
			return processor{}, fmt.Errorf("looking for the operator's process, %w", err)
		case path == program:
			return processor{stat: filepath.Join(filepath.Dir(link), "stat")}, nil
		}
	}
	return processor{}, errors.New("looking for the operator's process: there is none")
}

// used is the process' user and system time so far.
func (p processor) used() (time.Duration, error) {
	text, err := os.ReadFile(p.stat)
	if err != nil {
		return 0, fmt.Errorf("reading the operator's processor time, %w", err)
	}
	used, err := parseStat(string(text))
	if err != nil {
		return 0, fmt.Errorf("reading %s, %w", p.stat, err)
	}
	return used, nil
}

// parseStat takes user and system time from what /proc/PID/stat says.
func parseStat(text string) (time.Duration, error) {
	// The second field is the program's name in parentheses, with whatever is in it.
	_, rest, ok := cutLast(text, ")")
	fields := strings.Fields(rest)
	const user, system = 11, 12 // from the third field on
	if !ok || len(fields) <= system {
		return 0, errors.New("it has too few fields")
	}
	var sum time.Duration
	for _, field := range []string{fields[user], fields[system]} {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
