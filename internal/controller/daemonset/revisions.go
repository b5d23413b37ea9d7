// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/events"
)

// defaultHistory is how many revisions without pods are kept, as apps/v1 DaemonSet keeps them.
const defaultHistory = 10

// revise finds which revision is wanted, and which is active. It makes the set of a new one, and writes down which one has
// become active; then the pass is over.
func (p *pass) revise(ctx context.Context) (again bool, err error) {
	if p.hash, err = daemon.TemplateHash(&p.spec.Template); err != nil {
		return false, fmt.Errorf("hashing the template, %w", err)
	}
	p.active = p.find(p.eds.Status.ActiveReplicaSet)
	p.target = p.wanted(p.sets)
	if p.target == nil {
		return true, p.newRevision(ctx)
	}
	switch {
	case p.active == nil:
		// At the beginning, or when somebody has deleted the active one: its pods go with it.
		return true, p.activate(ctx, p.successor())
	case p.active != p.target && p.strategy.Canary == nil && !failed(p.target):
		return true, p.activate(ctx, p.target)
	}
	return false, errors.Join(p.selects(ctx), p.adopt(ctx))
}

// adopt makes the sets that are nobody's its own: they go with it. Whether it goes itself by now is read live: when it is deleted
// without its sets, they are nobody's before the cache shows that it is gone, and what it owned then would go after all.
func (p *pass) adopt(ctx context.Context) error {
	orphan := func(rs *edsv1.ExtendedDaemonSetReplicaSet) bool { return metav1.GetControllerOf(rs) == nil }
	if !slices.ContainsFunc(p.sets, orphan) {
		return nil
	}
	var live edsv1.ExtendedDaemonSet
	if err := p.live.Get(ctx, p.key, &live); err != nil {
		return fmt.Errorf("reading the ExtendedDaemonSet, %w", err)
	}
	if live.UID != p.eds.UID || live.DeletionTimestamp != nil {
		return nil
	}
	for _, rs := range p.sets {
		if !orphan(rs) {
			continue
		}
		changed := rs.DeepCopy()
		changed.OwnerReferences = append(changed.OwnerReferences, *metav1.NewControllerRef(p.eds, edsv1.GroupVersion.WithKind(kind)))
		if err := p.client.Patch(ctx, changed, client.MergeFromWithOptions(rs, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("adopting revision %s, %w", rs.Name, err)
		}
	}
	return nil
}

func (p *pass) find(name string) *edsv1.ExtendedDaemonSetReplicaSet {
	for _, rs := range p.sets {
		if rs.Name == name {
			return rs
		}
	}
	return nil
}

// wanted is the set of the template: the active one, if several are, and else the oldest.
func (p *pass) wanted(sets []*edsv1.ExtendedDaemonSetReplicaSet) *edsv1.ExtendedDaemonSetReplicaSet {
	var found *edsv1.ExtendedDaemonSetReplicaSet
	for _, rs := range sets {
		if hashOf(rs) == p.hash && (found == nil || rs.Name == p.eds.Status.ActiveReplicaSet) {
			found = rs
		}
	}
	return found
}

func hashOf(rs *edsv1.ExtendedDaemonSetReplicaSet) string {
	if rs.Spec.TemplateGeneration != "" {
		return rs.Spec.TemplateGeneration
	}
	return rs.Annotations[edsv1.AnnotationTemplateHash]
}

func failed(rs *edsv1.ExtendedDaemonSetReplicaSet) bool {
	return edsv1.IsConditionTrue(rs.Status.Conditions, edsv1.ConditionCanaryFailed)
}

// successor is what becomes active where nothing is: the set that was active before its name was lost from the status, or else the
// one of the template. When the active one was deleted while another was being tried, or had failed, that is not promoted by
// it as long as there is a third.
func (p *pass) successor() *edsv1.ExtendedDaemonSetReplicaSet {
	for _, rs := range slices.Backward(p.sets) {
		if edsv1.IsConditionTrue(rs.Status.Conditions, edsv1.ConditionActive) {
			return rs
		}
	}
	s := &p.eds.Status
	// Without a change since, and without a canary, it is the template's own set that was deleted.
	same := s.Canary == nil && s.ObservedGeneration == p.eds.Generation
	if s.ActiveReplicaSet == "" || (same || p.strategy.Canary == nil) && !failed(p.target) {
		return p.target
	}
	for _, rs := range slices.Backward(p.sets) {
		if rs != p.target && !failed(rs) {
			return rs
		}
	}
	return p.target
}

// newRevision makes the set of a template that has none. Another pass, or another process, may have made it a moment ago, and may
// be about to: each would give it the same name.
func (p *pass) newRevision(ctx context.Context) error {
	var live edsv1.ExtendedDaemonSetReplicaSetList
	if err := p.live.List(ctx, &live, client.InNamespace(p.key.Namespace), client.MatchingLabels{edsv1.LabelName: p.key.Name}); err != nil {
		return fmt.Errorf("listing revisions, %w", err)
	}
	for i := range live.Items {
		if p.isWanted(&live.Items[i]) {
			return nil // The cache will show it.
		}
	}
	rs := &edsv1.ExtendedDaemonSetReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.key.Namespace, GenerateName: p.key.Name + "-", Name: daemon.RevisionName(p.eds, p.hash),
			Labels: maps.Clone(p.eds.Labels), Annotations: maps.Clone(p.eds.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.eds, edsv1.GroupVersion.WithKind(kind))},
		},
		Spec: edsv1.ExtendedDaemonSetReplicaSetSpec{Selector: p.spec.Selector, Template: *p.spec.Template.DeepCopy(), TemplateGeneration: p.hash},
	}
	metav1.SetMetaDataLabel(&rs.ObjectMeta, edsv1.LabelName, p.key.Name)
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, edsv1.AnnotationTemplateHash, p.hash)
	err := p.client.Create(ctx, rs)
	if apierrors.IsAlreadyExists(err) {
		var other edsv1.ExtendedDaemonSetReplicaSet
		err = p.live.Get(ctx, client.ObjectKeyFromObject(rs), &other)
		if err == nil && p.isWanted(&other) {
			return nil
		}
		if err == nil { // It is somebody else's, or going: any other name will do.
			rs.Name = ""
			err = p.client.Create(ctx, rs)
		}
	}
	if err != nil {
		return fmt.Errorf("creating a revision, %w", err)
	}
	log.FromContext(ctx).Info("revision created", "revision", rs.Name)
	p.events.Emit(events.ReplicaSetCreated(p.eds, rs.Name))
	return nil
}

// isWanted reports whether a set is the ExtendedDaemonSet's own, and has its template.
func (p *pass) isWanted(rs *edsv1.ExtendedDaemonSetReplicaSet) bool {
	return hashOf(rs) == p.hash && owns(p.eds, rs) && rs.DeletionTimestamp == nil
}

// uncounted is the message of the first status.
const uncounted = "its pods are not counted yet"

// activate writes down which revision is active from now on.
func (p *pass) activate(ctx context.Context, rs *edsv1.ExtendedDaemonSetReplicaSet) error {
	before := p.eds.Status.ActiveReplicaSet
	p.eds.Status.ActiveReplicaSet = rs.Name
	p.endCanary()
	if s := &p.eds.Status; s.ObservedGeneration == 0 {
		// Nothing has been counted yet, and nobody is to take that for an ExtendedDaemonSet that has all its pods.
		set(&s.Conditions, edsv1.ConditionReconciling, true, "Progressing", uncounted, p.now)
		set(&s.Conditions, edsv1.ConditionReady, false, "Progressing", uncounted, p.now)
	}
	if err := p.writeStatus(ctx); err != nil {
		return fmt.Errorf("writing which revision is active, %w", err)
	}
	log.FromContext(ctx).Info("revision is active", "revision", rs.Name, "before", before)
	switch {
	case p.canary != nil:
		p.events.Emit(events.CanaryPromoted(p.eds, rs.Name))
	case before != "":
		p.events.Emit(events.ReplicaSetActivated(p.eds, rs.Name))
	}
	return nil
}

// selects keeps the copies of the selector like the original: they are what people see.
func (p *pass) selects(ctx context.Context) error {
	for _, rs := range []*edsv1.ExtendedDaemonSetReplicaSet{p.target, p.active} {
		if equality.Semantic.DeepEqual(rs.Spec.Selector, p.spec.Selector) {
			continue
		}
		changed := rs.DeepCopy()
		changed.Spec.Selector = p.spec.Selector
		if err := p.client.Patch(ctx, changed, client.MergeFrom(rs)); err != nil {
			return fmt.Errorf("writing the selector of revision %s, %w", rs.Name, err)
		}
	}
	return nil
}

// lastUsed is until when a revision was active, or when it was made if it never was.
func (p *pass) lastUsed(rs *edsv1.ExtendedDaemonSetReplicaSet) time.Time {
	c := edsv1.FindCondition(rs.Status.Conditions, edsv1.ConditionActive)
	switch {
	case c == nil:
		return rs.CreationTimestamp.Time
	case c.Status == metav1.ConditionTrue:
		return p.now // It was a moment ago, and that it is not any more is still to be written.
	}
	return c.LastTransitionTime.Time
}

// prune deletes revisions that have no pods and are not needed any more: first those that were not active for longest, so that the
// last good one stays to go back to, also if a bad one that came after it is younger.
func (p *pass) prune(ctx context.Context) error {
	if p.slowed.Load() {
		return nil
	}
	var idle []*edsv1.ExtendedDaemonSetReplicaSet
	for _, rs := range p.sets {
		if rs != p.active && rs != p.target && p.revisions[rs.Name].pods == 0 {
			idle = append(idle, rs)
		}
	}
	slices.SortStableFunc(idle, func(a, b *edsv1.ExtendedDaemonSetReplicaSet) int { return p.lastUsed(a).Compare(p.lastUsed(b)) })
	limit := defaultHistory
	if p.spec.RevisionHistoryLimit != nil {
		limit = int(*p.spec.RevisionHistoryLimit)
	}
	for _, rs := range idle[:max(0, len(idle)-limit)] {
		gone := client.Preconditions{UID: &rs.UID, ResourceVersion: &rs.ResourceVersion}
		switch err := p.client.Delete(ctx, rs, gone); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("deleting revision %s, %w", rs.Name, err)
		default:
			log.FromContext(ctx).Info("revision deleted", "revision", rs.Name)
			p.events.Emit(events.ReplicaSetDeleted(p.eds, rs.Name))
		}
	}
	return nil
}
