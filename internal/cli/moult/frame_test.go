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

// crowded are budgets of which the first has more nodes that use it up than there is room for.
func crowded() []view.Budget {
	all := budgets()
	all[0].Holders = append(all[0].Holders, v1alpha1.BudgetHolder{Node: "n4", Cause: v1alpha1.CauseClaimed}, v1alpha1.BudgetHolder{Node: "n5", Cause: v1alpha1.CauseClaimed})
	return all
}

func TestFrame(t *testing.T) {
	both := []view.Rollout{agents(12, 9), servers()}
	for name, tc := range map[string]struct {
		rollouts []view.Rollout
		budgets  []view.Budget
		layout   layout
		width    int
		colour   bool
	}{
		"once":          {rollouts: both},
		"wide":          {rollouts: []view.Rollout{agents(3, 3), servers()}, layout: layout{all: true}},
		"live-large":    {rollouts: both, width: 120, layout: layout{height: 50}},
		"live-medium":   {rollouts: both, width: 100, layout: layout{height: 22}},
		"live-small":    {rollouts: both, width: 60, layout: layout{height: 11}},
		"live-tiny":     {rollouts: both, width: 30, layout: layout{height: 4}},
		"colour":        {rollouts: both, width: 80, colour: true},
		"strategy":      {rollouts: steered(), budgets: budgets()},
		"strategy-wide": {rollouts: steered()[:1], budgets: budgets(), layout: layout{all: true}},
		"live-budgets":  {rollouts: both, budgets: budgets(), width: 100, layout: layout{height: 16}},
		"live-wide":     {rollouts: []view.Rollout{servers()}, budgets: budgets(), width: 100, layout: layout{all: true, height: 16}},
		"live-wide-low": {rollouts: []view.Rollout{servers()}, budgets: crowded(), width: 100, layout: layout{all: true, height: 7}},
		"states": {rollouts: []view.Rollout{
			{Kind: "Plan", Namespace: "a", Name: "pending", State: view.Pending, Message: "no controller has looked at it: does one run, and for namespace a?"},
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
			f := frame(&shown{rollouts: tc.rollouts, budgets: tc.budgets}, now, tc.layout)
			if tc.layout.height > 0 && len(f) > tc.layout.height {
				t.Errorf("%d lines, want at most %d", len(f), tc.layout.height)
			}
			drawn := f.Text(tc.width, tc.colour)
			for l := range strings.Lines(string(drawn)) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); tc.width > 0 && !tc.colour && n > tc.width {
					t.Errorf("%d columns, want at most %d: %s", n, tc.width, l)
				}
			}
			golden(t, "status/"+name, drawn)
		})
	}
}

// TestFit draws in every height: no line is lost without being counted.
func TestFit(t *testing.T) {
	rollouts := []view.Rollout{agents(12, 9), servers()}
	all := len(frame(&shown{rollouts: rollouts}, now, layout{all: true}))
	for height := 1; height <= all+1; height++ {
		f := frame(&shown{rollouts: rollouts}, now, layout{height: height})
		if len(f) < min(height, all)-1 && height > 12 { // Two groups that are cut at once may leave a line free.
			t.Errorf("%d lines in a height of %d", len(f), height)
		}
		if len(f) > height {
			t.Errorf("%d lines in a height of %d", len(f), height)
		}
	}
}

func TestMessagesCannotMoveTheCursor(t *testing.T) {
	var out bytes.Buffer
	text.Line{text.Plain.Of("a\x1b[2J\nb\rc")}.Write(&out, 0, false)
	if got := out.String(); got != "a [2J b c" {
		t.Errorf("%q", got)
	}
}

// TestLive paints frames of different heights and checks what a terminal shows at last.
func TestLive(t *testing.T) {
	var out bytes.Buffer
	width, height := 100, 24
	l := newLive(&out, func() (int, int) { return width, height }, false, false)
	l.show(&shown{}, "", now)
	l.show(&shown{rollouts: []view.Rollout{agents(12, 9), servers()}}, "", now)
	l.show(&shown{rollouts: []view.Rollout{servers()}}, "connection refused", now)
	l.show(&shown{rollouts: []view.Rollout{agents(2, 1)}}, "", now)
	l.close()
	golden(t, "status/"+"live", []byte(emulate(out.String())))
	if wide := newLive(&out, nil, false, true); !wide.all || l.all {
		t.Errorf("it shows %v, and wide %v", l.all, wide.all)
	}
	if !strings.HasSuffix(out.String(), showCursor) || strings.Count(out.String(), hideCursor) != 1 {
		t.Error("the cursor is not shown again")
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
