// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// SelectsNode reports whether an ExtendedDaemonSet has anything to do with a node: a pod of it belongs there, or may be there.
// Which revision is active is not asked, but only where the template leads.
func (c *Cluster) SelectsNode(eds *edsv1.ExtendedDaemonSet, name string) bool {
	f := c.named[name]
	if f == nil {
		return false
	}
	d := c.readDaemonSet(eds)
	return d.onCanary(name) || d.mentions(name) || d.place(f.node, d.template()).Keep || d.Active != nil && d.place(f.node, d.Active).Keep
}

// mentions reports whether the status lists a node.
func (d *daemonSet) mentions(name string) bool {
	of := func(u v1alpha1.UnitStatus) bool { return u.Node == name }
	return slices.ContainsFunc(d.EDS.Status.Updating, of) || slices.ContainsFunc(d.EDS.Status.Waiting, of)
}

// unselected says why an ExtendedDaemonSet has nothing to do with a node, or "".
func (d *daemonSet) unselected(f *fact) string {
	name := f.node.Name
	if d.onCanary(name) || d.mentions(name) || len(d.pods[name]) > 0 {
		return ""
	}
	at := d.Active
	if at == nil || AtRest(d.EDS) {
		at = d.template()
	}
	placement := d.place(f.node, at)
	if placement.Create || d.seenOn(name) {
		return ""
	}
	return "no pod is made there: " + placement.Why
}

// seenOn reports whether there is a line of the node.
func (d *daemonSet) seenOn(name string) bool {
	return slices.ContainsFunc(d.lines, func(n Node) bool { return n.Node == name })
}

// part says how the node stands in an ExtendedDaemonSet that has to do with it.
func (d *daemonSet) part(name string) Part {
	r := d.rollout()
	part := Part{Rollout: r, Unit: Node{Node: name, State: v1alpha1.UnitOutdated, Canary: d.onCanary(name)}}
	part.Rollout.Nodes = nil
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Node == name }); i >= 0 {
		part.Unit = r.Nodes[i]
	}
	i := slices.IndexFunc(d.States, func(s daemonset.NodeState) bool { return s.Node.Name == name })
	if i < 0 {
		for _, pod := range d.pods[name] {
			part.Pods = append(part.Pods, describePod(&daemonset.Pod{Pod: pod, State: daemonset.StateOfPod(pod, 0, d.cluster.now)}, false))
		}
		return part
	}
	s := &d.States[i]
	for _, p := range podsOf(s) {
		part.Pods = append(part.Pods, describePod(p, p == s.Current))
	}
	if !d.decided || part.Unit.State != v1alpha1.UnitOutdated {
		return part
	}
	if s.NoPod.Reason != "" {
		part.Checks = []Check{{Name: checkCreation, Reason: s.NoPod.Reason, Message: s.NoPod.Message}}
		return part
	}
	e := rollout.Explain(d.Rolling, d.Units, d.cluster.fleet, d.cluster.now, name)
	if e.Place == 0 {
		part.Checks = d.canaryChecks(name)
		return part
	}
	part.Wave, part.Place, part.Asking, part.Ahead = e.Wave, e.Place, e.Asking, e.Ahead[:min(len(e.Ahead), maxAhead)]
	for _, v := range e.Verdicts {
		part.Checks = append(part.Checks, Check{Name: v.Check, Reason: v.Reason, Message: v.Message})
	}
	part.Checks = append(part.Checks, d.creationCheck(name))
	return part
}

// The checks that are not the engine's.
const (
	checkCreation = "creation"
	checkCanary   = "canary"
)

// creationCheck says whether the creation of pods keeps an outdated one from being replaced.
func (d *daemonSet) creationCheck(name string) Check {
	room, message := d.Room()
	if slices.Contains(d.Decision.Start, name) || len(d.Decision.Start) < room {
		return Check{Name: checkCreation}
	}
	return Check{Name: checkCreation, Reason: v1alpha1.ReasonSlowStart, Message: message}
}

// canaryChecks say why the canary's revision does not come to a node yet. The engine's other rules are asked when the canary is over.
func (d *daemonSet) canaryChecks(name string) []Check {
	if d.Canary == nil {
		return nil
	}
	var all []Check
	e := rollout.Explain(d.Canary.Strategy, d.Canary.Units, d.cluster.fleet, d.cluster.now, name)
	for _, v := range e.Verdicts {
		if v.Check == "wave" {
			all = append(all, Check{Name: v.Check, Reason: v.Reason, Message: v.Message})
		}
	}
	waits := slices.ContainsFunc(all, func(c Check) bool { return c.Reason != "" })
	if reason, message := d.CanaryCheck(); !waits || reason == v1alpha1.ReasonPaused {
		all = append(all, Check{Name: checkCanary, Reason: reason, Message: message})
	}
	return all
}

// Says reports whether the message of a unit tells of the pod what it tells itself.
func (p *Pod) Says(message string) bool {
	return message == "pod "+p.Name+" is not ready" || message == "pod "+p.Name+": "+p.Message
}

func describePod(p *daemonset.Pod, current bool) Pod {
	d := Pod{
		Name: p.Name, Revision: daemonset.ReplicaSetOf(p.Pod), UpToDate: current, Ready: p.State.Ready, Since: known(p.CreationTimestamp.Time),
		Restarts: p.State.Restarts, Message: p.State.Message,
	}
	if p.State.Ready {
		d.Since = known(p.State.ReadySince)
	}
	if p.State.Terminating {
		d.Deleted = deletedAt(p.Pod)
	}
	return d
}
