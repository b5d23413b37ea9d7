// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/controlplane"
	machine "moult.dev/moult/internal/kind/replacement"
)

// askPlane asks about each turn, if the rollout is for nodes of the control plane and etcd runs on them: is its replacement a member, and may its
// old node leave?
func (p *pass) askPlane(ctx context.Context) {
	if !p.rules.ControlPlane || !p.etcd() {
		return
	}
	var leaving []string
	for _, t := range p.machineTurns {
		if t.Node != "" && (t.Phase == v1alpha1.MachineDraining || t.Phase == v1alpha1.MachineLeaving) {
			leaving = append(leaving, t.Node)
		}
	}
	for _, t := range p.machineTurns {
		if slices.Contains([]v1alpha1.MachinePhase{v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming}, t.Phase) {
			p.askOf(ctx, t, leaving)
		}
	}
}

// whyClosed asks why no turn of the control plane may begin. With turns, each is checked before its claim.
func (p *pass) whyClosed(ctx context.Context) string {
	if len(p.machineTurns) > 0 || !p.rules.ControlPlane || !p.etcd() {
		return ""
	}
	return p.whyRefused(p.options.Plane.Leavable(ctx))
}

// whyRefused is what the control plane says against a step, or why it can't be read. If it says something, it is asked again soon.
func (p *pass) whyRefused(why string, err error) string {
	if err != nil {
		why = "the control plane can't be read: " + err.Error()
	}
	if why != "" {
		p.at(p.Now.Add(planeEvery))
	}
	return why
}

// askOf asks about one turn. The turn may pass several phases before the next question.
func (p *pass) askOf(ctx context.Context, t *machine.Turn, leaving []string) {
	o := controlplane.Options{Leaving: leaving}
	if t.Failed != nil && t.Phase == v1alpha1.MachineJoining && p.world.Bound(t) {
		if name, _ := p.world.ReplacementNodeName(t); name != "" {
			t.WhyReplacementMustStay = p.whyRefused(p.options.Plane.MayLeave(ctx, name, o))
		}
	}
	if !t.DeletesFirst || t.Phase != v1alpha1.MachineClaiming {
		m := p.world.SetOf(t).Machine(t.Replacement)
		if m == nil || p.world.NodeOf(m) == nil {
			t.WhyNotJoined = p.whyRefused("its replacement has not joined the control plane yet", nil)
			return
		}
		o.Replacement = p.world.NodeOf(m).Name
		if t.WhyNotJoined = p.whyRefused(p.options.Plane.Joined(ctx, o.Replacement)); t.WhyNotJoined != "" {
			return
		}
	}
	if t.Machine != "" {
		t.WhyOldMustStay = p.whyRefused(p.options.Plane.MayLeave(ctx, t.Node, o))
	}
}

// planeEvery is how often the control plane is asked while turns wait for it.
const planeEvery = 5 * time.Second

// etcd reports whether members of etcd run on the nodes.
func (p *pass) etcd() bool {
	return p.replacement.ControlPlane == nil || p.replacement.ControlPlane.Etcd != v1alpha1.EtcdExternal
}

// leaveOptions says how one of a turn's nodes leaves the control plane.
func (p *pass) leaveOptions(t *machine.Turn, ofReplacement bool) controlplane.Options {
	var others []string
	for _, other := range p.machineTurns {
		if other.Turn != t.Turn && other.Node != "" && (other.Phase == v1alpha1.MachineLeaving || other.Bound) {
			others = append(others, other.Node)
		}
	}
	m := p.world.SetOf(t).Machine(t.Machine)
	gone := m == nil || m.State == cloud.Deleting
	o := controlplane.Options{Leaving: others, Gone: gone || ofReplacement}
	switch {
	case ofReplacement && !gone && !p.world.Bound(t):
		o.Replacement = t.Node // The old node stays, and the replacement leaves in any state.
	case !ofReplacement && t.Phase != v1alpha1.MachineDiscarding: // The replacement of a discarded turn need not be a member.
		o.Replacement = t.ReplacementNode
	}
	return o
}

// leavePlane takes the next step to remove a node from the control plane. If the node of a replacement was never seen, its machine is deleted only
// when each etcd member has a known node.
func (p *pass) leavePlane(ctx context.Context, t *machine.Turn) {
	name, seen := t.Node, true
	if t.OnReplacement {
		name, seen = p.world.ReplacementNodeName(t)
	}
	o := p.leaveOptions(t, t.OnReplacement)
	done, message := true, ""
	var err error
	if name != "" && p.etcd() {
		done, message, err = p.options.Plane.Leave(ctx, name, o)
	}
	if done && err == nil && !seen && p.etcd() && p.world.SetOf(t).Machine(t.Replacement) != nil {
		done, message, err = p.options.Plane.Leave(ctx, "", o)
	}
	switch {
	case err != nil:
		t.Message = "leaving the control plane failed: " + err.Error()
		p.at(p.Now.Add(planeEvery))
	case done:
		p.mu.Lock()
		p.memo.left[p.world.LeftKey(t, t.OnReplacement)] = true
		p.mu.Unlock()
		p.soon()
		log.FromContext(ctx).Info("node has left the control plane", "node", name)
	default:
		t.Message = message
		p.at(p.Now.Add(planeEvery / 5))
	}
}
