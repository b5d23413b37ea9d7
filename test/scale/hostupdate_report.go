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

// stageAgain is that in which all agents are started anew.
const stageAgain = "start anew"

// hostPhase is what one stage has shown.
type hostPhase struct {
	name             string
	took             time.Duration
	operator, agents requests
	cpu              hostUsage
	// checks is how often hosts were asked for updates, when idle.
	checks int
}

// hostsMeasured is what was found out in one cluster.
type hostsMeasured struct {
	options options
	size    int
	phases  []*hostPhase
	// start is the operator's processor time before the first stage.
	start time.Duration
	peak  int64
	// most is how many nodes were unavailable at once.
	most     int
	problems []error
}

func (m *hostsMeasured) wrong(format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf(format, args...))
}

func (m *hostsMeasured) phase(name string) *hostPhase {
	for _, p := range m.phases {
		if p.name == name {
			return p
		}
	}
	return nil
}

// verify returns what was wrong, in short.
func (m *hostsMeasured) verify() error {
	const most = 10
	problems := m.problems
	if n := len(problems); n > most {
		problems = append(slices.Clip(problems[:most]), fmt.Errorf("and %d problems more", n-most))
	}
	var errs []error
	for _, problem := range problems {
		errs = append(errs, fmt.Errorf("%d nodes, host updates: %w", m.size, problem))
	}
	return errors.Join(errs...)
}

// hourly is how many requests are made for one node in an hour in which nothing happens.
type hourly struct {
	// byChecks are those that checks take, by the clock those that come whatever checks there are, and watches those to begin a
	// watch anew when its time is over.
	byChecks, byClock, watches float64
}

func (h hourly) all() float64 { return h.byChecks + h.byClock + h.watches }

// hourlyOfAgents reckons with the default time between checks. What was asked when idle is put down to checks; watches hold for
// as long as they have asked for.
func (m *hostsMeasured) hourlyOfAgents() hourly {
	idle, again := m.phase(stageIdle), m.phase(stageAgain)
	if idle == nil || again == nil || idle.checks == 0 {
		return hourly{}
	}
	return hourly{
		byChecks: float64(idle.agents.total().all) / float64(idle.checks) * (time.Hour.Hours() / checkInterval.Hours()),
		watches:  again.agents.renewals() / float64(m.size),
	}
}

// hourlyOfOperator reckons with what it has asked when idle, and with the watches that it had begun before its first rollout.
func (m *hostsMeasured) hourlyOfOperator() hourly {
	idle, start := m.phase(stageIdle), m.phase(stageStart)
	if idle == nil || start == nil {
		return hourly{}
	}
	return hourly{
		byClock: float64(idle.operator.total().all) / idle.took.Hours() / float64(m.size),
		watches: start.operator.renewals() / float64(m.size),
	}
}

// print writes tables for people.
func (m *hostsMeasured) print(out io.Writer) error {
	o := &m.options
	fmt.Fprintf(out, "\n%d nodes, %d at a time, %d pods for each, reboots of %g s; the agents with the shipped rights\n\n",
		m.size, o.concurrency, o.hosts.podsPerNode, o.hosts.rebootSeconds)
	w := newSheet(out)
	perNode := func(n int) string { return fmt.Sprintf("%.2f", float64(n)/float64(m.size)) }
	w.line("", "seconds", "nodes/s", "operator CPU s", "ms/node", "agents CPU s", "ms/node", "requests/node", "operator", "agents")
	for _, p := range m.phases {
		if p.name == stageIdle {
			continue
		}
		operator, agents := p.operator.total().all, p.agents.total().all
		w.line(p.name, fmt.Sprintf("%.1f", p.took.Seconds()), fmt.Sprintf("%.1f", float64(m.size)/p.took.Seconds()),
			fmt.Sprintf("%.2f", p.cpu.operator.Seconds()), fmt.Sprintf("%.2f", p.cpu.operator.Seconds()*1000/float64(m.size)),
			fmt.Sprintf("%.2f", p.cpu.agents.Seconds()), fmt.Sprintf("%.2f", p.cpu.agents.Seconds()*1000/float64(m.size)),
			perNode(operator+agents), perNode(operator), perNode(agents))
	}
	w.blank()
	w.line("ideal of the update, in seconds", fmt.Sprintf("%.1f", o.idealHosts(m.size).Seconds()))
	w.line("nodes unavailable at once", fmt.Sprint(m.most))
	w.line("operator's CPU seconds to start", fmt.Sprintf("%.2f", m.start.Seconds()))
	w.line("operator's peak RSS in MiB", fmt.Sprintf("%.1f", mebibytes(m.peak)))
	for _, p := range m.phases {
		if p.name != stageIdle {
			w.blank()
			p.printRequests(w, m.size)
		}
	}
	if p := m.phase(stageIdle); p != nil {
		w.blank()
		m.printIdle(w, p)
	}
	return w.Flush()
}

// printIdle says what was asked when nothing happened.
func (m *hostsMeasured) printIdle(w sheet, p *hostPhase) {
	w.line(fmt.Sprintf("idle for %.0f s, %d checks", p.took.Seconds(), p.checks), "reads", "writes", "watches", "leases", "CPU s",
		"an hour and node: checks", "by the clock", "watches", "requests")
	line := func(who string, r *requests, cpu time.Duration, h hourly) {
		w.line(who, fmt.Sprint(r.total().all-r.writes()), fmt.Sprint(r.writes()), fmt.Sprint(r.watches), fmt.Sprint(r.leases), fmt.Sprintf("%.2f", cpu.Seconds()),
			fmt.Sprintf("%.2f", h.byChecks), fmt.Sprintf("%.2f", h.byClock), fmt.Sprintf("%.2f", h.watches), fmt.Sprintf("%.2f", h.all()))
	}
	line("operator", &p.operator, p.cpu.operator, m.hourlyOfOperator())
	line("agents", &p.agents, p.cpu.agents, m.hourlyOfAgents())
}

// printRequests says what was asked of the API server in a stage.
func (p *hostPhase) printRequests(w sheet, nodes int) {
	w.line("requests, "+p.name, "operator", "per node", "refused", "agents", "per node", "refused")
	kinds := map[request]bool{}
	for kind := range p.operator.rollout {
		kinds[kind] = true
	}
	for kind := range p.agents.rollout {
		kinds[kind] = true
	}
	sorted := make([]request, 0, len(kinds))
	for kind := range kinds {
		sorted = append(sorted, kind)
	}
	all := func(k request) int { return p.operator.rollout[k].all + p.agents.rollout[k].all }
	slices.SortFunc(sorted, func(a, b request) int {
		return cmp.Or(-cmp.Compare(all(a), all(b)), cmp.Compare(a.verb+a.resource, b.verb+b.resource))
	})
	line := func(what string, counts ...count) {
		cells := []string{what}
		for _, c := range counts {
			cells = append(cells, fmt.Sprint(c.all), fmt.Sprintf("%.3f", float64(c.all)/float64(nodes)), fmt.Sprint(c.refused))
		}
		w.line(cells...)
	}
	for _, kind := range sorted {
		line(kind.verb+" "+kind.resource, p.operator.rollout[kind], p.agents.rollout[kind])
	}
	line("total", p.operator.total(), p.agents.total())
	line("besides: watches begun", count{all: p.operator.watches}, count{all: p.agents.watches})
	line("leases", count{all: p.operator.leases}, count{all: p.agents.leases})
}

// hostsSummary is what the last line says of one number of nodes.
type hostsSummary struct {
	Kind             string                      `json:"kind"`
	Nodes            int                         `json:"nodes"`
	Concurrency      int                         `json:"concurrency"`
	PodsPerNode      int                         `json:"podsPerNode"`
	RebootSeconds    float64                     `json:"rebootSeconds"`
	IdealSeconds     float64                     `json:"idealSeconds"`
	StartCPUSeconds  float64                     `json:"startCPUSeconds"`
	PeakRSSMiB       float64                     `json:"peakRSSMiB"`
	NodesUnavailable int                         `json:"nodesUnavailable"`
	Stages           map[string]hostStageSummary `json:"stages"`
	Idle             *hostIdleSummary            `json:"idle,omitempty"`
}

// hostStageSummary is what it says of one stage.
type hostStageSummary struct {
	Seconds  float64         `json:"seconds"`
	Operator hostSideSummary `json:"operator"`
	Agents   hostSideSummary `json:"agents"`
}

// hostSideSummary is what it says of the operator, or of all agents.
type hostSideSummary struct {
	CPUSeconds      float64 `json:"cpuSeconds"`
	RequestsPerNode float64 `json:"requestsPerNode"`
	WritesPerNode   float64 `json:"writesPerNode"`
	WatchesPerNode  float64 `json:"watchesPerNode"`
	Refused         int     `json:"refused"`
}

// hostIdleSummary is what it says of idleness.
type hostIdleSummary struct {
	Seconds                         float64 `json:"seconds"`
	Checks                          int     `json:"checks"`
	Reads                           int     `json:"reads"`
	Writes                          int     `json:"writes"`
	OperatorCPUSeconds              float64 `json:"operatorCPUSeconds"`
	AgentsCPUSeconds                float64 `json:"agentsCPUSeconds"`
	OperatorRequestsPerNodeAndHour  float64 `json:"operatorRequestsPerNodeAndHour"`
	AgentsRequestsPerNodeAndHour    float64 `json:"agentsRequestsPerNodeAndHour"`
	AgentsWithoutWatchesPerNodeHour float64 `json:"agentsRequestsPerNodeAndHourWithoutWatches"`
}

func (m *hostsMeasured) summary() hostsSummary {
	o := &m.options
	s := hostsSummary{
		Kind: kindHostUpdate, Nodes: m.size, Concurrency: o.concurrency, PodsPerNode: o.hosts.podsPerNode, RebootSeconds: o.hosts.rebootSeconds,
		IdealSeconds: seconds(o.idealHosts(m.size)), StartCPUSeconds: seconds(m.start), PeakRSSMiB: round(mebibytes(m.peak)),
		NodesUnavailable: m.most, Stages: map[string]hostStageSummary{},
	}
	perNode := func(n int) float64 { return round(float64(n) / float64(m.size)) }
	side := func(r *requests, cpu time.Duration) hostSideSummary {
		return hostSideSummary{
			CPUSeconds: seconds(cpu), RequestsPerNode: perNode(r.total().all), WritesPerNode: perNode(r.writes()),
			WatchesPerNode: perNode(r.watches), Refused: r.total().refused,
		}
	}
	for _, p := range m.phases {
		if p.name != stageIdle {
			s.Stages[p.name] = hostStageSummary{Seconds: seconds(p.took), Operator: side(&p.operator, p.cpu.operator), Agents: side(&p.agents, p.cpu.agents)}
			continue
		}
		writes := p.operator.writes() + p.agents.writes()
		agents := m.hourlyOfAgents()
		s.Idle = &hostIdleSummary{
			Seconds: seconds(p.took), Checks: p.checks, Writes: writes, Reads: p.operator.total().all + p.agents.total().all - writes,
			OperatorCPUSeconds: seconds(p.cpu.operator), AgentsCPUSeconds: seconds(p.cpu.agents),
			OperatorRequestsPerNodeAndHour: round(m.hourlyOfOperator().all()), AgentsRequestsPerNodeAndHour: round(agents.all()),
			AgentsWithoutWatchesPerNodeHour: round(agents.byChecks),
		}
	}
	return s
}

// printHostsJSON writes one object, or a list of them, in one line.
func printHostsJSON(out io.Writer, all []*hostsMeasured, several bool) error {
	summaries := make([]hostsSummary, 0, len(all))
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
