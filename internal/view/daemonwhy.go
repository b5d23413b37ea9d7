// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
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
	return d.onCanary[name] || d.mentions(name) || d.place(f, d.wish()).Keep || d.active != nil && d.place(f, d.active).Keep
}

// mentions reports whether the status lists a node.
func (d *daemonSet) mentions(name string) bool {
	of := func(u v1alpha1.UnitStatus) bool { return u.Node == name }
	return slices.ContainsFunc(d.eds.Status.Updating, of) || slices.ContainsFunc(d.eds.Status.Waiting, of)
}

// wish is the revision of the template as it is in the spec.
func (d *daemonSet) wish() *edsv1.ExtendedDaemonSetReplicaSet {
	if d.target != nil {
		return d.target
	}
	if d.wished == nil {
		d.wished = &edsv1.ExtendedDaemonSetReplicaSet{}
		d.wished.Namespace, d.wished.Name = d.eds.Namespace, d.eds.Name+newRevision
		if AtRest(d.eds) {
			d.wished.Name = d.eds.Status.ActiveReplicaSet
		}
		d.wished.Spec.Template, d.wished.Spec.TemplateGeneration = d.spec.Template, d.hash
	}
	return d.wished
}

// newRevision follows the name of an ExtendedDaemonSet for a revision that has no name yet.
const newRevision = "-(new)"

// unselected says why an ExtendedDaemonSet has nothing to do with a node, or "".
func (d *daemonSet) unselected(f *fact) string {
	name := f.node.Name
	if d.onCanary[name] || d.mentions(name) || len(d.pods[name]) > 0 {
		return ""
	}
	at := d.active
	if at == nil || AtRest(d.eds) {
		at = d.wish()
	}
	placement := d.place(f, at)
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
	part := Part{Rollout: r, Unit: Node{Node: name, State: v1alpha1.UnitOutdated, Canary: d.onCanary[name]}}
	part.Rollout.Nodes = nil
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Node == name }); i >= 0 {
		part.Unit = r.Nodes[i]
	}
	s := d.spotOf(name)
	if s != nil {
		part.Pods = s.pods()
	} else {
		part.Pods = d.anyPods(name)
	}
	if s == nil || !d.known || part.Unit.State != v1alpha1.UnitOutdated {
		return part
	}
	if s.without.Reason != "" {
		part.Checks = []Check{{Name: checkCreation, Reason: s.without.Reason, Message: s.without.Message}}
		return part
	}
	if e := rollout.Explain(d.strategy, d.asked, d.cluster.fleet, d.cluster.now, name); e.Place > 0 {
		part.Wave, part.Place, part.Asking, part.Ahead = e.Wave, e.Place, e.Asking, e.Ahead[:min(len(e.Ahead), maxAhead)]
		for _, v := range e.Verdicts {
			part.Checks = append(part.Checks, Check{Name: v.Check, Reason: v.Reason, Message: v.Message})
		}
		part.Checks = append(part.Checks, d.creationCheck(name))
		return part
	}
	part.Checks = d.trialChecks(name)
	return part
}

// The checks that are not the engine's.
const (
	checkCreation = "creation"
	checkCanary   = "canary"
)

// creationCheck says whether the creation of pods keeps an outdated one from being replaced.
func (d *daemonSet) creationCheck(name string) Check {
	c := Check{Name: checkCreation}
	room, message := d.room()
	// What does not start now would at best take the place of the last that does.
	at := slices.Index(d.decision.Start, name)
	if at < 0 {
		at = min(room, len(d.decision.Start))
	}
	if at >= room {
		c.Reason, c.Message = v1alpha1.ReasonSlowStart, message
	}
	return c
}

// trialChecks say why the canary's revision does not come to a node yet.
func (d *daemonSet) trialChecks(name string) []Check {
	if d.trial == nil {
		return nil
	}
	var all []Check
	stands := false
	e := rollout.Explain(d.trial.strategy, d.trial.asked, d.cluster.fleet, d.cluster.now, name)
	for _, v := range e.Verdicts {
		// All other rules are for whose turn it is, and that is asked when the canary is over.
		if v.Check == "wave" {
			stands = v.Reason != ""
			all = append(all, Check{Name: v.Check, Reason: v.Reason, Message: v.Message})
		}
	}
	if reason, message := d.promotion(d.trial); !stands || reason == v1alpha1.ReasonPaused {
		all = append(all, Check{Name: checkCanary, Reason: reason, Message: message})
	}
	return all
}

// spotOf is what there is on a node, or nil.
func (d *daemonSet) spotOf(name string) *spot {
	for i := range d.spots {
		if d.spots[i].node.Name == name {
			return &d.spots[i]
		}
	}
	return nil
}

// pods are those on the node.
func (s *spot) pods() []Pod {
	var all []Pod
	for _, p := range []*pod{s.fresh, s.old, s.going, s.ended, s.extra} {
		if p != nil {
			all = append(all, p.describe(p == s.fresh))
		}
	}
	return all
}

// anyPods are those on a node of which it is not known what they should be.
func (d *daemonSet) anyPods(name string) []Pod {
	var all []Pod
	for _, o := range d.pods[name] {
		p := &pod{Pod: o, look: daemon.LookAt(o, 0, d.cluster.now)}
		all = append(all, p.describe(false))
	}
	return all
}

// Says reports whether the message of a unit tells of the pod what it tells itself.
func (p *Pod) Says(message string) bool {
	return message == "pod "+p.Name+" is not ready" || message == "pod "+p.Name+": "+p.Message
}

func (p *pod) describe(fresh bool) Pod {
	d := Pod{
		Name: p.Name, Revision: ofSet(p.Pod), UpToDate: fresh, Ready: p.look.Ready, Since: known(p.CreationTimestamp.Time),
		Restarts: p.look.Restarts, Message: p.look.Message,
	}
	if p.look.Ready {
		d.Since = known(p.look.ReadySince)
	}
	if p.look.Terminating {
		d.Deleted = p.deleted()
	}
	return d
}
