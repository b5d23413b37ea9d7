// SPDX-License-Identifier: Apache-2.0

//go:build all

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/clouds"
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

// patient gives those that must be ready as long as any, on however busy a machine.
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
	{name: "quota", faults: []clouds.Fault{{Kind: clouds.Quota}}, set: v1alpha1.ReasonCloudQuota, waits: v1alpha1.ReasonCloudQuota},
	{name: "full", options: poolOptions{max: 1}, waits: v1alpha1.ReasonScaleSetFull, then: edits(func(s *clouds.Set) { s.Max = 2 })},
	{name: "full-delete-first", options: poolOptions{capacity: 2, max: 2},
		rollout: func(r *v1alpha1.NodeRollout) { r.Spec.Replacement.OnFull = v1alpha1.OnFullDeleteFirst }, most: 2, fewest: 1},
	{name: "throttled", faults: []clouds.Fault{{Kind: clouds.Throttled}}, set: v1alpha1.ReasonCloudThrottled},
	{name: "denied", faults: []clouds.Fault{{Kind: clouds.Denied}}, set: v1alpha1.ReasonCloudDenied},
	{name: "not-found", rollout: func(r *v1alpha1.NodeRollout) {
		r.Spec.Replacement.ScaleSets = append(r.Spec.Replacement.ScaleSets, "not-there")
	}, set: v1alpha1.ReasonScaleSetNotFound, then: namedOnce},
	{name: "busy", before: edits(func(s *clouds.Set) { s.Busy = true }), waits: v1alpha1.ReasonScaleSetBusy, then: edits(func(s *clouds.Set) { s.Busy = false })},
	{name: "unfit", options: poolOptions{settings: map[string]string{"upgrade": "Automatic"}}, waits: v1alpha1.ReasonScaleSetUnfit, set: v1alpha1.ReasonScaleSetUnfit,
		then: edits(func(s *clouds.Set) { s.Settings = nil })},
	{name: "protected", before: protects(true), waits: v1alpha1.ReasonMachineProtected, then: protects(false)},
	{name: "never-joins", faults: []clouds.Fault{{Kind: clouds.NeverJoins}}, rollout: impatient, failed: v1alpha1.ReasonReplacementFailed},
	{name: "deletion-fails", faults: []clouds.Fault{{Kind: clouds.OperationFails, Call: "Delete", Times: 1}}, failed: v1alpha1.ReasonDeleteFailed},
}

// Whatever goes wrong with a scale set shows as a reason, and comes to a good end: each machine replaced once, and none more than before.
func TestReplacementFaults(t *testing.T) {
	t.Parallel()
	for _, f := range poolFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.run(t)
		})
	}
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
		eventually(t, "what failed is cleared away", func(context.Context) (string, bool) {
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
	if f.failed == "" {
		p.replacedOnce(t)
		journal.check(t, 1)
	}
}

// shows waits until the status says what is wrong.
func (f poolFault) shows(t *testing.T, p *pool) {
	t.Helper()
	rolloutIs(t, p.name, fmt.Sprintf("shows %q %q %q", f.set, f.waits, f.failed), func(s *v1alpha1.NodeRolloutStatus) bool {
		set := f.set == ""
		for _, of := range s.ScaleSets {
			set = set || of.Reason == f.set && of.Message != ""
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

// Machines whose nodes are not ready are replaced like others, and keep no other from its turn.
func TestReplacementOfUnreadyNodes(t *testing.T) {
	t.Parallel()
	p := newPool(t, "unready", poolOptions{capacity: 2})
	broken := p.nodes(t)[0].Name
	if err := world.Silence(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	eventually(t, broken+" is not ready", func(context.Context) (string, bool) {
		n := node(t, broken)
		return fmt.Sprint(n.Spec.Taints), slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		})
	})
	p.setImage(t, newImage)
	createRollout(t, p.newRollout())
	p.done(t, newImage, 2)
	p.replacedOnce(t)
}

// replacedNone checks that no machine has gone.
func (p *pool) replacedNone(t *testing.T) {
	t.Helper()
	if gone := p.world.Gone(p.full); len(gone) > 0 {
		t.Errorf("machines have gone: %+v", gone)
	}
}
