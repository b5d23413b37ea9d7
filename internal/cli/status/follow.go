// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

const (
	// settle is how long the view rests after it has changed: what changes together is shown at once.
	settle = 100 * time.Millisecond
	// tick is how often the durations on the screen go on.
	tick = time.Second
)

// painter shows rollouts again and again.
type painter interface {
	// show shows them as they are now. A note says what is amiss with that, if anything is.
	show(s *shown, note string, now time.Time)
	// close leaves the terminal as it was.
	close()
}

// newPainter paints in place on a terminal, and writes lines elsewhere.
func newPainter(streams genericiooptions.IOStreams, now time.Time, wide bool) painter {
	if t := text.LookAt(streams.Out); t.Live() {
		return newLive(streams.Out, t.Size, t.Colour, wide)
	}
	return newJournal(streams.Out, now, wide)
}

// Follow shows the rollouts of a namespace, live on a terminal and else line by line, until all are complete. It fails when
// one stalls.
func Follow(ctx context.Context, clk clock.WithTicker, streams genericiooptions.IOStreams, config *rest.Config, namespace string) error {
	src, err := source.Connect(config)
	if err != nil {
		return err
	}
	return follow(ctx, clk, src, source.Scope{Namespace: namespace}, newPainter(streams, clk.Now(), false), true)
}

func follow(ctx context.Context, clk clock.WithTicker, src *source.Source, where source.Scope, p painter, untilComplete bool) error {
	defer p.close()
	ctx, cancel := context.WithCancel(ctx)
	f, err := newFeed(src, where)
	if err != nil {
		cancel()
		return err
	}
	wait := f.run(ctx)
	defer wait()
	defer cancel()

	ticker := clk.NewTicker(tick)
	defer ticker.Stop()
	changed, rested := f.changed, (<-chan time.Time)(nil)
	known := false
	for {
		select {
		case <-ctx.Done():
			if untilComplete {
				return fmt.Errorf("not all rollouts are complete, %w", context.Cause(ctx))
			}
			return nil
		case <-rested:
			changed, rested = f.changed, nil
			continue
		case <-changed:
			changed, rested = nil, clk.After(settle)
		case <-ticker.C():
		}
		seen, complete, err := f.look()
		switch {
		case err != nil:
			return err
		case !complete:
			continue
		case seen.rollouts() == 0 && where.Name != "" && !known:
			return src.NotFound(ctx, where)
		case seen.rollouts() == 0 && where.Name != "":
			return fmt.Errorf("the rollout %q has been deleted", where.Name)
		}
		known = true
		now := clk.Now()
		all := show(view.See(seen.plans, seen.nodes, seen.budgets, now).Daemons(seen.daemons).NodeRollouts(seen.hosts), where.Name != "")
		p.show(all, seen.note, now)
		if untilComplete {
			if done, err := verdict(all.rollouts); done {
				return err
			}
		}
	}
}

// verdict says whether there is nothing more to wait for.
func verdict(rollouts []view.Rollout) (done bool, err error) {
	complete := 0
	for i := range rollouts {
		switch r := &rollouts[i]; r.State {
		case view.Stalled:
			return true, fmt.Errorf("%s %s is stalled: %s", r.Kind, r.FullName(), text.Clean(r.Message))
		case view.Complete:
			complete++
		case view.Pending, view.Progressing, view.Waiting:
		}
	}
	return complete > 0 && complete == len(rollouts), nil
}
