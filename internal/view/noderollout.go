// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// KindNodeRollout is Rollout.Kind of a NodeRollout.
const KindNodeRollout = "NodeRollout"

// reasonInvalid is the condition reason of a NodeRollout with an invalid spec.
const reasonInvalid = "Invalid"

// NodeRollouts adds NodeRollouts to the cluster.
func (c *Cluster) NodeRollouts(all []v1alpha1.NodeRollout) *Cluster {
	c.nodeRollouts = all
	return c
}

// nodeUnits are a NodeRollout's units, for any mechanism.
type nodeUnits interface {
	problem() string
	unselected(f *fact) string
	observe(named string)
	rollout() Rollout
	part(name string) Part
}

// unitsOf returns a NodeRollout's units. The caller calls observe next.
func (c *Cluster) unitsOf(nr *v1alpha1.NodeRollout) nodeUnits {
	if nr.Spec.Replacement != nil {
		return &machines{selection: c.selected(nr)}
	}
	return c.readHosts(nr)
}

// nodeRollout is the state of a NodeRollout.
func (c *Cluster) nodeRollout(nr *v1alpha1.NodeRollout) Rollout {
	u := c.unitsOf(nr)
	u.observe("")
	if c.facts == nil || u.problem() != "" {
		s := &nr.Status
		r := describeNodeRollout(nr)
		r.Nodes = sorted(listed(s.Failed, s.Updating, s.Waiting))
		r.State, r.Message, r.Since = nodeRolloutState(nr, r.Counts, r.Nodes, c.now)
		return r
	}
	return u.rollout()
}

// describeNodeRollout takes the NodeRollout's own spec and status.
func describeNodeRollout(nr *v1alpha1.NodeRollout) Rollout {
	r := Rollout{
		Kind: KindNodeRollout, Name: nr.Name, Version: nr.Status.Revision, Revision: nr.Status.Revision, Versions: nr.Status.Versions,
		Wave: nr.Status.Wave, TurnSeconds: nr.Status.TurnSeconds, Paused: nr.Spec.Strategy != nil && nr.Spec.Strategy.Paused,
		ScaleSets: nr.Status.ScaleSets,
	}
	if nr.Status.Counts != nil {
		r.Counts = *nr.Status.Counts
	}
	return r
}

// rollout summarizes the units.
func (u *hosts) rollout() Rollout {
	r := describeNodeRollout(u.of)
	r.Version, r.Revision = u.strategy.Revision, u.strategy.Revision
	r.Unlabelled, r.Versions = int32(len(u.world.Unlabelled)), u.world.Versions //nolint:gosec // So many nodes there are not.
	u.sumUp(u.cluster, &r)
	r.State, r.Message, r.Since = nodeRolloutState(u.of, r.Counts, r.Nodes, u.cluster.now)
	return r
}

// nodeRolloutState is the state that a NodeRollout's conditions show.
func nodeRolloutState(nr *v1alpha1.NodeRollout, counts v1alpha1.UnitCounts, nodes []Node, now time.Time) (State, string, *metav1.Time) {
	s := &nr.Status
	ready, stalled := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled)
	var since *metav1.Time
	if ready != nil {
		since = known(ready.LastTransitionTime.Time)
	}
	switch {
	case ready == nil && now.Sub(nr.CreationTimestamp.Time) < unnoticed:
		return Pending, "", nil
	case ready == nil:
		return Pending, "no controller has looked at it: does one run, and with the controller " + controllerOf(nr) + "?", nil
	case s.ObservedGeneration != 0 && s.ObservedGeneration != nr.Generation:
		return Pending, "the controller has not looked at its latest change yet", nil
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return Stalled, stalled.Message, known(stalled.LastTransitionTime.Time)
	case ready.Status == metav1.ConditionTrue && counts.Updating == 0: // Else the Nodes were read before the NodeRollout.
		return Complete, "", since
	case counts.Updating > 0 || slices.ContainsFunc(nodes, func(n Node) bool { return n.State == v1alpha1.UnitOutdated && n.Reason == "" }):
		return Progressing, "", since
	default:
		return Waiting, "", since
	}
}

// controllerOf is the name of the controller that runs a NodeRollout.
func controllerOf(nr *v1alpha1.NodeRollout) string {
	if nr.Spec.Replacement != nil {
		return "replacement"
	}
	return "hostupdate"
}

// invalid reports whether the controller found the current spec invalid.
func invalid(nr *v1alpha1.NodeRollout) bool {
	c := meta.FindStatusCondition(nr.Status.Conditions, v1alpha1.ConditionStalled)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reasonInvalid && nr.Status.ObservedGeneration == nr.Generation
}
