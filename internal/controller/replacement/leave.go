// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	turnof "moult.dev/moult/internal/turn"
)

// forget drops a NodeRollout that is gone, or is none of this controller's, and releases its nodes.
func (c *Controller) forget(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) error {
	c.queued.Done(key)
	c.waves.Forget(key)
	c.memory.forget(key)
	c.works.Keep(key, nil)
	live := types.UID("")
	if stored != nil {
		live = stored.GetUID()
	} else {
		metrics.ForgetNodeRollout(key)
	}
	s, err := c.fleet.Snapshot(ctx)
	if err != nil {
		return err
	}
	return turnof.First([]error{c.clear(ctx, key, live, s), c.unshield(ctx, key, s)})
}

// unshield lets the cluster autoscaler have the nodes again that a NodeRollout kept from it which is gone. Those with its claim are released with that.
func (c *Controller) unshield(ctx context.Context, key types.NamespacedName, s fleet.Snapshot) error {
	holder := node.Holder(turnof.Kind, key)
	var errs []error
	for _, n := range s.Objects {
		if n.Annotations[v1alpha1.AnnotationScaleDownBy] != holder ||
			slices.ContainsFunc(s.Nodes[n.Name].Claims, func(c v1alpha1.Claim) bool { return c.Rollout == holder }) {
			continue
		}
		errs = append(errs, client.IgnoreNotFound(node.Write(ctx, c.client, n, node.Step{
			Claim: v1alpha1.Claim{Rollout: holder}, Unclaimed: true, Also: []node.Also{unshielding(holder)},
		})))
	}
	return turnof.First(errs)
}

// clear releases nodes that a NodeRollout has which is gone, or one of the same name before the present one.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) error {
	holder := node.Holder(turnof.Kind, key)
	var errs []error
	for _, n := range s.Objects {
		for _, claim := range s.Nodes[n.Name].Claims {
			if claim.Rollout != holder || claim.UID == live || claim.Machine == "" {
				continue
			}
			errs = append(errs, turnof.Release(ctx, c.client, n, claim, c.clock.Now(), []node.Also{unshielding(holder)}))
			log.FromContext(ctx).Info("node released", "node", n.Name)
			break
		}
	}
	return turnof.First(errs)
}

// keep puts the finalizer on the NodeRollout: from now on there is something to be ended before it may go.
func (p *pass) keep(ctx context.Context) error {
	if slices.Contains(p.stored.GetFinalizers(), v1alpha1.FinalizerReplacement) || p.rules.Ending {
		return nil
	}
	return p.finalizers(ctx, append(slices.Clone(p.stored.GetFinalizers()), v1alpha1.FinalizerReplacement))
}

// leave takes the finalizer off, once nothing is left of what the NodeRollout has begun.
func (p *pass) leave(ctx context.Context) error {
	if p.rollout.DeletionTimestamp == nil || !slices.Contains(p.stored.GetFinalizers(), v1alpha1.FinalizerReplacement) || len(p.rollout.Status.Turns) > 0 {
		return nil
	}
	for i := range p.rollout.Status.ScaleSets {
		if len(p.rollout.Status.ScaleSets[i].Operations) > 0 {
			return nil
		}
	}
	for name, s := range p.memo.sets {
		if p.maybeSuspended(name, s) {
			return nil // It is let go on first.
		}
	}
	for _, o := range p.snapshot.Objects {
		n := p.nodeOf(o)
		if n.Claim != nil || n.Marked && !n.Unreadable || n.Shielded || node.Tainted(n.Node, p.taint) {
			return nil // It is released first.
		}
	}
	log.FromContext(ctx).Info("nothing is left of the rollout")
	return client.IgnoreNotFound(p.finalizers(ctx, slices.DeleteFunc(slices.Clone(p.stored.GetFinalizers()), func(f string) bool { return f == v1alpha1.FinalizerReplacement })))
}

// maybeSuspended reports whether a set may have been told not to move machines about, and was not told since that it may. Where the spec can't be carried
// out no cloud can be asked, and only what this process has done counts.
func (p *pass) maybeSuspended(name string, s *set) bool {
	switch {
	case s.suspended != nil:
		return *s.suspended && !s.absent
	case !p.ready || s.absent:
		return false
	case p.api == nil:
		return p.replacement.Provider.AWS != nil // Others have nothing to be suspended.
	}
	_, can := p.api.ScaleSet(name).(cloud.Suspender)
	return can
}

// finalizers writes those of the NodeRollout.
func (p *pass) finalizers(ctx context.Context, all []string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": p.stored.GetResourceVersion(), "finalizers": all}})
	if err != nil {
		return err
	}
	changed := turnof.Object()
	changed.SetName(p.key.Name)
	if err := p.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("writing finalizers, %w", err)
	}
	p.stored = changed
	p.memory.wrote(p.memo, changed)
	return nil
}

// unshielding lets the cluster autoscaler have a node again, if this rollout has kept it from it.
func unshielding(holder string) node.Also {
	return func(n *corev1.Node, by string) bool {
		if n.Annotations[v1alpha1.AnnotationScaleDownBy] != holder {
			return false
		}
		return shielding(false, holder)(n, by)
	}
}
