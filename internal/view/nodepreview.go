// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// PreviewNodeRollout says what a NodeRollout would do. It need not be among those of the cluster.
func (c *Cluster) PreviewNodeRollout(nr *v1alpha1.NodeRollout, s Supposition) Preview {
	if nr.Spec.Replacement != nil {
		return c.previewMachines(nr, s)
	}
	u := c.readHosts(nr)
	u.supposed = true
	u.observe("")
	v := Preview{Rollout: u.rollout(), New: s.New, Problem: cmp.Or(u.problem(), u.strategy.Problem()), Steps: []Step{}, Unlabelled: u.unlabelled}
	versions := make(map[string]Node, len(u.nodes))
	for _, n := range u.nodes {
		versions[n.Node] = n
	}
	v.sort(c)
	turn := s.Turn
	if turn == 0 {
		turn = time.Duration(nr.Status.TurnSeconds) * time.Second
	}
	starts := map[string]time.Time{}
	if turn > 0 && v.Problem == "" {
		p := c.newPlay(u.strategy, u.asked, c.now, turn)
		p.ripens = u.ripens
		v.Schedule, starts = p.schedule(), p.starts
	}
	for _, step := range rollout.Sequence(u.strategy, u.asked, c.fleet, c.now) {
		v.Steps = append(v.Steps, Step{
			Node: step.Node, Wave: step.Wave, Reason: step.Reason, Message: step.Message, At: known(starts[step.Node]),
			From: versions[step.Node].Version, To: versions[step.Node].Target,
		})
	}
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
	if u.wish.MinimumAge > 0 && s.New {
		all = append(all, "Releases are known from when the operator first sees them: before, spec.hostUpdate.minimumAge does not begin.")
	}
	if slices.ContainsFunc(u.asked, func(u rollout.Unit) bool { return u.State == v1alpha1.UnitOutdated }) && s.New && steps > 1 {
		all = append(all, "Nodes that spec.strategy.order leaves equal are shuffled by the uid and the revision: they may come in another order.")
	}
	return all
}
