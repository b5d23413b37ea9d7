// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// summary is the last line that is printed.
type summary struct {
	Nodes           int     `json:"nodes"`
	Concurrency     int     `json:"concurrency"`
	PodSeconds      float64 `json:"podSeconds"`
	Seconds         float64 `json:"seconds"`
	BareSeconds     float64 `json:"bareSeconds"`
	IdealSeconds    float64 `json:"idealSeconds"`
	RequestsPerNode float64 `json:"requestsPerNode"`
	CPUSeconds      float64 `json:"cpuSeconds"`
	PeakRSSMiB      float64 `json:"peakRSSMiB"`
}

// print writes a table for people, and in its last line the same for programs.
func (r *result) print(out io.Writer, o *options) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	perNode := func(n int) float64 { return float64(n) / float64(o.nodes) }
	took := func(what string, d time.Duration) {
		fmt.Fprintf(w, "%s\t%.1f s\t%.1f nodes/s\t%.2f× bare\t\n", what, d.Seconds(), float64(o.nodes)/d.Seconds(), d.Seconds()/r.bare.Seconds())
	}
	fmt.Fprintf(w, "\n%d nodes, %d at once, pods of %g s\n\n", o.nodes, o.concurrency, o.podSeconds)
	took("ideal", o.ideal())
	took("bare loop", r.bare)
	took("rollout", r.took)
	fmt.Fprintf(w, "operator's CPU\t%.1f s\t%.1f ms/node\t\n", r.cpu.Seconds(), r.cpu.Seconds()*1000/float64(o.nodes))
	fmt.Fprintf(w, "operator's peak RSS\t%.1f MiB\t\n\n", mebibytes(r.peak))

	fmt.Fprint(w, "operator's requests\tall\tper node\trefused\t\n")
	kinds := slices.SortedFunc(maps.Keys(r.requests.rollout), func(a, b request) int {
		return cmp.Or(-cmp.Compare(r.requests.rollout[a].all, r.requests.rollout[b].all), cmp.Compare(a.verb+a.resource, b.verb+b.resource))
	})
	line := func(what string, c count) {
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%d\t\n", what, c.all, perNode(c.all), c.refused)
	}
	for _, k := range kinds {
		line(k.verb+" "+k.resource, r.requests.rollout[k])
	}
	line("total", r.requests.total())
	fmt.Fprintf(w, "\nbesides: to start %d, watches begun %d, leases %d\n", r.requests.start, r.requests.watches, r.requests.leases)
	if err := w.Flush(); err != nil {
		return err
	}
	text, err := json.Marshal(summary{
		Nodes:           o.nodes,
		Concurrency:     o.concurrency,
		PodSeconds:      o.podSeconds,
		Seconds:         round(r.took.Seconds()),
		BareSeconds:     round(r.bare.Seconds()),
		IdealSeconds:    round(o.ideal().Seconds()),
		RequestsPerNode: round(perNode(r.requests.total().all)),
		CPUSeconds:      round(r.cpu.Seconds()),
		PeakRSSMiB:      round(mebibytes(r.peak)),
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
