// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/fleet"
	turnof "moult.dev/moult/internal/turn"
)

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	if err := m.GetFieldIndexer().IndexField(ctx, turnof.Object(), indexMachines, indexedByMachines); err != nil {
		return fmt.Errorf("indexing NodeRollouts, %w", err)
	}
	// Most reconciles wait for a cloud.
	b, err := c.NewController(m, "noderollout.replacement", 8*c.options.Threads, turnof.Object(),
		fleet.Coalesce, turnof.RolloutsOfNode(c.Client, turnof.GroupVersionKind, "", turnof.Replaces))
	if err != nil {
		return err
	}
	return b.Complete(c)
}
