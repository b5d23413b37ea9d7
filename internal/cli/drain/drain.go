// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// releaseTimeout bounds how long the release of a node may take. A pod gets 30 seconds to end.
	releaseTimeout = 10 * time.Second
	// releaseAttempts bounds how often.
	releaseAttempts = 5
)

func newDrain(c *command) *cobra.Command {
	var f drainFlags
	cmd := c.complete(&cobra.Command{
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

The node's conditions MaintenanceInProgress, DrainInProgress and Drained say what goes on, and its annotation moult.dev/evicted
whose pods were evicted.`, drain.ExitTimedOut, drain.ExitSkipped),
		Example: `  moult drain node-1 --ignore-daemonsets --delete-emptydir-data --force
  moult drain -l zone=a --grace-period=900 --timeout=1h --on-timeout=Force`,
	}, func(ctx context.Context, args []string) error {
		o, err := f.read()
		if err != nil {
			return err
		}
		c.chunk, o.DryRun = o.ChunkSize, c.dryRun.Server()
		if f.onTimeout.Value != "" && o.Timeout <= 0 {
			fmt.Fprintln(c.ErrOut, "Warning: --on-timeout means nothing without --timeout")
		}
		return c.drain(ctx, args, o, &f)
	})
	f.add(cmd)
	return cmd
}

// draining is one run of drain.
type draining struct {
	*command
	api     client.Client
	engine  *drain.Drainer
	options drain.Options
	// holder is the rollout that it drains for; empty for a person.
	holder string
	// exclude keeps external load balancers from the nodes.
	exclude bool
	// coded tells an end by the time from other failures by the exit code.
	coded bool
	nodes map[string]*progress
	// quiet is set when conditions may not be written, so that this is said once.
	quiet bool
}

// drain cordons all nodes first, so that no pod moves from one to the next, and drains them one by one. It releases the nodes that it does not
// drain.
func (c *command) drain(ctx context.Context, args []string, o drain.Options, f *drainFlags) error {
	api, nodes, err := c.nodes(ctx, args)
	if err != nil {
		return err
	}
	holder, err := c.environment.holder()
	if err != nil {
		return err
	}
	d := &draining{
		command: c, api: api, engine: drain.New(c.clock, api), options: o,
		holder: holder, exclude: f.excludes(holder), coded: f.onTimeout.Value != "", nodes: map[string]*progress{},
	}
	cordoned, err := d.cordonAll(ctx, nodes)
	failed := []error{err}
	var unreleased []error
	for i := range cordoned {
		name := cordoned[i].Name
		if ctx.Err() == nil {
			err := d.drainNode(ctx, d.nodes[name])
			if err == nil {
				fmt.Fprintf(c.Out, "node/%s drained%s\n", name, c.dryRun.Suffix())
				continue
			}
			failed = append(failed, err)
			fmt.Fprintf(c.ErrOut, "node/%s not drained%s\n", name, c.dryRun.Suffix())
		}
		unreleased = append(unreleased, d.release(ctx, d.nodes[name]))
	}
	return join(failed, unreleased)
}

// cordonAll cordons the nodes, and returns those that are cordoned now. The same write adds the label that keeps load
// balancers off, and the record of what will be evicted: the first eviction comes after it.
func (d *draining) cordonAll(ctx context.Context, nodes []corev1.Node) ([]corev1.Node, error) {
	return d.each(nodes, "cordoned", func(n *corev1.Node) (bool, error) {
		p := newProgress(d, n.Name)
		d.nodes[n.Name] = p
		if d.dryRun.Client() {
			return !n.Spec.Unschedulable, nil
		}
		var also []node.Also
		if d.exclude {
			also = append(also, node.Excluding(&p.done.Excluded))
		}
		if d.dryRun.None() {
			r, err := d.engine.Preview(ctx, n.Name, d.options)
			if err != nil {
				return false, err
			}
			p.left = r.Left()
			also = append(also, node.Evicting(p.newWorkloads(&r)...))
		}
		var err error
		p.done.Cordoned, err = node.Cordon(ctx, d.writer(d.api), n, d.holder, also...)
		return p.done.Cordoned, err
	})
}

// drainNode drains one node.
func (d *draining) drainNode(ctx context.Context, p *progress) error {
	if d.dryRun.Client() {
		r, err := d.engine.Preview(ctx, p.name, d.options)
		if err != nil {
			return err
		}
		p.show(r)
		return d.explain(r.Err())
	}
	since := d.clock.Now()
	p.sayBegun(ctx)
	// While the node waited for its turn nothing said that more would be evicted from it, and its record may have been taken off.
	p.record(ctx, slices.Collect(maps.Keys(p.recorded)))
	for {
		r, err := d.engine.Pass(ctx, p.name, since, d.options)
		pause := retry
		switch {
		case ctx.Err() != nil:
			return interrupted(p)
		case err == nil:
			p.show(r)
			p.record(ctx, p.newWorkloads(&r)) // What came to the node after it had been looked at first.
			if r.Done() {
				p.sayDrained(ctx)
				return nil
			}
			if r.Stuck() {
				return d.explain(r.Err())
			}
			p.sayLeft(ctx, r.Left())
			pause = nextPass(r, d.clock.Now())
		case p.last == nil || !drain.IsTransient(err):
			return err
		case d.options.Timeout > 0 && d.options.OnTimeout != drain.ForceOnTimeout && d.clock.Since(since) >= d.options.Timeout:
			return &failure{text: err.Error(), cause: err, code: d.timedOutCode()}
		default:
			fmt.Fprintf(d.ErrOut, "%v (asking again in %v)\n", err, retry)
		}
		if d.wait(ctx, pause) != nil {
			return interrupted(p)
		}
	}
}

// nextPass is how long to wait for the next pass: a second while pods end, longer while they are held and for volumes.
func nextPass(r drain.Result, now time.Time) time.Duration {
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

// release undoes what was done to a node that is not drained, also when the command is stopped.
func (d *draining) release(ctx context.Context, p *progress) error {
	if !d.dryRun.None() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := d.undo(ctx, p)
		if err == nil || !drain.IsTransient(err) || attempt == releaseAttempts || d.wait(ctx, poll) != nil {
			return err
		}
	}
}

func (d *draining) undo(ctx context.Context, p *progress) error {
	var n corev1.Node
	switch err := d.api.Get(ctx, client.ObjectKey{Name: p.name}, &n); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("giving back node %s, %w", p.name, err)
	}
	uncordoned, err := node.GiveBack(ctx, d.api, &n, d.holder, p.done)
	if err != nil {
		return err
	}
	if uncordoned {
		fmt.Fprintf(d.Out, "node/%s uncordoned\n", p.name)
	}
	by := d.holder
	if by == "" {
		by = node.ByHand
	}
	_, err = node.ClearConditions(ctx, d.api, &n, by, d.clock.Now())
	d.warn(err)
	return nil
}

// warn says why conditions can't be written; once, if it is for want of the right to.
func (d *draining) warn(err error) {
	if err == nil || d.quiet || apierrors.IsNotFound(err) {
		return
	}
	d.quiet = apierrors.IsForbidden(err)
	fmt.Fprintf(d.ErrOut, "Warning: %v\n", err)
}
