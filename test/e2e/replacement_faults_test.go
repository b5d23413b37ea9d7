// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
	"moult.dev/moult/test/cluster"
)

// poolFault is something that goes wrong with a scale set.
type poolFault struct {
	name string
	// faults are there from the beginning, and before is done then.
	faults []clouds.Fault
	before func(t *testing.T, p *pool)
	// options and rollout change what is asked for. By default the set has one machine.
	options poolOptions
	rollout func(*v1alpha1.NodeRollout)
	// set is the reason that the scale set shows meanwhile, waits that of a node that is not begun with, and failed that of one whose turn has
	// failed. With none of them all goes well.
	set, waits, failed v1alpha1.Reason
	// says is in the message.
	says string
	// then is what is done about it, beside the end of all faults; a failed turn is tried again.
	then func(t *testing.T, p *pool)
	// most is how many machines there may be at once: by default one more than before.
	most int
	// fewest is how few: by default as many as before.
	fewest int
}

// impatient lets replacements be ready soon, or never.
func impatient(r *v1alpha1.NodeRollout) {
	r.Spec.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: &metav1.Duration{Duration: 8 * time.Second}}
}

// patient gives those that are to be ready as long as any, on however busy a machine.
func patient(r *v1alpha1.NodeRollout) { r.Spec.Replacement.ReplacementReady = nil }

// edits is a change of the set.
func edits(change func(*clouds.Set)) func(*testing.T, *pool) {
	return func(t *testing.T, p *pool) {
		t.Helper()
		p.edit(t, change)
	}
}

// protects is a change of whether machines are protected.
func protects(on bool) func(*testing.T, *pool) {
	return func(t *testing.T, p *pool) {
		t.Helper()
		for _, id := range p.original {
			if err := p.world.EditMachine(p.full, id, func(m *clouds.Machine) { m.Protected = on }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// namedOnce leaves the first of a rollout's scale sets in its spec.
func namedOnce(t *testing.T, p *pool) {
	t.Helper()
	editRollout(t, p.name, func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.ScaleSets = r.Spec.Replacement.ScaleSets[:1] })
}

var poolFaults = []poolFault{
	// There is no room.
	{name: "quota", faults: []clouds.Fault{{Kind: clouds.Quota}}, set: v1alpha1.ReasonCloudQuota, waits: v1alpha1.ReasonCloudQuota},
	{name: "quota-delete-first", faults: []clouds.Fault{{Kind: clouds.Quota, Times: 1}}, options: poolOptions{capacity: 2},
		rollout: func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.OnFull = v1alpha1.OnFullDeleteFirst }, fewest: 1},
	{name: "full", options: poolOptions{max: 1}, waits: v1alpha1.ReasonScaleSetFull, then: edits(func(s *clouds.Set) { s.Max = 2 })},
	{name: "full-delete-first", options: poolOptions{capacity: 2, max: 2},
		rollout: func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.OnFull = v1alpha1.OnFullDeleteFirst }, most: 2, fewest: 1},
	// The cloud does not answer, or not well.
	{name: "throttled", faults: []clouds.Fault{{Kind: clouds.Throttled}}, set: v1alpha1.ReasonCloudThrottled},
	{name: "denied", faults: []clouds.Fault{{Kind: clouds.Denied}}, set: v1alpha1.ReasonCloudDenied},
	{name: "unavailable", faults: []clouds.Fault{{Kind: clouds.Unavailable}}, set: v1alpha1.ReasonCloudError},
	{name: "may-only-look", faults: []clouds.Fault{{Kind: clouds.Denied, Call: "Update"}}, set: v1alpha1.ReasonCloudDenied},
	{name: "declined", faults: []clouds.Fault{{Kind: clouds.Invalid, Call: "Update"}}, rollout: impatient, failed: v1alpha1.ReasonReplacementFailed},
	{name: "conflict", faults: []clouds.Fault{{Kind: clouds.Conflict, Call: "Update", Times: 2}, {Kind: clouds.Conflict, Call: "DeleteInstances", Times: 2}}},
	{name: "lost-requests", faults: everyCall(clouds.DropBefore)},
	{name: "lost-answers", faults: everyCall(clouds.DropAfter)},
	{name: "half-answers", faults: everyCall(clouds.Truncated)},
	{name: "delivered-twice", faults: everyCall(clouds.Twice)},
	{name: "slow", faults: []clouds.Fault{{Kind: clouds.Slow}}},
	// The set can't be used.
	{name: "not-found", rollout: func(r *v1alpha1.NodeRollout) {
		r.Spec.Replacement.ScaleSets = append(r.Spec.Replacement.ScaleSets, "not-there")
	}, set: v1alpha1.ReasonScaleSetNotFound, then: namedOnce},
	{name: "named-twice", rollout: func(r *v1alpha1.NodeRollout) {
		r.Spec.Replacement.ScaleSets = append(r.Spec.Replacement.ScaleSets, strings.ToUpper(r.Spec.Replacement.ScaleSets[0]))
	}, set: v1alpha1.ReasonScaleSetUnfit, says: "by another name", then: func(t *testing.T, p *pool) {
		t.Helper()
		rolloutWithin(t, 6*patience, p.name, "has replaced the machine of both names", func(s *v1alpha1.NodeRolloutStatus) bool {
			return s.Counts.Total == 1 && s.Counts.Updated == 1 && len(s.Turns) == 0 && strings.Contains(p.osImages(t), newImage)
		})
		namedOnce(t, p)
	}},
	{name: "busy", before: edits(func(s *clouds.Set) { s.Busy = true }), waits: v1alpha1.ReasonScaleSetBusy, then: edits(func(s *clouds.Set) { s.Busy = false })},
	{name: "unfit", options: poolOptions{settings: map[string]string{"upgrade": "Automatic"}}, waits: v1alpha1.ReasonScaleSetUnfit, set: v1alpha1.ReasonScaleSetUnfit,
		then: edits(func(s *clouds.Set) { s.Settings = nil })},
	{name: "protected", before: protects(true), waits: v1alpha1.ReasonMachineProtected, then: protects(false)},
	// Replacements fail.
	{name: "never-joins", faults: []clouds.Fault{{Kind: clouds.NeverJoins}}, rollout: impatient, failed: v1alpha1.ReasonReplacementFailed},
	{name: "joins-sick", faults: []clouds.Fault{{Kind: clouds.JoinsSick}}, rollout: impatient, failed: v1alpha1.ReasonReplacementFailed},
	{name: "joins-sick-in-a-budget", faults: []clouds.Fault{{Kind: clouds.JoinsSick, Times: 1}}, options: poolOptions{capacity: 2}, before: oneAtATime, rollout: impatient,
		failed: v1alpha1.ReasonReplacementFailed},
	{name: "addition-fails", faults: []clouds.Fault{{Kind: clouds.OperationFails, Call: "Add"}}, rollout: impatient, failed: v1alpha1.ReasonReplacementFailed},
	{name: "deletion-fails", faults: []clouds.Fault{{Kind: clouds.OperationFails, Call: "Delete", Times: 1}}, failed: v1alpha1.ReasonDeleteFailed},
	{name: "tried-again-by-itself", faults: []clouds.Fault{{Kind: clouds.NeverJoins, Times: 1}}, rollout: func(r *v1alpha1.NodeRollout) {
		impatient(r)
		r.Spec.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 10, Backoff: &metav1.Duration{Duration: time.Second}}}
	}},
}

// oneAtATime is a budget of one node, which what a failed turn leaves behind must not use up.
func oneAtATime(t *testing.T, p *pool) {
	t.Helper()
	createBudget(t, &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: v1alpha1.NodeDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{poolLabel: p.name}}, MaxUnavailable: ptr.To(intstr.FromInt32(1)),
	}})
}

// everyCall is a fault that hits each call of a turn twice.
func everyCall(kind clouds.FaultKind) []clouds.Fault {
	var all []clouds.Fault
	for _, call := range []string{"Get", "Update", "DeleteInstances", "ListMachines", "GetOperation", "GetMachine"} {
		all = append(all, clouds.Fault{Kind: kind, Call: call, Times: 2})
	}
	return all
}

// Whatever goes wrong with a scale set shows as a reason, and comes to a good end: each machine replaced once, and none more than before.
func TestReplacementFaults(t *testing.T) {
	t.Parallel()
	tests := newTogether(t, 6)
	for _, f := range poolFaults {
		tests.run(f.name, f.run)
	}
	tests.wait()
}

func (f poolFault) run(t *testing.T) {
	p := newPool(t, "fault-"+f.name, f.options)
	journal := newPoolJournal(t, p)
	if f.before != nil {
		f.before(t, p)
	}
	p.setImage(t, newImage)
	for _, fault := range f.faults {
		p.fault(fault)
	}
	r := p.newRollout()
	if f.rollout != nil {
		f.rollout(r)
	}
	createRollout(t, r)
	if f.set != "" || f.waits != "" || f.failed != "" {
		f.shows(t, p)
		p.world.ClearFaultsOf(p.full)
		if f.then != nil {
			f.then(t, p)
		}
	}
	if f.failed != "" {
		// The node serves all the while, and the machine that did not come to anything is gone.
		within(t, 2*patience, "what failed is cleared away", func(context.Context) (string, bool) {
			set, _ := p.world.Set(p.full)
			n := node(t, p.nodes(t)[0].Name)
			return fmt.Sprintf("capacity %d, %d machines, unschedulable %t", set.Capacity, len(p.world.Machines(p.full)), n.Spec.Unschedulable),
				set.Capacity == p.capacity && len(p.world.Machines(p.full)) == p.capacity && !n.Spec.Unschedulable
		})
		editRollout(t, p.name, func(r *v1alpha1.NodeRollout) {
			patient(r)
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AnnotationRetry, "now")
		})
	}
	p.done(t, newImage, p.capacity)
	p.goneOnce(t)
	p.never(t, cmp.Or(f.most, p.capacity+1), cmp.Or(f.fewest, p.capacity))
	if f.failed == "" && !strings.HasPrefix(f.name, "tried-again") {
		p.replacedOnce(t)
		journal.check(t, 1)
	}
}

// shows waits until the status says what is wrong.
func (f poolFault) shows(t *testing.T, p *pool) {
	t.Helper()
	rolloutWithin(t, 3*patience, p.name, fmt.Sprintf("shows %q %q %q", f.set, f.waits, f.failed), func(s *v1alpha1.NodeRolloutStatus) bool {
		set := f.set == ""
		for _, of := range s.ScaleSets {
			set = set || of.Reason == f.set && of.Message != "" && strings.Contains(of.Message, f.says)
		}
		waits := f.waits == ""
		for _, u := range append(append([]v1alpha1.UnitStatus{}, s.Waiting...), s.Updating...) {
			waits = waits || u.Reason == f.waits && u.Message != ""
		}
		failed := f.failed == "" || len(s.Failed) == 1 && s.Failed[0].Reason == f.failed && s.Failed[0].Message != ""
		return set && waits && failed
	})
	if f.waits != "" {
		for _, n := range p.nodes(t) {
			if n.Spec.Unschedulable {
				t.Errorf("%s is cordoned, and nothing takes its place", n.Name)
			}
		}
	}
}

// goneOnce checks that all machines have gone that there were at first.
func (p *pool) goneOnce(t *testing.T) {
	t.Helper()
	times := map[string]int{}
	for _, m := range p.world.Gone(p.full) {
		times[m.ID]++
	}
	for _, id := range p.original {
		if times[id] != 1 {
			t.Errorf("the machine %s has gone %d times", id, times[id])
		}
	}
}

// A machine that has failed before it had a Node is replaced as others are, with nothing in its place before, once it can't be expected to join any more.
func TestReplacementOfNodeless(t *testing.T) {
	t.Parallel()
	p := newPool(t, "nodeless", poolOptions{capacity: 2})
	// The long one is for when some have to be ready.
	const short, long = 15 * time.Second, time.Minute
	readyWithin := func(d time.Duration) func(*v1alpha1.NodeRollout) {
		return func(r *v1alpha1.NodeRollout) {
			r.Spec.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: &metav1.Duration{Duration: d}}
		}
	}
	r := p.newRollout()
	readyWithin(short)(r)
	createRollout(t, r)
	p.done(t, oldImage, p.capacity)
	p.fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Add", Times: 1})
	if _, err := p.world.Scale(p.full, p.capacity+1); err != nil {
		t.Fatal(err)
	}
	failed := ""
	eventually(t, "a machine has failed", func(context.Context) (string, bool) {
		for _, m := range p.world.Machines(p.full) {
			if m.State == clouds.Failed {
				failed = m.ID
			}
		}
		return failed, failed != ""
	})
	p.lasts(t, short+2*time.Second, "what fails is not outdated, and is left alone", p.capacity+1)

	protect := func(on bool) {
		t.Helper()
		if err := p.world.EditMachine(p.full, failed, func(m *clouds.Machine) { m.Protected = on }); err != nil {
			t.Fatal(err)
		}
	}
	protect(true)
	editRollout(t, p.name, readyWithin(long)) // Later it would be a retry.
	p.setImage(t, newImage)
	unit, named := p.full+"/"+failed, "nr/"+p.name
	is := func(reason v1alpha1.Reason) func(v1alpha1.UnitStatus) bool {
		return func(u v1alpha1.UnitStatus) bool { return u.Node == unit && u.Reason == reason && u.Message != "" }
	}
	rolloutWithin(t, 6*patience, p.name, "has replaced the nodes, and waits", func(s *v1alpha1.NodeRolloutStatus) bool {
		return s.Counts != nil && int(s.Counts.Updated) == p.capacity && len(s.Turns) == 0 && slices.ContainsFunc(s.Waiting, is(v1alpha1.ReasonMachineProtected))
	})
	says(t, []string{"status", named}, unit, "MachineProtected", "2 of 3 updated")

	p.fault(clouds.Fault{Kind: clouds.OperationFails, Call: "Delete", Times: 1})
	protect(false)
	rolloutWithin(t, 3*patience, p.name, "has failed", func(s *v1alpha1.NodeRolloutStatus) bool {
		return slices.ContainsFunc(s.Failed, is(v1alpha1.ReasonDeleteFailed))
	})
	p.lasts(t, long+2*time.Second, "what has failed is not tried again by itself", p.capacity+1)
	says(t, []string{"retry", named}, unit, "DeleteFailed")
	p.done(t, newImage, p.capacity+1)
	p.original = append(p.original, failed)
	p.replacedOnce(t)
	p.never(t, p.capacity+2, p.capacity) // There are three, one more while another comes first, and one fewer while it does not.
}

// lasts checks that there are so many machines for that long, and none goes.
func (p *pool) lasts(t *testing.T, duration time.Duration, what string, machines int) {
	t.Helper()
	before := len(p.world.Gone(p.full))
	lasts(t, duration, what, func(context.Context) error {
		if n, gone := len(p.world.Machines(p.full)), len(p.world.Gone(p.full)); n != machines || gone > before {
			return fmt.Errorf("there are %d machines, and %d have gone", n, gone)
		}
		return nil
	})
}

// A replacement that has failed is kept for as long as was asked for, to be looked at.
func TestReplacementIsKeptForALook(t *testing.T) {
	t.Parallel()
	p := newPool(t, "kept", poolOptions{})
	p.fault(clouds.Fault{Kind: clouds.JoinsSick, Times: 1})
	p.setImage(t, newImage)
	r := p.newRollout()
	impatient(r)
	r.Spec.Replacement.KeepFailedFor = &metav1.Duration{Duration: 10 * time.Second}
	createRollout(t, r)
	var since time.Time
	rolloutWithin(t, 3*patience, p.name, "has given up", func(s *v1alpha1.NodeRolloutStatus) bool {
		for _, turn := range s.Turns {
			if turn.Failed != nil {
				since = turn.Failed.Time.Time
			}
		}
		return !since.IsZero() || len(s.Failed) > 0
	})
	within(t, 3*patience, "the machine goes", func(context.Context) (string, bool) {
		n := len(p.world.Machines(p.full))
		return fmt.Sprint(n), n == p.capacity
	})
	var went time.Time
	for _, c := range p.world.Journal() {
		if c.Name == "Delete" && strings.HasPrefix(c.Detail, p.full+" ") {
			went = c.Time
		}
	}
	// Times in a status are whole seconds.
	if kept := went.Sub(since); since.IsZero() || kept < 9*time.Second {
		t.Errorf("the machine was kept for %s", kept)
	}
	rolloutWithin(t, patience, p.name, "has failed", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Reason == v1alpha1.ReasonReplacementFailed && len(s.Turns) == 0
	})
	eventually(t, "the old node serves, and the other one is gone", func(context.Context) (string, bool) {
		all := p.nodes(t)
		return fmt.Sprintf("%d nodes, the first unschedulable: %t", len(all), all[0].Spec.Unschedulable), len(all) == 1 && !all[0].Spec.Unschedulable
	})
}

// Where the cloud has no quota for a machine more, surge may be lowered: what is waiting for one is replaced in the way that is asked for then.
func TestReplacementSurgeIsLowered(t *testing.T) {
	t.Parallel()
	p := newPool(t, "surge-lowered", poolOptions{capacity: 2})
	p.fault(clouds.Fault{Kind: clouds.Quota})
	p.setImage(t, newImage)
	r := p.newRollout()
	r.Spec.Strategy = &v1alpha1.Strategy{MaxConcurrent: ptr.To(intstr.FromInt32(2))}
	r.Spec.Replacement.Surge = ptr.To(intstr.FromInt32(2))
	createRollout(t, r)
	rolloutWithin(t, 3*patience, p.name, "waits for quota", func(s *v1alpha1.NodeRolloutStatus) bool {
		return len(s.Updating) == 2 && s.Updating[0].Reason == v1alpha1.ReasonCloudQuota
	})
	editRollout(t, p.name, func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = nil
		r.Spec.Replacement.Surge = ptr.To(intstr.FromInt32(0))
	})
	within(t, 3*patience, "a machine has gone", func(context.Context) (string, bool) {
		all := p.world.Gone(p.full)
		return fmt.Sprint(all), len(all) > 0
	})
	p.world.ClearFaultsOf(p.full)
	p.done(t, newImage, p.capacity)
	p.replacedOnce(t)
	p.never(t, p.capacity, p.capacity-1)
}

// A node whose claim somebody takes away while it is drained is not in its own way: it is given back, and claimed again.
func TestReplacementClaimTakenAway(t *testing.T) {
	t.Parallel()
	p := newPool(t, "claim-taken", poolOptions{capacity: 2})
	oneAtATime(t, p)
	p.setImage(t, newImage)
	r := p.newRollout()
	r.Spec.Replacement.ExcludeFromLoadBalancers = &v1alpha1.LoadBalancerExclusion{Wait: &metav1.Duration{Duration: time.Hour}}
	createRollout(t, r)
	var first string
	rolloutWithin(t, 3*patience, p.name, "drains", func(s *v1alpha1.NodeRolloutStatus) bool {
		for _, turn := range s.Turns {
			if turn.Phase == v1alpha1.MachineDraining && node(t, turn.Node).Spec.Unschedulable {
				first = turn.Node
			}
		}
		return first != ""
	})
	for _, claims := range []any{"nonsense", nil} {
		patchNode(t, first, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationClaims: claims}}})
		if claims != nil {
			rolloutWithin(t, patience, p.name, "is not sure of its claim", func(s *v1alpha1.NodeRolloutStatus) bool {
				return len(s.Turns) == 1 && s.Turns[0].Phase == v1alpha1.MachineClaiming
			})
		}
	}
	eventually(t, "the node is claimed again", func(context.Context) (string, bool) {
		of := node(t, first).Annotations
		return fmt.Sprint(of), of[v1alpha1.AnnotationClaims] != ""
	})
	editRollout(t, p.name, func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.ExcludeFromLoadBalancers = nil })
	p.done(t, newImage, p.capacity)
}

// Machines that die, and an autoscaler at the same set, are cases, not surprises: in the end there are as many machines as they have left.
func TestReplacementAmongOthers(t *testing.T) {
	t.Parallel()
	tests := newTogether(t, 4)
	sick := clouds.Fault{Kind: clouds.JoinsSick, Times: 1}
	for _, tc := range []struct {
		name  string
		phase v1alpha1.MachinePhase
		fault clouds.Fault
		// do is done to the turn's own machine and its replacement.
		do func(t *testing.T, p *pool, turn *v1alpha1.MachineTurn)
		// others may be machines that are in no turn: what is left of them is for the cloud's part of the cluster.
		others bool
		// capacity is what it comes to; by default what it was: 2.
		capacity int
	}{
		{name: "dies-joining", phase: v1alpha1.MachineJoining, fault: sick, do: kills(true, false)},
		{name: "dies-and-shrinks", phase: v1alpha1.MachineJoining, fault: sick, do: kills(true, true)},
		{name: "replacement-dies", phase: v1alpha1.MachineJoining, fault: sick, do: kills(false, true)},
		{name: "replacement-healed", phase: v1alpha1.MachineJoining, fault: sick, do: kills(false, false)},
		{name: "scaled-up", phase: v1alpha1.MachineJoining, fault: sick, do: scales(+2), capacity: 4},
		{name: "scaled-down", phase: v1alpha1.MachineDeleting, fault: clouds.Fault{Kind: clouds.Slow, Call: "Delete", Times: 1}, do: scales(-1), others: true, capacity: 1},
	} {
		tests.run(tc.name, func(t *testing.T) {
			p := newPool(t, tc.name, poolOptions{capacity: 2})
			p.fault(tc.fault)
			p.setImage(t, newImage)
			r := p.newRollout()
			r.Spec.Replacement.ReplacementReady = &v1alpha1.ReplacementReady{Timeout: ptr.To(metav1.Duration{Duration: time.Minute})}
			r.Spec.Strategy = &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 5, Backoff: &metav1.Duration{Duration: time.Second}}}
			createRollout(t, r)
			var turn *v1alpha1.MachineTurn
			rolloutWithin(t, 3*patience, p.name, "is "+string(tc.phase), func(s *v1alpha1.NodeRolloutStatus) bool {
				for i := range s.Turns {
					if of := &s.Turns[i]; of.Phase == tc.phase && of.Replacement != "" {
						turn = of
					}
				}
				return turn != nil
			})
			if tc.phase == v1alpha1.MachineDeleting {
				// It is said before it is asked for, and until then it might be what the autoscaler takes.
				eventually(t, "the machine is being deleted", func(context.Context) (string, bool) {
					all := p.world.Machines(p.full)
					return fmt.Sprint(all), slices.ContainsFunc(all, func(m clouds.Machine) bool { return m.ID == turn.Machine && m.State == clouds.Deleting })
				})
			}
			tc.do(t, p, turn)
			if tc.others {
				p.lifeless(t)
			}
			p.recover(t)
			p.done(t, newImage, cmp.Or(tc.capacity, p.capacity))
		})
	}
	tests.wait()
}

// kills lets the machine die that goes, or the one that comes.
func kills(old, shrink bool) func(*testing.T, *pool, *v1alpha1.MachineTurn) {
	return func(t *testing.T, p *pool, turn *v1alpha1.MachineTurn) {
		t.Helper()
		id := turn.Replacement
		if old {
			id = turn.Machine
		}
		if err := p.world.Kill(p.full, id, shrink); err != nil {
			t.Fatal(err)
		}
	}
}

// scales lets an autoscaler change the capacity.
func scales(by int) func(*testing.T, *pool, *v1alpha1.MachineTurn) {
	return func(t *testing.T, p *pool, _ *v1alpha1.MachineTurn) {
		t.Helper()
		set, _ := p.world.Set(p.full)
		if _, err := p.world.Scale(p.full, set.Capacity+by); err != nil {
			t.Fatal(err)
		}
	}
}

// recover lets Nodes become ready that were sick.
func (p *pool) recover(t *testing.T) {
	t.Helper()
	there := map[string]bool{}
	for _, m := range p.world.Machines(p.full) {
		there[m.NodeName] = m.State == clouds.Running
	}
	for _, n := range p.nodes(t) {
		if there[n.Name] && n.Annotations[cluster.NodeNotReady] != "" {
			patchNode(t, n.Name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{cluster.NodeNotReady: nil}}})
		}
	}
}

// lifeless is the cloud's part of the cluster: until the test ends, it deletes Nodes whose machines are gone, as cloud controllers do.
func (p *pool) lifeless(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	go func() {
		for ticker := time.NewTicker(time.Second); ; <-ticker.C {
			if ctx.Err() != nil {
				ticker.Stop()
				return
			}
			p.sweep(ctx)
		}
	}()
}
