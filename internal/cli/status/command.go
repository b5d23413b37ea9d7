// SPDX-License-Identifier: Apache-2.0

// Package status is `kubectl moult status`: how rollouts stand, once or as a live view.
//
//	source ──▶ package view ──▶ frame: a header and a bar a rollout, a line a node ──▶ out     once
//	feed   ──▶ package view ──┬▶ frame, cut to the terminal's size ──▶ live            in place, on a terminal
//	                          └▶ what is new ──▶ journal                                line by line, elsewhere
package status

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// command is one call of status.
type command struct {
	genericiooptions.IOStreams
	clock  clock.WithTicker
	config config.Config

	allNamespaces, watch, untilComplete bool
	output                              text.Output
}

// NewCommand makes the command. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, config: cluster}
	cmd := &cobra.Command{
		Use:   "status [ROLLOUT]",
		Short: "Show how rollouts stand: which nodes are updated, which are not, and why",
		Long: `Show how rollouts stand: which nodes are updated, which are not, and why.

Each rollout has a bar, and a line for every node that is in a turn or has failed; the others are counted, with the
reason why they wait. -o wide has a line for every node. Below stand the NodeDisruptionBudgets: how many of their nodes
are unavailable, how many more may be taken, and what blocks since when; of one rollout, those that select its nodes. They are of no
namespace, and shown also where there is no rollout.

A rollout is named NAME, plan/NAME or plan.upgrade.cattle.io/NAME; an ExtendedDaemonSet eds/NAME or extendeddaemonset/NAME, a NodeRollout
nr/NAME or noderollout/NAME, and just NAME where there is no Plan of that name. NodeRollouts are in no namespace, and shown with those of any.

With --watch this is a live view, repainted in place on a terminal; elsewhere each change is a line. It ends with
Ctrl-C, or with --until-complete when every rollout shown is complete. It fails then if one of them stalls. With -o wide each node says for
itself why it waits, and each budget who uses it up, as far as there is room on the terminal.`,
		Example: `  kubectl moult status -A
  kubectl moult status -n system-upgrade --watch
  kubectl moult status k3s-agent -n system-upgrade --until-complete
  kubectl moult status eds/node-exporter -n monitoring -o wide
  kubectl moult status nr/bottlerocket`,
		Args:              cobra.MaximumNArgs(1),
		SilenceUsage:      true,
		ValidArgsFunction: source.Complete(cluster, &c.allNamespaces, target.Rollouts...),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show the rollouts of all namespaces.")
	flags.BoolVarP(&c.watch, "watch", "w", false, "Follow the rollouts until Ctrl-C.")
	flags.BoolVar(&c.untilComplete, "until-complete", false, "Follow the rollouts until all are complete. Fail if one of them stalls.")
	c.output.AddFlag(cmd, text.Wide, text.JSON, text.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) }
	return cmd
}

func (c *command) run(ctx context.Context, args []string) error {
	watch := c.watch || c.untilComplete
	wide := c.output.String() == text.Wide
	if watch && c.output.Structured() {
		return errors.New("--output json and yaml show rollouts once, --watch and --until-complete follow them: use one of them")
	}
	where, err := c.scope(args)
	if err != nil {
		return err
	}
	rest, err := c.config.REST()
	if err != nil {
		return err
	}
	src, err := source.Connect(rest)
	if err != nil {
		return err
	}
	if watch {
		return follow(ctx, c.clock, src, where, newPainter(c.IOStreams, c.clock.Now(), wide), c.untilComplete)
	}
	return c.once(ctx, src, where)
}

// once shows the rollouts as they are.
func (c *command) once(ctx context.Context, src *source.Source, where source.Scope) error {
	found, err := src.ReadRollouts(ctx, where)
	if err != nil {
		return err
	}
	budgets, noteBudgets, err := src.ReadBudgets(ctx)
	if err != nil {
		return err
	}
	nodes := []corev1.Node{}
	if found.Len() > 0 || len(budgets) > 0 {
		if nodes, err = src.ReadNodes(ctx); err != nil {
			return err
		}
	}
	daemons, noteDaemons, err := src.ReadDaemons(ctx, found.DaemonSets, "", source.Unrest)
	if err != nil {
		return err
	}
	for _, note := range append(found.Notes, notes(nodes, noteBudgets, noteDaemons)...) {
		fmt.Fprintln(c.ErrOut, note)
	}
	now := c.clock.Now()
	s := show(view.See(found.Plans, nodes, budgets, now).Daemons(daemons).NodeRollouts(found.NodeRollouts), where.Name != "")
	switch {
	case c.output.Structured() && where.Name != "" && (where.Namespace != "" || where.Kind == target.NodeRollout) && len(s.rollouts) == 1:
		return c.output.Print(c.Out, s.rollouts[0])
	case c.output.Structured():
		return c.output.Print(c.Out, map[string]any{"items": s.rollouts, "budgets": s.budgets})
	case len(s.rollouts) == 0:
		fmt.Fprintln(c.ErrOut, src.Nothing(ctx, where))
	}
	detail := showCounted
	if c.output.String() == text.Wide {
		detail = showAll
	}
	f := frame(s, newHistory(), now, detail, 0)
	_, err = c.Out.Write(f.Text(0, text.LookAt(c.Out).Colour))
	return err
}

// notes say what could not be seen.
func notes(nodes []corev1.Node, others ...string) []string {
	var all []string
	if nodes == nil {
		all = append(all, source.NoNodes)
	}
	for _, note := range others {
		all = append(all, nonempty(note)...)
	}
	return all
}

func (c *command) scope(args []string) (source.Scope, error) {
	var s source.Scope
	if len(args) > 0 {
		named, err := target.Parse(args[0], target.Rollouts...)
		if err != nil {
			return s, err
		}
		s.Name, s.Kind = named.Name, named.Kind
	}
	if c.allNamespaces {
		return s, nil
	}
	var err error
	s.Namespace, err = c.config.Namespace()
	return s, err
}
