// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/metrics"
)

// reportProblem writes the problem to the status.
func (p *pass) reportProblem(ctx context.Context, reason string, problem error) error {
	p.Summarize(reason, problem)
	return p.reportStatus(ctx, p.stalledEvents)
}

// refuse writes why the ExtendedDaemonSet is not carried out: conditions alone, because its CustomResourceDefinition lacks other fields.
func (p *pass) refuse(ctx context.Context, refused error) (wake time.Time, err error) {
	p.queued.Set(p.key, true) // A change of the definition wakes it.
	p.remembered(p.key)
	p.Judge = &daemonset.Judge{Facts: daemonset.Facts{EDS: p.stored.DeepCopy()}, Now: p.now}
	p.Summarize(v1alpha1.ReasonDefinitionIncomplete, refused)
	p.EDS.Status.ObservedGeneration = p.stored.Status.ObservedGeneration
	err = p.reportStatus(ctx, p.stalledEvents)
	return p.Wake, err
}

// report writes the statuses that changed, all at once, and then the Events.
func (p *pass) report(ctx context.Context) error {
	var writes []func() error
	for _, rs := range p.Owned {
		if status := p.ReplicaSetStatus(rs); p.isDue(rs, !equality.Semantic.DeepEqual(rs.Status, status)) {
			writes = append(writes, func() error { return p.writeRevision(ctx, rs, status) })
		}
	}
	p.Summarize("", nil)
	p.measure()
	return atOnce(append(writes, func() error { return p.reportStatus(ctx, p.rolloutEvents) }))
}

// reportStatus writes the status if it changed, and then the Events.
func (p *pass) reportStatus(ctx context.Context, changes func(before *edsv1.ExtendedDaemonSet) []events.Event) error {
	before := p.stored
	metrics.SetStalled(metrics.DaemonSet(p.key), edsv1.IsConditionTrue(p.EDS.Status.Conditions, edsv1.ConditionStalled))
	changed := !equality.Semantic.DeepEqual(before.Status, p.EDS.Status)
	if changed { // The history alone causes no write: clients that update the object meet no further conflict.
		p.EDS.Status.History = p.History(before.Status.History)
	}
	if !p.isDue(before, changed) {
		return nil
	}
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	p.events.Emit(changes(before)...)
	return nil
}

// isDue reports whether the status of an object is written now. If not, the next pass runs when it may be written.
func (p *pass) isDue(o client.Object, changed bool) bool {
	write, again := p.reports.Next(o.GetUID(), o.GetResourceVersion(), changed, p.now)
	p.WakeAt(again)
	return write
}

// writeRevision writes the whole status of a revision, if the object has not changed in the meantime. Some fields of the status
// must be present even if they are 0.
func (p *pass) writeRevision(ctx context.Context, rs *daemonset.ReplicaSet, status edsv1.ExtendedDaemonSetReplicaSetStatus) error {
	changed := rs.DeepCopy()
	changed.Status = status
	return p.update(ctx, changed)
}

// writeStatus writes the status as it is now, if the object has not changed in the meantime.
func (p *pass) writeStatus(ctx context.Context) error {
	changed := p.stored.DeepCopy()
	changed.ManagedFields = nil // The cache has only a part of them.
	changed.Status = *p.EDS.Status.DeepCopy()
	before := &p.stored.Status
	err := p.update(ctx, changed)
	if err == nil {
		p.events.Emit(events.Approved(p.EDS, before.Approval, before.Wave, changed.Status.Wave)...)
		p.stored = changed
	}
	return err
}

func (p *pass) update(ctx context.Context, changed client.Object) error {
	if err := p.client.Status().Update(ctx, changed); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of %s, %w", changed.GetName(), err))
	}
	p.reports.Written(changed.GetUID(), changed.GetResourceVersion(), p.now)
	return nil
}

// unannotate removes annotations of the ExtendedDaemonSet, if it has not changed in the meantime.
func (p *pass) unannotate(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	changed := p.stored.DeepCopy()
	maps.DeleteFunc(changed.Annotations, func(key, _ string) bool { return slices.Contains(keys, key) })
	if err := p.client.Patch(ctx, changed, client.MergeFromWithOptions(p.stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("removing %s, %w", strings.Join(keys, ", "), err))
	}
	p.stored.ResourceVersion = changed.ResourceVersion
	return nil
}

// stalledEvents are the Events of a rollout that has stalled since the status was last written.
func (p *pass) stalledEvents(before *edsv1.ExtendedDaemonSet) []events.Event {
	if !p.hasBecomeTrue(before, edsv1.ConditionStalled) {
		return nil
	}
	c := edsv1.TrueCondition(p.EDS.Status.Conditions, edsv1.ConditionStalled)
	return []events.Event{events.RolloutStalled(p.EDS, c.Reason+": "+c.Message)}
}

func (p *pass) hasBecomeTrue(before *edsv1.ExtendedDaemonSet, kind string) bool {
	return !edsv1.IsConditionTrue(before.Status.Conditions, kind) && edsv1.IsConditionTrue(p.EDS.Status.Conditions, kind)
}

// rolloutEvents are the Events of all that has changed since the status was last written.
func (p *pass) rolloutEvents(before *edsv1.ExtendedDaemonSet) []events.Event {
	var all []events.Event
	if p.hasBecomeTrue(before, edsv1.ConditionCanaryPaused) {
		all = append(all, events.CanaryPaused(p.EDS, p.Target.Name, string(p.EDS.Status.Reason), p.Canary.Verdict.Message))
	}
	if edsv1.IsConditionTrue(before.Status.Conditions, edsv1.ConditionCanaryPaused) && p.Canary != nil && !p.Canary.Paused() {
		all = append(all, events.CanaryUnpaused(p.EDS, p.Target.Name))
	}
	if p.hasBecomeTrue(before, edsv1.ConditionCanaryFailed) {
		c := edsv1.FindCondition(p.Target.Status.Conditions, edsv1.ConditionCanaryFailed)
		all = append(all, events.CanaryFailed(p.EDS, p.Target.Name, c.Reason, c.Message))
	}
	was := edsv1.FindCondition(before.Status.Conditions, edsv1.ConditionReconcileError)
	if c := edsv1.FindCondition(p.EDS.Status.Conditions, edsv1.ConditionReconcileError); c != nil && c.Reason == daemonset.ReasonRefused &&
		(was == nil || was.Message != c.Message) {
		all = append(all, events.PodCreateFailed(p.EDS, c.Message))
	}
	if p.hasBecomeTrue(before, edsv1.ConditionReady) {
		all = append(all, events.RolloutComplete(p.EDS))
	}
	return append(all, p.stalledEvents(before)...)
}

// measure sets the metrics of the nodes.
func (p *pass) measure() {
	states, reasons := map[v1alpha1.UnitState]int{}, map[v1alpha1.Reason]int{}
	units := p.Units
	if p.Canary != nil {
		units = p.Canary.Units
	}
	for i := range units {
		state := units[i].State
		s := p.State(units[i].Node)
		if state == v1alpha1.UnitUpdating && s.NodeProblem != "" && s.Current != nil {
			state = v1alpha1.UnitUpdated // The pod waits for its node.
		}
		if !s.IsMisplaced() {
			states[state]++
		}
	}
	for _, w := range p.Waits() {
		reasons[w.Reason]++
	}
	metrics.SetUnits(metrics.DaemonSet(p.key), states, reasons)
	stuck := map[string]bool{}
	paused, _ := p.IsPaused()
	mayStart := !paused && reasons[v1alpha1.ReasonOnDelete] == 0
	for _, rs := range p.Owned {
		stuck[rs.Name] = mayStart && rs == p.Active && p.Canary == nil && len(p.Decision.Start) == 0 &&
			states[v1alpha1.UnitOutdated] > reasons[v1alpha1.ReasonNodeNotReady]
	}
	metrics.SetStuck(p.key, stuck)
}
