// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	turnof "moult.dev/moult/internal/turn"
)

// forget drops the memory of a NodeRollout that is gone or belongs to another controller, and releases its nodes.
func (c *Controller) forget(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) error {
	c.Waiting.Set(key, false)
	c.memos.Delete(key)
	c.Works.StopExcept(key, nil)
	if stored == nil {
		c.Forget(key)
		metrics.ForgetNodeRollout(key)
	}
	s, err := c.Fleet.Snapshot(ctx)
	if err != nil {
		return err
	}
	return c.releaseStaleClaims(ctx, key, "", s)
}

// releaseStaleClaims releases the nodes of a NodeRollout that is gone. live is the uid of the present one of this name, if there is one.
func (c *Controller) releaseStaleClaims(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) error {
	holder := node.Holder(turnof.Kind, key)
	also := []node.Also{enablingScaleDown(holder)}
	var errs []error
	for _, n := range s.Objects {
		claims := slices.DeleteFunc(slices.Clone(s.Nodes[n.Name].Claims), func(c v1alpha1.Claim) bool { return c.Rollout != holder || c.UID == live || c.Machine == "" })
		switch {
		case len(claims) > 0:
			errs = append(errs, turnof.Release(ctx, c.Client, n, claims[0], c.Clock.Now(), also))
			log.FromContext(ctx).Info("node released", "node", n.Name)
		case live == "" && n.Annotations[v1alpha1.AnnotationScaleDownBy] == holder:
			edit := node.Edit{Claim: v1alpha1.Claim{Rollout: holder}, KeepClaims: true, Also: also}
			errs = append(errs, client.IgnoreNotFound(node.Write(ctx, c.Client, n, edit)))
		}
	}
	return turnof.First(errs)
}

// removeFinalizer removes the finalizer when no turns, operations, claims or marks are left.
func (p *pass) removeFinalizer(ctx context.Context) error {
	if p.rollout.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(p.stored, v1alpha1.FinalizerReplacement) || len(p.rollout.Status.Turns) > 0 {
		return nil
	}
	hasOperations := func(s v1alpha1.ScaleSetStatus) bool { return len(s.Operations) > 0 }
	if slices.ContainsFunc(p.rollout.Status.ScaleSets, hasOperations) || slices.ContainsFunc(slices.Collect(maps.Values(p.memo.sets)), p.maybeSuspended) {
		return nil // These end first.
	}
	for _, o := range p.Seen.Objects {
		n := p.nodeOf(o)
		if n.Claim != nil || n.Marked && !n.Unreadable || n.NoScaleDown || nodeturn.Tainted(n.Node, p.Taint) {
			return nil // It is released first.
		}
	}
	log.FromContext(ctx).Info("nothing is left of the rollout")
	return client.IgnoreNotFound(p.editFinalizer(ctx, controllerutil.RemoveFinalizer))
}

// maybeSuspended reports whether the balancing of zones may be suspended in a set. If the spec is wrong, no cloud can be asked: only what this
// process has done counts. Only AWS has something to suspend.
func (p *pass) maybeSuspended(s *set) bool {
	return !s.Deleted && p.replacement.Provider.AWS != nil && ptr.Deref(s.suspended, p.ready)
}

// editFinalizer adds the NodeRollout's finalizer, or removes it.
func (p *pass) editFinalizer(ctx context.Context, edit func(o client.Object, finalizer string) (edited bool)) error {
	changed := turnof.Copy(p.stored)
	if !edit(changed, v1alpha1.FinalizerReplacement) {
		return nil
	}
	if err := p.Client.Patch(ctx, changed, turnof.PatchFrom(p.stored)); err != nil {
		return fmt.Errorf("writing the finalizer, %w", err)
	}
	p.stored = changed
	return nil
}

// enablingScaleDown enables scale-down of a node again, if this rollout has disabled it.
func enablingScaleDown(holder string) node.Also {
	return func(n *corev1.Node, by string) {
		if n.Annotations[v1alpha1.AnnotationScaleDownBy] == holder {
			node.Annotating(map[string]*string{v1alpha1.AnnotationScaleDownDisabled: nil, v1alpha1.AnnotationScaleDownBy: nil})(n, by)
		}
	}
}
