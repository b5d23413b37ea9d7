// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// checked is one measurement of a file of limits.
type checked struct {
	// Args are those of this program.
	Args string `json:"args"`
	// Limits are by subject and stage, as in "plain, rollout".
	Limits map[string]limits `json:"limits"`
}

// limits are the most that the figures of a stage may be. 0 is no limit.
type limits struct {
	TimesBare float64 `json:"timesBare"`
	// Requests are for each unit, by program.
	Requests map[string]float64 `json:"requests"`
	// CPUMilliseconds are for each unit, of the program that carries out the rollout, and so is PeakRSSMiB from its start.
	CPUMilliseconds float64 `json:"cpuMilliseconds"`
	PeakRSSMiB      float64 `json:"peakRSSMiB"`
}

// checkLimits carries out the measurements of a file, prints each figure that has a limit beside it, and returns an error for those beyond.
func checkLimits(ctx context.Context, path string, out io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all []checked
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return fmt.Errorf("reading %s, %w", path, err)
	}
	var problems []error
	sheet := newSheet(out)
	sheet.line(0, "kind", "subject, stage", "figure", "is", "limit")
	for _, c := range all {
		o, err := parse(strings.Fields(c.Args))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		reports, err := run(ctx, o, out)
		problems = append(problems, err)
		for _, r := range reports {
			problems = append(problems, r.checkAgainst(c.Limits, sheet))
		}
	}
	fmt.Fprintln(out)
	return errors.Join(append(problems, sheet.Flush())...)
}

// checkAgainst writes a line for each figure that has a limit, and returns an error for those beyond it.
func (r *report) checkAgainst(all map[string]limits, out sheet) error {
	var problems []error
	found := 0
	for _, result := range r.Subjects {
		for _, p := range result.Stages {
			stage := result.Name + ", " + p.Name
			l, limited := all[stage]
			if !limited {
				continue
			}
			found++
			check := func(figure string, is, limit float64) {
				if limit == 0 {
					return
				}
				out.line(2, r.Kind, stage, figure, is, limit)
				if is > limit {
					problems = append(problems, fmt.Errorf("%s, %s: %s is %.2f, and may be %.2f", r.Kind, stage, figure, is, limit))
				}
			}
			check("× bare", p.TimesBare, l.TimesBare)
			for i := range p.Programs {
				u := &p.Programs[i]
				check("requests/unit of "+u.Program, float64(u.All)/float64(p.Units), l.Requests[u.Program])
			}
			check("CPU ms/unit", p.Programs[0].CPUSeconds*1000/float64(p.Units), l.CPUMilliseconds)
			check("peak RSS in MiB", result.PeakRSS, l.PeakRSSMiB)
		}
	}
	if found != len(all) {
		problems = append(problems, fmt.Errorf("%s: %d of %d limited stages were measured", r.Kind, found, len(all)))
	}
	return errors.Join(problems...)
}
