// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"moult.dev/moult/internal/drain"
)

const (
	// poll is how often the command looks whether pods are gone.
	poll = time.Second
	// retry is how often it asks again an API server that does not answer.
	retry = 5 * time.Second
	// chunk is the page size of lists.
	chunk = 500
)

func newDrain(c *command) *cobra.Command {
	var f flags
	cmd := c.mount(&cobra.Command{
		Use:   "drain NODE...",
		Short: "Cordon nodes and take the pods off them",
		Long: `Cordon nodes and take the pods off them, one node after the other.

Pods are evicted, so that PodDisruptionBudgets hold; --disable-eviction deletes them instead. Mirror pods stay, and so
do the pods of DaemonSets, which need --ignore-daemonsets. Pods that lose something need leave: --force for those that no
controller would make again, --delete-emptydir-data for those with emptyDir volumes. Without it no pod is touched.

Pods go in ascending priority; those of critical priority only when all others are gone.

The command ends when the pods have ended. If it fails the nodes stay cordoned, and it can be run again.`,
		Example: `  moult drain node-1 --ignore-daemonsets --delete-emptydir-data --force
  moult drain -l zone=a --grace-period=900 --timeout=1h`,
	}, func(ctx context.Context, args []string) error {
		o, err := f.options()
		if err != nil {
			return err
		}
		o.ChunkSize, o.DryRun = c.chunk, c.dryRun == dryRunServer
		return c.drain(ctx, args, o)
	})
	f.add(cmd.Flags())
	cmd.Flags().Int64Var(&c.chunk, "chunk-size", chunk, "Read long lists in pages of this size. 0 reads them whole.")
	return cmd
}

// drain cordons all nodes first, so that no pod moves from one to the next, and drains them one by one.
func (c *command) drain(ctx context.Context, args []string, o drain.Options) error {
	api, nodes, err := c.nodes(ctx, args)
	if err != nil {
		return err
	}
	cordoned, err := c.cordon(ctx, api, nodes)
	errs := []error{err}
	engine := drain.New(c.clock, api)
	for i := range cordoned {
		if ctx.Err() != nil {
			break
		}
		name := cordoned[i].Name
		if err := c.one(ctx, engine, name, o); err != nil {
			errs = append(errs, err)
			fmt.Fprintf(c.ErrOut, "node/%s not drained%s\n", name, c.dryRun.suffix())
			continue
		}
		fmt.Fprintf(c.Out, "node/%s drained%s\n", name, c.dryRun.suffix())
	}
	return errors.Join(errs...)
}

// one drains one node.
func (c *command) one(ctx context.Context, engine *drain.Drainer, node string, o drain.Options) error {
	p := newProgress(c, &o)
	if c.dryRun == dryRunClient {
		r, err := engine.Preview(ctx, node, o)
		if err != nil {
			return err
		}
		p.show(r)
		return explain(r.Err())
	}
	since := c.clock.Now()
	for {
		r, err := engine.Pass(ctx, node, since, o)
		pause := retry
		switch {
		case ctx.Err() != nil:
			return interrupted(node, p.last)
		case err == nil:
			p.show(r)
			if r.Done() {
				return nil
			}
			if r.Stuck() {
				return explain(r.Err())
			}
			pause = until(r, c.clock.Now())
		case p.last == nil || !drain.IsTransient(err) || o.Timeout > 0 && c.clock.Since(since) >= o.Timeout:
			return err
		default:
			fmt.Fprintf(c.ErrOut, "%v (asking again in %v)\n", err, retry)
		}
		if c.wait(ctx, pause) != nil {
			return interrupted(node, p.last)
		}
	}
}

// until is how long to wait for the next pass: a second while pods end, longer while they are held.
func until(r drain.Result, now time.Time) time.Duration {
	pause := poll
	if len(r.In(drain.Blocked, drain.Failed)) > 0 {
		pause = retry
	}
	if r.Next.IsZero() {
		return pause
	}
	return min(pause, r.Next.Sub(now))
}

func (c *command) wait(ctx context.Context, pause time.Duration) error {
	timer := c.clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
