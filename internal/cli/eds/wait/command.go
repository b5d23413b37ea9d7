// SPDX-License-Identifier: Apache-2.0

// Package wait is `kubectl eds wait`: it follows an ExtendedDaemonSet until its pods are up to date, and fails as soon as it is
// clear that they will not be. It does what `check-eds upgrade` does, with watches in place of polls.
package wait

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/feed"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// Variables of the environment that stand for flags which are not given.
const (
	envTimeout = "CHECK_TIMEOUT_MINUTES"
	envPercent = "NODE_COMPLETION_PCT"
	envMin     = "NODE_COMPLETION_MIN"
)

// command is one call of wait.
type command struct {
	genericiooptions.IOStreams
	clock clock.Clock

	timeout time.Duration
	enough  enough
}

// NewCommand makes the command. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.Clock, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk}
	cmd := object.Complete(cluster, &cobra.Command{
		Use:   "wait [ExtendedDaemonSet name]",
		Short: "Wait until the pods are up to date; fail when they will not be",
		Long: `Wait until the pods of an ExtendedDaemonSet are up to date, saying what it does meanwhile.

They are when no canary goes on, and more than --percent of them have the template of the spec, or fewer than --min have not;
where there are no more than --min pods, all of them count. A pod that a node should have, and has not yet, is one that is not up
to date. With --percent 100 all nodes' pods must be available as well.

It fails at once when the canary has failed, and when the rollout is stalled, paused or frozen; and after --timeout. A canary
that is paused, or waits to be validated, is waited for.

It is what check-eds upgrade does, and takes its variables of the environment where a flag is not given:
CHECK_TIMEOUT_MINUTES, NODE_COMPLETION_PCT and NODE_COMPLETION_MIN.`,
		Example: `  kubectl eds wait agent -n monitoring
  kubectl eds wait agent --timeout 30m --percent 100 --min 1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("the ExtendedDaemonset name needs to be provided")
			}
			return nil
		},
		PreRunE: func(cmd *cobra.Command, _ []string) error { return c.environment(cmd) },
	}, c.wait)
	flags := cmd.Flags()
	flags.DurationVar(&c.timeout, "timeout", 2*time.Hour, "How long to wait, such as 30m; 0 is for ever. Else $"+envTimeout+".")
	flags.Float64Var(&c.enough.percent, "percent", 95, "More than so many percent of the pods up to date are enough; 100 is all of them, and available. Else $"+envPercent+".")
	flags.Int32Var(&c.enough.min, "min", 10, "Fewer pods than this that are not up to date do not count. Else $"+envMin+".")
	return cmd
}

// environment reads the variables of flags that are not given.
func (c *command) environment(cmd *cobra.Command) error {
	for _, v := range []struct{ name, flag, unit string }{{envTimeout, "timeout", "m"}, {envPercent, "percent", ""}, {envMin, "min", ""}} {
		text := os.Getenv(v.name)
		if text == "" || cmd.Flags().Changed(v.flag) {
			continue
		}
		if err := cmd.Flags().Set(v.flag, text+v.unit); err != nil {
			return fmt.Errorf("reading $%s, %q is not a number", v.name, text)
		}
	}
	if c.timeout < 0 {
		return fmt.Errorf("the timeout %s is negative; 0 is for ever", c.timeout)
	}
	return nil
}

func (c *command) wait(ctx context.Context, client *object.Client, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.timeout > 0 {
		timer := c.clock.NewTimer(c.timeout)
		defer timer.Stop()
		go func() {
			select {
			case <-timer.C():
				cancel(errTimeout)
			case <-ctx.Done():
			}
		}()
	}
	f := feed.New(client.Client)
	objects, err := feed.Add[edsv1.ExtendedDaemonSet](f, client.Of(target.DaemonSet), feed.Options{
		FieldSelector: source.Named(name).FieldSelector, Explain: func(err error) error { return source.Explain(target.DaemonSet, err) },
	})
	if err != nil {
		return err
	}
	last := ""
	err = f.Run(ctx, c.clock, nil, func() (bool, error) {
		all := objects.All()
		switch {
		case len(all) == 0 && last == "":
			return false, client.NotFound(ctx, target.DaemonSet, name)
		case len(all) == 0:
			return false, fmt.Errorf("ExtendedDaemonSet %s/%s has been deleted", client.Namespace, name)
		}
		eds := &all[0]
		done, text, err := judge(eds, c.enough)
		if _, canary := errors.AsType[canaryFailure](err); canary && wasReset(ctx, client, eds) {
			text, err = "the operator has not seen yet that the canary was reset", nil
		}
		if err != nil {
			return false, fmt.Errorf("ExtendedDaemonSet %s/%s: %w", eds.Namespace, eds.Name, err)
		}
		if text != last {
			last = text
			fmt.Fprintf(c.Out, "[%s] ExtendedDaemonset '%s/%s': %s\n", c.clock.Now().UTC().Format("2006-01-02T15:04:05.999Z"), eds.Namespace, eds.Name, text)
		}
		return done, nil
	})
	switch {
	case errors.Is(err, errTimeout):
		return fmt.Errorf("ExtendedDaemonSet %s/%s is not up to date after %s: %s", client.Namespace, name, c.timeout, last)
	case ctx.Err() != nil:
		return fmt.Errorf("ExtendedDaemonSet %s/%s is not up to date, %w", client.Namespace, name, err)
	}
	return err
}

// errTimeout is that the time is over.
var errTimeout = errors.New("the time is over")

// wasReset reports whether the canary that has failed, by the status, was reset since: the status of its revision has that first.
func wasReset(ctx context.Context, client *object.Client, eds *edsv1.ExtendedDaemonSet) bool {
	revisions, err := client.Revisions(ctx, eds)
	if err != nil {
		return false
	}
	i := object.InSpec(eds, revisions)
	return i >= 0 && edsv1.FindCondition(revisions[i].Status.Conditions, edsv1.ConditionCanaryFailed) != nil && object.CanaryFailed(&revisions[i]) == nil
}
