// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"encoding/csv"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

func newHistory(c command) *cobra.Command {
	var output flags.Output
	cmd := help("history ROLLOUT",
		`Show the last runs of a rollout, the newest first: who created and approved each, when it ran, what failed, and what it waited for.
The status of a rollout keeps its last 10 runs. Times are in UTC.`,
		`  kubectl moult history k3s-agent -n system-upgrade
  kubectl moult history nr/bottlerocket -o yaml`)
	output.Add(cmd, flags.JSON, flags.YAML)
	return source.VerbOn(c.cluster, cmd, source.Rollouts, func(ctx context.Context, src *source.Source, o source.Object) error {
		s, err := c.read(ctx, src, o.Target())
		if err != nil {
			return err
		}
		runs := s.rollouts[0].History
		if output.Structured() {
			return output.PrintAs(c.Out, "RolloutHistory", map[string]any{
				"metadata": metadata{o.GetNamespace(), o.GetName()}, "rollout": o.Kind.Name, "history": append([]v1alpha1.Run{}, runs...),
			})
		}
		return c.printRows(append([][]string{view.HistoryColumns}, view.HistoryRows(runs)...), "No run yet: no node has been outdated.")
	})
}

// Formats of a report, besides those for programs.
const (
	formatTable    = "table"
	formatCSV      = "csv"
	formatMarkdown = "markdown"
)

func newReport(c command) *cobra.Command {
	var output flags.Output
	since := model.Duration(30 * 24 * time.Hour)
	cmd := help("report",
		`Sum up all rollouts: updates by month, how long they took, how many had failures, and how many nodes have which version now.
A rollout keeps its last 10 runs: of one that runs more often, older runs are missing.`,
		`  kubectl moult report -A --since 90d
  kubectl moult report -A -o markdown`)
	cmd.Flags().Var(&since, "since", "Count the runs that ended in this time, such as 30d or 12h.")
	source.AddAllNamespaces(cmd)
	output.Add(cmd, formatTable, flags.JSON, flags.YAML, formatCSV, formatMarkdown)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, named source.Target) error {
		s, err := c.read(ctx, src, named)
		if err != nil {
			return err
		}
		if len(s.rollouts) == 0 {
			fmt.Fprintln(c.ErrOut, src.Nothing("rollouts"))
		}
		return c.printReport(view.NewReport(s.rollouts, c.clock.Now().Add(-time.Duration(since))), &output)
	})
}

// printReport writes the tables of a report, with an empty line between them.
func (c *command) printReport(r view.Report, output *flags.Output) error {
	if output.Structured() {
		return output.PrintAs(c.Out, "RolloutReport", r)
	}
	for i, rows := range r.Tables() {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		var err error
		switch output.String() {
		case formatCSV:
			err = csv.NewWriter(c.Out).WriteAll(rows)
		case formatMarkdown:
			c.printMarkdown(rows)
		default:
			err = c.printTable(rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *command) printMarkdown(rows [][]string) {
	for i, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(c.Out, "| %s ", strings.ReplaceAll(text.Clean(cell), "|", `\|`))
		}
		fmt.Fprintln(c.Out, "|")
		if i == 0 {
			fmt.Fprintln(c.Out, strings.Repeat("|---", len(row))+"|")
		}
	}
}
