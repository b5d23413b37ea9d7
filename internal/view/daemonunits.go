// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// trial is a canary that goes on, as the engine sees it.
type trial struct {
	asked    []rollout.Unit
	strategy rollout.Strategy
	decision rollout.Decision
	// until is when it may be over, whatever the engine says: its pods have not been ready, or without a restart, for long enough.
	until time.Time
	waits map[string]rollout.Wait
}

// decide asks the engine, as the controller does: whose pod goes next, and whether the canary is over.
func (d *daemonSet) decide() {
	nodes := d.units()
	d.strategy = d.rolling(nodes)
	d.decision = rollout.Decide(d.strategy, d.asked, d.cluster.fleet, d.cluster.now)
	d.limit()
	if d.tries() {
		d.try()
	}
}

// units are the nodes as the engine sees them, but for those of a canary that goes on. It returns how many there are.
func (d *daemonSet) units() int {
	d.asked = nil
	s := &d.spec.Strategy
	ignored := daemon.Count(s.RollingUpdate.MaxPodSchedulerFailure, d.eligible())
	for i := range d.spots {
		at := &d.spots[i]
		if at.canary || !at.counts() && at.going == nil {
			continue
		}
		u := rollout.Unit{Node: at.node.Name, State: at.state(), Rank: rollout.Rank(at.node.UID, d.eds.UID, hashOf(at.want))}
		switch u.State {
		case v1alpha1.UnitOutdated:
			u.Down = !at.old.available()
			u.Reason, u.Message = d.unfit(at)
			if at.old.look.Unresponsive && ignored > 0 { // There may be no room for a new pod either.
				u.Down, u.Rank = false, math.MaxUint64
				ignored--
			}
		case v1alpha1.UnitUpdated:
			u.Since = at.fresh.look.ReadySince
			if d.soaks(at) {
				u.State = v1alpha1.UnitSoaking
			}
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitFailed:
			u.Excused = at.blamed != ""
			stuck := at.going != nil && at.going.look.Unresponsive || at.fresh != nil && at.fresh.look.Unresponsive
			if !u.Excused && stuck && ignored > 0 {
				u.Excused = true
				ignored--
			}
			if why, ok := d.broken(at); ok && !u.Excused {
				u.State, u.Reason, u.Message = v1alpha1.UnitFailed, v1alpha1.ReasonPodFailed, why
			}
		}
		d.asked = append(d.asked, u)
	}
	return len(d.asked)
}

// soaks reports whether a replaced pod keeps its place for a while. At the first rollout nobody waits for that.
func (d *daemonSet) soaks(s *spot) bool {
	soak := d.spec.Strategy.Soak
	if soak == nil || soak.Duration <= 0 || len(d.sets) <= 1 && !d.migrates {
		return false
	}
	return d.cluster.now.Before(d.cluster.fleet.SoakEnd(s.node.Name, s.fresh.look.ReadySince, soak.Duration))
}

// unfit says why an outdated pod may not be replaced, whatever the strategy says.
func (d *daemonSet) unfit(s *spot) (v1alpha1.Reason, string) {
	told := slices.IndexFunc(d.eds.Status.Waiting, func(u v1alpha1.UnitStatus) bool { return u.Node == s.node.Name })
	switch {
	case d.spec.Strategy.Type == edsv1.StrategyOnDelete && !d.left(s):
		return v1alpha1.ReasonOnDelete, "spec.strategy.type is OnDelete: the pod is replaced when somebody deletes it"
	case !s.placement.Create:
		return v1alpha1.ReasonNodeUnfit, "no new pod would be made on the node: " + s.placement.Why
	case told >= 0 && d.eds.Status.Waiting[told].Reason == v1alpha1.ReasonNodeUnfit:
		// Its controller knows more: a pod was refused, or there is no port of the host for both.
		return v1alpha1.ReasonNodeUnfit, d.eds.Status.Waiting[told].Message
	case s.blamed != "" && !s.claimed():
		return v1alpha1.ReasonNodeNotReady, s.blamed
	case d.tries() && d.active != nil && ofSet(s.old.Pod) != d.active.Name && !d.left(s):
		return v1alpha1.ReasonWavePending, "the canary of revision " + d.target.Name + " goes on: " + d.active.Name + " comes to no more nodes, as it may be what the template was taken from"
	}
	return "", ""
}

// left reports whether the outdated pod is of a revision that was tried, and has never been active.
func (d *daemonSet) left(s *spot) bool {
	rs := d.revisions[ofSet(s.old.Pod)]
	if rs == nil || rs == d.active {
		return false
	}
	conditions := rs.Status.Conditions
	tried := edsv1.FindCondition(conditions, edsv1.ConditionCanary) != nil && edsv1.FindCondition(conditions, edsv1.ConditionActive) == nil
	return tried || lost(rs)
}

// defaultRestarts is how often a pod may restart in a rolling update without a canary.
const defaultRestarts = 5

// broken says why a new pod counts as failed, where the strategy limits failures.
func (d *daemonSet) broken(s *spot) (string, bool) {
	if d.spec.Strategy.MaxFailures == nil || s.fresh == nil || s.excused(s.fresh) {
		return "", false
	}
	limit := int32(defaultRestarts)
	if c := d.spec.Strategy.Canary; c != nil && c.AutoFail != nil && c.AutoFail.MaxRestarts != nil {
		limit = *c.AutoFail.MaxRestarts
	}
	look := s.fresh.look
	switch {
	case look.CannotStart != "":
		return "pod " + s.fresh.Name + " can't start: " + string(look.CannotStart) + ": " + look.Message, true
	case look.Restarts > limit:
		return "pod " + s.fresh.Name + " restarts again and again: " + string(look.RestartReason), true
	}
	return "", false
}

// rolling is the strategy of the rolling update over so many nodes.
func (d *daemonSet) rolling(nodes int) rollout.Strategy {
	from := &d.spec.Strategy
	paused, _ := d.pausedBy()
	atOnce, _ := d.atOnce(nodes)
	s := rollout.New(&v1alpha1.Strategy{
		Order: from.Order, Waves: from.Waves, MaxFailures: from.MaxFailures, Windows: from.Windows, Paused: paused,
	}, atOnce, nodes)
	s.UID, s.Beside, s.Approved = d.eds.UID, true, d.eds.Annotations[v1alpha1.AnnotationApprove]
	if d.active != nil {
		s.Revision = hashOf(d.active)
	}
	if !d.tries() && d.trial == nil {
		s.Wave = d.eds.Status.Wave
	}
	return s
}

// atOnce is how many of so many nodes go at once, and which field says so.
func (d *daemonSet) atOnce(nodes int) (n int, field string) {
	const of = "spec.strategy.rollingUpdate."
	ru := &d.spec.Strategy.RollingUpdate
	if d.surges() {
		return daemon.Count(ru.MaxSurge, nodes), of + "maxSurge is " + ru.MaxSurge.String()
	}
	return daemon.Count(ru.MaxUnavailable, nodes), of + "maxUnavailable is " + ru.MaxUnavailable.String()
}

// creation is how many pods may be in creation, how many are, and on how many nodes one is still to be made.
type creation struct {
	limit, creating, missing int
	// next is when outdated pods may be replaced again.
	next time.Time
}

// creationTime is how long a pod that is not ready counts as being in creation, unless reconcileFrequency says otherwise.
const creationTime = 10 * time.Second

func (d *daemonSet) creationTime() time.Duration {
	if f := d.spec.Strategy.ReconcileFrequency; f != nil && f.Duration > 0 {
		return f.Duration
	}
	return creationTime
}

// limit finds out how many pods may be made now, and which of the nodes without one get it.
func (d *daemonSet) limit() {
	now := d.cluster.now
	c := &d.creation
	c.limit, _ = daemon.CreationLimit(&d.spec.Strategy.RollingUpdate, d.slowStart(), now, max(1, d.eligible()))
	var without []*spot
	for i := range d.spots {
		switch s := &d.spots[i]; {
		case s.canary:
		case s.fresh != nil:
			if !s.fresh.look.Ready && now.Before(s.fresh.CreationTimestamp.Add(d.creationTime())) {
				c.creating++
			}
		case s.old == nil && s.placement.Create:
			without = append(without, s)
		}
	}
	frozen := d.is(edsv1.AnnotationRolloutFrozen)
	for _, s := range without {
		free := s.going == nil && s.ended == nil && s.extra == nil
		if free && !frozen && c.creating < c.limit {
			c.creating++
			continue
		}
		if !s.hindered() {
			c.missing++
		}
		switch {
		case free && frozen:
			s.without = rollout.Wait{Reason: v1alpha1.ReasonPaused, Message: "the rollout is frozen, so no pod is made"}
		case free:
			s.without = rollout.Wait{Reason: v1alpha1.ReasonSlowStart}
		}
	}
	for _, s := range without {
		if s.without.Reason == v1alpha1.ReasonSlowStart {
			s.without.Message = fmt.Sprintf("no pod yet: %d are in creation, and the slow start allows %d now", c.creating, c.limit)
		}
	}
	c.next = d.nextBatch()
}

// hindered reports whether something else than the slow start keeps a pod from being made on the node: others need not wait for
// its turn in the slow start.
func (s *spot) hindered() bool {
	return s.ended != nil || s.blamed != "" || s.going != nil && s.going.look.Unresponsive
}

// nextBatch is when outdated pods may be replaced again; zero where nothing says so.
func (d *daemonSet) nextBatch() time.Time {
	f := d.spec.Strategy.ReconcileFrequency
	if f == nil || f.Duration <= 0 || d.active == nil {
		return time.Time{}
	}
	last := edsv1.FindCondition(d.active.Status.Conditions, edsv1.ConditionPodDeletion)
	if last == nil {
		return time.Time{}
	}
	return last.LastUpdateTime.Add(f.Duration)
}

// slowStart is when the slow start began: when the revision became active, or a pause was over.
func (d *daemonSet) slowStart() time.Time {
	since := d.cluster.now
	if d.active == nil {
		return since
	}
	conditions := d.active.Status.Conditions
	if c := edsv1.FindCondition(conditions, edsv1.ConditionActive); c != nil && c.Status == metav1.ConditionTrue {
		since = c.LastTransitionTime.Time
	}
	for _, kind := range []string{edsv1.ConditionRolloutFrozen, edsv1.ConditionRollingUpdatePaused} {
		if c := edsv1.FindCondition(conditions, kind); c != nil && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// room is how many of those that the engine starts are started, and why no more: it is the slow start.
func (d *daemonSet) room() (n int, message string) {
	c := &d.creation
	if f := d.spec.Strategy.ReconcileFrequency; d.cluster.now.Before(c.next) {
		return 0, fmt.Sprintf("spec.strategy.reconcileFrequency is %s: the next pods are replaced at %s", f.Duration, c.next.UTC().Format(time.RFC3339))
	}
	return max(0, c.limit-c.creating-c.missing),
		fmt.Sprintf("%d pods are in creation or missing, and the slow start allows %d now", c.creating+c.missing, c.limit)
}

// try asks the engine about the canary: it is the first wave, and all other nodes are the second.
func (d *daemonSet) try() {
	c := d.spec.Strategy.Canary
	wave := rollout.Wave{Name: waveCanary, Nodes: map[string]bool{}, Manual: c.ValidationMode == edsv1.ValidationModeManual}
	if c.Duration != nil {
		wave.Soak = c.Duration.Duration
	}
	t := &trial{waits: map[string]rollout.Wait{}}
	for i := range d.spots {
		s := &d.spots[i]
		u := rollout.Unit{Node: s.node.Name, State: v1alpha1.UnitOutdated}
		switch {
		case s.canary:
			wave.Nodes[s.node.Name] = true
			u.State, u.Excused = v1alpha1.UnitUpdating, s.blamed != ""
			if s.fresh.available() {
				u.State, u.Since = v1alpha1.UnitUpdated, s.fresh.look.ReadySince
				t.until = latest(t.until, d.proven(s))
			}
		case !s.counts():
			continue
		}
		t.asked = append(t.asked, u)
	}
	if c := edsv1.FindCondition(d.target.Status.Conditions, edsv1.ConditionPodRestarting); c != nil && c.Status == metav1.ConditionTrue {
		if calm := d.spec.Strategy.Canary.NoRestartsDuration; calm != nil {
			t.until = latest(t.until, c.LastUpdateTime.Add(calm.Duration))
		}
	}
	t.strategy = rollout.Strategy{
		UID: d.eds.UID, Revision: d.hash, MaxConcurrent: max(1, len(wave.Nodes)), Waves: []rollout.Wave{wave}, Wave: d.eds.Status.Wave,
		Approved: d.eds.Annotations[v1alpha1.AnnotationApprove], Beside: true, SoakLast: true,
	}
	t.decision = rollout.Decide(t.strategy, t.asked, d.cluster.fleet, d.cluster.now)
	for _, w := range t.decision.Waiting {
		t.waits[w.Node] = w
	}
	for _, name := range t.decision.Start {
		reason, message := d.promotion(t)
		t.waits[name] = rollout.Wait{Node: name, Reason: reason, Message: message}
	}
	d.trial = t
}

// waveCanary is the name of the canary among the waves.
const waveCanary = "canary"

// proven is until when a canary pod must do well for the canary to be over.
func (d *daemonSet) proven(s *spot) time.Time {
	c := d.spec.Strategy.Canary
	var until time.Time
	if c.Duration != nil {
		until = s.fresh.look.ReadySince.Add(c.Duration.Duration)
	}
	if c.NoRestartsDuration != nil && !s.fresh.look.LastRestart.IsZero() && !s.excused(s.fresh) {
		until = latest(until, s.fresh.look.LastRestart.Add(c.NoRestartsDuration.Duration))
	}
	return until
}

// promotion says why a canary is not over whose wave is; empty when it is.
func (d *daemonSet) promotion(t *trial) (v1alpha1.Reason, string) {
	switch {
	case d.canaryPaused():
		return v1alpha1.ReasonPaused, d.pausedCanary()
	case d.cluster.now.Before(t.until):
		return v1alpha1.ReasonWaveSoaking, "the canary is over at " + t.until.UTC().Format(time.RFC3339) +
			", if its pods stay ready and none restarts until then"
	}
	return "", ""
}

func (d *daemonSet) pausedCanary() string {
	message := "the canary is paused"
	if c := d.canary(); c != nil && c.Said() != "" {
		message += ": " + c.Said()
	}
	return message
}

// describe makes a line of each unit. Those that wait come in the order in which they go.
func (d *daemonSet) describe() {
	units := make(map[string]*rollout.Unit, len(d.asked))
	for i := range d.asked {
		units[d.asked[i].Node] = &d.asked[i]
	}
	room, why := d.room()
	type place struct {
		rollout.Wait
		at int
	}
	waits := make(map[string]place, len(d.decision.Waiting))
	for i, name := range d.decision.Start {
		w := rollout.Wait{Node: name}
		if i >= room {
			w.Reason, w.Message = v1alpha1.ReasonSlowStart, why
		}
		waits[name] = place{w, 1 + i}
	}
	for i, w := range d.decision.Waiting {
		waits[w.Node] = place{w, 1 + len(d.decision.Start) + i}
	}
	last := 2 + len(d.asked)
	for i := range d.spots {
		s := &d.spots[i]
		u := units[s.node.Name]
		if u == nil && !s.canary {
			continue
		}
		line := Node{Node: s.node.Name, NotReady: !s.ready, Cordoned: s.node.Spec.Unschedulable, Canary: s.canary, Pod: s.shown()}
		switch {
		case s.canary:
			line.State = v1alpha1.UnitUpdating
			if s.fresh.available() {
				line.State = v1alpha1.UnitUpdated
			}
		default:
			line.State, line.Reason, line.Message = u.State, u.Reason, u.Message
		}
		d.fill(&line, s, u)
		if w, ok := waits[line.Node]; ok && line.State == v1alpha1.UnitOutdated && s.without.Reason == "" {
			line.Reason, line.Message = w.Reason, w.Message
		}
		if d.trial != nil && !s.canary && (line.State == v1alpha1.UnitUpdated || line.State == v1alpha1.UnitSoaking) {
			// It has what it should have up to now; what is tried comes after.
			w := d.trial.waits[line.Node]
			line.State, line.Phase, line.Since, line.Reason, line.Message = v1alpha1.UnitOutdated, "", nil, w.Reason, w.Message
			waits[line.Node] = place{w, last}
		}
		d.lines = append(d.lines, line)
	}
	slices.SortStableFunc(d.lines, func(a, b Node) int { return cmp.Compare(waits[a.Node].at, waits[b.Node].at) })
}

// fill says where a unit's turn stands, since when, and what it waits for.
func (d *daemonSet) fill(line *Node, s *spot, u *rollout.Unit) {
	switch line.State {
	case v1alpha1.UnitUpdated:
		line.Since = known(s.fresh.look.ReadySince)
	case v1alpha1.UnitSoaking:
		line.Phase, line.Since = v1alpha1.PhaseSoaking, known(s.fresh.look.ReadySince)
	case v1alpha1.UnitFailed:
		line.Since = known(s.fresh.CreationTimestamp.Time)
	case v1alpha1.UnitUpdating:
		if s.without.Reason != "" {
			line.State, line.Reason, line.Message = v1alpha1.UnitOutdated, s.without.Reason, s.without.Message
			return
		}
		line.Phase = v1alpha1.PhaseChanging
		line.Since, line.Message = d.turn(s)
		line.Started = line.Since
		if u != nil && u.Excused {
			line.Message += "; not counted: " + cmp.Or(s.blamed, "spec.strategy.rollingUpdate.maxPodSchedulerFailure bears it")
		}
	case v1alpha1.UnitOutdated:
	}
}

// turn says what a node in its turn waits for, and since when.
func (d *daemonSet) turn(s *spot) (since *metav1.Time, message string) {
	switch {
	case s.fresh.available():
		return known(s.fresh.CreationTimestamp.Time), "pod " + s.old.Name + " is to go, its successor is available"
	case s.fresh != nil && s.fresh.look.Ready:
		end := s.fresh.look.ReadySince.Add(time.Duration(d.spec.MinReadySeconds) * time.Second)
		return known(s.fresh.CreationTimestamp.Time), "pod " + s.fresh.Name + " is available at " + end.UTC().Format(time.RFC3339)
	case s.fresh != nil && s.fresh.look.Message == "":
		return known(s.fresh.CreationTimestamp.Time), "pod " + s.fresh.Name + " is not ready"
	case s.fresh != nil:
		return known(s.fresh.CreationTimestamp.Time), "pod " + s.fresh.Name + ": " + s.fresh.look.Message
	case s.going != nil:
		return s.going.deleted(), "pod " + s.going.Name + " has been deleted, and is not gone yet"
	case s.ended != nil:
		return known(s.ended.CreationTimestamp.Time), "pod " + s.ended.Name + ": " + s.ended.look.Message + "; it is deleted, and another made, more and more seldom"
	case s.canary && d.canaryPaused():
		return nil, d.pausedCanary() + "; no pod is made"
	case s.old != nil:
		return nil, "pod " + s.old.Name + " is to go"
	}
	return nil, "no pod yet"
}

// deleted is when somebody has deleted the pod: its timestamp is when it is to be gone.
func (p *pod) deleted() *metav1.Time {
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return known(at)
}

// shown is the name of the pod that counts on the node, or "".
func (s *spot) shown() string {
	for _, p := range []*pod{s.fresh, s.old, s.going, s.ended, s.extra} {
		if p != nil {
			return p.Name
		}
	}
	return ""
}

// presume makes lines of the nodes of an ExtendedDaemonSet that is at rest: all have what they should have, as far as nobody has
// looked closer.
func (d *daemonSet) presume() {
	for i := range d.spots {
		s := &d.spots[i]
		if !s.counts() && (s.ready || !s.placement.Keep) {
			continue // What is not ready has a taint that keeps new pods away only.
		}
		line := Node{Node: s.node.Name, State: v1alpha1.UnitUpdated, NotReady: !s.ready, Cordoned: s.node.Spec.Unschedulable, Pod: s.shown()}
		if s.fresh != nil || s.old != nil || s.going != nil || s.ended != nil {
			line.State = s.state()
			d.fill(&line, s, nil)
		}
		d.lines = append(d.lines, line)
	}
}
