// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/history"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// Summary is what a rollout's status says about its turns.
type Summary struct {
	status.Progress
	// The units of each list that the status names.
	Updating, Failed, Waiting []v1alpha1.UnitStatus
	// For the metrics, states and reasons count units, and started are the oldest turns in progress with their start.
	states  map[v1alpha1.UnitState]int
	reasons map[v1alpha1.Reason]int
	started []v1alpha1.UnitStatus
	// failures counts the failed units by reason.
	failures map[v1alpha1.Reason]int32
}

// Summarize counts and lists the turns. phase returns the phase of a turn in progress, its start, and what the turn waits for.
func (p *Pass[T]) Summarize(phase func(T) (v1alpha1.Phase, time.Time, string)) Summary {
	g := Summary{states: map[v1alpha1.UnitState]int{}, failures: map[v1alpha1.Reason]int32{}}
	waits := make(map[string]*rollout.Wait, len(p.Decision.Waiting))
	for i := range p.Decision.Waiting {
		waits[p.Decision.Waiting[i].Node] = &p.Decision.Waiting[i]
	}
	failed := map[string]bool{}        // The nodes that failed, and whether their claims use budgets.
	full, busy, retries := 0, 0, false // full are the slots that failed units hold, and busy the turns that may go on.
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
			failed[b.Unit.Node] = b.Unit.Claimed
			if wait != nil && wait.Holds {
				full++
			}
			g.failures[b.Unit.Reason]++
			if g.Failure == "" || b.Unit.Since.After(newest) {
				g.Failure, newest = b.Unit.Message, b.Unit.Since
			}
			g.Failed = append(g.Failed, b.FailedStatus(wait))
		case holds:
			g.Counts.Updating++
			if wait == nil || wait.Reason != v1alpha1.ReasonHalted {
				busy++
			}
			phase, since, message := phase(t)
			g.Updating = append(g.Updating, b.TurnStatus(phase, since, strings.TrimPrefix(message+b.Trouble, "; "), wait))
			if state != v1alpha1.UnitSoaking {
				g.started = append(g.started, v1alpha1.UnitStatus{Node: b.Unit.Node, Since: nodeturn.Stamp(b.Start())})
			}
		default:
			g.Counts.Waiting++
		}
	}
	g.Updating, g.Failed, g.started = Oldest(g.Updating), Oldest(g.Failed), Oldest(g.started)
	g.Waiting, g.reasons = Waiting(&p.Decision, failed, &g.Progress)
	if p.WaveUnstored { // Nodes start in the next pass.
		g.Wait, g.WaitMessage = "", ""
	} else if busy == 0 && !retries { // Without a turn in progress it may be halted, or stuck.
		p.judgeHalt(&g, full, failed)
	}
	return g
}

// judgeHalt sets whether the rollout is halted or stuck: whether a person must act. full is how many slots failed units hold.
func (p *Pass[T]) judgeHalt(g *Summary, full int, failed map[string]bool) {
	g.Halted = p.Decision.Halted
	if wave := p.Decision.Wave; g.Halted == "" && wave != nil && wave.State == v1alpha1.WaveHalted && (g.Wait == "" || g.Wait == v1alpha1.ReasonHalted) {
		g.Halted = wave.Message
	}
	switch _, total := nodeturn.Units(p.Turns); {
	case g.Halted != "":
		g.Stuck = true
	case g.Counts.Failed == 0:
	case g.Counts.Waiting == 0, g.Wait == v1alpha1.ReasonMaxConcurrent, full > 0 && full >= p.Mechanism.Strategy(total).MaxConcurrent:
		g.Stuck = true
	case g.Wait == v1alpha1.ReasonBudgetExhausted, g.Wait == v1alpha1.ReasonMaxDomains:
		g.Stuck = p.useUpBudget(g, failed)
	}
}

// useUpBudget reports whether the failed nodes of this rollout alone use up a budget of the first node that waits, or its domains.
func (p *Pass[T]) useUpBudget(g *Summary, failed map[string]bool) bool {
	seen := &p.Seen.Fleet
	return slices.ContainsFunc(seen.Budgets, func(b rollout.Budget) bool {
		if n := seen.Nodes[g.Waiting[0].Node]; n == nil || !b.Selects(n) {
			return false
		}
		a := b.Examine(seen, p.Now)
		held := rollout.Count(a.Holders, func(h *rollout.Holder) bool { return h.Cause == v1alpha1.CauseClaimed && failed[h.Node] })
		if g.Wait == v1alpha1.ReasonMaxDomains {
			return b.TopologyKey != "" && held > 0 && held == len(a.Holders)
		}
		return a.Limit > 0 && held >= a.Limit
	})
}

// Measure sets the metrics of the rollout's turns, and of its units if these are known, and whether the rollout comes before others that wait.
func (p *Pass[T]) Measure(g *Summary, known bool) {
	p.Waiting.SetBusy(p.Key, g.Counts.Updating > 0)
	metrics.SetTurns(p.Name(), g.started)
	if known {
		metrics.SetUnits(p.Name(), g.states, g.reasons)
	}
}

// TurnSeconds adds the turns that ended in this pass to the average before.
func (p *Pass[T]) TurnSeconds(before int32) int32 {
	for _, took := range p.took() {
		before = Average(before, took)
	}
	return before
}

// turnEnded records how long a turn took that updated its node.
func (p *Pass[T]) turnEnded(took time.Duration) {
	metrics.ObserveTurn(p.Name(), took)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended.Store(p.Key, append(slices.Clip(p.took()), took))
}

// took returns how long turns took that no written status counts. The next write counts them.
func (p *Pass[T]) took() []time.Duration {
	stored, _ := p.ended.Load(p.Key)
	took, _ := stored.([]time.Duration)
	p.counted = len(took)
	return took
}

// History returns the runs of the rollout after this pass. wave and approval are those of its status.
func (p *Pass[T]) History(before []v1alpha1.Run, revision string, wave *v1alpha1.WaveStatus, approval *v1alpha1.WaveApproval, g *Summary) []v1alpha1.Run {
	o := history.Observation{
		Revision: revision, Wave: wave, Approval: approval, Counts: g.Counts, Complete: g.Counts.Updated == g.Counts.Total && g.Unknown == "",
		Paused: p.Spec != nil && p.Spec.Paused, Halted: g.Stuck, Wait: g.Wait, Failed: g.failures, Took: p.took(),
		CreatedBy: history.CreatedBy(p.Object),
	}
	return history.Next(before, o, p.Now)
}

// Report emits the pending Events, and writes the status if it differs from the stored one. Then it calls emit. Two writes are at least
// fleet.StatusInterval apart.
func (p *Pass[T]) Report(ctx context.Context, stored *unstructured.Unstructured, before, after any, emit func()) error {
	// The Events are true even if the status can't be written now.
	p.Events.Emit(append(p.Pending, p.Mentioned()...)...)
	p.Pending = nil
	write, again := p.Reports.Next(p.UID, stored.GetResourceVersion(), !equality.Semantic.DeepEqual(before, after), p.Now)
	p.WakeAt(again)
	if p.WaveUnstored {
		write = !p.Reports.IsStale(p.UID, stored.GetResourceVersion(), p.Now)
	}
	if write {
		if _, err := p.WriteStatus(ctx, stored, after); err != nil {
			return client.IgnoreNotFound(err)
		}
		emit()
	}
	if p.WaveUnstored { // Its own write does not wake the rollout.
		p.WakeAt(p.Now.Add(fleet.Coalesce))
	}
	return nil
}

// WriteStatus writes the status, and returns the written rollout. It fails with a conflict if the rollout has changed since it was read.
func (p *Pass[T]) WriteStatus(ctx context.Context, stored *unstructured.Unstructured, after any) (*unstructured.Unstructured, error) {
	changed := Copy(stored)
	changed.Object["status"] = after
	if err := p.Client.Status().Patch(ctx, changed, PatchFrom(stored)); err != nil {
		return nil, fmt.Errorf("writing status, %w", err)
	}
	p.Reports.Written(p.UID, changed.GetResourceVersion(), p.Now)
	if n := p.counted; n > 0 {
		p.ended.Store(p.Key, slices.Clone(p.took()[n:]))
		p.counted = 0
	}
	return changed, nil
}

// Oldest returns the oldest units that a status may list.
func Oldest(list []v1alpha1.UnitStatus) []v1alpha1.UnitStatus {
	slices.SortFunc(list, func(a, b v1alpha1.UnitStatus) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return list[:min(len(list), v1alpha1.MaxListedUnits)]
}

// Average returns the moving average of the duration of turns, in seconds. The latest turn counts one quarter. before is 0 for the first turn.
func Average(before int32, took time.Duration) int32 {
	seconds := int32(min(max(1, took.Round(time.Second)/time.Second), math.MaxInt32))
	if before > 0 {
		seconds = int32((int64(before)*3 + int64(seconds) + 2) / 4)
	}
	return seconds
}

// Waiting lists the nodes that start next, and counts all waits by reason. The list omits nodes that failed, hold a slot or
// opted out. g receives the reason of the first listed node.
func Waiting(d *rollout.Decision, failed map[string]bool, g *status.Progress) (list []v1alpha1.UnitStatus, reasons map[v1alpha1.Reason]int) {
	reasons = map[v1alpha1.Reason]int{}
	for i := range d.Waiting {
		wait := &d.Waiting[i]
		reasons[wait.Reason]++
		if _, isFailed := failed[wait.Node]; wait.Holds || isFailed || wait.Reason == v1alpha1.ReasonOptedOut {
			continue
		}
		if g.Wait == "" {
			g.Wait, g.WaitMessage = wait.Reason, wait.Message
		}
		if len(list) < v1alpha1.MaxListedUnits {
			list = append(list, v1alpha1.UnitStatus{Node: wait.Node, Reason: wait.Reason, Message: wait.Message})
		}
	}
	return list, reasons
}

// MayRollBack reports whether the failure limit has halted a rollout whose strategy asks for a rollback.
func (p *Pass[T]) MayRollBack() bool {
	return p.Decision.Halted != "" && p.Spec != nil && p.Spec.Rollback && !p.Spec.Paused
}

// CannotRollBack adds to the halt why the rollout can't be rolled back.
func (p *Pass[T]) CannotRollBack(why string) {
	p.Decision.Halted += "; it can't be rolled back: " + why
}

// RollBackSoon wakes the rollout after its status has recorded the rollback.
func (p *Pass[T]) RollBackSoon() { p.WakeAt(p.Now.Add(fleet.Coalesce)) }

// Refuses reports whether rollouts of this kind are not carried out. Then the conditions of the rollout say why. They are written once, and
// alone, because its CustomResourceDefinition lacks other fields.
func (e *Engine) Refuses(ctx context.Context, key types.NamespacedName, stored *unstructured.Unstructured) (bool, error) {
	why := e.Fleet.Refused(e.Kind)
	if why == nil {
		return false, nil
	}
	metrics.SetStalled(metrics.Rollout{Kind: e.Kind, NamespacedName: key}, true)
	e.Waiting.Set(key, true) // A change of the definition wakes it.
	present := map[string]any{}
	_ = ReadField(stored, "status", &present) // What can't be read is as if it was missing.
	before, _ := present["conditions"].([]any)
	conditions := slices.Clone(before)
	for _, want := range [][2]string{{v1alpha1.ConditionReady, "False"}, {v1alpha1.ConditionReconciling, "False"}, {v1alpha1.ConditionStalled, "True"}} {
		i := slices.IndexFunc(conditions, func(c any) bool {
			fields, _ := c.(map[string]any)
			return fields["type"] == want[0]
		})
		c := map[string]any{"type": want[0]}
		if i < 0 {
			i, conditions = len(conditions), append(conditions, c)
		}
		old, _ := conditions[i].(map[string]any)
		maps.Copy(c, old)
		if c["status"] != want[1] {
			c["status"], c["lastTransitionTime"] = want[1], e.Clock.Now().UTC().Format(time.RFC3339)
		}
		c["reason"], c["message"] = v1alpha1.ReasonDefinitionIncomplete, why.Error()
		conditions[i] = c
	}
	if equality.Semantic.DeepEqual(before, conditions) {
		return true, nil
	}
	changed := Copy(stored)
	present["conditions"], changed.Object["status"] = conditions, present
	if err := e.Client.Status().Patch(ctx, changed, PatchFrom(stored)); err != nil {
		return true, client.IgnoreNotFound(fmt.Errorf("writing conditions, %w", err))
	}
	return true, nil
}
