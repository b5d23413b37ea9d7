// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// clear takes away what a NodeRollout that is gone has left, or one of the same name before the present one. A host that was told to reboot is
// waited for.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) (wake time.Time, err error) {
	holder := node.Holder(kind, key)
	var errs []error
	for _, n := range s.Objects {
		claims := s.Nodes[n.Name].Claims
		if live != "" && len(claims) == 0 {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(claims), func(claim v1alpha1.Claim) bool {
			return claim.Rollout != holder || claim.UID == live || claim.Machine != ""
		})
		marks := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case len(left) > 0:
			at, err := c.leave(ctx, n, left[0])
			if errs = append(errs, err); !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
				wake = at
			}
		case live != "":
		case node.Tainted(n, turn.TaintOf(key.Name)):
			errs = append(errs, node.Untaint(ctx, c.Client, n, turn.TaintOf(key.Name)))
		case marks && s.Nodes[n.Name].ClaimError == "":
			errs = append(errs, c.release(ctx, n, v1alpha1.Claim{Rollout: holder}, ending(n, "", nil)))
		}
	}
	return wake, turn.First(errs)
}

// leave gives a node back that a rollout has which is gone, unless its host is on its way through a reboot: then it says how long to wait.
func (c *Controller) leave(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim) (wake time.Time, err error) {
	if claim.Rebooting != nil && claim.Changed == nil && claim.Soaking == nil && claim.Failed == nil {
		t := unit{Turn: turn.Turn{Node: n, Claim: &claim}, known: fleet.NodeOf(n)}
		t.report, t.speaks = hostupdate.Read(n)
		if deadline := claim.Rebooting.Add(defaultRebootTimeout); !t.back() && c.Clock.Now().Before(deadline) {
			return deadline, nil
		}
	}
	if err := c.release(ctx, n, claim, ending(n, claim.UID, nil)); err != nil {
		return wake, err
	}
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return wake, nil
}

func (c *Controller) release(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim, also []node.Also) error {
	return turn.Release(ctx, c.Client, n, claim, c.Clock.Now(), also)
}
