// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
)

// retryable are the kinds that can be retried. For an ExtendedDaemonSet, the kubelet itself restarts failed pods.
var retryable = []*source.Kind{source.Node, source.Plan, source.NodeRollout}

func newRetry(c *steerCommand) *cobra.Command {
	var rollout string
	cmd := c.complete(help("retry NODE|ROLLOUT",
		`Retry failed turns once: those of all rollouts on a node, or those of one rollout on all nodes.
Sets the annotation moult.dev/retry. Windows, budgets and concurrency hold as for other turns. It fails when nothing has failed.`,
		`  kubectl moult retry worker-7
  kubectl moult retry worker-7 --rollout k3s-agent -n system-upgrade
  kubectl moult retry plan/k3s-agent -n system-upgrade
  kubectl moult retry nr/bottlerocket`), retryable, func(ctx context.Context, o source.Object) error { return c.retry(ctx, o, rollout) })
	cmd.Flags().StringVar(&rollout, "rollout", "", "With a NODE: only if this rollout, and no other, has failed there.")
	return cmd
}

// failure is a unit that has failed.
type failure struct {
	// name is that of the rollout, as namespace/name or nr/name, if a node is retried; else that of the node.
	name   string
	reason v1alpha1.Reason
	// lasts is true if the turn continues without a retry.
	lasts bool
}

func (c *steerCommand) retry(ctx context.Context, o source.Object, only string) (err error) {
	var failures []failure
	where := "of " + o.String()
	switch {
	case o.Kind == source.Node:
		where = "on node " + o.GetName()
		failures, err = c.failuresOnNode(ctx, o.Unstructured)
		if err == nil && only != "" {
			err = c.checkOnly(o.GetName(), only, failures)
		}
	case only != "":
		err = errors.New("--rollout goes with the name of a node")
	default:
		failures, err = c.failuresOf(ctx, o.Target())
	}
	tried := slices.DeleteFunc(slices.Clone(failures), func(f failure) bool { return f.lasts })
	switch {
	case err != nil:
		return err
	case len(failures) == 0:
		return fmt.Errorf("nothing has failed %s, so there is nothing to retry", where)
	case len(tried) == 0:
		return fmt.Errorf("what has failed %s goes on by itself, so there is nothing to retry: %s", where, list(failures))
	}
	if _, err := c.write(ctx, o, func(*unstructured.Unstructured) (*source.Change, error) {
		now := c.clock.Now().UTC().Format(time.RFC3339Nano)
		return source.Annotate(map[string]any{v1alpha1.AnnotationRetry: now}), nil
	}); err != nil {
		return err
	}
	c.say(o, "is retried: "+list(tried))
	return nil
}

// checkOnly fails if another rollout than this one would be retried.
func (c *steerCommand) checkOnly(node, only string, failures []failure) error {
	named, err := source.Parse(only, retryable[1:]...)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(failures), func(f failure) bool {
		return named.Kind != source.NodeRollout && f.name == c.src.Namespace+"/"+named.Name ||
			named.Kind != source.Plan && f.name == source.NodeRollout.Short(named.Name)
	})
	switch {
	case len(others) == len(failures):
		return fmt.Errorf("rollout %s has not failed on node %s, so there is nothing to retry", only, node)
	case len(others) > 0:
		return fmt.Errorf("on node %s have failed as well, and would be retried too: %s; leave --rollout out to retry all", node, list(others))
	}
	return nil
}

// failuresOnNode are the failed turns on a node.
func (c *steerCommand) failuresOnNode(ctx context.Context, node *unstructured.Unstructured) ([]failure, error) {
	claims, err := v1alpha1.ParseClaims(node.GetAnnotations())
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.GetName(), err)
	}
	var failures []failure
	for i := range claims {
		if f := claims[i].Failed; f != nil {
			kind, name, _ := strings.Cut(claims[i].Rollout, "/")
			lasts := false
			if kind == source.NodeRollout.Name {
				all, _ := c.failuresOf(ctx, source.Target{Kind: source.NodeRollout, Name: name}) // It may be gone.
				lasts = slices.Contains(all, failure{node.GetName(), f.Reason, true})
				name = source.NodeRollout.Short(name)
			}
			failures = append(failures, failure{name, f.Reason, lasts})
		}
	}
	return failures, nil
}

// failuresOf are the failed turns of a Plan or a NodeRollout.
func (c *steerCommand) failuresOf(ctx context.Context, named source.Target) ([]failure, error) {
	s, err := readShown(ctx, c.src, named, c.clock.Now())
	if err != nil {
		return nil, err
	}
	var failures []failure
	for _, n := range s.rollouts[0].Nodes {
		if n.State == v1alpha1.UnitFailed {
			failures = append(failures, failure{n.Node, n.Reason, n.ContinuesFailed()})
		}
	}
	return failures, nil
}

func list(failures []failure) string {
	var all []string
	for _, f := range failures {
		all = append(all, f.name+" ("+string(f.reason)+")")
	}
	return text.Some(10, all, ", ")
}
