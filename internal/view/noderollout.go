// SPDX-License-Identifier: Apache-2.0

package view

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// KindNodeRollout is Rollout.Kind of a NodeRollout.
const KindNodeRollout = "NodeRollout"

// reasonInvalid is the condition reason of a NodeRollout with an invalid spec.
const reasonInvalid = "Invalid"

// describe returns what the spec and the status of a NodeRollout say of it, for any mechanism. invalid is an error of its spec. In a preview the
// spec may be newer than the status.
func (c *Cluster) describe(nr *v1alpha1.NodeRollout, invalid error, preview *Supposition) units {
	s := &nr.Status
	u := units{cluster: c, listed: listedUnits(s.Failed, s.Updating, s.Waiting)}
	u.nodes = u.listed
	u.described = Rollout{
		Kind: KindNodeRollout, Name: nr.Name, Version: s.Revision, Revision: s.Revision, Versions: s.Versions, Wave: s.Wave,
		RolledBack: s.RolledBack, TurnSeconds: s.TurnSeconds, Paused: nr.Spec.Strategy != nil && nr.Spec.Strategy.Paused, ScaleSets: s.ScaleSets,
		Counts: ptr.Deref(s.Counts, v1alpha1.UnitCounts{}), History: s.History,
	}
	u.conditions = rolloutConditions{
		object: nr, observed: s.ObservedGeneration,
		complete: meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady),
		stalled:  meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled),
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAgentsBounded); c != nil && c.Status == metav1.ConditionFalse {
		u.described.PolicyMissing = c.Message
	}
	stalled := u.conditions.stalled
	switch {
	case invalid != nil:
		u.problem = invalid.Error()
	case preview == nil && stalled != nil && stalled.Status == metav1.ConditionTrue && stalled.Reason == reasonInvalid && s.ObservedGeneration == nr.Generation:
		u.problem = stalled.Message
	}
	return u
}
