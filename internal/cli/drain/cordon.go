// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/node"
)

func newCordon(c *command) *cobra.Command {
	return c.mount(&cobra.Command{
		Use:     "cordon NODE...",
		Short:   "Mark nodes as unschedulable",
		Long:    "Mark nodes as unschedulable, so that no new pods come to them.",
		Example: "  moult cordon node-1\n  moult cordon -l zone=a --dry-run=server",
	}, func(ctx context.Context, args []string) error {
		api, nodes, err := c.nodes(ctx, args)
		if err != nil {
			return err
		}
		by, err := c.environment.by()
		if err != nil {
			return err
		}
		_, err = c.each(nodes, "cordoned", func(n *target) (bool, error) {
			if c.dryRun == dryRunClient {
				return !n.Spec.Unschedulable, nil
			}
			return node.Cordon(ctx, c.write(api), n, by)
		})
		return err
	})
}

func newUncordon(c *command) *cobra.Command {
	return c.mount(&cobra.Command{
		Use:   "uncordon NODE...",
		Short: "Mark nodes as schedulable",
		Long: `Mark nodes as schedulable, whoever cordoned them, and take back what a drain has left on them: the label that keeps external
load balancers off, if a drain has put it there, and the conditions MaintenanceInProgress and Drained.`,
		Example: "  moult uncordon node-1",
	}, func(ctx context.Context, args []string) error {
		api, nodes, err := c.nodes(ctx, args)
		if err != nil {
			return err
		}
		_, err = c.each(nodes, "uncordoned", func(n *target) (bool, error) {
			if c.dryRun == dryRunClient {
				return n.Spec.Unschedulable, nil
			}
			was := n.Spec.Unschedulable
			if _, err := node.Uncordon(ctx, c.write(api), n); err != nil {
				return false, err
			}
			if _, err := node.ClearConditions(ctx, c.write(api), n, "", c.clock.Now()); err != nil {
				fmt.Fprintf(c.ErrOut, "Warning: %v\n", err)
			}
			return was, nil
		})
		return err
	})
}

// write is the client to write with: in a dry run the API server writes nothing.
func (c *command) write(api client.Client) client.Client {
	if c.dryRun == dryRunServer {
		return client.NewDryRunClient(api)
	}
	return api
}

// each does the same to every node, says what became of it, and gives those that it succeeded with.
func (c *command) each(nodes []target, what string, do func(*target) (bool, error)) ([]target, error) {
	var done []target
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
		fmt.Fprintf(c.Out, "node/%s %s%s%s\n", nodes[i].Name, already, what, c.dryRun.suffix())
		done = append(done, nodes[i])
	}
	return done, errors.Join(errs...)
}
