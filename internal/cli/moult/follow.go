// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// tick is how often the durations on the screen are updated.
const tick = time.Second

// painter shows rollouts again and again.
type painter interface {
	// show shows the rollouts now. note says why they may be out of date.
	show(s *shown, note string, now time.Time)
	// close leaves the terminal as it was.
	close()
}

// newPainter paints in place on a terminal, and writes lines elsewhere.
func (c *command) newPainter(now time.Time, wide bool) painter {
	if t := c.terminal(); t.Live {
		return &live{out: c.Out, size: t.Size, colour: t.Colour, all: wide}
	}
	return newJournal(c.Out, now, wide)
}

func follow(ctx context.Context, clk clock.WithTicker, src *source.Source, named source.Target, p painter, untilComplete bool) error {
	defer p.close()
	watches := src.Follow()
	ticker := clk.NewTicker(tick)
	defer ticker.Stop()
	var last *shown
	err := watches.Run(ctx, clk, ticker.C(), func() (bool, error) {
		now := clk.Now()
		src.Notes = nil
		s, err := readShown(ctx, src, named, now)
		trouble := watches.Trouble()
		switch {
		case err == nil:
			if last = s; len(s.rollouts) == 0 {
				src.Notes = append(src.Notes, src.Nothing("rollouts"))
			}
		case last == nil || trouble == nil:
			return false, err
		}
		if trouble != nil {
			src.Notes = append(src.Notes, "What is shown may be out of date: "+trouble.Error())
		}
		p.show(last, strings.Join(src.Notes, " "), now)
		if untilComplete && err == nil {
			return isOver(s.rollouts)
		}
		return false, nil
	})
	switch {
	case ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)):
		return err
	case untilComplete:
		return fmt.Errorf("not all rollouts are complete, %w", err)
	}
	return nil
}

// isOver reports whether all rollouts are complete, and fails when one is stalled.
func isOver(rollouts []view.Rollout) (bool, error) {
	for _, r := range rollouts {
		if r.State == view.Stalled {
			return true, exitError{fmt.Errorf("%s %s is stalled: %s", r.Kind, r.FullName(), text.Clean(r.Message)), exitStalled}
		}
	}
	isOpen := func(r view.Rollout) bool { return r.State != view.Complete }
	return len(rollouts) > 0 && !slices.ContainsFunc(rollouts, isOpen), nil
}

// ANSI sequences.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseToEnd = "\x1b[K" // of the line
	eraseBelow = "\x1b[J"
	upTo       = "\x1b[%dA\r"
)

// smallHeight is the minimum height of the view, in lines.
const smallHeight = 4

// live repaints a terminal in place, below the existing output.
type live struct {
	out    io.Writer
	size   func() (width, height int)
	colour bool
	// all shows a line for each node.
	all bool
	// rows is the height of the last frame.
	rows int
}

func (l *live) close() {
	if l.rows > 0 {
		_, _ = io.WriteString(l.out, showCursor)
	}
}

func (l *live) show(s *shown, note string, now time.Time) {
	width, height := l.size()
	f := frame(s, now, l.all)
	var bottom text.Lines
	bottom.AddWhen(note != "", text.Red.Of(note))
	// The line of the cursor stays free, and so does one line of the earlier output.
	most := max(height-2-len(bottom), smallHeight)
	if hidden := len(f) - most + 1; hidden > 1 {
		f = f[:most-1]
		f.Add(text.Dim.Format("… and %d more lines", hidden))
	}
	// On some terminals a line of full width wraps.
	f, width = append(f, bottom...), width-1
	var out bytes.Buffer
	if l.rows > 0 {
		fmt.Fprintf(&out, upTo, l.rows)
	} else {
		out.WriteString(hideCursor)
	}
	out.Write(bytes.ReplaceAll(f.Text(width, l.colour), []byte("\n"), []byte(eraseToEnd+"\n")))
	l.rows = len(f)
	out.WriteString(eraseBelow)
	_, _ = l.out.Write(out.Bytes()) // The terminal may be gone.
}

// journal writes each change as a line, for logs.
type journal struct {
	out   io.Writer
	began time.Time
	// wide adds each node's reason to wait, and the unavailable nodes of budgets.
	wide bool
	// written is the last news of each subject.
	written map[string]string
}

func newJournal(out io.Writer, now time.Time, wide bool) *journal {
	return &journal{out: out, began: now, wide: wide, written: map[string]string{}}
}

func (j *journal) show(s *shown, note string, now time.Time) {
	j.write(now, "note", note, note)
	for i := range s.rollouts {
		j.rollout(&s.rollouts[i], now)
	}
	for _, b := range s.budgets {
		parts := []string{string(b.State) + ", " + b.Line()}
		for _, block := range b.BlockedBy {
			parts = append(parts, blockText(block, time.Time{}))
		}
		if j.wide {
			for _, h := range b.Holders {
				parts = append(parts, h.Node+" "+string(h.Cause))
			}
		}
		said := strings.Join(parts, "; ")
		j.write(now, "budget "+b.Name, said, "budget "+b.Name, said)
	}
}

func (*journal) close() {}

// write writes the parts as a line, if news differs from the subject's last.
func (j *journal) write(now time.Time, subject, news string, parts ...string) {
	last := j.written[subject]
	if j.written[subject] = news; news != "" && news != last {
		fmt.Fprintf(j.out, "%6.1fs  %s\n", now.Sub(j.began).Seconds(), text.Clean(strings.Join(parts, "  ")))
	}
}

func (j *journal) rollout(r *view.Rollout, now time.Time) {
	name := strings.ToLower(r.Kind) + " " + r.FullName()
	for line := range strings.Lines(string(drawSteering(r, time.Time{}).Text(0, false))) {
		said := strings.TrimSpace(line)
		topic, _, _ := strings.Cut(said, " ")
		j.write(now, name+"/"+topic, said, name, said)
	}
	for _, n := range view.Needs([]view.Rollout{*r}, nil) {
		// The other lines say the rest.
		if topic, _, _ := strings.Cut(n.Message, " "); topic == "halted:" || topic == "canary" {
			j.write(now, name+"/"+topic, n.Message, name, n.Message)
		}
	}
	var waits []string
	for _, n := range r.Nodes {
		subject, said := name+" "+n.Node, j.node(&n)
		if _, known := j.written[subject]; !known && n.State == v1alpha1.UnitUpdated {
			j.written[subject] = said // Record, don't write.
		}
		j.write(now, subject, said, name, n.Node, said)
		if n.State == v1alpha1.UnitOutdated && n.Reason != "" && !slices.Contains(waits, string(n.Reason)) {
			waits = append(waits, string(n.Reason))
		}
	}
	if said := strings.Join(waits, ", "); !j.wide {
		j.write(now, name+"/waits", said, name, "nodes wait: "+said)
	}
	j.write(now, name, r.Version+" "+string(r.State)+" "+r.Message, name, headline(r))
}

// node says what a node does. Only a wide journal shows the reason to wait, without its message, which changes too often.
func (j *journal) node(n *view.Node) string {
	switch {
	case n.InTurn():
		return text.JoinNonEmpty(": ", string(n.Phase), n.Message)
	case n.State == v1alpha1.UnitOutdated && j.wide && n.Reason != "":
		return "waits: " + string(n.Reason)
	case n.State == v1alpha1.UnitOutdated:
		return ""
	case n.State == v1alpha1.UnitUpdated:
		return string(n.State)
	}
	return text.JoinNonEmpty(": ", string(n.State), string(n.Reason), n.Message)
}

func headline(r *view.Rollout) string {
	counts := text.When(r.Counts.Total > 0 && r.State != view.Pending, ", %d of %d updated", r.Counts.Updated, r.Counts.Total)
	return strings.TrimSpace(r.Version+" "+string(r.State)) + counts + colon(r.Message)
}
