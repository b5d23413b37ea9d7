// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

func newList(c command) *cobra.Command {
	var output flags.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rollouts of all kinds, one a line",
		Long: `List Plans, ExtendedDaemonSets and NodeRollouts with their state, how many of their nodes are updated, and why the next node waits.
NAME is how other commands name the rollout. -o wide adds the message and the budgets.`,
		Example: `  kubectl moult list -A
  kubectl moult list -A -o jsonpath='{range .items[?(@.state=="Stalled")]}{.metadata.name}{"\n"}{end}'`,
		Args: cobra.NoArgs,
	}
	source.AddAllNamespaces(cmd)
	output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
	return source.Verb(c.cluster, cmd, nil, func(ctx context.Context, src *source.Source, named source.Target) error {
		s, err := readShown(ctx, src, named, c.clock.Now())
		if err != nil {
			return err
		}
		c.note(src)
		switch {
		case output.Structured():
			return output.Print(c.Out, flags.List(rolloutObjects(s.rollouts)))
		case len(s.rollouts) == 0:
			fmt.Fprintln(c.ErrOut, src.Nothing("rollouts"))
			return nil
		}
		return c.printTable(listRows(s.rollouts, src.Namespace == "", output.Wide()))
	})
}

// listRows are the rows of list. With namespaces, they begin with the rollout's.
func listRows(rollouts []view.Rollout, namespaces, wide bool) [][]string {
	rows := [][]string{{"NAMESPACE", "NAME", "VERSION", "STATE", "UPDATED", "REASON", "BUDGETS", "MESSAGE"}}
	for i := range rollouts {
		r := &rollouts[i]
		rows = append(rows, []string{
			r.Namespace, source.KindOf(r.Kind).Short(r.Name), r.Version, string(r.State), fmt.Sprintf("%d/%d", r.Counts.Updated, r.Counts.Total),
			string(r.Reason()), fmt.Sprint(len(r.Budgets)), r.Message,
		})
	}
	for i := range rows {
		if !wide {
			rows[i] = rows[i][:6]
		}
		if !namespaces {
			rows[i] = slices.Delete(rows[i], 0, 1)
		}
	}
	return rows
}
