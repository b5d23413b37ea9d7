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
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/view"
)

// noNodes is said to those who may see Plans but not nodes.
const noNodes = "Nodes can't be listed: only those that a rollout's status lists are shown."

// command is one call of status.
type command struct {
	genericiooptions.IOStreams
	clock  clock.WithTicker
	config genericclioptions.RESTClientGetter

	allNamespaces, watch, untilComplete bool
	output                              output
}

// NewCommand makes the command. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, config genericclioptions.RESTClientGetter) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, config: config}
	cmd := &cobra.Command{
		Use:   "status [PLAN]",
		Short: "Show how rollouts stand: which nodes are updated, which are not, and why",
		Long: `Show how rollouts stand: which nodes are updated, which are not, and why.

Each rollout has a bar, and a line for every node that is in a turn or has failed; the others are counted, with the
reason why they wait. -o wide has a line for every node.

With --watch this is a live view, repainted in place on a terminal; elsewhere each change is a line. It ends with
Ctrl-C, or with --until-complete when every rollout shown is complete. It fails then if one of them stalls.`,
		Example: `  kubectl moult status -A
  kubectl moult status -n system-upgrade --watch
  kubectl moult status k3s-agent -n system-upgrade --until-complete`,
		Args:              cobra.MaximumNArgs(1),
		SilenceUsage:      true,
		ValidArgsFunction: c.completePlans,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "Show the rollouts of all namespaces.")
	flags.BoolVarP(&c.watch, "watch", "w", false, "Follow the rollouts until Ctrl-C.")
	flags.BoolVar(&c.untilComplete, "until-complete", false, "Follow the rollouts until all are complete. Fail if one of them stalls.")
	flags.VarP(&c.output, "output", "o", "Output format: wide, json or yaml.")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{wide, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // There is no such flag.
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) }
	return cmd
}

func (c *command) run(ctx context.Context, args []string) error {
	watch := c.watch || c.untilComplete
	if watch && c.output != "" {
		return errors.New("--output says how to show rollouts once, --watch and --until-complete follow them: use one of them")
	}
	where, err := c.scope(args)
	if err != nil {
		return err
	}
	config, err := c.config.ToRESTConfig()
	if err != nil {
		return err
	}
	src, err := connect(config)
	if err != nil {
		return err
	}
	if watch {
		return follow(ctx, c.clock, src, where, newPainter(c.IOStreams, c.clock.Now()), c.untilComplete)
	}
	return c.once(ctx, src, where)
}

// once shows the rollouts as they are.
func (c *command) once(ctx context.Context, src *source, where scope) error {
	plans, nodes, err := src.read(ctx, where)
	if err != nil {
		return err
	}
	if nodes == nil {
		fmt.Fprintln(c.ErrOut, noNodes)
	}
	now := c.clock.Now()
	rollouts := view.Plans(plans, nodes, now)
	switch {
	case c.output.structured():
		return c.output.print(c.Out, rollouts, where.name != "" && where.namespace != "")
	case len(rollouts) == 0:
		fmt.Fprintln(c.ErrOut, src.nothing(ctx, where))
		return nil
	}
	detail := showCounted
	if c.output == wide {
		detail = showAll
	}
	f := frame(rollouts, newHistory(), now, detail, 0)
	_, err = c.Out.Write(f.text(0, terminal(c.Out).colour))
	return err
}

// scope says which rollouts are meant.
type scope struct {
	namespace string // Empty is all.
	name      string // Empty is all.
}

func (c *command) scope(args []string) (scope, error) {
	var s scope
	if len(args) > 0 {
		kind, name, found := strings.Cut(args[0], "/")
		if !found {
			kind, name = "plan", args[0]
		}
		kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
		if kind != "plan" && kind != "plans" || name == "" {
			return s, fmt.Errorf("%q is not the name of a Plan", args[0])
		}
		s.name = name
	}
	if c.allNamespaces {
		return s, nil
	}
	var err error
	s.namespace, _, err = c.config.ToRawKubeConfigLoader().Namespace()
	return s, err
}

func (s scope) String() string {
	if s.namespace == "" {
		return "any namespace"
	}
	return "namespace " + s.namespace
}
