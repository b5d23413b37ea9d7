// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

// summary is what the last line says of one number of nodes.
type summary struct {
	Nodes       int     `json:"nodes"`
	Concurrency int     `json:"concurrency"`
	PodSeconds  float64 `json:"podSeconds"`
	BareSeconds float64 `json:"bareSeconds,omitempty"`
	figures
	Guarded *guardedSummary `json:"guarded,omitempty"`
}

// figures of a rollout.
type figures struct {
	Seconds          float64 `json:"seconds"`
	IdealSeconds     float64 `json:"idealSeconds"`
	RequestsPerNode  float64 `json:"requestsPerNode"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	StartCPUSeconds  float64 `json:"startCPUSeconds"`
	PeakRSSMiB       float64 `json:"peakRSSMiB"`
	NodesUnavailable int     `json:"nodesUnavailable"`
}

// guardedSummary is what it says of the guarded rollout.
type guardedSummary struct {
	figures
	// TimesPlain is how many times as long it took as the plain one.
	TimesPlain float64 `json:"timesPlain"`
	First      bool    `json:"first"`
}

func (m *measured) summary() summary {
	of := func(r *result) figures {
		return figures{
			Seconds:          seconds(r.took),
			IdealSeconds:     seconds(m.options.ideal(r.subject.parts...)),
			RequestsPerNode:  round(r.requestsPerNode(m.size)),
			CPUSeconds:       seconds(r.cpu),
			StartCPUSeconds:  seconds(r.start),
			PeakRSSMiB:       round(mebibytes(r.peak)),
			NodesUnavailable: r.most,
		}
	}
	s := summary{
		Nodes:       m.size,
		Concurrency: m.options.concurrency,
		PodSeconds:  m.options.podSeconds,
		BareSeconds: seconds(m.bare),
		figures:     of(m.plainRollout),
	}
	if r := m.guardedRollout; r != nil {
		s.Guarded = &guardedSummary{figures: of(r), TimesPlain: round(r.took.Seconds() / m.plainRollout.took.Seconds()), First: m.options.guardedFirst}
	}
	return s
}

// printJSON writes one object, or a list of them, in one line.
func printJSON(out io.Writer, all []*measured, several bool) error {
	summaries := make([]summary, 0, len(all))
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

func seconds(d time.Duration) float64 { return round(d.Seconds()) }

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
