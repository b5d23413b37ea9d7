// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// row is a line of a table, and the object that it is about.
type row struct {
	namespace, name string
	// cells come before the age, and wide ones after it with -o wide.
	cells, wide []string
	created     time.Time
	// content is the object for programs.
	content any
	// unlisted is true for one that is shown only after it was listed before.
	unlisted bool
}

// columns of a table: those before the age, and with -o wide those after it.
type columns struct {
	kind        *source.Kind
	cells, wide []string
}

// listing is one call of a verb that shows rows, once or, with --watch, when they change.
type listing struct {
	*command
	columns columns
	output  flags.Output
	watch   bool
	// selected are the pods that are shown.
	selected string
	// single is true where programs get one object as it is.
	single bool

	table  *tabwriter.Writer
	headed bool
	// shown are the rows that a watch has written, by their keys.
	shown map[string]row
}

func (s *listing) addFlags(cmd *cobra.Command, watch bool) {
	s.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
	if watch {
		cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "Go on to show what changes, until Ctrl-C.")
	}
}

// one completes a verb that shows what belongs to one ExtendedDaemonSet.
func (s *listing) one(
	cmd *cobra.Command, watch bool, run func(context.Context, *source.Source, *edsv1.ExtendedDaemonSet) error,
) *cobra.Command {
	s.addFlags(cmd, watch)
	return s.command.one(cmd, func(ctx context.Context, src *source.Source, name string) error {
		eds, err := source.GetAs[edsv1.ExtendedDaemonSet](ctx, src, source.DaemonSet, name)
		if err != nil {
			return err
		}
		return run(ctx, src, eds)
	})
}

// show writes the rows, and with --watch those that change, until the context ends.
func (s *listing) show(ctx context.Context, src *source.Source, read func() ([]row, error)) error {
	s.table = newTable(s.Out)
	if !s.watch {
		rows, err := read()
		if err != nil {
			return err
		}
		return s.print(slices.DeleteFunc(rows, func(r row) bool { return r.unlisted }))
	}
	ended := src.Follow().Run(ctx, s.clock, nil, func() (bool, error) {
		rows, err := read()
		if err != nil {
			return false, err
		}
		return false, s.printChanges(rows)
	})
	if ctx.Err() == nil {
		return ended
	}
	return nil
}

// print writes all rows. Programs get a single object as it is, and others as a list.
func (s *listing) print(rows []row) error {
	if !s.output.Structured() {
		return s.lines(rows)
	}
	if s.single && len(rows) == 1 {
		return s.output.Print(s.Out, rows[0].content)
	}
	items := []any{}
	for _, r := range rows {
		items = append(items, r.content)
	}
	return s.output.Print(s.Out, map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items,
	})
}

// printChanges writes the rows that differ from what was written of them before.
func (s *listing) printChanges(rows []row) error {
	var changed []row
	shown := map[string]row{}
	for _, r := range rows {
		key := r.namespace + "/" + r.name
		before, known := s.shown[key]
		if r.unlisted && !known {
			continue
		}
		if !known || !s.same(before, r) {
			changed = append(changed, r)
		}
		if !r.unlisted {
			shown[key] = r
		}
	}
	s.shown = shown
	if !s.output.Structured() {
		return s.lines(changed)
	}
	for _, r := range changed {
		if s.output.Value == flags.YAML {
			fmt.Fprintln(s.Out, "---")
		}
		if err := s.output.Print(s.Out, r.content); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two rows of an object look the same in this format.
func (s *listing) same(a, b row) bool {
	if s.output.Structured() {
		return reflect.DeepEqual(a.content, b.content)
	}
	return slices.Equal(a.cells, b.cells) && (!s.output.Wide() || slices.Equal(a.wide, b.wide))
}

// lines writes the rows for people.
func (s *listing) lines(rows []row) error {
	if s.output.Value == flags.Name {
		for _, r := range rows {
			fmt.Fprintln(s.Out, s.columns.kind.String(r.name))
		}
		return nil
	}
	if !s.headed {
		s.write(s.columns.cells, "Age", s.columns.wide, strings.ToUpper)
		s.headed = true
	}
	for _, r := range rows {
		s.write(r.cells, ageText(s.clock.Now().Sub(r.created)), r.wide, text.Clean)
	}
	return s.table.Flush()
}

func (s *listing) write(cells []string, age string, wide []string, change func(string) string) {
	cells = append(slices.Clone(cells), age)
	if s.output.Wide() {
		cells = append(cells, wide...)
	}
	for i := range cells {
		cells[i] = change(cells[i])
	}
	writeRow(s.table, cells...)
}

// newTable makes a table in the layout of ExtendedDaemonSet's plugin: two blanks before the first column and after each. Columns are as wide as
// what they have held so far.
func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.RememberWidths)
}

func writeRow(table *tabwriter.Writer, cells ...string) {
	fmt.Fprintln(table, "  "+strings.Join(cells, "\t")+"\t")
}

// units of an age, the largest first. A year has 365 days.
var units = []struct {
	name string
	of   time.Duration
}{
	{"year", 365 * 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute},
	{"second", time.Second}, {"millisecond", time.Millisecond}, {"microsecond", time.Microsecond},
}

// ageText is a duration in its largest unit, rounded down: "16 seconds", "1 day".
func ageText(d time.Duration) string {
	for _, u := range units {
		switch n := int64(d / u.of); n {
		case 0:
		case 1, -1:
			return fmt.Sprintf("%d %s", n, u.name)
		default:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return "0 seconds"
}
