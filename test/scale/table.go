// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"time"
)

// standard is the number of nodes whose row the others are compared with.
const standard = 1000

// row is one rollout in the table of all.
type row struct {
	nodes           int
	rollout         string
	took, bare      time.Duration
	requestsPerNode float64
	cpuPerNode      float64 // in milliseconds
	peak            int64
}

// rowsOf lists the plain rollouts, and after them the guarded ones.
func rowsOf(all []*measured) []row {
	var rows []row
	add := func(m *measured, r *result) {
		rows = append(rows, row{
			nodes: m.size, rollout: r.subject.name, took: r.took, bare: m.bare,
			requestsPerNode: r.requestsPerNode(m.size), cpuPerNode: r.cpuPerNode(m.size), peak: r.peak,
		})
	}
	for _, m := range all {
		add(m, m.plainRollout)
	}
	for _, m := range all {
		if m.guardedRollout != nil {
			add(m, m.guardedRollout)
		}
	}
	return rows
}

// reference is the row with the standard number of nodes of the same rollout, or the first when none has it.
func reference(rows []row, rollout string) row {
	var first *row
	for i := range rows {
		r := &rows[i]
		if r.rollout != rollout {
			continue
		}
		if r.nodes == standard {
			return *r
		}
		if first == nil {
			first = r
		}
	}
	return *first
}

// deviation is by how many percent a number differs from another.
func deviation(n, from float64) float64 { return 100 * (n/from - 1) }

// spread is how far one kind of rollout's rows are from their reference at most, in percent.
type spread struct{ requests, cpu float64 }

func spreadOf(rows []row, rollout string) spread {
	var s spread
	from := reference(rows, rollout)
	for _, r := range rows {
		if r.rollout == rollout {
			s.requests = max(s.requests, math.Abs(deviation(r.requestsPerNode, from.requestsPerNode)))
			s.cpu = max(s.cpu, math.Abs(deviation(r.cpuPerNode, from.cpuPerNode)))
		}
	}
	return s
}

// printTable writes a line for each rollout, and how far these are apart.
func printTable(out io.Writer, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w := newSheet(out)
	w.line("nodes", "rollout", "seconds", "bare", "× bare", "requests/node", "", "CPU ms/node", "", "peak RSS MiB")
	var rollouts []string
	for i, r := range rows {
		if i == 0 || rows[i-1].rollout != r.rollout {
			rollouts = append(rollouts, r.rollout)
		}
		from := reference(rows, r.rollout)
		bare, ratio := "-", "-"
		if r.bare > 0 {
			bare, ratio = fmt.Sprintf("%.1f", r.bare.Seconds()), times(r.took, r.bare)
		}
		w.line(fmt.Sprint(r.nodes), r.rollout, fmt.Sprintf("%.1f", r.took.Seconds()), bare, ratio,
			fmt.Sprintf("%.3f", r.requestsPerNode), percent(deviation(r.requestsPerNode, from.requestsPerNode)),
			fmt.Sprintf("%.2f", r.cpuPerNode), percent(deviation(r.cpuPerNode, from.cpuPerNode)),
			fmt.Sprintf("%.1f", mebibytes(r.peak)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, rollout := range rollouts {
		s := spreadOf(rows, rollout)
		fmt.Fprintf(out, "%s rollouts: within %.1f %% requests for each node, and %.1f %% CPU, of that over %d nodes\n",
			rollout, s.requests, s.cpu, reference(rows, rollout).nodes)
	}
	return nil
}

func percent(x float64) string { return fmt.Sprintf("%+.1f %%", x) }
