// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"moult.dev/moult/test/cluster"
)

// Where things are on a machine: see test/demo/upgrade.
const (
	home    = "/opt/demo"
	release = "/etc/demo-release"
	running = "/run/demo-daemon.json"
)

// installVersion makes the machines ones that have had a version for long: files, release and a running daemon.
func (d *planDemo) installVersion(ctx context.Context, v string) error {
	program, err := os.ReadFile(d.bin(daemon))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range d.cluster.Machines() {
		group.Go(func() error {
			if err := installOn(ctx, m, v, program); err != nil {
				return fmt.Errorf("installing version %s on %s, %w", v, m.Name(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func installOn(ctx context.Context, m *cluster.Machine, v string, program []byte) error {
	dir := path.Join(home, v)
	steps := []func() error{
		func() error { return shell(ctx, m, "mkdir -p %s && ln -sfn %s %s/current", dir, v, home) },
		func() error { return m.WriteFile(path.Join(dir, daemon), program, 0o755) },
		func() error { return m.WriteFile(path.Join(dir, "VERSION"), []byte(v+"\n"), 0o644) },
		func() error { return m.WriteFile(release, []byte("VERSION="+v+"\n"), 0o644) },
		func() error {
			return shell(ctx, m, "setsid %s/current/%s service >/var/log/%s.log 2>&1 </dev/null &", home, daemon, daemon)
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	for {
		if now, err := look(m); err == nil && now.Version == v {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the daemon, %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func shell(ctx context.Context, m *cluster.Machine, format string, args ...any) error {
	out, err := m.Exec(ctx, "/bin/sh", "-c", fmt.Sprintf(format, args...))
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// report is what a daemon says of itself.
type report struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// look reads what a machine's daemon says.
func look(m *cluster.Machine) (report, error) {
	var now report
	text, err := m.ReadFile(running)
	if err != nil {
		return now, err
	}
	return now, json.Unmarshal(text, &now)
}

// show prints what is on each machine.
func (d *planDemo) show() error {
	w := tabwriter.NewWriter(d.details(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MACHINE\tDAEMON\tPROCESS\t"+release)
	for _, m := range d.cluster.Machines() {
		now, err := look(m)
		if err != nil {
			return err
		}
		text, err := m.ReadFile(release)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", m.Name(), now.Version, now.PID, strings.Join(strings.Fields(string(text)), " "))
	}
	return w.Flush()
}

// check fails unless every machine has this version, and runs it: the process that says so is there.
func (d *planDemo) check(ctx context.Context, v string) error {
	for _, m := range d.cluster.Machines() {
		now, err := look(m)
		if err != nil {
			return err
		}
		text, err := m.ReadFile(release)
		if err != nil {
			return err
		}
		if now.Version != v || !strings.Contains(string(text), "VERSION="+v+"\n") {
			return fmt.Errorf("%s runs %s and its release says %q, want %s", m.Name(), now.Version, text, v)
		}
		if err := shell(ctx, m, "test $(readlink /proc/%d/exe) = %s/%s/%s", now.PID, home, v, daemon); err != nil {
			return fmt.Errorf("on %s process %d is not the daemon, %w", m.Name(), now.PID, err)
		}
	}
	return nil
}
