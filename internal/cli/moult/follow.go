// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

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
			last = s
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
	complete := 0
	for i := range rollouts {
		r := &rollouts[i]
		if r.State == view.Stalled {
			return true, exitError{fmt.Errorf("%s %s is stalled: %s", r.Kind, r.FullName(), text.Clean(r.Message)), exitStalled}
		}
		if r.State == view.Complete {
			complete++
		}
	}
	return complete > 0 && complete == len(rollouts), nil
}
