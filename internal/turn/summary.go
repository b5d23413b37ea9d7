// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// Summary is what a rollout's status says of its turns.
type Summary struct {
	status.Progress
	// The first units of each list, as many as a status names.
	Updating, Failed, Waiting []v1alpha1.UnitStatus
	// states and reasons count units for the metrics.
	states  map[v1alpha1.UnitState]int
	reasons map[v1alpha1.Reason]int
}

// Summarize counts and lists the turns. The phase says how far a turn in progress is, since when, and what it waits for.
func (p *Pass[T]) Summarize(phase func(T) (v1alpha1.Phase, time.Time, string)) Summary {
	g := Summary{states: map[v1alpha1.UnitState]int{}}
	waits := make(map[string]*rollout.Wait, len(p.Decision.Waiting))
	for i := range p.Decision.Waiting {
		waits[p.Decision.Waiting[i].Node] = &p.Decision.Waiting[i]
	}
	failed, retries := map[string]bool{}, false
	var newest time.Time
	for _, t := range p.Turns {
		b := t.Base()
		holds := b.Unit.HoldsSlot()
		retries = retries || !b.Unit.RetryAt.IsZero()
		if !holds && (!b.Counted || b.Unit.OptedOut && b.Unit.State == v1alpha1.UnitOutdated) {
			continue
		}
		state := b.Unit.State
		if holds && state == v1alpha1.UnitOutdated {
			state = v1alpha1.UnitUpdating // Its turn starts over.
		}
		g.states[state]++
		g.Counts.Total++
		switch wait := waits[b.Unit.Node]; {
		case state == v1alpha1.UnitUpdated:
			g.Counts.Updated++
		case state == v1alpha1.UnitFailed:
			g.Counts.Failed++
			failed[b.Unit.Node] = true
			if g.Failure == "" || b.Unit.Since.After(newest) {
				g.Failure, newest = b.Unit.Message, b.Unit.Since
			}
			g.Failed = append(g.Failed, b.FailedStatus(wait))
		case holds:
			g.Counts.Updating++
			phase, since, message := phase(t)
			g.Updating = append(g.Updating, b.TurnStatus(phase, since, message, wait))
		default:
			g.Counts.Waiting++
		}
	}
	g.Updating, g.Failed = Oldest(g.Updating), Oldest(g.Failed)
	g.Waiting, g.reasons = Waiting(&p.Decision, failed, &g.Progress)
	if g.Counts.Updating == 0 && !retries {
		g.judgeHalt(p.Decision.Halted)
	}
	return g
}

// judgeHalt says whether a rollout without turns in progress needs a person.
func (g *Summary) judgeHalt(halted *rollout.Wait) {
	if halted != nil {
		g.Halted = halted.Message
	}
	// Failed units hold all slots, or the failure limit is reached, or nothing else is left.
	held := g.Counts.Waiting == 0 || g.Wait == v1alpha1.ReasonMaxConcurrent || g.Wait == v1alpha1.ReasonHalted
	g.Stuck = g.Halted != "" || g.Counts.Failed > 0 && held
}

// Measure sets the metrics of the rollout's units.
func (p *Pass[T]) Measure(g *Summary) { metrics.SetUnits(p.Name(), g.states, g.reasons) }

// TurnSeconds is the average time of turns, with those that ended in this pass.
func (p *Pass[T]) TurnSeconds(before int32) int32 {
	for _, took := range p.took {
		before = Average(before, took)
	}
	return before
}

// Report emits the Events of what happened, and writes the status if it differs from the one that is stored, no sooner than
// fleet.StatusInterval after the last write. It reports whether it has written the status.
func (p *Pass[T]) Report(ctx context.Context, stored *unstructured.Unstructured, before, after any) (written bool, err error) {
	// It happened, whether or not the status can be written now.
	p.Events.Emit(p.Pending...)
	p.Pending = nil
	write, again := p.Reports.Next(p.UID, stored.GetResourceVersion(), !equality.Semantic.DeepEqual(before, after), p.Now)
	p.WakeAt(again)
	if !write {
		return false, nil
	}
	if _, err := p.WriteStatus(ctx, stored, after); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return true, nil
}

// WriteStatus writes the status, unless others have written the rollout since it was read. It returns the rollout as it is stored then.
func (p *Pass[T]) WriteStatus(ctx context.Context, stored *unstructured.Unstructured, after any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, fmt.Errorf("writing status, %w", err)
	}
	changed := stored.DeepCopy()
	changed.Object["status"] = content
	if err := p.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("writing status, %w", err)
	}
	p.Reports.Written(p.UID, changed.GetResourceVersion(), p.Now)
	return changed, nil
}

// EmitStarted emits the Event of the nodes that were started since the last one.
func (p *Pass[T]) EmitStarted(event func(nodes []string) events.Event) {
	if started := p.Reports.TakeStarted(p.UID); len(started) > 0 {
		p.Events.Emit(event(slices.Clip(started)))
	}
}
