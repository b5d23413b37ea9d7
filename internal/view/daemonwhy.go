// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// unselected says why an ExtendedDaemonSet does not concern a node; else "".
func (d *daemonSet) unselected(n *corev1.Node) string {
	placement := d.place(n, cmp.Or(d.Active, d.Target))
	isListed := d.onCanary(n.Name) || indexOf(d.listed, n.Name) >= 0
	if placement.Create || isListed || len(d.podsOn(n.Name)) > 0 || indexOf(d.nodes, n.Name) >= 0 {
		return ""
	}
	return "no pod is created there: " + placement.Why
}

// podsOn returns the pods on a node.
func (d *daemonSet) podsOn(name string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(d.Pods), func(p *corev1.Pod) bool { return daemonset.NodeOf(p) != name })
}

// podsOf returns the daemon's pods on a node, the current pod first.
func podsOf(s *daemonset.NodeState) []*daemonset.Pod {
	pods := []*daemonset.Pod{s.Current, s.Outdated, s.Terminating, s.Ended}
	return slices.DeleteFunc(append(pods, s.Extra...), func(p *daemonset.Pod) bool { return p == nil })
}

// explain adds the pods on the node to its part, and why the node does not get a new one yet.
func (d *daemonSet) explain(part *Part) {
	name := part.Unit.Node
	part.Unit.Canary = part.Unit.Canary || d.onCanary(name)
	s := d.State(name)
	if s == nil {
		if indexOf(d.nodes, name) < 0 {
			why := d.problem
			if !d.hasPods {
				why = cmp.Or(why, "its pods can't be listed")
			}
			part.unjudged(why)
		}
		for _, pod := range d.podsOn(name) {
			part.Pods = append(part.Pods, describePod(&daemonset.Pod{Pod: pod, State: daemonset.StateOfPod(pod, 0, d.cluster.now)}, false))
		}
		return
	}
	for _, p := range podsOf(s) {
		part.Pods = append(part.Pods, describePod(p, p == s.Current))
	}
	if !d.decided || part.Unit.State != v1alpha1.UnitOutdated {
		return
	}
	part.addChecks(rollout.Explain(d.Rolling, d.Units, d.Fleet, d.cluster.now, name))
	room, message := d.Room()
	switch {
	case s.NoPod.Reason != "":
		part.Checks = []Check{{Name: checkCreation, Reason: s.NoPod.Reason, Message: s.NoPod.Message}}
	case part.Place == 0:
		part.Checks = d.canaryChecks(name)
	case slices.Contains(d.Decision.Start, name) || len(d.Decision.Start) < room:
		part.Checks = append(part.Checks, Check{Name: checkCreation})
	default:
		part.Checks = append(part.Checks, Check{Name: checkCreation, Reason: v1alpha1.ReasonSlowStart, Message: message})
	}
}

// canaryChecks say why the canary's revision does not come to a node yet. The engine's other checks apply after the canary.
func (d *daemonSet) canaryChecks(name string) []Check {
	if d.Canary == nil {
		return nil
	}
	var part Part
	part.addChecks(rollout.Explain(d.Canary.Strategy, d.Canary.Units, d.Fleet, d.cluster.now, name))
	if d.Canary.WaitOf(name).Reason != "" {
		return part.Checks
	}
	checks := slices.DeleteFunc(part.Checks, func(c Check) bool { return c.Name != "wave" && (c.Name != "paused" || c.Reason == "") })
	reason, message := d.CanaryCheck()
	if reason == v1alpha1.ReasonPaused || !slices.ContainsFunc(checks, func(c Check) bool { return c.Reason != "" }) {
		checks = append(checks, Check{Name: checkCanary, Reason: reason, Message: message})
	}
	return checks
}

func describePod(p *daemonset.Pod, current bool) Pod {
	d := Pod{
		Name: p.Name, Revision: daemonset.ReplicaSetOf(p.Pod), UpToDate: current, Ready: p.State.Ready, Since: timeOrNil(p.CreationTimestamp.Time),
		Restarts: p.State.Restarts, Message: p.State.Message,
	}
	if p.State.Ready {
		d.Since = timeOrNil(p.State.ReadySince)
	}
	if p.State.Terminating {
		d.Deleted = timeOrNil(daemonset.DeletedAt(p.Pod))
	}
	return d
}
