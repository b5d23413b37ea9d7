// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// daemonPhase is what one stage has shown.
type daemonPhase struct {
	name string
	// pods is how many it took.
	pods int
	// took is until its status told of it, and ready until all pods were as they should be.
	took, ready time.Duration
	requests    requests
	// cpu is the processor time of who did it, and manager that of all of Kubernetes' own controllers meanwhile.
	cpu, manager time.Duration
	counts       podCounts
}

func (p *daemonPhase) writesPerMinute() float64 {
	return float64(p.requests.writes()) / p.took.Minutes()
}

// daemonMeasured is what one subject has shown.
type daemonMeasured struct {
	name    string
	builtin bool
	phases  []*daemonPhase
	// start is the operator's processor time before the first stage.
	start    time.Duration
	peak     int64
	problems []error
}

// daemonsMeasured is what was found out in one cluster.
type daemonsMeasured struct {
	options options
	size    int
	daemons []*daemonMeasured
}

// verify returns what was wrong, in short.
func (m *daemonsMeasured) verify() error {
	const most = 10
	var errs []error
	for _, d := range m.daemons {
		problems := d.problems
		if n := len(problems); n > most {
			problems = append(slices.Clip(problems[:most]), fmt.Errorf("and %d problems more", n-most))
		}
		for _, problem := range problems {
			errs = append(errs, fmt.Errorf("%d nodes, %s: %w", m.size, d.name, problem))
		}
	}
	return errors.Join(errs...)
}

// print writes tables for people.
func (m *daemonsMeasured) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%d nodes, maxUnavailable %s, pods ready after %g s\n\n", m.size, m.options.daemons.maxUnavailable(), m.options.daemons.startSeconds)
	w := newSheet(out)
	w.line("", "", "pods", "seconds", "reported", "pods/s", "CPU s", "CPU ms/pod", "manager CPU s", "requests/pod", "without a pod", "in creation")
	for _, name := range []string{stageCreate, stageUpdate, stageChurn} {
		for _, d := range m.daemons {
			if p := d.phase(name); p != nil {
				w.line(name, d.name, fmt.Sprint(p.pods), fmt.Sprintf("%.1f", p.ready.Seconds()), fmt.Sprintf("%.1f", p.took.Seconds()), fmt.Sprintf("%.1f", float64(p.pods)/p.ready.Seconds()),
					fmt.Sprintf("%.2f", p.cpu.Seconds()), fmt.Sprintf("%.2f", p.cpu.Seconds()*1000/float64(p.pods)), fmt.Sprintf("%.2f", p.manager.Seconds()),
					fmt.Sprintf("%.2f", float64(p.requests.total().all)/float64(p.pods)), fmt.Sprint(p.counts.mostLost), fmt.Sprint(p.counts.mostCreating))
			}
		}
	}
	w.blank()
	w.line("", "", "seconds", "CPU s", "manager CPU s", "reads/min", "writes/min", "leases/min", "CPU s to start", "peak RSS MiB")
	for _, d := range m.daemons {
		if p := d.phase(stageIdle); p != nil {
			perMinute := func(n int) string { return fmt.Sprintf("%.1f", float64(n)/p.took.Minutes()) }
			w.line(stageIdle, d.name, fmt.Sprintf("%.1f", p.took.Seconds()), fmt.Sprintf("%.2f", p.cpu.Seconds()), fmt.Sprintf("%.2f", p.manager.Seconds()),
				perMinute(p.requests.total().all-p.requests.writes()), fmt.Sprintf("%.1f", p.writesPerMinute()), perMinute(p.requests.leases),
				fmt.Sprintf("%.2f", d.start.Seconds()), fmt.Sprintf("%.1f", mebibytes(d.peak)))
		}
	}
	for _, d := range m.daemons {
		w.blank()
		d.printRequests(w)
	}
	return w.Flush()
}

func (d *daemonMeasured) phase(name string) *daemonPhase {
	for _, p := range d.phases {
		if p.name == name {
			return p
		}
	}
	return nil
}

// printRequests says what was asked of the API server in each stage.
func (d *daemonMeasured) printRequests(w sheet) {
	header := []string{"requests, " + d.name}
	all := map[request]int{}
	for _, p := range d.phases {
		header = append(header, p.name)
		for kind, c := range p.requests.rollout {
			all[kind] += c.all
		}
	}
	w.line(append(header, "refused")...)
	kinds := make([]request, 0, len(all))
	for kind := range all {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b request) int {
		return cmp.Or(-cmp.Compare(all[a], all[b]), cmp.Compare(a.verb+a.resource, b.verb+b.resource))
	})
	line := func(what string, of func(*daemonPhase) count) {
		cells, refused := []string{what}, 0
		for _, p := range d.phases {
			c := of(p)
			cells = append(cells, fmt.Sprint(c.all))
			refused += c.refused
		}
		w.line(append(cells, fmt.Sprint(refused))...)
	}
	for _, kind := range kinds {
		line(kind.verb+" "+kind.resource, func(p *daemonPhase) count { return p.requests.rollout[kind] })
	}
	line("total", func(p *daemonPhase) count { return p.requests.total() })
}

// daemonsSummary is what the last line says of one number of nodes.
type daemonsSummary struct {
	Kind           string                   `json:"kind"`
	Nodes          int                      `json:"nodes"`
	MaxUnavailable string                   `json:"maxUnavailable"`
	Daemons        map[string]daemonSummary `json:"daemons"`
}

// daemonSummary is what it says of one subject.
type daemonSummary struct {
	PeakRSSMiB      float64                       `json:"peakRSSMiB"`
	StartCPUSeconds float64                       `json:"startCPUSeconds,omitempty"`
	Stages          map[string]daemonStageSummary `json:"stages"`
}

// daemonStageSummary is what it says of one stage.
type daemonStageSummary struct {
	Pods              int     `json:"pods,omitempty"`
	Seconds           float64 `json:"seconds"`
	ReportedSeconds   float64 `json:"reportedSeconds,omitempty"`
	CPUSeconds        float64 `json:"cpuSeconds"`
	ManagerCPUSeconds float64 `json:"managerCPUSeconds"`
	Requests          int     `json:"requests"`
	Writes            int     `json:"writes"`
	WithoutPod        int     `json:"withoutPod"`
	InCreation        int     `json:"inCreation"`
}

func (m *daemonsMeasured) summary() daemonsSummary {
	s := daemonsSummary{Kind: kindDaemonSet, Nodes: m.size, MaxUnavailable: m.options.daemons.maxUnavailable(), Daemons: map[string]daemonSummary{}}
	for _, d := range m.daemons {
		stages := map[string]daemonStageSummary{}
		for _, p := range d.phases {
			stages[p.name] = daemonStageSummary{
				Pods: p.pods, Seconds: seconds(p.ready), ReportedSeconds: seconds(p.took), CPUSeconds: seconds(p.cpu), ManagerCPUSeconds: seconds(p.manager),
				Requests: p.requests.total().all, Writes: p.requests.writes(), WithoutPod: p.counts.mostLost, InCreation: p.counts.mostCreating,
			}
		}
		if p := stages[stageIdle]; p.ReportedSeconds > 0 {
			p.Seconds, p.ReportedSeconds = p.ReportedSeconds, 0
			stages[stageIdle] = p
		}
		s.Daemons[d.name] = daemonSummary{PeakRSSMiB: round(mebibytes(d.peak)), StartCPUSeconds: seconds(d.start), Stages: stages}
	}
	return s
}

// printDaemonsJSON writes one object, or a list of them, in one line.
func printDaemonsJSON(out io.Writer, all []*daemonsMeasured, several bool) error {
	summaries := make([]daemonsSummary, 0, len(all))
	for _, m := range all {
		summaries = append(summaries, m.summary())
	}
	var object any = summaries
	if !several {
		object = summaries[0]
	}
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("writing the result, %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}
