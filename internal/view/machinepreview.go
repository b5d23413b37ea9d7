// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// previewMachines says what a NodeRollout with replacement would do, without asking a cloud. Nodes of unknown state count as outdated.
func (c *Cluster) previewMachines(nr *v1alpha1.NodeRollout, s Supposition) Preview {
	u := &machines{selection: c.selected(nr)}
	u.supposed = true
	u.observe("")
	v := Preview{Rollout: u.rollout(), New: s.New, Problem: cmp.Or(u.problem(), u.strategy.Problem()), Surge: surge(nr)}
	v.Rollout.Counts = count(u.nodes)
	v.foresee(c, u.strategy, u.asked, cmp.Or(s.Turn, seconds(nr.Status.TurnSeconds)), func(p *simulation) {
		p.without = append(p.without, "that each scale set bounds how many machines are added at once")
	})
	// Sequence also lists machines in a turn that has no claim yet.
	v.Steps = slices.DeleteFunc(v.Steps, func(s Step) bool {
		return slices.ContainsFunc(v.InTurn, func(n Node) bool { return n.Node == s.Node })
	})
	v.Notes = u.notes(s, &v)
	return v
}

// notes say what the preview does not know.
func (u *machines) notes(s Supposition, v *Preview) []string {
	var all []string
	if n := len(u.untold); n > 0 {
		note := fmt.Sprintf("Which machines are outdated the cloud alone knows, and it is not asked: %s counted as outdated", are(n))
		if c := u.of.Status.Counts; c != nil && !s.New {
			note += fmt.Sprintf("; by the status %d of %d wait", c.Waiting, c.Total)
		}
		all = append(all, note+".")
	}
	if s.New && len(v.Steps) > 1 {
		all = append(all, shuffled)
	}
	if u.of.Spec.Replacement.ControlPlane != nil {
		all = append(all, "Nodes of the control plane go one at a time, or as few as etcd's quorum allows, whatever the strategy says.")
	}
	return all
}

func are(n int) string {
	if n == 1 {
		return "1 node whose state is unknown is"
	}
	return fmt.Sprintf("%d nodes whose state is unknown are", n)
}

// surge describes how machines are added and deleted.
func surge(nr *v1alpha1.NodeRollout) *Surge {
	r := nr.Spec.Replacement
	rule := intstr.FromInt32(1)
	if r.Surge != nil {
		rule = *r.Surge
	}
	s := &Surge{Rule: rule.String(), OnFull: cmp.Or(r.OnFull, v1alpha1.OnFullWait)}
	amount, err := rollout.ParseAmount(rule)
	s.DeletesFirst = err == nil && amount.N == 0
	for i := range nr.Status.ScaleSets {
		of := &nr.Status.ScaleSets[i]
		s.ScaleSets = append(s.ScaleSets, SurgeOf{
			Name: of.Name, Image: of.Image, Machines: of.Machines, Outdated: of.Outdated, Message: of.Message,
			More: min(amount.Up(int(of.Capacity)), v1alpha1.MaxMachineTurns),
		})
	}
	return s
}
