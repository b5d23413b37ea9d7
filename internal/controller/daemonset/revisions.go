// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
)

// revise creates the ReplicaSet of a new template, and writes which ReplicaSet becomes active. Each of these ends the pass.
func (p *pass) revise(ctx context.Context) (again bool, err error) {
	switch {
	case !p.TargetExists:
		return true, p.createRevision(ctx)
	case p.Active == nil:
		// At the beginning, or after the active ReplicaSet was deleted with its pods.
		return true, p.activate(ctx, p.Successor())
	case p.Active != p.Target && p.Strategy.Canary == nil && !daemonset.HasFailed(p.Target):
		return true, p.activate(ctx, p.Target)
	}
	return false, errors.Join(p.copySelector(ctx), p.adopt(ctx))
}

// adopt makes the ExtendedDaemonSet the owner of ReplicaSets without an owner, so that garbage collection deletes them. It first reads
// live that the ExtendedDaemonSet exists: after a deletion with --cascade=orphan they must stay.
func (p *pass) adopt(ctx context.Context) error {
	orphans := slices.DeleteFunc(slices.Clone(p.Owned), func(rs *daemonset.ReplicaSet) bool { return metav1.GetControllerOfNoCopy(rs) != nil })
	if len(orphans) == 0 {
		return nil
	}
	var live edsv1.ExtendedDaemonSet
	if err := p.live.Get(ctx, p.key, &live); err != nil {
		return fmt.Errorf("reading the ExtendedDaemonSet, %w", err)
	}
	if live.UID != p.EDS.UID || live.DeletionTimestamp != nil {
		return nil
	}
	for _, rs := range orphans {
		changed := rs.DeepCopy()
		changed.OwnerReferences = append(changed.OwnerReferences, *metav1.NewControllerRef(p.EDS, edsv1.GroupVersion.WithKind(edsKind)))
		if err := p.client.Patch(ctx, changed, client.MergeFromWithOptions(rs, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("adopting revision %s, %w", rs.Name, err)
		}
	}
	return nil
}

// createRevision creates the ReplicaSet of the template.
func (p *pass) createRevision(ctx context.Context) error {
	if err := p.client.Create(ctx, p.Target); err != nil {
		return fmt.Errorf("creating a revision, %w", err)
	}
	log.FromContext(ctx).Info("revision created", "revision", p.Target.Name)
	p.events.Emit(events.ReplicaSetCreated(p.EDS, p.Target.Name))
	return nil
}

// uncounted is the message in the first status.
const uncounted = "its pods are not counted yet"

// activate writes which revision is active from now on.
func (p *pass) activate(ctx context.Context, rs *daemonset.ReplicaSet) error {
	before := p.EDS.Status.ActiveReplicaSet
	p.EDS.Status.ActiveReplicaSet = rs.Name
	p.EndCanary()
	clear(p.Batches) // They are those of the revision before.
	if s := &p.EDS.Status; s.ObservedGeneration == 0 {
		// No pods are counted yet. The rollout must not look complete.
		daemonset.SetCondition(&s.Conditions, edsv1.ConditionReconciling, true, "Progressing", uncounted, p.now)
		daemonset.SetCondition(&s.Conditions, edsv1.ConditionReady, false, "Progressing", uncounted, p.now)
	}
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	log.FromContext(ctx).Info("revision is active", "revision", rs.Name, "before", before)
	switch {
	case p.Canary != nil:
		p.events.Emit(events.CanaryPromoted(p.EDS, rs.Name))
	case before != "":
		p.events.Emit(events.ReplicaSetActivated(p.EDS, rs.Name))
	}
	return nil
}

// copySelector copies the ExtendedDaemonSet's selector to its ReplicaSets, where people look it up.
func (p *pass) copySelector(ctx context.Context) error {
	for _, rs := range []*daemonset.ReplicaSet{p.Target, p.Active} {
		if equality.Semantic.DeepEqual(rs.Spec.Selector, p.Spec.Selector) {
			continue
		}
		changed := rs.DeepCopy()
		changed.Spec.Selector = p.Spec.Selector
		if err := p.client.Patch(ctx, changed, client.MergeFrom(rs)); err != nil {
			return fmt.Errorf("writing the selector of revision %s, %w", rs.Name, err)
		}
	}
	return nil
}

// deleteIdleRevisions deletes the revisions that are not needed any more.
func (p *pass) deleteIdleRevisions(ctx context.Context) error {
	var errs []error
	for _, rs := range p.Idle() {
		if err := p.client.Delete(ctx, rs, client.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion}); err != nil {
			errs = append(errs, client.IgnoreNotFound(fmt.Errorf("deleting revision %s, %w", rs.Name, err)))
			continue
		}
		log.FromContext(ctx).Info("revision deleted", "revision", rs.Name)
		p.events.Emit(events.ReplicaSetDeleted(p.EDS, rs.Name))
	}
	return errors.Join(errs...)
}
