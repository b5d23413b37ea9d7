// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/node"
)

const (
	// poll is how often the command looks whether pods are gone.
	poll = time.Second
	// retry is how often it asks again an API server that does not answer, and looks whether volumes are detached.
	retry = 5 * time.Second
	// chunk is the page size of lists.
	chunk = 500
)

func newDrain(c *command) *cobra.Command {
	var f flags
	cmd := c.mount(&cobra.Command{
		Use:   "drain NODE...",
		Short: "Cordon nodes and take the pods off them",
		Long: fmt.Sprintf(`Cordon nodes and take the pods off them, one node after the other.

Pods are evicted, so that PodDisruptionBudgets hold; --disable-eviction deletes them instead. Mirror pods stay, and so
do the pods of DaemonSets, which need --ignore-daemonsets. Pods that lose something need leave: --force for those that no
controller would make again, --delete-emptydir-data for those with emptyDir volumes. Without it no pod is touched.

Pods go in ascending priority; those of critical priority only when all others are gone.

The command ends when the pods have ended and, with --wait-for-volume-detach, their volumes are detached. If it fails or is
stopped, nodes that it has cordoned are made schedulable again; those that were cordoned before stay so.

When the time of --timeout is over, --on-timeout says what happens: Halt ends the drain, Skip does too and says that the
node is to be left out, Force deletes the pods that are left, past every PodDisruptionBudget, and goes on. Without it the
drain ends. The exit code is %d for Halt, %d for Skip, and 1 for every other failure.

What goes on stands in the node's conditions MaintenanceInProgress, DrainInProgress and Drained, and whose pods were evicted
in its annotation moult.dev/evicted.`, drain.ExitTimedOut, drain.ExitSkipped),
		Example: `  moult drain node-1 --ignore-daemonsets --delete-emptydir-data --force
  moult drain -l zone=a --grace-period=900 --timeout=1h --on-timeout=Force`,
	}, func(ctx context.Context, args []string) error {
		o, err := f.options()
		if err != nil {
			return err
		}
		o.ChunkSize, o.DryRun = c.chunk, c.dryRun == dryRunServer
		if f.onTimeout != "" && o.Timeout <= 0 {
			fmt.Fprintln(c.ErrOut, "Warning: --on-timeout means nothing without --timeout")
		}
		return c.drain(ctx, args, o, &f)
	})
	f.add(cmd.Flags())
	cmd.Flags().Int64Var(&c.chunk, "chunk-size", chunk, "Read long lists in pages of this size. 0 reads them whole.")
	if err := cmd.RegisterFlagCompletionFunc("on-timeout", cobra.FixedCompletions(ends(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // The flag has just been added.
	}
	return cmd
}

// draining is one run of drain: on whose behalf, how, and what it has done to which node.
type draining struct {
	*command
	api     client.Client
	engine  *drain.Drainer
	options drain.Options
	by      string
	// exclude keeps external load balancers from the nodes.
	exclude bool
	// coded tells an end by the time from other failures by the exit code.
	coded bool

	nodes map[string]*begun
	// mute is set when conditions may not be written, so that this is said once.
	mute bool
}

// begun is what the run knows of a node that it has cordoned, or found cordoned.
type begun struct {
	node.Done
	// left says what the drain was going to do.
	left string
	// recorded are the workloads in the node's record of evictions.
	recorded map[node.Workload]bool
}

// drain cordons all nodes first, so that no pod moves from one to the next, and drains them one by one. What it has done to
// a node that it does not drain is undone.
func (c *command) drain(ctx context.Context, args []string, o drain.Options, f *flags) error {
	api, nodes, err := c.nodes(ctx, args)
	if err != nil {
		return err
	}
	by, err := c.environment.by()
	if err != nil {
		return err
	}
	d := &draining{
		command: c, api: api, engine: drain.New(c.clock, api), options: o,
		by: by, exclude: f.excludes(by), coded: f.onTimeout != "", nodes: map[string]*begun{},
	}
	cordoned, err := d.cordonAll(ctx, nodes)
	failed := []error{err}
	var kept []error // Nodes that could not be given back.
	for i := range cordoned {
		name := cordoned[i].Name
		if ctx.Err() == nil {
			err := d.one(ctx, name)
			if err == nil {
				fmt.Fprintf(c.Out, "node/%s drained%s\n", name, c.dryRun.suffix())
				continue
			}
			failed = append(failed, err)
			fmt.Fprintf(c.ErrOut, "node/%s not drained%s\n", name, c.dryRun.suffix())
		}
		kept = append(kept, d.giveBack(ctx, name))
	}
	return join(failed, kept)
}

// cordonAll cordons the nodes, and gives those that are cordoned now. In the same write go the label that keeps load
// balancers off, and the record of what will be evicted: the first eviction comes after it.
func (d *draining) cordonAll(ctx context.Context, nodes []target) ([]target, error) {
	return d.each(nodes, "cordoned", func(n *target) (bool, error) {
		b := &begun{recorded: map[node.Workload]bool{}}
		d.nodes[n.Name] = b
		if d.dryRun == dryRunClient {
			return !n.Spec.Unschedulable, nil
		}
		var also []node.Also
		if d.exclude {
			also = append(also, node.Excluding(&b.Excluded))
		}
		if d.dryRun == dryRunNone {
			r, err := d.engine.Preview(ctx, n.Name, d.options)
			if err != nil {
				return false, err
			}
			b.left = r.Left()
			also = append(also, node.Evicting(b.fresh(&r)...))
		}
		var err error
		b.Cordoned, err = node.Cordon(ctx, d.write(d.api), n, d.by, also...)
		return b.Cordoned, err
	})
}

// one drains one node.
func (d *draining) one(ctx context.Context, name string) error {
	p := newProgress(d.command, &d.options)
	if d.dryRun == dryRunClient {
		r, err := d.engine.Preview(ctx, name, d.options)
		if err != nil {
			return err
		}
		p.show(r)
		return d.explain(r.Err())
	}
	since := d.clock.Now()
	told := d.begin(ctx, name)
	// While the node waited for its turn nothing said that more would be evicted from it, and its record may have been taken off.
	b := d.nodes[name]
	d.record(ctx, name, slices.Collect(maps.Keys(b.recorded)))
	for {
		r, err := d.engine.Pass(ctx, name, since, d.options)
		pause := retry
		switch {
		case ctx.Err() != nil:
			return interrupted(name, p.last)
		case err == nil:
			p.show(r)
			d.record(ctx, name, b.fresh(&r)) // What came to the node after it had been looked at first.
			if r.Done() {
				told.drained(ctx)
				return nil
			}
			if r.Stuck() {
				return d.explain(r.Err())
			}
			told.left(ctx, r.Left())
			pause = until(r, d.clock.Now())
		case p.last == nil || !drain.IsTransient(err):
			return err
		case d.over(since):
			return d.timedOut(err)
		default:
			fmt.Fprintf(d.ErrOut, "%v (asking again in %v)\n", err, retry)
		}
		if d.wait(ctx, pause) != nil {
			return interrupted(name, p.last)
		}
	}
}

// over says that the time is over and the drain ends with it.
func (d *draining) over(since time.Time) bool {
	o := &d.options
	return o.Timeout > 0 && o.OnTimeout != drain.ForceOnTimeout && d.clock.Since(since) >= o.Timeout
}

// until is how long to wait for the next pass: a second while pods end, longer while they are held and for volumes.
func until(r drain.Result, now time.Time) time.Duration {
	pause := poll
	if len(r.In(drain.Blocked, drain.Failed)) > 0 || len(r.Attached) > 0 {
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
