// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// PreviewDaemonSet says what an ExtendedDaemonSet would do. It need not be among those of the cluster; its revisions and pods must
// be, as far as there are any.
func (c *Cluster) PreviewDaemonSet(eds *edsv1.ExtendedDaemonSet, s Supposition) Preview {
	eds = eds.DeepCopy()
	fillPorts(&eds.Spec.Template.Spec)
	d := c.readDaemonSet(eds)
	v := Preview{New: s.New, Problem: d.problem, Steps: []Step{}}
	version := ""
	if d.target == nil {
		d.wish().Name = eds.Name + newRevision
		version = "a new revision"
	}
	d.known, d.target = true, d.wish()
	first := d.active == nil
	switch {
	case first:
		d.active = d.target
	case lost(d.target):
		v.Notes = append(v.Notes, "The canary of this template has failed, so the nodes stay at revision "+d.active.Name+", or go back to it: "+
			"kubectl eds canary reset "+eds.Name+" -n "+eds.Namespace+" tries it again.")
		d.target = d.active
	}
	tries := d.tries()
	d.onCanary = map[string]bool{}
	if tries {
		v.Canary = d.pick()
		if len(v.Canary.Nodes) < v.Canary.Wanted {
			v.Notes = append(v.Notes, fmt.Sprintf("The canary wants %s, and only %d are ready, schedulable, of nobody else and fit.", plural(v.Canary.Wanted), len(v.Canary.Nodes)))
		}
	}
	d.survey(func(node string) (*edsv1.ExtendedDaemonSetReplicaSet, bool) { return d.target, d.onCanary[node] })
	if tries {
		d.try()
	}
	d.active = d.target // As it will be when the canary is over.
	d.units()
	for i := range d.spots {
		if s := &d.spots[i]; s.canary {
			d.asked = append(d.asked, rollout.Unit{Node: s.node.Name, State: v1alpha1.UnitUpdated})
		}
	}
	nodes := len(d.asked)
	d.strategy = d.rolling(nodes)
	d.decision = rollout.Decide(d.strategy, d.asked, c.fleet, c.now)
	d.limit()
	d.describe()
	v.Rollout = d.rollout()
	v.Rollout.Version = cmp.Or(version, d.target.Name)
	v.Rollout.Counts = count(d.stands())
	v.AtOnce, v.AtOnceBy = d.atOnce(nodes)
	v.Creation, v.Unfit = d.creations(), d.unfits()
	v.Problem = cmp.Or(v.Problem, d.strategy.Problem())
	v.sort(c)
	starts := map[string]time.Time{}
	if s.Turn > 0 && v.Problem == "" {
		v.Schedule, starts = d.schedule(s.Turn)
	}
	v.Steps = d.steps(starts)
	v.InTurn = slices.DeleteFunc(v.InTurn, func(n Node) bool {
		// Those without a pod are counted as such, and the canary's are still to go.
		return n.Pod == "" || slices.ContainsFunc(v.Steps, func(s Step) bool { return s.Node == n.Node })
	})
	if s.New && len(v.Steps) > 1 {
		v.Notes = append(v.Notes, "Nodes that spec.strategy.order leaves equal are shuffled by the uid and the revision: they may come in another order.")
	}
	return v
}

func plural(nodes int) string {
	if nodes == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", nodes)
}

// fillPorts does to a template what the API server does: it is part of what makes a revision.
func fillPorts(s *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			for j := range containers[i].Ports {
				port := &containers[i].Ports[j]
				port.Protocol = cmp.Or(port.Protocol, corev1.ProtocolTCP)
			}
		}
	}
}

// pick chooses the nodes of the canary as the controller would.
func (d *daemonSet) pick() *Trial {
	before := d.eds.Status.Canary
	var current []string
	if before != nil {
		current = before.Nodes
	}
	goes := func(node string) bool {
		return before != nil && before.ReplicaSet == d.target.Name && slices.Contains(current, node)
	}
	d.survey(func(node string) (*edsv1.ExtendedDaemonSetReplicaSet, bool) {
		if goes(node) {
			return d.target, true
		}
		return d.active, false
	})
	var candidates []daemon.CanaryNode
	desired := 0
	for i := range d.spots {
		s := &d.spots[i]
		if s.counts() {
			desired++
		}
		fits := d.place(s.fact, d.target)
		n := daemon.CanaryNode{
			Node: s.node, Claimed: s.claimed(), Fits: fits.Create || fits.Keep && s.canary && (s.blamed != "" || s.fresh != nil),
		}
		for _, p := range []*pod{s.fresh, s.old} {
			if p != nil {
				n.Restarts += p.look.Restarts
			}
		}
		candidates = append(candidates, n)
	}
	c := d.spec.Strategy.Canary
	t := &Trial{Wanted: max(1, daemon.Count(c.Replicas, desired)), Manual: c.ValidationMode == edsv1.ValidationModeManual}
	t.Nodes = daemon.PickCanaries(c, t.Wanted, current, candidates)
	if c.Duration != nil {
		t.Duration = c.Duration.Duration.String()
	}
	if c.NoRestartsDuration != nil {
		t.Calm = c.NoRestartsDuration.Duration.String()
	}
	for _, name := range t.Nodes {
		d.onCanary[name] = true
	}
	return t
}

// stands are the nodes by how they stand to the revision that is wanted.
func (d *daemonSet) stands() []Node {
	all := make([]Node, 0, len(d.spots))
	for i := range d.spots {
		s := &d.spots[i]
		switch {
		case s.missing(), s.canary && s.fresh == nil && s.going == nil:
			all = append(all, Node{Node: s.node.Name, State: v1alpha1.UnitOutdated})
		case s.counts() || s.going != nil:
			all = append(all, Node{Node: s.node.Name, State: s.state()})
		}
	}
	return all
}

// creations says how nodes get a pod that have none; nil when all have one.
func (d *daemonSet) creations() *Creation {
	ru := &d.spec.Strategy.RollingUpdate
	c := Creation{
		Limit: d.creation.limit, Increase: max(1, daemon.Count(ru.SlowStartAdditiveIncrease, max(1, d.eligible()))),
		Interval: ru.SlowStartIntervalDuration.Duration.String(), Most: int(ptr.Deref(ru.MaxParallelPodCreation, 0)),
	}
	for i := range d.spots {
		if d.spots[i].missing() {
			c.Nodes++
		}
	}
	if c.Nodes == 0 {
		return nil
	}
	return &c
}

// missing reports whether a pod is to be made on the node, which has none.
func (s *spot) missing() bool {
	return s.placement.Create && s.fresh == nil && s.old == nil && s.going == nil
}

// unfits are the nodes on which no pod would be made, by why not.
func (d *daemonSet) unfits() []Unfit {
	var all []Unfit
	for _, f := range d.cluster.byName {
		placement := d.place(f, d.target)
		if placement.Create {
			continue
		}
		i := slices.IndexFunc(all, func(u Unfit) bool { return u.Message == placement.Why })
		if i < 0 {
			i = len(all)
			all = append(all, Unfit{Message: placement.Why})
		}
		all[i].Nodes = append(all[i].Nodes, f.node.Name)
	}
	slices.SortStableFunc(all, func(a, b Unfit) int { return cmp.Compare(len(a.Nodes), len(b.Nodes)) })
	return all
}

// steps are the nodes that are to be started: those of the canary, and then the others in their order.
func (d *daemonSet) steps(starts map[string]time.Time) []Step {
	all := []Step{}
	for i := range d.spots {
		s := &d.spots[i]
		if !s.canary || s.fresh != nil {
			continue
		}
		step := Step{Node: s.node.Name, Wave: waveCanary, At: known(starts[s.node.Name])}
		if d.canaryPaused() {
			step.Reason, step.Message = v1alpha1.ReasonPaused, d.pausedCanary()
		}
		all = append(all, step)
	}
	room, why := d.room()
	for _, from := range rollout.Sequence(d.strategy, d.asked, d.cluster.fleet, d.cluster.now) {
		step := Step{Node: from.Node, Wave: from.Wave, Reason: from.Reason, Message: from.Message, At: known(starts[from.Node])}
		switch {
		case d.trial != nil:
			step.Wave = cmp.Or(step.Wave, remainder)
			if from.Reason != v1alpha1.ReasonNodeUnfit && from.Reason != v1alpha1.ReasonOnDelete {
				step.Reason, step.Message = d.trial.waits[from.Node].Reason, d.trial.waits[from.Node].Message
			}
		case step.Reason != "":
		case room > 0:
			room--
		default:
			step.Reason, step.Message = v1alpha1.ReasonSlowStart, why
		}
		all = append(all, step)
	}
	return all
}

// noDuration stands for one that is absent.
var noDuration metav1.Duration

// remainder is the name of the wave of those that no other takes.
const remainder = "remainder"

// schedule plays the canary, and then the rolling update, with turns that take so long.
func (d *daemonSet) schedule(turn time.Duration) (*Schedule, map[string]time.Time) {
	now := d.cluster.now
	begin := now
	var without []string
	starts := map[string]time.Time{}
	if t := d.trial; t != nil {
		begin = latest(now, t.until)
		c := d.spec.Strategy.Canary
		for i := range d.spots {
			s := &d.spots[i]
			if !s.canary || s.fresh.available() {
				continue
			}
			if s.fresh == nil {
				starts[s.node.Name] = now
			}
			begin = latest(begin, now.Add(turn+ptr.Deref(c.Duration, noDuration).Duration))
		}
		if d.canaryPaused() {
			without = append(without, "the time until the canary is unpaused")
		}
		if t.strategy.Waves[0].Manual {
			without = append(without, "the time until the canary is validated")
		}
	}
	if soak := d.spec.Strategy.Soak; soak != nil {
		turn += soak.Duration
	}
	p := d.cluster.newPlay(d.strategy, d.asked, begin, turn)
	p.without = append(without, p.without...)
	p.room = d.roomAt(begin)
	for name, at := range d.creates() {
		if _, plays := p.index[name]; plays {
			p.ends[name] = latest(begin, at.Add(turn))
		}
	}
	s := p.schedule()
	maps.Copy(p.starts, starts)
	return s, p.starts
}

// creates says when those nodes get a pod that have none, by the slow start.
func (d *daemonSet) creates() map[string]time.Time {
	since, eligible, long := d.slowStart(), max(1, d.eligible()), d.creationTime()
	at := map[string]time.Time{}
	now := d.cluster.now
	var made []time.Time // in order; those before first are not in creation any more
	first := 0
	for i := range d.spots {
		s := &d.spots[i]
		if !s.missing() {
			continue
		}
		for {
			for first < len(made) && !now.Before(made[first].Add(long)) {
				first++
			}
			limit, next := daemon.CreationLimit(&d.spec.Strategy.RollingUpdate, since, now, eligible)
			if len(made)-first < limit || first == len(made) {
				break
			}
			now = earliest(next, made[first].Add(long))
		}
		made = append(made, now)
		at[s.node.Name] = now
	}
	return at
}

// roomAt bounds how many pods are replaced at a time by the slow start: where a canary has to end first, it begins then.
func (d *daemonSet) roomAt(begin time.Time) func(*play) (int, time.Time) {
	since, eligible, long := d.slowStart(), max(1, d.eligible()), d.creationTime()
	if d.trial != nil {
		since = begin
	}
	return func(p *play) (int, time.Time) {
		limit, next := daemon.CreationLimit(&d.spec.Strategy.RollingUpdate, since, p.now, eligible)
		creating := 0
		for _, at := range p.starts {
			if end := at.Add(long); p.now.Before(end) {
				creating++
				next = earliest(next, end)
			}
		}
		return max(0, limit-creating), next
	}
}
