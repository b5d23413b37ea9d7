// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// preview says what the ExtendedDaemonSet would do.
func (d *daemonSet) preview(s Supposition) Preview {
	v := Preview{New: s.New, Steps: []Step{}}
	version := d.Target.Name
	if !d.TargetExists {
		version = "a new revision"
	}
	d.decided = true
	switch {
	case d.Active == nil:
		d.Active = d.Target
	case d.CanaryFailed():
		v.Notes = append(v.Notes, "The canary of this template has failed, so the nodes stay at revision "+d.Active.Name+", or go back to it: "+
			"kubectl eds canary reset "+d.EDS.Name+" -n "+d.EDS.Namespace+" tries it again.")
		version, d.Target = d.Active.Name, d.Active
	}
	canary := []string{}
	wanted := d.CanaryWanted()
	if wanted {
		d.survey(d.CanaryNodes())
		v.Canary = d.pickCanary()
		canary = v.Canary.Nodes
		if d.EDS.Spec.Strategy.Canary.ValidationMode == "" && d.EDS.Status.Canary == nil {
			v.Notes = append(v.Notes, "The canary's validationMode is not set: it is taken as auto, unless the operator has --eds-validation-mode=manual.")
		}
		if len(canary) < v.Canary.Wanted {
			v.Notes = append(v.Notes, fmt.Sprintf("The canary wants %s, and only %d are ready, schedulable, unclaimed and fit.", rollout.NodeCount(v.Canary.Wanted), len(canary)))
		}
	}
	d.Active = d.Target // As it is after the canary.
	if !d.survey(canary) || d.problem != "" {
		v.Rollout, v.Problem = d.rollout(), d.problem
		v.Rollout.Version = version
		for _, s := range d.States {
			if s.IsCounted() {
				v.Rollout.Counts.Total++
			}
		}
		return v
	}
	var trial *daemonset.Canary
	if wanted {
		d.JudgeCanaryPods()
		d.DecideCanary()
		trial, d.Canary, d.EDS.Status.Wave = d.Canary, nil, nil
	}
	d.Decide()
	d.listNodes()
	if d.Canary = trial; trial != nil {
		d.EDS.Status.Wave = trial.Decision.Wave
	}
	ru := &d.Strategy.RollingUpdate
	v.AtOnce, v.AtOnceBy = d.Rolling.MaxConcurrent, "spec.strategy.rollingUpdate.maxUnavailable is "+ru.MaxUnavailable.String()
	if d.Surges() {
		v.AtOnceBy = "spec.strategy.rollingUpdate.maxSurge is " + ru.MaxSurge.String()
	}
	v.Creation, v.Unfit, v.Problem = d.creations(), d.unfits(), d.Rolling.Problem()
	starts := map[string]time.Time{}
	if s.Turn > 0 && v.Problem == "" {
		v.Schedule, starts = d.schedule(s.Turn)
	}
	v.Steps = d.steps(starts)
	for i := range d.nodes { // Nodes without a pod are counted in Creation, and those of the canary are in Steps: no turn has begun there.
		n := &d.nodes[i]
		if n.InTurn() && (n.Pod == "" || slices.ContainsFunc(v.Steps, func(s Step) bool { return s.Node == n.Node })) {
			n.State = v1alpha1.UnitOutdated
		}
	}
	v.Rollout = d.rollout()
	v.Rollout.Version = version
	v.finish(d.cluster, s)
	return v
}

// fillPorts sets default port protocols, like the API server. The revision's hash includes them.
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

// pickCanary chooses the canary's nodes.
func (d *daemonSet) pickCanary() *Trial {
	c := d.Strategy.Canary
	t := &Trial{Nodes: d.StartCanary(), Manual: c.ValidationMode == edsv1.ValidationModeManual}
	t.Wanted = d.Canary.Wanted
	if c.Duration != nil {
		t.Duration = c.Duration.Duration.String()
	}
	if c.NoRestartsDuration != nil {
		t.Calm = c.NoRestartsDuration.Duration.String()
	}
	return t
}

// missing returns the nodes outside of the canary that have no pod and get one.
func (d *daemonSet) missing() []string {
	var names []string
	for _, s := range d.States {
		if !s.Canary && s.Placement.Create && s.Current == nil && s.Outdated == nil && s.Terminating == nil {
			names = append(names, s.Node.Name)
		}
	}
	return names
}

// creations says how nodes without a pod get one; nil if no node needs one.
func (d *daemonSet) creations() *Creation {
	nodes := len(d.missing())
	if nodes == 0 {
		return nil
	}
	ru := &d.Strategy.RollingUpdate
	first, _ := d.CreationLimitAt(d.cluster.now, d.cluster.now)
	return &Creation{
		Nodes: nodes, Limit: d.Limits.Creation, Increase: first, Interval: ru.SlowStartIntervalDuration.Duration.String(), Most: int(*ru.MaxParallelPodCreation),
	}
}

// unfits returns the nodes that get no pod, grouped by the reason.
func (d *daemonSet) unfits() []Unfit {
	var all []Unfit
	for _, n := range d.Nodes {
		placement := d.place(n, d.Target)
		if placement.Create {
			continue
		}
		i := slices.IndexFunc(all, func(u Unfit) bool { return u.Message == placement.Why })
		if i < 0 {
			i = len(all)
			all = append(all, Unfit{Message: placement.Why})
		}
		all[i].Nodes = append(all[i].Nodes, n.Name)
	}
	slices.SortStableFunc(all, func(a, b Unfit) int { return cmp.Compare(len(a.Nodes), len(b.Nodes)) })
	return all
}

// steps returns the nodes that will be started: first the canary's, then the others in their order.
func (d *daemonSet) steps(starts map[string]time.Time) []Step {
	all := []Step{}
	for _, s := range d.States {
		if !s.Canary || s.Current != nil {
			continue
		}
		step := Step{Step: rollout.Step{Node: s.Node.Name, Wave: daemonset.WaveCanary}, At: timeOrNil(starts[s.Node.Name])}
		wait := d.Canary.WaitOf(s.Node.Name)
		if step.Reason, step.Message = wait.Reason, wait.Message; d.Canary.Paused() {
			step.Reason, step.Message = d.CanaryCheck()
		}
		all = append(all, step)
	}
	waits := map[string]rollout.Wait{}
	for _, w := range d.Waits() {
		waits[w.Node] = w
	}
	for _, from := range rollout.Sequence(d.Rolling, d.Units, d.Fleet, d.cluster.now) {
		step := Step{Step: from, At: timeOrNil(starts[from.Node])}
		if d.Canary != nil {
			step.Wave = cmp.Or(step.Wave, "remainder")
		}
		if from.Reason != v1alpha1.ReasonNodeUnfit && from.Reason != v1alpha1.ReasonOnDelete {
			step.Reason, step.Message = waits[from.Node].Reason, waits[from.Node].Message
		}
		all = append(all, step)
	}
	return all
}

// schedule simulates the canary, and then the rolling update. Each turn takes this long.
func (d *daemonSet) schedule(turn time.Duration) (*Schedule, map[string]time.Time) {
	now := d.cluster.now
	begin, slowStart := now, d.SlowStartBegan()
	var without []string
	starts := map[string]time.Time{}
	if t := d.Canary; t != nil {
		begin = rollout.Later(now, t.Until)
		for _, s := range d.States {
			if !s.Canary || s.Current.Available() {
				continue
			}
			if s.Current == nil {
				starts[s.Node.Name] = now
			}
			begin = rollout.Later(begin, now.Add(turn+ptr.Deref(d.Strategy.Canary.Duration, metav1.Duration{}).Duration))
		}
		slowStart = begin
		if t.Paused() {
			without = append(without, "the time until the canary is unpaused")
		}
		if t.Strategy.Waves[0].Manual {
			without = append(without, "the time until the canary is validated")
		}
	}
	if soak := d.Strategy.Soak; soak != nil {
		turn += soak.Duration
	}
	p := d.cluster.newSimulation(d.Rolling, d.Units, begin, turn)
	p.without = append(without, p.without...)
	p.starts, p.missing = starts, d.missing()
	p.room = func() (int, time.Time) {
		limit, next := d.CreationLimitAt(slowStart, p.now)
		creating := 0
		for _, at := range p.starts {
			if end := at.Add(d.CreationTime()); p.now.Before(end) {
				creating++
				next = rollout.Earlier(next, end)
			}
		}
		return max(0, limit-creating), next
	}
	return p.schedule(), p.starts
}
