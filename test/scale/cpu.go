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

// processor reads how much processor time, and memory, a running process has used.
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

// processorOfComponent finds the process of the control plane that runs a program for the cluster in a directory.
func processorOfComponent(name, dir string) (processor, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return processor{}, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // It has ended, or is somebody else's.
		}
		program, args, _ := strings.Cut(string(text), "\x00")
		if filepath.Base(program) == name && strings.Contains(args, dir+string(filepath.Separator)) {
			return processor{stat: filepath.Join(filepath.Dir(path), "stat")}, nil
		}
	}
	return processor{}, fmt.Errorf("looking for the process of %s: there is none", name)
}

// peak is the most memory, in bytes, that the process has had so far.
func (p processor) peak() (int64, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(p.stat), "status"))
	if err != nil {
		return 0, fmt.Errorf("reading how much memory a process has had, %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "VmHWM:" {
			kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, errors.New("reading how much memory a process has had: /proc does not say")
}

// used is the process' user and system time so far.
func (p processor) used() (time.Duration, error) {
	text, err := os.ReadFile(p.stat)
	if err != nil {
		return 0, fmt.Errorf("reading a process' processor time, %w", err)
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
