// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"moult.dev/moult/internal/cli/eds/table"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
)

// byName is the format of output that has only names.
const byName = "name"

// formats of output.
var formats = []string{text.Wide, text.JSON, text.YAML, byName}

// row is a line of a table, and the object that it is about.
type row struct {
	namespace, name string
	// cells stand before the age, and wide ones after it with -o wide.
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
	out    io.Writer
	output *text.Output
	kind   *target.Kind
	table  *table.Table
	// shown are the rows that a watch has written, by their keys.
	shown map[string]row
}

func newPrinter(out io.Writer, output *text.Output, of columns) *printer {
	all := append(slices.Clone(of.cells), "Age")
	if output.String() == text.Wide {
		all = append(all, of.wide...)
	}
	return &printer{out: out, output: output, kind: of.kind, table: table.New(out, all...), shown: map[string]row{}}
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
	var fresh []row
	there := map[string]row{}
	for _, r := range rows {
		key := r.namespace + "/" + r.name
		before, known := p.shown[key]
		if r.unlisted && !known {
			continue
		}
		if !known || !p.same(before, r) {
			fresh = append(fresh, r)
		}
		if !r.unlisted {
			there[key] = r
		}
	}
	p.shown = there
	if !p.output.Structured() {
		return p.lines(fresh, now)
	}
	for _, r := range fresh {
		if p.output.String() == text.YAML {
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
	return slices.Equal(a.cells, b.cells) && (p.output.String() != text.Wide || slices.Equal(a.wide, b.wide))
}

// lines writes the rows for people.
func (p *printer) lines(rows []row, now time.Time) error {
	if p.output.String() == byName {
		for _, r := range rows {
			fmt.Fprintln(p.out, p.kind.String(r.name))
		}
		return nil
	}
	var lines [][]string
	for _, r := range rows {
		line := append(slices.Clone(r.cells), table.Age(now.Sub(r.created)))
		if p.output.String() == text.Wide {
			line = append(line, r.wide...)
		}
		lines = append(lines, line)
	}
	return p.table.Write(lines...)
}
