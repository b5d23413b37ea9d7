// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// row is one object in a table.
type row struct {
	object metav1.Object
	// cells come before the age, and wide ones after it with -o wide.
	cells, wide []string
	// unlisted rows are shown only by a watch, as the last change of an object that was listed before.
	unlisted bool
}

// columns are the headers of a table: those before the age, and with -o wide those after it.
type columns struct {
	cells, wide []string
}

// listing is one call of a verb that shows rows, once, or with --watch whenever they change.
type listing struct {
	*command
	columns columns
	output  flags.Output
	watch   bool
	// selected is --select of the verb pods.
	selected flags.Choice
	// single is true if one object is named: -o json and yaml then print it without a list around it.
	single bool

	table *tabwriter.Writer
	// shown is what a watch has written last of each object.
	shown map[string]string
}

func (s *listing) addFlags(cmd *cobra.Command, watch bool) {
	s.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
	if watch {
		cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "Go on to show what changes, until Ctrl-C.")
	}
}

// one completes a verb that shows objects of one ExtendedDaemonSet.
func (s *listing) one(
	cmd *cobra.Command, watch bool, run func(context.Context, *source.Source, *edsv1.ExtendedDaemonSet) error,
) *cobra.Command {
	s.addFlags(cmd, watch)
	return s.command.one(cmd, run)
}

// show writes the rows, and with --watch those that change, until the context ends.
func (s *listing) show(ctx context.Context, src *source.Source, read func() ([]row, error)) error {
	s.table, s.shown = newTable(s.Out), map[string]string{}
	s.writeLine(s.columns.cells, "Age", s.columns.wide, strings.ToUpper)
	look := func() (done bool, err error) {
		rows, err := read()
		if err != nil {
			return false, err
		}
		return false, s.print(s.takeChanged(rows))
	}
	if !s.watch {
		_, err := look()
		return err
	}
	if err := src.Follow().Run(ctx, s.clock, nil, look); ctx.Err() == nil {
		return err
	}
	return nil // A person ended the watch.
}

// takeChanged returns the rows that differ from what was shown of them before.
func (s *listing) takeChanged(rows []row) []row {
	var changed []row
	for _, r := range rows {
		key := r.object.GetNamespace() + "/" + r.object.GetName()
		// The cells of a pod also show its node.
		looks := strings.Join(append([]string{r.object.GetResourceVersion()}, r.cells...), "\t")
		before, known := s.shown[key]
		if looks == before || r.unlisted && !known {
			continue
		}
		changed = append(changed, r)
		s.shown[key] = looks
		if r.unlisted {
			delete(s.shown, key)
		}
	}
	return changed
}

// print writes rows in the chosen format. Without --watch, formats for programs print one list, or the object that was named.
func (s *listing) print(rows []row) error {
	switch {
	case !s.output.Structured():
		return s.printTable(rows)
	case !s.watch && !s.single:
		objects := make([]metav1.Object, len(rows))
		for i, r := range rows {
			objects[i] = r.object
		}
		return s.output.Print(s.Out, flags.List(objects))
	}
	for _, r := range rows {
		if err := s.output.Print(s.Out, r.object); err != nil {
			return err
		}
	}
	return nil
}

// printTable writes rows as a table, the first time after its header.
func (s *listing) printTable(rows []row) error {
	for _, r := range rows {
		s.writeLine(r.cells, ageText(s.clock.Now().Sub(r.object.GetCreationTimestamp().Time)), r.wide, text.Clean)
	}
	return s.table.Flush()
}

func (s *listing) writeLine(cells []string, age string, wide []string, change func(string) string) {
	cells = append(slices.Clone(cells), age)
	if s.output.Wide() {
		cells = append(cells, wide...)
	}
	for i := range cells {
		cells[i] = change(cells[i])
	}
	writeRow(s.table, cells...)
}

// newTable returns a table in the layout of ExtendedDaemonSet's plugin: two blanks before the first column and after each. A column is as
// wide as its widest cell so far.
func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.RememberWidths)
}

func writeRow(table *tabwriter.Writer, cells ...string) {
	fmt.Fprintln(table, "  "+strings.Join(cells, "\t")+"\t")
}

// units are the units of an age, the largest first. A year has 365 days.
var units = []struct {
	name string
	of   time.Duration
}{
	{"year", 365 * 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute},
	{"second", time.Second}, {"millisecond", time.Millisecond}, {"microsecond", time.Microsecond},
}

// ageText returns a duration in its largest unit, rounded down: "16 seconds", "1 day".
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
