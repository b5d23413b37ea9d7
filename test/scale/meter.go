// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"moult.dev/moult/test/audit"
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
	// Requests is by verb and resource. Those that were refused are counted again, with the status.
	Requests map[string]int `json:"requests,omitempty"`
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
	kind := e.Verb + " " + e.Resource()
	u.count(kind, 1, e.Verb != "get" && e.Verb != "list")
	if e.Refused() {
		u.Refused++
		u.Requests[fmt.Sprintf("%s: %d", kind, e.Response.Code)]++
	}
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
		for _, code := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity} {
			if strings.HasSuffix(kind, fmt.Sprintf(": %d", code)) {
				faults = append(faults, fmt.Sprintf("%s, %d times", kind, n))
			}
		}
	}
	return faults
}

// created is how many objects of a resource were created.
func (u *usage) created(resource string) int {
	n := u.Requests["create "+resource]
	for kind, refused := range u.Requests {
		if strings.HasPrefix(kind, "create "+resource+": ") {
			n -= refused
		}
	}
	return n
}

// meter measures one program.
type meter struct {
	name string
	// program is the name of its file, and process its folder in /proc. Empty: its processor time is not measured.
	program, process string
	// agent is in the user agent of its requests, and log is the audit log. Empty: they are not counted.
	agent string
	log   *audit.Log
	// calls returns how often each call was sent to a cloud so far, and changes are those that change something.
	calls   func() map[string]int
	changes map[string]bool
	called  map[string]int
}

func operatorMeter() *meter {
	return &meter{name: "operator", program: "moult", agent: operator.UserAgent}
}

// open makes a meter count requests from now on.
func (m *meter) open(auditLog string) (err error) {
	if m.calls != nil {
		m.called = m.calls()
	}
	if m.agent == "" {
		return nil
	}
	if m.log, err = audit.Open(auditLog); err != nil {
		return err
	}
	return m.log.Read("\x00", func(*audit.Event) {}) // No line has that.
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
	if m.process == "" {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(m.process, "stat"))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s, %w", m.name, err)
	}
	// The second field is the program's name in parentheses, which may have any character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const user, system, ticks = 11, 12, 100
	if len(fields) <= system {
		return 0, fmt.Errorf("reading the processor time of %s: %q has too few fields", m.name, text)
	}
	u, err := strconv.ParseInt(fields[user], 10, 64)
	s, sErr := strconv.ParseInt(fields[system], 10, 64)
	return float64(u+s) / ticks, errors.Join(err, sErr)
}

// peakRSS is the most memory in MiB that the process has had.
func (m *meter) peakRSS() (float64, error) {
	text, err := os.ReadFile(filepath.Join(m.process, "status"))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %s, %w", m.name, err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kibibytes, err := strconv.ParseFloat(strings.Fields(rest + " -")[0], 64)
	return kibibytes / 1024, err
}

// find finds the process that runs the program for the cluster in a directory.
func (m *meter) find(dir string) error {
	if m.program == "" {
		return nil
	}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, _ := os.ReadFile(path) // It may have ended.
		name, args, _ := strings.Cut(string(text), "\x00")
		if filepath.Base(name) == m.program && strings.Contains(args, dir+string(filepath.Separator)) {
			m.process = filepath.Dir(path)
			return nil
		}
	}
	return fmt.Errorf("there is no process of %s", m.program)
}

// latencies counts the API server's requests by an upper bound of their time in seconds: of all that took at most so long.
type latencies map[float64]uint64

// apiLatencies returns all since the API server started, without watches and other requests that go on.
func (b *bench) apiLatencies(ctx context.Context) (latencies, error) {
	text, err := b.raw.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics, %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics, %w", err)
	}
	all := latencies{}
	for _, metric := range families["apiserver_request_duration_seconds"].GetMetric() {
		if slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool {
			return l.GetName() == "verb" && (l.GetValue() == "WATCH" || l.GetValue() == "CONNECT")
		}) {
			continue
		}
		for _, bucket := range metric.GetHistogram().GetBucket() {
			all[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	return all, nil
}

// p99 is the bound in milliseconds within which 99 % of the requests since before were answered: that of a bucket of the histogram.
func (l latencies) p99(before latencies) float64 {
	bounds := slices.Sorted(maps.Keys(l))
	if len(bounds) == 0 {
		return 0
	}
	last := bounds[len(bounds)-1]
	total := l[last] - before[last]
	for _, bound := range bounds {
		if float64(l[bound]-before[bound]) >= 0.99*float64(total) {
			return bound * 1000
		}
	}
	return 0
}
