// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// SelectsNode reports whether a pod of an ExtendedDaemonSet belongs on a node or may be there, or the status names the node.
// It checks the target template and, if known, the active revision.
func (c *Cluster) SelectsNode(eds *edsv1.ExtendedDaemonSet, name string) bool {
	f := c.named[name]
	if f == nil {
		return false
	}
	d := c.readDaemonSet(eds)
	return d.mentions(name) || d.place(f.node, d.Target).Keep || d.Active != nil && d.place(f.node, d.Active).Keep
}

// mentions reports whether the status names a node.
func (d *daemonSet) mentions(name string) bool {
	of := func(u v1alpha1.UnitStatus) bool { return u.Node == name }
	return d.onCanary(name) || slices.ContainsFunc(d.EDS.Status.Updating, of) || slices.ContainsFunc(d.EDS.Status.Waiting, of)
}

// unselected says why an ExtendedDaemonSet does not concern a node; else "".
func (d *daemonSet) unselected(f *fact) string {
	name := f.node.Name
	placement := d.place(f.node, cmp.Or(d.Active, d.Target))
	if placement.Create || d.mentions(name) || len(d.podsOn(name)) > 0 ||
		slices.ContainsFunc(d.lines, func(n Node) bool { return n.Node == name }) {
		return ""
	}
	return "no pod is created there: " + placement.Why
}

// podsOn returns the pods on a node.
func (d *daemonSet) podsOn(name string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(d.Pods), func(p *corev1.Pod) bool { return daemonset.NodeOf(p) != name })
}

// part is the node's part in an ExtendedDaemonSet.
func (d *daemonSet) part(name string) Part {
	r := d.rollout()
	part := Part{Rollout: r, Unit: Node{Node: name, State: v1alpha1.UnitOutdated, Canary: d.onCanary(name)}}
	part.Rollout.Nodes = nil
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Node == name }); i >= 0 {
		part.Unit = r.Nodes[i]
	}
	s := d.State(name)
	if s == nil {
		for _, pod := range d.podsOn(name) {
			part.Pods = append(part.Pods, describePod(&daemonset.Pod{Pod: pod, State: daemonset.StateOfPod(pod, 0, d.cluster.now)}, false))
		}
		return part
	}
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

// The checks that the engine does not make.
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

// canaryChecks say why the canary's revision does not come to a node yet. The engine's other checks apply after the canary.
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

// Says reports whether the message of a unit repeats that of the pod.
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
		d.Deleted = known(daemonset.DeletedAt(p.Pod))
	}
	return d
}
