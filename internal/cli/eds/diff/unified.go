// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// around is how many lines are shown before and after those that differ.
const around = 3

// edit is a line of both texts (' '), of the first ('-') or of the second ('+').
type edit struct {
	kind byte
	line string
}

// unified shows in what two texts differ, line by line, as diff -u does.
func unified(a, b side) []byte {
	edits := edits(lines(a.text), lines(b.text))
	var out bytes.Buffer
	fmt.Fprintf(&out, "--- %s (active)\n+++ %s (canary)\n", a.name, b.name)
	lineA, lineB := 1, 1
	for i := 0; i < len(edits); {
		end := hunk(edits, i)
		if end == i {
			lineA, lineB, i = lineA+1, lineB+1, i+1
			continue
		}
		var countA, countB int
		for _, e := range edits[i:end] {
			if e.kind != '+' {
				countA++
			}
			if e.kind != '-' {
				countB++
			}
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n", lineA, countA, lineB, countB)
		for _, e := range edits[i:end] {
			fmt.Fprintf(&out, "%c%s\n", e.kind, e.line)
		}
		lineA, lineB, i = lineA+countA, lineB+countB, end
	}
	return out.Bytes()
}

// hunk is where the lines that are shown together end which begin at i; i where none do.
func hunk(edits []edit, i int) int {
	end := i
	for j := i; j < len(edits) && j <= max(i, end)+around; j++ {
		if edits[j].kind != ' ' {
			end = min(j+1+around, len(edits))
		}
	}
	return end
}

func lines(text []byte) []string {
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// edits makes one text of the other, with the fewest lines that differ.
func edits(a, b []string) []edit {
	// common[i][j] is how many lines a[i:] and b[j:] have in common.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i, lineA := range slices.Backward(a) {
		for j, lineB := range slices.Backward(b) {
			if lineA == lineB {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var all []edit
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			all = append(all, edit{'-', a[i]})
			i++
		default:
			all = append(all, edit{'+', b[j]})
			j++
		}
	}
	return all
}
