// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	turnof "moult.dev/moult/internal/turn"
)

// CacheOptions bounds the cache of NodeRollouts to what this controller reads.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{turnof.Object(): {Transform: cache.TransformStripManagedFields()}}
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	if err := m.Add(manager.RunnableFunc(c.pods.Run)); err != nil {
		return fmt.Errorf("following pods, %w", err)
	}
	return ctrl.NewControllerManagedBy(m).
		Named("noderollout.replacement").
		For(turnof.Object(), builder.WithPredicates(turnof.RolloutChanged)).
		Watches(&corev1.Node{}, turnof.Soon(turnof.RolloutsOfNode(c.Client, true)), builder.WithPredicates(turnof.NodeChanged)).
		WatchesRawSource(source.Channel(c.Fleet.Wake(ctx, c.Waiting), turnof.Soon(turnof.Itself))).
		WatchesRawSource(c.woken.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(1, c.options.Threads)}).
		Complete(c)
}
