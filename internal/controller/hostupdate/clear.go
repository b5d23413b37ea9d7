// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// releaseAll releases the nodes of a NodeRollout that is deleted, or that now uses replacement. Changes of nodes do not wake the latter.
func (c *Controller) releaseAll(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) (wake time.Time, err error) {
	live := types.UID("")
	if stored != nil && turn.Replaces(stored) {
		live = stored.GetUID()
		c.Waiting.Set(key, false)
	} else {
		c.Forget(key)
		metrics.ForgetNodeRollout(key)
	}
	c.Works.StopExcept(key, nil)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	return c.clear(ctx, key, live, s)
}

// clear releases the nodes of an earlier NodeRollout of this name. live is the uid of the present one. While hosts still reboot, wake is when
// the wait for the first of them ends.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) (wake time.Time, err error) {
	errs := c.Clear(ctx, hostupdate.HolderOf(key.Name), nodeturn.TaintOf(key.Name), live, &s, func(n *corev1.Node, claim v1alpha1.Claim) error {
		at, err := c.releaseWhenBack(ctx, n, claim)
		wake = rollout.Earlier(wake, at)
		return err
	})
	return wake, turn.First(errs)
}

// releaseWhenBack releases a node whose rollout is gone. While its host reboots, it instead returns when the wait for the host ends.
func (c *Controller) releaseWhenBack(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim) (wake time.Time, err error) {
	if phase, since := hostupdate.PhaseOf(&claim); phase == v1alpha1.PhaseChanging && claim.Failed == nil && !hostupdate.IsBack(n, &claim) {
		if deadline := since.Add(hostupdate.DefaultRebootTimeout); c.Clock.Now().Before(deadline) {
			return deadline, nil
		}
	}
	if err := turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), endOrders(n, claim.UID, v1alpha1.RebootHooks{})); err != nil {
		return wake, err
	}
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return wake, nil
}
