// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"slices"
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
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// gone releases what a NodeRollout has left that is gone, or whose name is now that of one with a replacement. No change of a node wakes the latter.
func (c *Controller) gone(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) (wake time.Time, err error) {
	live := types.UID("")
	if stored != nil && turn.Replaces(stored) {
		live = stored.GetUID()
		c.Waiting.Done(key)
	} else {
		c.Forget(key)
		metrics.ForgetNodeRollout(key)
	}
	c.Works.Keep(key, nil)
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return wake, err
	}
	return c.clear(ctx, key, live, s)
}

// clear releases what an earlier NodeRollout of this name has left on nodes; live is the uid of the present one. A host that has the order to reboot
// is waited for.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) (wake time.Time, err error) {
	holder, taint := hostupdate.HolderOf(key.Name), nodeturn.TaintOf(key.Name)
	var errs []error
	for _, n := range s.Objects {
		known := s.Nodes[n.Name]
		left := slices.IndexFunc(known.Claims, func(claim v1alpha1.Claim) bool {
			return claim.Rollout == holder && claim.UID != live && claim.Machine == ""
		})
		marked := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case left >= 0:
			at, err := c.releaseWhenBack(ctx, n, known.Claims[left])
			if errs = append(errs, err); !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
				wake = at
			}
		case live != "":
		case nodeturn.Tainted(n, taint):
			errs = append(errs, node.Untaint(ctx, c.Client, n, taint))
		case marked && known.ClaimError == "":
			errs = append(errs, c.release(ctx, n, v1alpha1.Claim{Rollout: holder}, endOrders(n, "", v1alpha1.RebootHooks{})))
		}
	}
	return wake, turn.First(errs)
}

// releaseWhenBack releases a node whose rollout is gone, unless its host is rebooting: then it returns until when that is waited for.
func (c *Controller) releaseWhenBack(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim) (wake time.Time, err error) {
	if phase, since := hostupdate.PhaseOf(&claim); phase == v1alpha1.PhaseChanging && claim.Failed == nil && !hostupdate.IsBack(n, &claim) {
		if deadline := since.Add(hostupdate.DefaultRebootTimeout); c.Clock.Now().Before(deadline) {
			return deadline, nil
		}
	}
	if err := c.release(ctx, n, claim, endOrders(n, claim.UID, v1alpha1.RebootHooks{})); err != nil {
		return wake, err
	}
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return wake, nil
}

func (c *Controller) release(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim, also []node.Also) error {
	return turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), also)
}
