// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

func newList(c command) *cobra.Command {
	var output flags.Output
	cmd := help("list",
		`List rollouts of all kinds, one a line: state, how many nodes are updated, and why the next node waits.
NAME is how other commands name the rollout. -o wide adds the message.`,
		`  kubectl moult list -A
  kubectl moult list -A -o jsonpath='{range .items[?(@.state=="Stalled")]}{.metadata.name}{"\n"}{end}'`)
	source.AddAllNamespaces(cmd)
	output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, named source.Target) error {
		s, err := c.read(ctx, src, named)
		if err != nil {
			return err
		}
		if output.Structured() {
			return output.Print(c.Out, flags.List(newStatusObject(s).Items))
		}
		return c.printRows(listRows(s.rollouts, src.Namespace == "", output.Wide()), src.Nothing("rollouts"))
	})
}

// listRows are the rows of list. With namespaces, they begin with the rollout's.
func listRows(rollouts []view.Rollout, namespaces, wide bool) [][]string {
	rows := [][]string{{"NAMESPACE", "NAME", "VERSION", "STATE", "UPDATED", "REASON", "MESSAGE"}}
	for _, r := range rollouts {
		updated := fmt.Sprintf("%d/%d", r.Counts.Updated, r.Counts.Total)
		rows = append(rows, []string{r.Namespace, source.KindOf(r.Kind).Short(r.Name), r.Version, string(r.State), updated, string(r.Reason()), r.Message})
	}
	for i, row := range rows {
		if !wide {
			row = row[:len(row)-1]
		}
		if !namespaces {
			row = row[1:]
		}
		rows[i] = row
	}
	return rows
}
