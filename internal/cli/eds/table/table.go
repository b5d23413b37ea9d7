// SPDX-License-Identifier: Apache-2.0

// Package table writes the tables of `kubectl eds` as those are who read them: without lines, left aligned, two blanks before
// the first column and after each, headers in capitals. A cell is never wrapped, so that a row is a line.
package table

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"moult.dev/moult/internal/cli/text"
)

// Table is a table that is written row by row, or at once.
type Table struct {
	out    io.Writer
	header []string
	widths []int
	headed bool
}

// New makes a table with these columns.
func New(out io.Writer, columns ...string) *Table {
	t := &Table{out: out, widths: make([]int, len(columns))}
	for _, column := range columns {
		t.header = append(t.header, strings.ToUpper(column))
	}
	return t
}

// Write writes rows, and before the first of them, or where there are none, the header. Columns are as wide as what they have
// held so far.
func (t *Table) Write(rows ...[]string) error {
	if !t.headed {
		rows = append([][]string{t.header}, rows...)
		t.headed = true
	}
	for r, row := range rows {
		for i, cell := range row {
			rows[r][i] = text.Clean(cell)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var page bytes.Buffer
	for _, row := range rows {
		page.WriteString("  ")
		for i, cell := range row {
			page.WriteString(cell)
			page.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+2))
		}
		page.WriteByte('\n')
	}
	_, err := t.out.Write(page.Bytes())
	return err
}
