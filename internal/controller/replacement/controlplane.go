// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/controlplane"
	machine "moult.dev/moult/internal/kind/replacement"
)

// askPlane asks the control plane, if the rollout is for its nodes: are replacements members, and may old nodes leave?
func (p *pass) askPlane(ctx context.Context) {
	if !p.rules.ControlPlane {
		return
	}
	var leaving []string
	for _, t := range p.turns {
		if t.Node != "" && (t.Phase == v1alpha1.MachineDraining || t.Phase == v1alpha1.MachineLeaving) {
			leaving = append(leaving, t.Node)
		}
	}
	for _, t := range p.turns {
		switch t.Phase {
		case v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming:
			p.askOf(ctx, t, leaving)
		default:
		}
	}
	if len(p.turns) > 0 || !p.etcd() {
		return // With turns, each is checked before its claim.
	}
	why, err := p.options.Plane.Leavable(ctx)
	if err != nil {
		why = "the control plane can't be read: " + err.Error()
	}
	if p.view.Closed = why; why != "" {
		p.at(p.Now.Add(planeEvery))
	}
}

// askOf asks about one turn. The turn may pass several phases before the next question.
func (p *pass) askOf(ctx context.Context, t *machine.Turn, leaving []string) {
	note := func(in map[string]string, why string, err error) {
		if err != nil {
			why = "the control plane can't be read: " + err.Error()
		}
		if why != "" {
			in[t.Turn] = why
			p.at(p.Now.Add(planeEvery))
		}
	}
	o := controlplane.Options{Etcd: p.etcd(), Leaving: leaving}
	if p.etcd() && t.Failed != nil && t.Phase == v1alpha1.MachineJoining && p.view.Bound(t) {
		if name, _ := p.view.Remains(t); name != "" {
			why, err := p.options.Plane.MayLeave(ctx, name, o)
			note(p.view.Stays, why, err)
		}
	}
	if p.etcd() && (!t.DeletesFirst || t.Phase != v1alpha1.MachineClaiming) {
		name, why, err := p.joinedNode(ctx, t)
		note(p.view.Unjoined, why, err)
		if why != "" || err != nil {
			return
		}
		o.Replacement = name
	}
	if t.Machine != "" {
		why, err := p.options.Plane.MayLeave(ctx, t.Node, o)
		note(p.view.Waits, why, err)
	}
}

// planeEvery is how often the control plane is asked while turns wait for it.
const planeEvery = 5 * time.Second

// etcd reports whether members of etcd run on the nodes.
func (p *pass) etcd() bool {
	return p.replacement.ControlPlane == nil || p.replacement.ControlPlane.Etcd != v1alpha1.EtcdExternal
}

// joinedNode returns the node of a turn's replacement, and why it is not a member of the control plane yet, or "".
func (p *pass) joinedNode(ctx context.Context, t *machine.Turn) (node, why string, err error) {
	m := p.view.Sets[t.ScaleSet].Machine(t.Replacement)
	if m == nil || p.view.NodeOf(m) == nil {
		return "", "its replacement has not joined the control plane yet", nil
	}
	node = p.view.NodeOf(m).Name
	why, err = p.options.Plane.Joined(ctx, node)
	return node, why, err
}

// leaveOptions says how one of a turn's nodes leaves the control plane.
func (p *pass) leaveOptions(t *machine.Turn, ofReplacement bool) controlplane.Options {
	var others []string
	for _, other := range p.turns {
		if other.Turn != t.Turn && other.Node != "" && (other.Phase == v1alpha1.MachineLeaving || other.Bound) {
			others = append(others, other.Node)
		}
	}
	o := controlplane.Options{Etcd: p.etcd(), Leaving: others}
	m := p.view.Sets[t.ScaleSet].Machine(t.Machine)
	gone := m == nil || m.State == machine.Deleting
	if ofReplacement {
		if o.Gone = true; !gone && !p.view.Bound(t) {
			o.Replacement = t.Node // The old node stays, and the replacement leaves in any state.
		}
		return o
	}
	o.Gone = gone
	if t.Phase != v1alpha1.MachineDiscarding { // The replacement of a discarded turn need not be a member.
		o.Replacement = t.ReplacementNode
	}
	return o
}

// leavePlane takes the next step to remove a node from the control plane. If the node of a replacement was never seen, its machine is deleted only when each
// etcd member has a known node.
func (p *pass) leavePlane(ctx context.Context, t *machine.Turn) {
	name, seen := t.Node, true
	if t.OnReplacement {
		name, seen = p.view.Remains(t)
	}
	o := p.leaveOptions(t, t.OnReplacement)
	done, message := true, ""
	var err error
	if name != "" {
		done, message, err = p.options.Plane.Leave(ctx, name, o)
	}
	if done && err == nil && !seen && p.view.Sets[t.ScaleSet].Machine(t.Replacement) != nil {
		done, message, err = p.options.Plane.Leave(ctx, "", o)
	}
	switch {
	case err != nil:
		t.Message = "leaving the control plane failed: " + err.Error()
		p.at(p.Now.Add(planeEvery))
	case done:
		p.mu.Lock()
		p.memo.left[p.view.LeftKey(t, t.OnReplacement)] = true
		p.mu.Unlock()
		p.soon()
		log.FromContext(ctx).Info("node has left the control plane", "node", name)
	default:
		t.Message = message
		p.at(p.Now.Add(planeEvery / 5))
	}
}
