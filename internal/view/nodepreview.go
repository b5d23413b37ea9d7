// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// PreviewNodeRollout says what a NodeRollout would do. The object need not be in the Cluster.
func (c *Cluster) PreviewNodeRollout(nr *v1alpha1.NodeRollout, s Supposition) Preview {
	if nr.Spec.Replacement != nil {
		return c.previewMachines(nr, s)
	}
	u := c.readHosts(nr)
	u.supposed = true
	u.observe("")
	v := Preview{Rollout: u.rollout(), New: s.New, Problem: cmp.Or(u.problem(), u.strategy.Problem()), Unlabelled: u.world.Unlabelled}
	v.foresee(c, u.strategy, u.asked, cmp.Or(s.Turn, seconds(nr.Status.TurnSeconds)), func(p *simulation) { p.ready = u.ripens })
	v.Notes = u.notes(s, len(v.Steps))
	return v
}

// notes say what the preview does not know.
func (u *hosts) notes(s Supposition, steps int) []string {
	var all []string
	silent := 0
	for i := range u.asked {
		if r := u.asked[i].Reason; r == v1alpha1.ReasonHostSilent || r == v1alpha1.ReasonHostError {
			silent++
		}
	}
	if silent > 0 {
		all = append(all, fmt.Sprintf("Whether there is an update is not known of %s: what their hosts have to say may change this.", plural(silent)))
	}
	if age := u.world.Host.MinimumAge; age != nil && age.Duration > 0 && s.New {
		all = append(all, "Releases are known from when the operator first sees them: before, spec.hostUpdate.minimumAge does not begin.")
	}
	if slices.ContainsFunc(u.asked, func(u rollout.Unit) bool { return u.State == v1alpha1.UnitOutdated }) && s.New && steps > 1 {
		all = append(all, shuffled)
	}
	return all
}
