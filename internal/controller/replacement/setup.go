// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"moult.dev/moult/internal/fleet"
	turnof "moult.dev/moult/internal/turn"
)

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	// Most reconciles wait for a cloud.
	b, err := c.NewController(m, "noderollout.replacement", 4*c.options.Threads, turnof.Object(),
		fleet.Coalesce, turnof.RolloutsOfNode(c.Client, turnof.GroupVersionKind, "", turnof.Replaces))
	if err != nil {
		return err
	}
	return errors.Join(m.GetFieldIndexer().IndexField(ctx, turnof.Object(), indexMachines, indexedByMachines), b.Complete(c))
}
