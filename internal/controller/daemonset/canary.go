// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/rollout"
)

// trial is how a canary stands.
type trial struct {
	verdict daemon.Verdict
	history daemon.CanaryHistory
	// byHand is true when the annotation pauses it.
	byHand bool
	// wanted is on how many nodes it should run.
	wanted int
	// decision is the engine's about when it ends.
	decision rollout.Decision
	// units are the nodes that the revision is to come to, as the engine sees them.
	units []rollout.Unit
}

func (t *trial) paused() bool { return t != nil && (t.byHand || t.verdict.Paused) }

// tries reports whether a canary goes on: a revision is wanted that is not active, and has not failed.
func (p *pass) tries() bool {
	return p.target != p.active && p.strategy.Canary != nil && !failed(p.target)
}

// try looks after the canary: on which nodes it runs, and whether it has failed or is over. Each of these is written down
// before anything follows from it; then the pass is over.
func (p *pass) try(ctx context.Context) (again bool, err error) {
	if !p.tries() {
		return p.endTrial(ctx)
	}
	t := &trial{byHand: p.is(edsv1.AnnotationCanaryPaused)}
	p.canary = t
	if again, err := p.pick(ctx); again || err != nil {
		return again, err
	}
	if p.eds.Annotations[edsv1.AnnotationCanaryValid] == p.target.Name {
		p.events.Emit(events.CanaryValidated(p.eds, p.target.Name))
		return true, p.activate(ctx, p.target)
	}
	p.judge()
	if t.verdict.Failed {
		return true, p.fail(ctx)
	}
	p.decideTrial()
	if p.over() {
		return true, p.activate(ctx, p.target)
	}
	return false, nil
}

func (p *pass) is(annotation string) bool { return p.eds.Annotations[annotation] == edsv1.True }

// endTrial takes back what only counts while a canary goes on.
func (p *pass) endTrial(ctx context.Context) (again bool, err error) {
	if p.eds.Status.Canary != nil {
		p.endCanary()
		if c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed); p.lost() {
			p.eds.Status.State, p.eds.Status.Reason = edsv1.StateCanaryFailed, edsv1.StatusReason(c.Reason)
		}
		if err := p.writeStatus(ctx); err != nil {
			return false, fmt.Errorf("writing that the canary is over, %w", err)
		}
		return true, nil
	}
	if p.target == p.active || p.lost() {
		return false, p.clearAnnotations(ctx)
	}
	return false, nil
}

// pick chooses the nodes of the canary, and writes them down.
func (p *pass) pick(ctx context.Context) (again bool, err error) {
	candidates, desired := p.candidates()
	p.canary.wanted = max(1, daemon.Count(p.strategy.Canary.Replicas, desired))
	before := p.eds.Status.Canary
	var current []string
	if before != nil {
		current = before.Nodes
	}
	nodes := daemon.PickCanaries(p.strategy.Canary, p.canary.wanted, current, candidates)
	if before != nil && before.ReplicaSet == p.target.Name && slices.Equal(before.Nodes, nodes) {
		return false, nil
	}
	p.eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: p.target.Name, Nodes: nodes}
	begins := before == nil || before.ReplicaSet != p.target.Name
	if begins && before != nil {
		// Before the new one is written down: whoever is killed in between does it again.
		if err := p.unannotate(ctx, p.spentBy(before.ReplicaSet)); err != nil {
			return false, err
		}
	}
	if begins {
		p.eds.Status.Wave = nil
		p.eds.Status.State, p.eds.Status.Reason = edsv1.StateCanary, ""
		// What has failed before is tried again: nobody is to read the failure beside the canary.
		for _, kind := range []string{edsv1.ConditionCanaryFailed, edsv1.ConditionStalled} {
			set(&p.eds.Status.Conditions, kind, false, "", "", p.now)
		}
	}
	reset := begins && p.wasReset(p.stored)
	if err := p.writeStatus(ctx); err != nil {
		return false, fmt.Errorf("writing the canary's nodes, %w", err)
	}
	log.FromContext(ctx).Info("canary nodes chosen", "revision", p.target.Name, "nodes", nodes)
	if reset {
		p.events.Emit(events.CanaryReset(p.eds, p.target.Name))
	}
	if begins {
		p.events.Emit(events.CanaryStarted(p.eds, p.target.Name, nodes))
	}
	return true, nil
}

// candidates are the nodes as the choice sees them, and how many the ExtendedDaemonSet has in all.
func (p *pass) candidates() (nodes []daemon.CanaryNode, desired int) {
	for i := range p.spots {
		s := &p.spots[i]
		if s.belongs() {
			desired++
		}
		n := daemon.CanaryNode{Node: s.node, Claimed: s.claimed()}
		at := p.memo.look(s.node, p.targetSite, func() placed { return p.place(s.node, p.targetSite) }).placement
		// A node that is not ready is tainted so that no new pod would be made there, and may come back.
		n.Fits = at.Create || at.Keep && s.canary && (s.blamed != "" || s.fresh != nil)
		switch {
		case !s.canary: // On a node under maintenance no pod would be replaced.
			n.Fits = n.Fits && s.blamed == ""
		case !s.atWork():
			n.Fits = n.Fits && p.bearsWith(s.known)
		}
		for _, h := range []*held{s.fresh, s.old} {
			if h != nil {
				n.Restarts += h.look.Restarts
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, desired
}

// absence is how long a node of the canary may be without being ready, as in a reboot, before another takes its place.
const absence = time.Minute

// bearsWith reports whether a node of the canary keeps its place: it is ready, or was so a moment ago.
func (p *pass) bearsWith(n *rollout.Node) bool {
	for i := range n.Conditions {
		if c := &n.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			until := c.LastTransitionTime.Add(absence)
			if p.now.Before(until) {
				p.at(until)
				return true
			}
			return false
		}
	}
	return true
}

// judge looks whether the canary's pods are such that it is to be paused, or has failed.
func (p *pass) judge() {
	t := p.canary
	t.history = daemon.CanaryHistory{Began: p.now, Unpaused: p.is(edsv1.AnnotationCanaryUnpaused)}
	if c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanary); c != nil && c.Status == metav1.ConditionTrue {
		t.history.Began = c.LastTransitionTime.Time
	}
	if c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionPodRestarting); c != nil && c.Status == metav1.ConditionTrue && !c.LastUpdateTime.Time.Before(t.history.Began) {
		t.history.FirstRestart, t.history.LastRestart = c.LastTransitionTime.Time, c.LastUpdateTime.Time
	}
	var pods []daemon.CanaryPod
	back := t.history.Began // since when no node has kept the canary waiting
	for i := range p.spots {
		s := &p.spots[i]
		if !s.canary {
			continue
		}
		if s.blamed != "" {
			back = p.now
		}
		back = latest(back, readySince(s.known))
		if s.fresh != nil {
			pods = append(pods, daemon.CanaryPod{Node: s.node, Excused: s.excused(s.fresh), Look: s.fresh.look})
		}
	}
	t.verdict = daemon.Judge(p.strategy.Canary, pods, t.history, p.now)
	if t.verdict.Failed && t.verdict.Reason == edsv1.StatusReasonTimeoutExceeded && back.After(t.history.Began) {
		// What a node takes is not the canary's time: that begins anew when the node is back.
		h := t.history
		h.Began = back
		t.verdict = daemon.Judge(p.strategy.Canary, pods, h, p.now)
	}
	p.at(t.verdict.Wake)
}

// fail writes down on the revision that it has failed.
func (p *pass) fail(ctx context.Context) error {
	v := p.canary.verdict
	if err := p.condemn(ctx, p.target, v); err != nil {
		return fmt.Errorf("writing that the canary has failed, %w", err)
	}
	log.FromContext(ctx).Info("canary failed", "revision", p.target.Name, "reason", v.Reason, "message", v.Message)
	return nil
}

// decideTrial asks the engine whether the canary is over: it is the first wave, and all other nodes are the second.
func (p *pass) decideTrial() {
	began := p.clock.Now()
	defer func() { p.cost += p.clock.Since(began) }()
	c := p.strategy.Canary
	wave := rollout.Wave{Name: daemon.WaveCanary, Nodes: map[string]bool{}, Manual: c.ValidationMode == edsv1.ValidationModeManual}
	if c.Duration != nil {
		wave.Soak = c.Duration.Duration
	}
	t := p.canary
	for i := range p.spots {
		s := &p.spots[i]
		u := rollout.Unit{Node: s.node.Name, State: v1alpha1.UnitOutdated}
		if s.canary {
			wave.Nodes[s.node.Name] = true
			u.State, u.Excused = v1alpha1.UnitUpdating, s.blamed != ""
			if s.fresh.available() {
				u.State, u.Since = v1alpha1.UnitUpdated, s.fresh.look.ReadySince
			}
		} else if !s.belongs() {
			continue
		}
		t.units = append(t.units, u)
	}
	strategy := rollout.Strategy{
		UID: p.eds.UID, Revision: p.hash, MaxConcurrent: max(1, len(wave.Nodes)), Waves: []rollout.Wave{wave}, Wave: p.eds.Status.Wave,
		Approved: p.eds.Annotations[v1alpha1.AnnotationApprove], Beside: true, SoakLast: true,
	}
	t.decision = rollout.Decide(strategy, t.units, p.fleet.Fleet, p.now)
	p.eds.Status.Wave = t.decision.Wave
	p.at(t.decision.Next)
}

// over reports whether the canary may be promoted: the engine says that its wave is over, nobody has paused it, and each of its
// pods, of which there is at least one, has been ready for the duration and has not restarted of late. The engine counts from
// when it first saw all of them ready; what happened while nobody looked stands in the pods.
func (p *pass) over() bool {
	t, c := p.canary, p.strategy.Canary
	if w := t.decision.Wave; t.paused() || w == nil || w.Number == 1 && w.State != v1alpha1.WaveComplete {
		return false
	}
	var until time.Time
	pods := 0
	for i := range p.spots {
		s := &p.spots[i]
		if !s.canary {
			continue
		}
		if !s.fresh.available() {
			return false
		}
		pods++
		if c.Duration != nil {
			until = latest(until, s.fresh.look.ReadySince.Add(c.Duration.Duration))
		}
		if c.NoRestartsDuration != nil && !s.fresh.look.LastRestart.IsZero() && s.fresh.look.Restarts > 0 && !s.excused(s.fresh) {
			until = latest(until, s.fresh.look.LastRestart.Add(c.NoRestartsDuration.Duration))
		}
	}
	if last := t.verdict.LastRestart; c.NoRestartsDuration != nil && !last.IsZero() {
		until = latest(until, last.Add(c.NoRestartsDuration.Duration))
	}
	if p.now.Before(until) {
		p.at(until)
		return false
	}
	return pods > 0
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// clearAnnotations removes what people have set for a canary that is over. A validation, or an approval, would be good for the
// next canary of the same revision, too: ExtendedDaemonSet can leave it, as there a template that comes back is another revision.
func (p *pass) clearAnnotations(ctx context.Context) error {
	var spent []string
	for _, key := range []string{
		edsv1.AnnotationCanaryPaused, edsv1.AnnotationCanaryPausedReason, edsv1.AnnotationCanaryUnpaused, edsv1.AnnotationCanaryValid,
	} {
		if _, ok := p.stored.Annotations[key]; ok {
			spent = append(spent, key)
		}
	}
	if p.strategy.Canary != nil && p.stored.Annotations[v1alpha1.AnnotationApprove] == rollout.ApprovalOf(daemon.WaveCanary, p.hash) {
		spent = append(spent, v1alpha1.AnnotationApprove)
	}
	return p.unannotate(ctx, spent)
}

// spentBy are the annotations that were for the canary of this revision alone, where the next one begins before it was over. A pause by
// hand stays, as with ExtendedDaemonSet: who holds a canary does not ask for the next one to run. That autoPause was overruled was
// about pods that are no more.
func (p *pass) spentBy(revision string) []string {
	var spent []string
	of := func(key string, is bool) {
		if _, ok := p.stored.Annotations[key]; ok && is {
			spent = append(spent, key)
		}
	}
	paused := p.is(edsv1.AnnotationCanaryPaused)
	of(edsv1.AnnotationCanaryPaused, !paused) // kubectl eds takes "false" for a canary that was unpaused already.
	of(edsv1.AnnotationCanaryPausedReason, !paused)
	of(edsv1.AnnotationCanaryUnpaused, true)
	of(edsv1.AnnotationCanaryValid, p.stored.Annotations[edsv1.AnnotationCanaryValid] == revision)
	if rs := p.find(revision); rs != nil {
		of(v1alpha1.AnnotationApprove, p.stored.Annotations[v1alpha1.AnnotationApprove] == rollout.ApprovalOf(daemon.WaveCanary, hashOf(rs)))
	}
	return spent
}
