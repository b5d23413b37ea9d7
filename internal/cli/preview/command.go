// SPDX-License-Identifier: Apache-2.0

// Package preview is `kubectl moult preview`: what a rollout would do, of the cluster's or of a file. It only reads.
//
//	file.go    a Plan of a manifest, read strictly, with what the cluster knows of it
//	pods.go    what a drain of a node would do to its pods, and which PodDisruptionBudgets would hold it
//	draw.go    what people read
package preview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/utils/clock"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// command is one call of preview.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config config.Config
	output text.Output

	file      string
	limit     int
	all       bool
	turn      time.Duration
	src       *source.Source
	policy    typedpolicyv1.PolicyV1Interface
	apps      typedappsv1.AppsV1Interface
	namespace string
}

// result is what is shown of one rollout.
type result struct {
	view.Preview
	// Drains says of the first nodes what a drain would do to their pods.
	Drains []drained `json:"drains,omitempty"`
}

// NewCommand makes the command. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, config: cluster}
	cmd := &cobra.Command{
		Use:   "preview ROLLOUT|FILE",
		Short: "Say what a rollout would do: which nodes, in which order, when about, and what a drain would meet there",
		Long: `Say what a rollout would do, if nothing changed but by itself: which nodes start now and why the others wait, in which
order and in which waves, until about when; and for the first nodes which pods a drain would evict, which of them it may
not take, and which PodDisruptionBudgets would hold it.

FILE is a manifest with a Plan (a file that is there, or a name that ends in .yaml, .yml or .json), which may but need not be
in the cluster yet; - is the standard input. Its fields are read strictly: one that a Plan does not have is an error.

When it ends is estimated from the turns that were measured (status.turnSeconds), or from --turn, by playing the rollout
with the engine that decides it: with its waves, soaks and windows, and with the cluster's NodeDisruptionBudgets.

Nothing is written, and the API server is asked for no dry run.`,
		Example: `  kubectl moult preview k3s-agent -n system-upgrade
  kubectl moult preview -f plan.yaml --all
  kubectl moult preview plan.yaml --turn 6m
  kustomize build . | kubectl moult preview -f -`,
		Args:              cobra.MaximumNArgs(1),
		SilenceUsage:      true,
		ValidArgsFunction: c.complete,
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.file, "filename", "f", "", "Manifest with the Plan; - is the standard input.")
	flags.IntVar(&c.limit, "nodes", 10, "Of how many nodes to show the pods, and how many of those that wait.")
	flags.BoolVar(&c.all, "all", false, "Show all nodes, and the pods of each.")
	flags.DurationVar(&c.turn, "turn", 0, "How long a turn takes, for the estimate. 0 is what has been measured.")
	c.output.AddFlag(cmd, text.JSON, text.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) }
	return cmd
}

// complete offers the rollouts, and files where none fits.
func (c *command) complete(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, none := source.Complete(c.config, nil, target.Rollouts...)(cmd, args, prefix)
	if len(args) == 0 && len(names) == 0 {
		return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return names, none
}

func (c *command) run(ctx context.Context, args []string) (err error) {
	name := ""
	switch {
	case len(args) == 0 && c.file == "":
		return errors.New("preview needs the name of a rollout, or a file: see kubectl moult preview --help")
	case len(args) > 0 && c.file != "":
		return errors.New("preview takes the name of a rollout or --filename, not both")
	case len(args) > 0 && isFile(args[0]):
		c.file = args[0]
	case len(args) > 0:
		name = args[0]
	}
	if c.turn < 0 || c.limit < 0 {
		return errors.New("--turn and --nodes must not be negative")
	}
	if c.src == nil {
		if err := c.connect(); err != nil {
			return err
		}
	}
	return c.show(ctx, name)
}

func (c *command) connect() (err error) {
	if c.namespace, err = c.config.Namespace(); err != nil {
		return err
	}
	rest, err := c.config.REST()
	if err != nil {
		return err
	}
	if c.src, err = source.Connect(rest); err != nil {
		return err
	}
	if c.policy, err = typedpolicyv1.NewForConfig(rest); err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	if c.apps, err = typedappsv1.NewForConfig(rest); err != nil {
		return fmt.Errorf("making a client, %w", err)
	}
	return nil
}

// isFile reports whether an argument names a file and no rollout.
func isFile(arg string) bool {
	if arg == "-" {
		return true
	}
	for _, ending := range []string{".yaml", ".yml", ".json"} {
		if strings.HasSuffix(arg, ending) {
			return true
		}
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// planned is a Plan to look at, and what is to be supposed of it.
type planned struct {
	plan *upgradev1.Plan
	view.Supposition
}

func (c *command) show(ctx context.Context, name string) error {
	all, err := c.plans(ctx, name)
	if err != nil {
		return err
	}
	nodes, err := c.src.ReadNodes(ctx)
	switch {
	case err != nil:
		return err
	case nodes == nil:
		return errors.New("nodes can't be listed, and without them there is nothing to preview")
	}
	budgets, note, err := c.src.ReadBudgets(ctx)
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(c.ErrOut, note)
	}
	now := c.clock.Now()
	results := make([]result, 0, len(all))
	for _, p := range all {
		cluster := view.See(nil, nodes, budgets, now)
		if ordersByEvictions(p.plan) {
			cluster.Evictions(c.countEvictions(ctx))
		}
		r := result{Preview: cluster.Preview(p.plan, p.Supposition)}
		if p.plan.Spec.Drain != nil {
			if r.Drains, err = c.drains(ctx, p.plan, r.Steps); err != nil {
				return err
			}
		}
		results = append(results, r)
	}
	switch {
	case c.output.Structured() && len(results) == 1:
		return c.output.Print(c.Out, results[0])
	case c.output.Structured():
		return c.output.Print(c.Out, map[string]any{"items": results})
	}
	var l text.Page
	for i := range results {
		if i > 0 {
			l.Add()
		}
		c.draw(&l, &results[i], all[i].plan, now)
	}
	_, err = c.Out.Write(l.Lines.Text(0, text.LookAt(c.Out).Colour))
	return err
}

// plans are those to look at: one of the cluster, or those of the file.
func (c *command) plans(ctx context.Context, name string) ([]planned, error) {
	if name != "" {
		named, err := target.Parse(name, target.Rollouts...)
		if err != nil {
			return nil, err
		}
		found, err := c.src.ReadPlans(ctx, source.Scope{Namespace: c.namespace, Name: named.Name})
		if err != nil {
			return nil, err
		}
		p := &found[0]
		return []planned{{p, view.Supposition{Unresolved: p.Status.LatestHash == "", Turn: c.turn}}}, nil
	}
	plans, err := c.read()
	if err != nil {
		return nil, err
	}
	all := make([]planned, 0, len(plans))
	for _, p := range plans {
		if p.Namespace == "" {
			p.Namespace = c.namespace
		}
		o, err := c.src.Plans(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			all = append(all, planned{p, view.Supposition{New: true, Unresolved: true, Turn: c.turn}})
		case err != nil:
			return nil, source.Explain(err)
		default:
			there := source.DecodePlan(o)
			unresolved := there.Status.LatestHash == "" || !sameRevision(there, p)
			p.UID, p.Status, p.CreationTimestamp, p.Generation = there.UID, there.Status, there.CreationTimestamp, there.Generation
			p.Annotations = merged(there.Annotations, p.Annotations)
			all = append(all, planned{p, view.Supposition{Unresolved: unresolved, Turn: c.turn}})
		}
	}
	return all, nil
}

func ordersByEvictions(p *upgradev1.Plan) bool {
	if p.Spec.Strategy == nil {
		return false
	}
	for _, o := range p.Spec.Strategy.Order {
		if o.By == v1alpha1.OrderFewestEvictionsFirst {
			return true
		}
	}
	return false
}
