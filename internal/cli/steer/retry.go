// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

func newRetry(c *command) *cobra.Command {
	var rollout string
	cmd := &cobra.Command{
		Use:   "retry NODE|ROLLOUT",
		Short: "Try again what has failed: on a node, or of a rollout on all its nodes",
		Long: `Try again what has failed: sets the annotation moult.dev/retry, of a Node for every rollout that has failed there, or of a
Plan or a NodeRollout for all its failed nodes. It says which those are, and fails when there are none. Each turn is tried once
more, when it comes to it: windows, budgets and concurrency hold for it as for others.

A name that is a node's and a rollout's needs node/, plan/ or nr/ before it.`,
		Example: `  kubectl moult retry worker-7
  kubectl moult retry worker-7 --rollout k3s-agent -n system-upgrade
  kubectl moult retry plan/k3s-agent -n system-upgrade
  kubectl moult retry nr/bottlerocket`,
	}
	cmd = c.mount(cmd, func(ctx context.Context, arg string) error { return c.retry(ctx, arg, rollout) },
		retryable...)
	cmd.Flags().StringVar(&rollout, "rollout", "", "With a NODE: only if this rollout, and no other, has failed there.")
	c.dryRun.complete(cmd)
	return cmd
}

// retryable are the kinds of what can be tried again. Pods of an ExtendedDaemonSet are tried again and again by their kubelets.
var retryable = []*target.Kind{target.Node, target.Plan, target.NodeRollout}

// failure is a unit that has failed.
type failure struct {
	rollout string // namespace/name, or nr/name
	node    string
	reason  v1alpha1.Reason
	// lasts is true where there is nothing to be tried again.
	lasts bool
}

func (c *command) retry(ctx context.Context, arg, only string) error {
	named, err := target.Parse(arg, retryable...)
	if err != nil {
		return err
	}
	k, o, err := c.resolve(ctx, named)
	if err != nil {
		return err
	}
	var failures []failure
	if k == target.Node {
		failures, err = onNode(o)
	} else {
		failures, err = c.ofRollout(ctx, k, named.Name)
	}
	if err != nil {
		return err
	}
	if only != "" {
		if err := c.check(k, named.Name, only, failures); err != nil {
			return err
		}
	}
	if len(failures) == 0 {
		return fmt.Errorf("nothing has failed %s, so there is nothing to retry", where(k, named.Name))
	}
	lasting := failures
	if failures = slices.DeleteFunc(slices.Clone(failures), func(f failure) bool { return f.lasts }); len(failures) == 0 {
		return fmt.Errorf("what has failed %s goes on by itself, so there is nothing to retry: %s", where(k, named.Name), list(k, lasting))
	}
	stamp := c.stamp()
	if _, err := c.write(ctx, k, o, func(*unstructured.Unstructured) map[string]any {
		return annotate(v1alpha1.AnnotationRetry, stamp)
	}); err != nil {
		return err
	}
	c.say(k, named.Name, "is retried: "+list(k, failures))
	return nil
}

// check makes sure that only this rollout is concerned.
func (c *command) check(k *target.Kind, node, only string, failures []failure) error {
	if k != target.Node {
		return errors.New("--rollout goes with the name of a node")
	}
	named, err := target.Parse(only, target.Plan, target.NodeRollout)
	if err != nil {
		return err
	}
	var wanted, others []string
	for _, k := range []*target.Kind{target.Plan, target.NodeRollout} {
		if named.Kind == nil || named.Kind == k {
			wanted = append(wanted, called(k, c.namespace, named.Name))
		}
	}
	found := false
	for _, f := range failures {
		if slices.Contains(wanted, f.rollout) {
			found = true
		} else {
			others = append(others, f.rollout)
		}
	}
	switch {
	case !found:
		return fmt.Errorf("rollout %s has not failed on node %s, so there is nothing to retry", wanted[0], node)
	case len(others) > 0:
		return fmt.Errorf("on node %s have failed as well, and would be retried too: %s; leave --rollout out to retry all", node, strings.Join(others, ", "))
	}
	return nil
}

// resolve finds out what is named. A name without a kind is a node's or a rollout's, and an error when it is both's.
func (c *command) resolve(ctx context.Context, named target.Target) (*target.Kind, *unstructured.Unstructured, error) {
	if named.Kind != nil {
		o, err := c.get(ctx, named.Kind, named.Name)
		return named.Kind, o, err
	}
	node, errNode := c.get(ctx, target.Node, named.Name)
	if _, gone := errors.AsType[missing](errNode); errNode != nil && !gone && !apierrors.IsForbidden(errNode) {
		return nil, nil, errNode
	}
	kinds, objects := []*target.Kind{}, []*unstructured.Unstructured{}
	if errNode == nil {
		kinds, objects = append(kinds, target.Node), append(objects, node)
	}
	for _, k := range retryable[1:] {
		o, err := c.client(k).Get(ctx, named.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			kinds, objects = append(kinds, k), append(objects, o)
		case apierrors.IsNotFound(err), k != target.Plan && apierrors.IsForbidden(err), errNode == nil:
		default:
			return nil, nil, source.ExplainOf(k, err)
		}
	}
	switch len(kinds) {
	case 0:
		err := c.src.NotFound(ctx, source.Scope{Namespace: c.namespace, Name: named.Name, Kind: target.Plan})
		return nil, nil, fmt.Errorf("there is no Node %q, and %w", named.Name, err)
	case 1:
		return kinds[0], objects[0], nil
	}
	var names, args []string
	for _, k := range kinds {
		names, args = append(names, k.Article+" "+k.Name), append(args, k.Short+"/"+named.Name)
	}
	return nil, nil, fmt.Errorf("there are %s of the name %q: say %s", strings.Join(names, " and "), named.Name, strings.Join(args, " or "))
}

// called is how a rollout is called here: namespace/name, or with the short name of its kind where it is in no namespace.
func called(k *target.Kind, namespace, name string) string {
	if k.Namespaced {
		return namespace + "/" + name
	}
	return k.Short + "/" + name
}

// onNode are the rollouts that have failed on a node.
func onNode(node *unstructured.Unstructured) ([]failure, error) {
	claims, err := v1alpha1.ParseClaims(node.GetAnnotations())
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.GetName(), err)
	}
	var failures []failure
	for i := range claims {
		if f := claims[i].Failed; f != nil {
			failures = append(failures, failure{rollout: holder(claims[i].Rollout), node: node.GetName(), reason: f.Reason})
		}
	}
	return failures, nil
}

// holder is what a claim's holder is called here.
func holder(rollout string) string {
	kind, name, _ := strings.Cut(rollout, "/")
	if kind == target.NodeRollout.Name {
		return called(target.NodeRollout, "", name)
	}
	return name
}

// ofRollout are the nodes on which a rollout has failed.
func (c *command) ofRollout(ctx context.Context, k *target.Kind, name string) ([]failure, error) {
	found, err := c.src.ReadRollouts(ctx, source.Scope{Namespace: c.namespace, Name: name, Kind: k})
	if err != nil {
		return nil, err
	}
	nodes, err := c.src.ReadNodes(ctx)
	if err != nil {
		return nil, err
	}
	return failed(&found, nodes, c.clock.Now()), nil
}

// failed are the failed units of Plans and NodeRollouts.
func failed(of *source.Rollouts, nodes []corev1.Node, now time.Time) []failure {
	var failures []failure
	for _, r := range view.See(of.Plans, nodes, nil, now).NodeRollouts(of.NodeRollouts).Rollouts() {
		k := target.Plan
		if r.Kind == target.NodeRollout.Name {
			k = target.NodeRollout
		}
		for i := range r.Nodes {
			if n := &r.Nodes[i]; n.State == v1alpha1.UnitFailed {
				failures = append(failures, failure{rollout: called(k, r.Namespace, r.Name), node: n.Node, reason: n.Reason, lasts: n.Lasts()})
			}
		}
	}
	return failures
}

func list(k *target.Kind, failures []failure) string {
	const few = 10
	var all []string
	for _, f := range failures[:min(len(failures), few)] {
		what := f.node
		if k == target.Node {
			what = f.rollout
		}
		all = append(all, what+" ("+string(f.reason)+")")
	}
	text := strings.Join(all, ", ")
	if more := len(failures) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func where(k *target.Kind, name string) string {
	if k == target.Node {
		return "on node " + name
	}
	return "of " + k.String(name)
}
