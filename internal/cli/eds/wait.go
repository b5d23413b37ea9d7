// SPDX-License-Identifier: Apache-2.0

package eds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// Environment variables for flags that are not set.
const (
	envTimeout = "CHECK_TIMEOUT_MINUTES"
	envPercent = "NODE_COMPLETION_PCT"
	envMin     = "NODE_COMPLETION_MIN"
)

// waiter is one call of wait.
type waiter struct {
	*command
	timeout time.Duration
	enough  enough
}

// newWait returns the verb wait. It watches an ExtendedDaemonSet until its pods are up to date, and fails as soon as it is clear that they
// will not be. It replaces `check-eds upgrade`, which polls.
func (c *command) newWait() *cobra.Command {
	w := &waiter{command: c}
	cmd := c.one(&cobra.Command{
		Use:   "wait [ExtendedDaemonSet name]",
		Short: "Wait until the pods are up to date; fail if they will not be",
		Long: `Wait until no canary runs, and more than --percent of the pods have the template of the spec, or fewer than --min do not,
where there are more than --min. A pod that a node should have, but does not have yet, is not up to date. With --percent 100, all pods must also be available.

It fails at once when the canary has failed, or the rollout is stalled, paused or frozen. It also fails after --timeout. It waits
for a canary that is paused, or must be validated.`,
		Example: `  kubectl eds wait agent -n monitoring
  kubectl eds wait agent --timeout 30m --percent 100 --min 1`,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return w.environment(cmd) },
	}, w.wait)
	flags := cmd.Flags()
	flags.DurationVar(&w.timeout, "timeout", 2*time.Hour, "How long to wait, such as 30m; 0 waits for ever. Overrides $"+envTimeout+".")
	flags.Float64Var(&w.enough.percent, "percent", 95, "More than this percentage of the pods must be up to date; 100 is all, and available. Overrides $"+envPercent+".")
	flags.Int32Var(&w.enough.min, "min", 10, "Or fewer pods than this are not up to date, where there are more. Overrides $"+envMin+".")
	return cmd
}

// environment reads the environment variables for flags that are not set.
func (w *waiter) environment(cmd *cobra.Command) error {
	for _, v := range []struct{ name, flag, unit string }{{envTimeout, "timeout", "m"}, {envPercent, "percent", ""}, {envMin, "min", ""}} {
		text := os.Getenv(v.name)
		if text == "" || cmd.Flags().Changed(v.flag) {
			continue
		}
		if err := cmd.Flags().Set(v.flag, text+v.unit); err != nil {
			return fmt.Errorf("reading $%s, %q is not a number", v.name, text)
		}
	}
	if w.timeout < 0 {
		return fmt.Errorf("the timeout %s is negative; 0 waits for ever", w.timeout)
	}
	return nil
}

func (w *waiter) wait(ctx context.Context, src *source.Source, waited *edsv1.ExtendedDaemonSet) error {
	name := waited.Name
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if w.timeout > 0 {
		timer := w.clock.NewTimer(w.timeout)
		defer timer.Stop()
		go func() {
			select {
			case <-timer.C():
				cancel(errTimeout)
			case <-ctx.Done():
			}
		}()
	}
	last := ""
	err := src.Follow().Run(ctx, w.clock, nil, func() (bool, error) {
		all, err := source.Read[edsv1.ExtendedDaemonSet](ctx, src, source.DaemonSet, source.Named(name))
		switch {
		case err != nil:
			return false, source.Explain(source.DaemonSet, err)
		case len(all) == 0:
			return false, fmt.Errorf("ExtendedDaemonSet %s/%s has been deleted", src.Namespace, name)
		}
		eds := &all[0]
		done, text, err := judge(eds, w.enough)
		if _, canary := errors.AsType[failedCanary](err); canary && wasReset(ctx, src, eds) {
			text, err = "the operator has not seen the reset of the canary yet", nil
		}
		if err != nil {
			return false, fmt.Errorf("ExtendedDaemonSet %s/%s: %w", eds.Namespace, eds.Name, err)
		}
		if text != last {
			last = text
			fmt.Fprintf(w.Out, "[%s] ExtendedDaemonset '%s/%s': %s\n", w.clock.Now().UTC().Format("2006-01-02T15:04:05.999Z"), eds.Namespace, eds.Name, text)
		}
		return done, nil
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("ExtendedDaemonSet %s/%s is not up to date after %s: %s", src.Namespace, name, w.timeout, last)
	}
	return err
}

// errTimeout ends a wait after --timeout.
var errTimeout = errors.New("the time is over")

// wasReset reports whether a canary that has failed by the status was reset meanwhile. The condition of its revision shows that first.
func wasReset(ctx context.Context, src *source.Source, eds *edsv1.ExtendedDaemonSet) bool {
	revisions, _ := readRevisions(ctx, src, eds) // Without them it is not known.
	r := revisionInSpec(eds, revisions)
	return r != nil && edsv1.FindCondition(r.Status.Conditions, edsv1.ConditionCanaryFailed) != nil && canaryFailure(r) == nil
}

// enough is how many pods must be up to date.
type enough struct {
	// percent is the percentage of all pods that must be exceeded. 100 means all of them, and they must be available.
	percent float64
	// min is the number below which outdated pods do not matter. It has no effect if there are no more than min pods.
	min int32
}

// isReached reports whether this number of up-to-date pods is enough.
func (e enough) isReached(upToDate, all int32) bool {
	left := all - upToDate
	return left <= 0 || float64(upToDate)*100 > float64(all)*e.percent || all > e.min && left < e.min
}

// judge reports whether an ExtendedDaemonSet is up to date, and what it is doing. The error says why nothing will change until a person acts.
func judge(eds *edsv1.ExtendedDaemonSet, enough enough) (done bool, what string, err error) {
	s, failed := &eds.Status, failureOf(eds)
	counts := fmt.Sprintf("nb pods: %d, nb updated pods: %d", s.Current, s.UpToDate)
	switch {
	case eds.DeletionTimestamp != nil:
		return false, "", errors.New("it is being deleted")
	case s.ObservedGeneration == 0 || s.ObservedGeneration < eds.Generation:
		return false, "the operator has not seen the change yet", nil
	case failed != nil:
		return false, "", failed
	case s.Canary != nil && s.State == edsv1.StateCanaryPaused:
		reason := cmp.Or(s.Reason, edsv1.StatusReasonUnknown)
		return false, fmt.Sprintf("canary paused (%s): %s on %d nodes", reason, s.Canary.ReplicaSet, len(s.Canary.Nodes)), nil
	case s.Canary != nil:
		return false, fmt.Sprintf("canary running: %s on %d nodes", s.Canary.ReplicaSet, len(s.Canary.Nodes)), nil
	case s.State == edsv1.StateRollingUpdatePaused, s.State == edsv1.StateRolloutFrozen:
		return false, "", fmt.Errorf("its state is %q, until a person ends that", s.State)
	case s.State == edsv1.StateCanary, s.State == edsv1.StateCanaryPaused:
		return false, "the canary ends", nil // The status has no nodes of it any more.
	case s.ActiveReplicaSet == "":
		return false, "no revision is active yet", nil
	case !enough.isReached(s.UpToDate, max(s.Desired, s.Current)):
		return false, "still upgrading " + counts, nil
	case enough.percent >= 100 && s.Available < s.Desired:
		return false, fmt.Sprintf("still upgrading %s, nb available pods: %d", counts, s.Available), nil
	}
	return true, "upgrade is now finished " + counts, nil
}

// failedCanary is the error that the canary has failed.
type failedCanary struct{ error }

// failureOf returns why the template does not come to the nodes until a person acts, or nil.
func failureOf(eds *edsv1.ExtendedDaemonSet) error {
	s := &eds.Status
	failed := edsv1.TrueCondition(s.Conditions, edsv1.ConditionCanaryFailed)
	if s.State == edsv1.StateCanaryFailed || failed != nil {
		message := "the canary has failed" + text.When(s.Reason != "", " (%s)", s.Reason)
		if failed != nil {
			message += ": " + failed.Message
		}
		return failedCanary{errors.New(message)}
	}
	if stalled := edsv1.TrueCondition(s.Conditions, edsv1.ConditionStalled); stalled != nil {
		return fmt.Errorf("it is stalled (%s): %s", stalled.Reason, stalled.Message)
	}
	return nil
}
