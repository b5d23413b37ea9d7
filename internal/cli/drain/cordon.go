// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/node"
)

func newCordon(c *command) *cobra.Command {
	return c.complete(&cobra.Command{
		Use:     "cordon NODE...",
		Short:   "Mark nodes as unschedulable",
		Long:    "Mark nodes as unschedulable, so that no new pods come to them.",
		Example: "  moult cordon node-1\n  moult cordon -l zone=a --dry-run=server",
	}, func(ctx context.Context, args []string) error {
		api, nodes, err := c.nodes(ctx, args)
		if err != nil {
			return err
		}
		by, err := c.environment.holder()
		if err != nil {
			return err
		}
		_, err = c.each(nodes, "cordoned", func(n *corev1.Node) (bool, error) {
			if c.dryRun.Client() {
				return !n.Spec.Unschedulable, nil
			}
			return node.Cordon(ctx, c.writer(api), n, by)
		})
		return err
	})
}

func newUncordon(c *command) *cobra.Command {
	return c.complete(&cobra.Command{
		Use:   "uncordon NODE...",
		Short: "Mark nodes as schedulable",
		Long: `Mark nodes as schedulable, whoever cordoned them, and undo what a drain has left on them: the label that keeps external
load balancers off, if a drain has put it there, and the conditions MaintenanceInProgress and Drained.`,
		Example: "  moult uncordon node-1",
	}, func(ctx context.Context, args []string) error {
		api, nodes, err := c.nodes(ctx, args)
		if err != nil {
			return err
		}
		_, err = c.each(nodes, "uncordoned", func(n *corev1.Node) (bool, error) {
			cordoned := n.Spec.Unschedulable
			if c.dryRun.Client() {
				return cordoned, nil
			}
			if _, err := node.Uncordon(ctx, c.writer(api), n); err != nil {
				return false, err
			}
			if _, err := node.ClearConditions(ctx, c.writer(api), n, "", c.clock.Now()); err != nil {
				fmt.Fprintf(c.ErrOut, "Warning: %v\n", err)
			}
			return cordoned, nil
		})
		return err
	})
}

// writer is the client to write with: in a dry run the API server writes nothing.
func (c *command) writer(api client.Client) client.Client {
	if c.dryRun.Server() {
		return client.NewDryRunClient(api)
	}
	return api
}

// each does the same to every node, prints the result, and returns the nodes that it succeeded with.
func (c *command) each(nodes []corev1.Node, what string, do func(*corev1.Node) (changed bool, err error)) ([]corev1.Node, error) {
	var done []corev1.Node
	var errs []error
	for i := range nodes {
		changed, err := do(&nodes[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		already := ""
		if !changed {
			already = "already "
		}
		fmt.Fprintf(c.Out, "node/%s %s%s%s\n", nodes[i].Name, already, what, c.dryRun.Suffix())
		done = append(done, nodes[i])
	}
	return done, errors.Join(errs...)
}
