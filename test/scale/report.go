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
	"text/tabwriter"
	"time"
)

// report is what was measured in one cluster.
type report struct {
	Kind  string   `json:"kind"`
	Nodes int      `json:"nodes"`
	Flags []string `json:"flags,omitempty"`
	// BareSeconds is how long the bare loop took; 0 when it was left out.
	BareSeconds float64   `json:"bareSeconds,omitempty"`
	Subjects    []*result `json:"subjects"`
}

// result is what a subject has shown.
type result struct {
	Name    string   `json:"name"`
	PeakRSS float64  `json:"peakRSSMiB"`
	Stages  []*phase `json:"stages"`

	builtin bool
	// ours is true for what Moult carries out. What others do wrong is not counted.
	ours     bool
	problems []error
}

// phase is what a stage has shown. Units are nodes, or pods.
type phase struct {
	Name    string  `json:"name"`
	Units   int     `json:"units"`
	Seconds float64 `json:"seconds"`
	// Ideal, Bare and TimesBare are 0 where there is nothing to compare with.
	Ideal     float64  `json:"idealSeconds,omitempty"`
	Bare      float64  `json:"bareSeconds,omitempty"`
	TimesBare float64  `json:"timesBare,omitempty"`
	Programs  []usage  `json:"programs"`
	Figures   []figure `json:"figures,omitempty"`

	compared bool
	read     func() (came bool, err error)
}

// figure is a number that only some kinds have.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

func (p *phase) figure(name string, value float64) {
	p.Figures = append(p.Figures, figure{name, value})
}

func (r *result) wrong(format string, args ...any) { r.add(fmt.Errorf(format, args...)) }

// add keeps the first problems.
func (r *result) add(problems ...error) {
	const most = 10
	for _, problem := range problems {
		if r.ours && len(r.problems) < most {
			r.problems = append(r.problems, fmt.Errorf("%s: %w", r.Name, problem))
		}
	}
}

func (r *result) stage(name string) *phase {
	return r.Stages[slices.IndexFunc(r.Stages, func(p *phase) bool { return p.Name == name })]
}

// compare compares each stage that has a bare loop with it. If Kubernetes itself carries out a subject, that is the bare loop of the others.
func (r *report) compare() {
	for _, result := range r.Subjects {
		for _, p := range result.Stages {
			if !p.compared {
				continue
			}
			p.Bare = r.BareSeconds
			for _, other := range r.Subjects {
				if other.builtin {
					p.Bare = other.stage(p.Name).Seconds
				}
			}
			if p.Bare > 0 {
				p.TimesBare = p.Seconds / p.Bare
			}
		}
	}
}

// problems returns what was wrong.
func (r *report) problems() error {
	var errs []error
	for _, result := range r.Subjects {
		errs = append(errs, result.problems...)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d nodes: %w", r.Nodes, errors.Join(errs...))
}

// sheet is a table.
type sheet struct{ *tabwriter.Writer }

func newSheet(out io.Writer) sheet {
	return sheet{tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
}

// line writes a line. Numbers that are not whole have so many digits after the point.
func (s sheet) line(digits int, cells ...any) {
	for _, cell := range cells {
		if f, ok := cell.(float64); ok {
			cell = fmt.Sprintf("%.*f", digits, f)
		}
		fmt.Fprintf(s, "%v\t", cell)
	}
	fmt.Fprintln(s)
}

// print writes tables for people.
func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s, %d nodes %s\n\n", r.Kind, r.Nodes, strings.Join(r.Flags, " "))
	if err := printStages(out, r); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w := newSheet(out)
	for _, result := range r.Subjects {
		w.line(1, result.Name, "peak RSS in MiB", result.PeakRSS)
		for _, p := range result.Stages {
			for _, f := range p.Figures {
				w.line(2, result.Name, p.Name+": "+f.Name, f.Value)
			}
		}
	}
	for _, result := range r.Subjects {
		for i := range result.Stages[0].Programs {
			result.printRequests(w, i)
		}
	}
	return w.Flush()
}

// printStages writes a line for each program in each stage. Several reports are compared stage by stage.
func printStages(out io.Writer, reports ...*report) error {
	w := newSheet(out)
	w.line(0, "", "stage", "nodes", "units", "seconds", "units/s", "ideal", "bare", "× bare", "",
		"CPU s", "CPU ms/unit", "requests/unit", "writes/unit", "refused", "leases", "watches")
	for i, result := range reports[0].Subjects {
		for j := range result.Stages {
			for _, r := range reports {
				p := r.Subjects[i].Stages[j]
				units := float64(p.Units)
				cells := []any{result.Name, p.Name, r.Nodes, p.Units, p.Seconds, units / max(p.Seconds, 0.001), p.Ideal, p.Bare, p.TimesBare}
				for k := range p.Programs {
					u := &p.Programs[k]
					w.line(2, append(cells, u.Program, u.CPUSeconds, u.CPUSeconds*1000/units, float64(u.All)/units, float64(u.Writes)/units,
						u.Refused, u.Leases, u.Watches)...)
					cells = []any{"", "", "", "", "", "", "", "", ""}
				}
			}
		}
	}
	return w.Flush()
}

// printRequests writes how many requests of each kind a program made in each stage.
func (r *result) printRequests(w sheet, program int) {
	total := map[string]int{}
	header := []any{r.Name + ", requests of " + r.Stages[0].Programs[program].Program}
	for _, p := range r.Stages {
		header = append(header, p.Name, "/unit")
		for kind, n := range p.Programs[program].Requests {
			total[kind] += n
		}
	}
	if len(total) == 0 {
		return
	}
	fmt.Fprintln(w)
	w.line(0, header...)
	kinds := slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(-cmp.Compare(total[a], total[b]), cmp.Compare(a, b))
	})
	for _, kind := range kinds {
		cells := []any{kind}
		for _, p := range r.Stages {
			n := p.Programs[program].Requests[kind]
			cells = append(cells, n, float64(n)/float64(p.Units))
		}
		w.line(3, cells...)
	}
}

// printAll writes a table that compares numbers of nodes, and the result as JSON.
func printAll(out io.Writer, reports []*report, several bool) error {
	var all any = reports[0]
	if several {
		all = reports
		fmt.Fprintln(out)
		if err := printStages(out, reports...); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	if err := json.NewEncoder(out).Encode(all); err != nil {
		return fmt.Errorf("writing the result, %w", err)
	}
	return nil
}

// inSeconds is a duration in whole milliseconds.
func inSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
