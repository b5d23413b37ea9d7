// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/operator"
)

// usage is what a program has used in a stage.
type usage struct {
	Program    string  `json:"program"`
	CPUSeconds float64 `json:"cpuSeconds"`
	// All, Writes and Refused count requests, without watches and leader election.
	All     int `json:"all"`
	Writes  int `json:"writes"`
	Refused int `json:"refused"`
	Leases  int `json:"leases"`
	// Watches is how many were begun.
	Watches int `json:"watches"`
	// Requests is by verb and resource, and by status where they were refused.
	Requests map[string]int `json:"requests,omitempty"`
	answered []time.Duration
}

// add counts a request. It reports false for watches and leader election.
func (u *usage) add(e *audit.Event) bool {
	switch {
	case e.Watch():
		u.Watches++
		return false
	case e.Object.Resource == "leases":
		u.Leases++
		return false
	}
	u.answered = append(u.answered, e.Logged.Sub(e.Received))
	kind := e.Verb + " " + e.Resource()
	if e.Refused() {
		u.Refused++
		kind += fmt.Sprintf(": %d", e.Response.Code)
	}
	u.count(kind, 1, e.Verb != "get" && e.Verb != "list")
	return true
}

func (u *usage) count(kind string, n int, write bool) {
	if u.Requests == nil {
		u.Requests = map[string]int{}
	}
	u.Requests[kind] += n
	u.All += n
	if write {
		u.Writes += n
	}
}

// faults are the requests that are never right.
func (u *usage) faults() (faults []string) {
	for kind, n := range u.Requests {
		if _, code, _ := strings.Cut(kind, ": "); slices.Contains([]string{"400", "403", "422"}, code) {
			faults = append(faults, fmt.Sprintf("%s, %d times", kind, n))
		}
	}
	return faults
}

// meter measures one program.
type meter struct {
	name string
	// program is the name of its file, where it runs all along. pid is its process; 0: its processor time is not measured.
	program string
	pid     int
	// base is the processor time before the stage.
	base float64
	// agent is in the user agent of its requests, and log is the audit log. Empty: they are not counted.
	agent string
	log   *audit.Log
	// calls returns how often each call was sent to a cloud so far, and changes are those that change something.
	calls   func() map[string]int
	changes map[string]bool
	called  map[string]int
}

// controllerMeter is that of a peer, or of the operator where it is nil.
func controllerMeter(p *peer) *meter {
	if p != nil {
		return &meter{name: p.name, agent: p.name}
	}
	return &meter{name: "operator", agent: operator.UserAgent}
}

// open makes a meter count requests from now on.
func (m *meter) open(ctx context.Context, c *cluster.Cluster) (err error) {
	if m.calls != nil {
		m.called = m.calls()
	}
	if m.program != "" {
		if err := m.find(c.Dir()); err != nil {
			return err
		}
	}
	if m.agent == "" {
		return nil
	}
	if m.log, err = audit.Open(c.AuditLog()); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = m.log.Close() }) // It is only read.
	return m.log.Read("\x00", func(*audit.Event) {})     // No line has that.
}

// read counts the requests since the last time: into u, or into before if they were received before began. It reports whether some came.
func (m *meter) read(u, before *usage, began time.Time) (came bool, err error) {
	if m.calls != nil {
		now := m.calls()
		for name, n := range now {
			if n -= m.called[name]; n > 0 {
				u.count(name, n, m.changes[name])
			}
		}
		m.called = now
	}
	if m.log == nil {
		return false, nil
	}
	err = m.log.Read(m.agent, func(e *audit.Event) {
		switch {
		case !strings.Contains(e.UserAgent, m.agent):
		case e.Received.Before(began):
			before.add(e)
		default:
			came = u.add(e) || came
		}
	})
	return came, err
}

// cpu is the processor time in seconds that the process has used.
func (m *meter) cpu() (float64, error) {
	if m.pid == 0 {
		return 0, nil
	}
	process, err := procfs.NewProc(m.pid)
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s, %w", m.name, err)
	}
	stat, err := process.Stat()
	return stat.CPUTime(), err
}

// peakRSS is the most memory in MiB that the process has had.
func (m *meter) peakRSS() (float64, error) {
	process, err := procfs.NewProc(m.pid)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %s, %w", m.name, err)
	}
	status, err := process.NewStatus()
	return float64(status.VmHWM) / (1 << 20), err
}

// find finds the process that runs the program for the cluster in a directory.
func (m *meter) find(dir string) error {
	all, err := procfs.AllProcs()
	if err != nil {
		return err
	}
	for _, p := range all {
		line, _ := p.CmdLine() // It may have ended.
		if len(line) > 0 && filepath.Base(line[0]) == m.program && strings.Contains(strings.Join(line, " "), dir+string(filepath.Separator)) {
			m.pid = p.PID
			return nil
		}
	}
	return fmt.Errorf("there is no process of %s", m.program)
}
