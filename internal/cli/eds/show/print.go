// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/target"
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
	kind        *target.Kind
	cells, wide []string
}

// printer writes rows in one of the formats.
type printer struct {
	out     io.Writer
	output  *flags.Output
	columns columns
	table   *tabwriter.Writer
	headed  bool
	// shown are the rows that a watch has written, by their keys.
	shown map[string]row
}

func newPrinter(out io.Writer, output *flags.Output, of columns) *printer {
	return &printer{out: out, output: output, columns: of, table: newTable(out), shown: map[string]row{}}
}

// print writes all rows. Programs get a single object as it is, and others as a list.
func (p *printer) print(rows []row, single bool, now time.Time) error {
	if !p.output.Structured() {
		return p.lines(rows, now)
	}
	if single && len(rows) == 1 {
		return p.output.Print(p.out, rows[0].content)
	}
	items := []any{}
	for _, r := range rows {
		items = append(items, r.content)
	}
	return p.output.Print(p.out, map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items,
	})
}

// changes writes the rows that differ from what was written of them before.
func (p *printer) changes(rows []row, now time.Time) error {
	var changed []row
	shown := map[string]row{}
	for _, r := range rows {
		key := r.namespace + "/" + r.name
		before, known := p.shown[key]
		if r.unlisted && !known {
			continue
		}
		if !known || !p.same(before, r) {
			changed = append(changed, r)
		}
		if !r.unlisted {
			shown[key] = r
		}
	}
	p.shown = shown
	if !p.output.Structured() {
		return p.lines(changed, now)
	}
	for _, r := range changed {
		if p.output.Value == flags.YAML {
			fmt.Fprintln(p.out, "---")
		}
		if err := p.output.Print(p.out, r.content); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two rows of an object look the same in this format.
func (p *printer) same(a, b row) bool {
	if p.output.Structured() {
		return reflect.DeepEqual(a.content, b.content)
	}
	return slices.Equal(a.cells, b.cells) && (!p.output.Wide() || slices.Equal(a.wide, b.wide))
}

// lines writes the rows for people.
func (p *printer) lines(rows []row, now time.Time) error {
	if p.output.Value == flags.Name {
		for _, r := range rows {
			fmt.Fprintln(p.out, p.columns.kind.String(r.name))
		}
		return nil
	}
	if !p.headed {
		p.write(p.columns.cells, "Age", p.columns.wide, strings.ToUpper)
		p.headed = true
	}
	for _, r := range rows {
		p.write(r.cells, ageText(now.Sub(r.created)), r.wide, text.Clean)
	}
	return p.table.Flush()
}

func (p *printer) write(cells []string, age string, wide []string, change func(string) string) {
	cells = append(slices.Clone(cells), age)
	if p.output.Wide() {
		cells = append(cells, wide...)
	}
	for i := range cells {
		cells[i] = change(cells[i])
	}
	writeRow(p.table, cells...)
}

// newTable makes a table in the layout of ExtendedDaemonSet's plugin: two blanks before the first column and after each. Columns are as wide as
// what they have held so far.
func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.RememberWidths)
}

func writeRow(table *tabwriter.Writer, cells ...string) {
	fmt.Fprintln(table, "  "+strings.Join(cells, "\t")+"\t")
}
