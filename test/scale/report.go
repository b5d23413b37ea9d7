// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// measured is what was found out in one cluster.
type measured struct {
	options options
	size    int
	// bare is how long the bare loop took; 0 when it was left out.
	bare time.Duration
	// guardedRollout is nil when it was not asked for.
	plainRollout, guardedRollout *result
}

// rollouts lists what there is of them.
func (m *measured) rollouts() []*result {
	if m.guardedRollout == nil {
		return []*result{m.plainRollout}
	}
	return []*result{m.plainRollout, m.guardedRollout}
}

// sheet is a table of which each line is given as cells.
type sheet struct{ *tabwriter.Writer }

func newSheet(out io.Writer) sheet {
	return sheet{tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
}

func (s sheet) line(cells ...string) { fmt.Fprintln(s, strings.Join(cells, "\t")+"\t") }

// blank ends a block, whose columns are as wide as they need to be.
func (s sheet) blank() { fmt.Fprintln(s) }

// print writes tables for people.
func (m *measured) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%d nodes, %d at a time, pods of %g s", m.size, m.options.concurrency, m.options.podSeconds)
	if m.guardedRollout != nil {
		fmt.Fprintf(out, ", %d Deployments of %d pods; the guarded rollout in waves of %s nodes", deployments, replicas, list(m.guardedRollout.subject.parts))
		if m.options.guardedFirst {
			fmt.Fprint(out, ", and first")
		}
	}
	fmt.Fprint(out, "\n\n")
	w := newSheet(out)
	m.printTimes(w)
	w.blank()
	m.printProcess(w)
	for _, r := range m.rollouts() {
		w.blank()
		r.printRequests(w, m.size)
	}
	return w.Flush()
}

func list(sizes []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(sizes), "[]"), " ", ", ")
}

func (m *measured) printTimes(w sheet) {
	header := []string{"", "seconds", "nodes/s"}
	if m.bare > 0 {
		header = append(header, "× bare")
	}
	if m.guardedRollout != nil {
		header = append(header, "× plain")
	}
	w.line(header...)
	line := func(what string, took time.Duration) {
		cells := []string{what, fmt.Sprintf("%.1f", took.Seconds()), fmt.Sprintf("%.1f", float64(m.size)/took.Seconds())}
		if m.bare > 0 {
			cells = append(cells, times(took, m.bare))
		}
		if m.guardedRollout != nil {
			cells = append(cells, times(took, m.plainRollout.took))
		}
		w.line(cells...)
	}
	plain, guarded := m.options.ideal(m.size), time.Duration(0)
	if m.guardedRollout != nil {
		guarded = m.options.ideal(m.guardedRollout.subject.parts...)
	}
	line("ideal", plain)
	if guarded > plain {
		line("ideal in waves", guarded)
	}
	if m.bare > 0 {
		line("bare loop", m.bare)
	}
	for _, r := range m.rollouts() {
		line(r.subject.name+" rollout", r.took)
	}
}

func times(a, b time.Duration) string { return fmt.Sprintf("%.2f", a.Seconds()/b.Seconds()) }

func (m *measured) printProcess(w sheet) {
	line := func(what string, of func(*result) string) {
		cells := []string{what}
		for _, r := range m.rollouts() {
			cells = append(cells, of(r))
		}
		w.line(cells...)
	}
	line("the operator", func(r *result) string { return r.subject.name })
	line("CPU seconds", func(r *result) string { return fmt.Sprintf("%.2f", r.cpu.Seconds()) })
	line("CPU ms per node", func(r *result) string { return fmt.Sprintf("%.2f", r.cpuPerNode(m.size)) })
	line("CPU seconds to start", func(r *result) string { return fmt.Sprintf("%.2f", r.start.Seconds()) })
	line("peak RSS in MiB", func(r *result) string { return fmt.Sprintf("%.1f", mebibytes(r.peak)) })
	line("nodes unavailable at once", func(r *result) string { return fmt.Sprint(r.most) })
}

// printRequests says what the operator has asked of the API server.
func (r *result) printRequests(w sheet, nodes int) {
	all := r.requests.rollout
	w.line("requests, "+r.subject.name, "all", "per node", "refused")
	kinds := slices.SortedFunc(maps.Keys(all), func(a, b request) int {
		return cmp.Or(-cmp.Compare(all[a].all, all[b].all), cmp.Compare(a.verb+a.resource, b.verb+b.resource))
	})
	line := func(what string, c count) {
		w.line(what, fmt.Sprint(c.all), fmt.Sprintf("%.3f", float64(c.all)/float64(nodes)), fmt.Sprint(c.refused))
	}
	for _, k := range kinds {
		line(k.verb+" "+k.resource, all[k])
	}
	line("total", r.requests.total())
	w.line("besides: to start", fmt.Sprint(r.requests.start))
	w.line("watches begun", fmt.Sprint(r.requests.watches))
	w.line("leases", fmt.Sprint(r.requests.leases))
}

// cpuPerNode is processor time in milliseconds.
func (r *result) cpuPerNode(nodes int) float64 { return r.cpu.Seconds() * 1000 / float64(nodes) }

func (r *result) requestsPerNode(nodes int) float64 {
	return float64(r.requests.total().all) / float64(nodes)
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }
