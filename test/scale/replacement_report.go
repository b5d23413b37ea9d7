// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// replacementPhase is what one stage has shown.
type replacementPhase struct {
	name     string
	took     time.Duration
	requests requests
	cpu      time.Duration
	// calls are those to the cloud, by name.
	calls map[string]int
}

// called is how many calls to the cloud there were.
func (p *replacementPhase) called() int {
	n := 0
	for _, times := range p.calls {
		n += times
	}
	return n
}

// replacementMeasured is what was found out in one cluster.
type replacementMeasured struct {
	options options
	size    int
	phases  []*replacementPhase
	// start is the operator's processor time before the first stage.
	start time.Duration
	peak  int64
	// most and fewest are how many machines there were, and claimed how many nodes were claimed at once.
	most, fewest, claimed int
	// zones is how many machines each had in the end.
	zones    []int
	problems []error
}

func (m *replacementMeasured) wrong(format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf(format, args...))
}

// verify returns what was wrong, in short.
func (m *replacementMeasured) verify() error {
	const most = 10
	problems := m.problems
	if n := len(problems); n > most {
		problems = append(slices.Clip(problems[:most]), fmt.Errorf("and %d problems more", n-most))
	}
	var errs []error
	for _, problem := range problems {
		errs = append(errs, fmt.Errorf("%d nodes, replacement: %w", m.size, problem))
	}
	return errors.Join(errs...)
}

// print writes tables for people.
func (m *replacementMeasured) print(out io.Writer) error {
	o := &m.options
	fmt.Fprintf(out, "\n%d nodes in 3 zones of one scale set, surge %s (%d), %d pods for each, %g s to make and to delete a machine; cloud: %s\n\n",
		m.size, o.replacement.surge, o.replacement.atOnce(m.size), o.hosts.podsPerNode, o.replacement.machineSeconds, o.replacement.cloud)
	w := newSheet(out)
	perNode := func(n int) string { return fmt.Sprintf("%.2f", float64(n)/float64(m.size)) }
	w.line("", "seconds", "nodes/s", "CPU s", "ms/node", "requests/node", "writes/node", "cloud calls", "a node")
	for _, p := range m.phases {
		if p.name == stageIdle {
			continue
		}
		w.line(p.name, fmt.Sprintf("%.1f", p.took.Seconds()), fmt.Sprintf("%.1f", float64(m.size)/p.took.Seconds()),
			fmt.Sprintf("%.2f", p.cpu.Seconds()), fmt.Sprintf("%.2f", p.cpu.Seconds()*1000/float64(m.size)),
			perNode(p.requests.total().all), perNode(p.requests.writes()), fmt.Sprint(p.called()), perNode(p.called()))
	}
	w.blank()
	w.line("ideal of the update, in seconds", fmt.Sprintf("%.1f", o.idealReplacement(m.size).Seconds()))
	w.line("machines at once, at most", fmt.Sprint(m.most))
	w.line("machines at once, at least", fmt.Sprint(m.fewest))
	w.line("machines of each zone, in the end", strings.Trim(fmt.Sprint(m.zones), "[]"))
	w.line("nodes claimed at once", fmt.Sprint(m.claimed))
	w.line("CPU seconds to start", fmt.Sprintf("%.2f", m.start.Seconds()))
	w.line("peak RSS in MiB", fmt.Sprintf("%.1f", mebibytes(m.peak)))
	for _, p := range m.phases {
		w.blank()
		p.printRequests(w, m.size)
	}
	return w.Flush()
}

// printRequests says what was asked of the API server in a stage, and of the cloud.
func (p *replacementPhase) printRequests(w sheet, nodes int) {
	title := p.name
	if p.name == stageIdle {
		title = fmt.Sprintf("idle for %.0f s, CPU %.2f s", p.took.Seconds(), p.cpu.Seconds())
	}
	perNode := func(n int) string { return fmt.Sprintf("%.3f", float64(n)/float64(nodes)) }
	w.line("requests, "+title, "all", "a node", "refused")
	kinds := slices.SortedFunc(maps.Keys(p.requests.rollout), func(a, b request) int {
		return cmp.Or(-cmp.Compare(p.requests.rollout[a].all, p.requests.rollout[b].all), cmp.Compare(a.verb+a.resource, b.verb+b.resource))
	})
	line := func(what string, c count) { w.line(what, fmt.Sprint(c.all), perNode(c.all), fmt.Sprint(c.refused)) }
	for _, kind := range kinds {
		line(kind.verb+" "+kind.resource, p.requests.rollout[kind])
	}
	line("total", p.requests.total())
	w.line("besides: watches begun", fmt.Sprint(p.requests.watches))
	w.line("leases", fmt.Sprint(p.requests.leases))
	w.blank()
	w.line("cloud calls, "+title, "all", "a node")
	for _, name := range slices.Sorted(maps.Keys(p.calls)) {
		w.line(name, fmt.Sprint(p.calls[name]), perNode(p.calls[name]))
	}
	w.line("total", fmt.Sprint(p.called()), perNode(p.called()))
}

// replacementSummary is what the last line says of one number of nodes.
type replacementSummary struct {
	Kind            string                             `json:"kind"`
	Cloud           string                             `json:"cloud"`
	Nodes           int                                `json:"nodes"`
	Surge           int                                `json:"surge"`
	PodsPerNode     int                                `json:"podsPerNode"`
	MachineSeconds  float64                            `json:"machineSeconds"`
	IdealSeconds    float64                            `json:"idealSeconds"`
	StartCPUSeconds float64                            `json:"startCPUSeconds"`
	PeakRSSMiB      float64                            `json:"peakRSSMiB"`
	MachinesAtMost  int                                `json:"machinesAtMost"`
	Stages          map[string]replacementStageSummary `json:"stages"`
	Idle            *replacementIdleSummary            `json:"idle,omitempty"`
}

// replacementStageSummary is what it says of one stage.
type replacementStageSummary struct {
	Seconds           float64            `json:"seconds"`
	CPUSeconds        float64            `json:"cpuSeconds"`
	RequestsPerNode   float64            `json:"requestsPerNode"`
	WritesPerNode     float64            `json:"writesPerNode"`
	Refused           int                `json:"refused"`
	CloudCallsPerNode map[string]float64 `json:"cloudCallsPerNode"`
}

// replacementIdleSummary is what it says of idleness.
type replacementIdleSummary struct {
	Seconds    float64        `json:"seconds"`
	CPUSeconds float64        `json:"cpuSeconds"`
	Reads      int            `json:"reads"`
	Writes     int            `json:"writes"`
	CloudCalls map[string]int `json:"cloudCalls"`
}

func (m *replacementMeasured) summary() replacementSummary {
	o := &m.options
	s := replacementSummary{
		Kind: kindReplacement, Cloud: o.replacement.cloud, Nodes: m.size, Surge: o.replacement.atOnce(m.size), PodsPerNode: o.hosts.podsPerNode,
		MachineSeconds: o.replacement.machineSeconds, IdealSeconds: seconds(o.idealReplacement(m.size)), StartCPUSeconds: seconds(m.start),
		PeakRSSMiB: round(mebibytes(m.peak)), MachinesAtMost: m.most, Stages: map[string]replacementStageSummary{},
	}
	perNode := func(n int) float64 { return round(float64(n) / float64(m.size)) }
	for _, p := range m.phases {
		writes := p.requests.writes()
		if p.name == stageIdle {
			s.Idle = &replacementIdleSummary{
				Seconds: seconds(p.took), CPUSeconds: seconds(p.cpu), Writes: writes, Reads: p.requests.total().all - writes, CloudCalls: p.calls,
			}
			continue
		}
		calls := map[string]float64{}
		for name, n := range p.calls {
			calls[name] = perNode(n)
		}
		s.Stages[p.name] = replacementStageSummary{
			Seconds: seconds(p.took), CPUSeconds: seconds(p.cpu), RequestsPerNode: perNode(p.requests.total().all), WritesPerNode: perNode(writes),
			Refused: p.requests.total().refused, CloudCallsPerNode: calls,
		}
	}
	return s
}

// printReplacementsJSON writes one object, or a list of them, in one line.
func printReplacementsJSON(out io.Writer, all []*replacementMeasured, several bool) error {
	summaries := make([]replacementSummary, 0, len(all))
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
