// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/turn"
)

// CacheOptions bounds the cache of NodeRollouts to what this controller reads.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{turn.Object(): {Transform: cache.TransformStripManagedFields()}}
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	b, err := c.NewController(ctx, m, "noderollout.hostupdate", c.options.Threads, turn.Object(), turn.RolloutsOfNode(c.Client, false))
	if err != nil {
		return err
	}
	return b.Complete(c)
}
