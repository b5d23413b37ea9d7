// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

func TestFrame(t *testing.T) {
	both := []view.Rollout{agents(12, 9), servers()}
	for name, tc := range map[string]struct {
		rollouts []view.Rollout
		budgets  []view.Budget
		all      bool
		width    int
		colour   bool
	}{
		"once":          {rollouts: both},
		"wide":          {rollouts: []view.Rollout{agents(3, 3), servers()}, all: true},
		"colour":        {rollouts: both, width: 80, colour: true},
		"strategy":      {rollouts: steered(), budgets: budgets()},
		"strategy-wide": {rollouts: steered()[:1], budgets: budgets(), all: true},
		"states": {rollouts: []view.Rollout{
			{Kind: "Plan", Namespace: "a", Name: "pending", State: view.Pending, Message: "no controller has looked at it: does one run, for its kind and namespace?"},
			{
				Kind: "Plan", Namespace: "a", Name: "waiting", Version: "v2", State: view.Waiting, Since: ago(time.Hour), Message: "current time is not within configured window",
				Nodes:  []view.Node{{Node: "n", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonOutsideWindow, Message: "current time is not within configured window, it opens at 2026-11-21T22:00:00Z"}},
				Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1},
			},
			{Kind: "Plan", Namespace: "a", Name: "stalled", State: view.Stalled, Since: ago(time.Minute), Message: "spec.window is invalid, invalid weekday: someday"},
			{Kind: "Plan", Namespace: "a", Name: "empty", Version: "v2", State: view.Complete, Since: ago(time.Minute)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			drawn := frame(&shown{rollouts: tc.rollouts, budgets: tc.budgets}, now, tc.all).Text(tc.width, tc.colour)
			golden(t, "status/"+name, drawn)
		})
	}
}

func TestMessagesCannotMoveTheCursor(t *testing.T) {
	if got := string(text.Lines{{text.Plain.Of("a\x1b[2J\nb\rc")}}.Text(0, false)); got != "a [2J b c\n" {
		t.Errorf("%q", got)
	}
}

// TestLive paints frames of different heights and checks what a terminal shows at last.
func TestLive(t *testing.T) {
	var out bytes.Buffer
	width, height := 100, 24
	l := &live{out: &out, size: func() (int, int) { return width, height }}
	l.show(&shown{}, "No rollouts in any namespace.", now)
	l.show(&shown{rollouts: []view.Rollout{agents(12, 9), servers()}}, "", now)
	l.show(&shown{rollouts: []view.Rollout{servers()}}, "connection refused", now)
	l.show(&shown{rollouts: []view.Rollout{agents(2, 1)}}, "", now)
	l.close()
	golden(t, "status/"+"live", []byte(emulate(out.String())))
	if !strings.HasSuffix(out.String(), showCursor) || strings.Count(out.String(), hideCursor) != 1 {
		t.Error("the cursor is not shown again")
	}
}

// TestLiveFits draws on small terminals: what does not fit is counted, and no line is too wide.
func TestLiveFits(t *testing.T) {
	s := &shown{rollouts: []view.Rollout{agents(12, 9), servers()}, budgets: budgets()}
	all := len(frame(s, now, false))
	for height := 1; height <= all+4; height++ {
		var out bytes.Buffer
		const width = 60
		l := &live{out: &out, size: func() (int, int) { return width, height }}
		l.show(s, "connection refused", now)
		rows := strings.Split(strings.TrimSuffix(emulate(out.String()), "\n"), "\n")
		if most := max(height-2, smallHeight+1); len(rows) > most {
			t.Errorf("%d lines in a height of %d:\n%s", len(rows), height, strings.Join(rows, "\n"))
		}
		for _, row := range rows {
			if n := utf8.RuneCountInString(row); n >= width {
				t.Errorf("%d columns in a width of %d: %s", n, width, row)
			}
		}
		if hidden := all + 2 - len(rows); hidden > 1 && rows[len(rows)-2] != fmt.Sprintf("… and %d more lines", hidden) {
			t.Errorf("%d lines are hidden:\n%s", hidden, strings.Join(rows, "\n"))
		}
	}
}

// emulate is the little of a terminal that the live view needs.
func emulate(text string) string {
	var rows []string
	row, column := 0, 0
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexAny(rest, "ABCDEFGHJKhlm")
			var n int
			_, _ = fmt.Sscanf(rest, "%d", &n)
			switch rest[end] {
			case 'A':
				row -= n
			case 'J':
				rows = rows[:min(len(rows), row)]
			case 'K':
				if row < len(rows) {
					rows[row] = string([]rune(rows[row])[:column])
				}
			}
			text = rest[end+1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		for len(rows) <= row {
			rows = append(rows, "")
		}
		switch r {
		case '\n':
			row, column = row+1, 0
		case '\r':
			column = 0
		default:
			line := append([]rune(rows[row]), make([]rune, max(0, column+1-utf8.RuneCountInString(rows[row])))...)
			line[column] = r
			rows[row], column = string(line), column+1
		}
	}
	return strings.Join(rows, "\n") + "\n"
}

func TestJournal(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(&out, now, false)
	r := agents(12, 9)
	j.show(&shown{rollouts: []view.Rollout{r, servers()}}, "", now)
	j.show(&shown{rollouts: []view.Rollout{r, servers()}}, "", now.Add(time.Second))

	r.Nodes[1] = view.Node{Node: "machine-2", State: v1alpha1.UnitUpdated}
	r.Nodes[2].Phase, r.Nodes[2].Message = v1alpha1.PhaseChanging, ""
	r.Nodes[4] = view.Node{Node: "sim-0100", State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseClaimed, Started: ago(-2 * time.Second)}
	j.show(&shown{rollouts: []view.Rollout{r, servers()}}, "", now.Add(2*time.Second))
	j.show(&shown{rollouts: []view.Rollout{r, servers()}}, "connection refused", now.Add(3*time.Second))

	r = view.Rollout{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Version: r.Version, State: view.Complete, Counts: v1alpha1.UnitCounts{Total: 1, Updated: 1}}
	j.show(&shown{rollouts: []view.Rollout{r, servers()}}, "", now.Add(4*time.Second))
	golden(t, "status/"+"journal", out.Bytes())
}

// TestJournalOfAll says of each node why it waits, and of budgets who uses them up.
func TestJournalOfAll(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(&out, now, true)
	s := &shown{rollouts: []view.Rollout{agents(2, 1)}, budgets: budgets()}
	j.show(s, "", now)
	s.rollouts[0].Nodes[4].Message = "another message"
	j.show(s, "", now.Add(time.Second))
	s.rollouts[0].Nodes[4].Reason = v1alpha1.ReasonBudgetExhausted
	s.budgets[0].Holders[0].Node = "n4"
	j.show(s, "", now.Add(2*time.Second))
	golden(t, "status/"+"journal-wide", out.Bytes())
}

func TestJournalOfSteering(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(&out, now, false)
	s := &shown{rollouts: steered()[:2], budgets: budgets()}
	j.show(s, "", now)
	j.show(s, "", now.Add(time.Second))
	s.rollouts[0].Paused = false
	s.rollouts[1].Wave.State = v1alpha1.WaveProgressing
	s.budgets[1].BlockedBy, s.budgets[1].State, s.budgets[1].Allowed = nil, view.BudgetOpen, nil
	j.show(s, "", now.Add(2*time.Second))
	golden(t, "status/"+"journal-strategy", out.Bytes())
}
