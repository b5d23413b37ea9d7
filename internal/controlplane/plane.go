// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Plane is a control plane. It is safe for concurrent use.
type Plane struct {
	client  client.Client
	connect Connector
}

// New makes a Plane. The client must read from the API server, not from a cache: Nodes, the pods of namespace kube-system, and ConfigMap
// kubeadm-config there, which it patches.
func New(c client.Client, connect Connector) *Plane { return &Plane{client: c, connect: connect} }

// Options say how a node leaves.
type Options struct {
	// Etcd is true where a member of etcd runs on each node.
	Etcd bool
	// Replacement is the node that takes the place, if that is known. For a replacement that is removed again it is the node that stays. A control
	// plane of one or two nodes can be left only if it is known.
	Replacement string
	// Leaving are other nodes that will leave. They are not counted any more, and do not get the lead.
	Leaving []string
	// Gone is true when the node's machine does not come back, or is deleted in any case: its own member need not be healthy then.
	Gone bool
}

// Leavable returns how many nodes may begin to leave now, and why none may. leaving are nodes on their way out whose members are still there. It
// is at least one where all is healthy and no node is leaving: MayLeave tells whether one node may go now.
func (p *Plane) Leavable(ctx context.Context, leaving []string) (n int, why string, err error) {
	o, err := p.observe(ctx, "")
	if err != nil {
		return 0, "", err
	}
	ids, err := p.memberIDs(ctx, o, leaving)
	if err != nil {
		return 0, "", err
	}
	n, why = leavable(o.members, len(ids))
	return n, why, nil
}

// MayLeave says why the node can't leave now, or returns "". Ask it before the node is disrupted. Leave asks the same again.
func (p *Plane) MayLeave(ctx context.Context, node string, o Options) (why string, err error) {
	if !o.Etcd {
		return "", nil
	}
	_, _, why, err = p.removalOf(ctx, node, o)
	return why, err
}

// Leave takes a node out of etcd, one step a call, and never waits. It is done when the node has no member. Until then the message says what it has
// done, or why it has done nothing. It can be called again at any time. With an empty name, for a node whose name is not known, it does nothing,
// and is done once every member of etcd has a node.
func (p *Plane) Leave(ctx context.Context, node string, o Options) (done bool, message string, err error) {
	if !o.Etcd {
		return true, "", nil
	}
	if node == "" {
		message, err = p.unowned(ctx)
		return message == "" && err == nil, message, err
	}
	seen, r, why, err := p.removalOf(ctx, node, o)
	switch {
	case err != nil || why != "":
		return false, why, err
	case r.own == nil:
		return true, "", nil
	case r.own.Leader:
		message, err = p.moveLead(ctx, seen, r)
		return false, message, err
	}
	if err = p.connected(seen.asked, func(c Conn) error { return c.Remove(ctx, r.own.ID) }); err != nil {
		return false, "", fmt.Errorf("removing etcd member %s, %w", r.own, err)
	}
	return false, fmt.Sprintf("etcd member %s was removed", r.own), nil
}

// removalOf observes etcd, and says why the node can't leave. The node has no member where own is nil.
func (p *Plane) removalOf(ctx context.Context, node string, o Options) (seen *observation, r removal, why string, err error) {
	if seen, err = p.observe(ctx, node); errors.Is(err, errAlone) {
		return nil, r, errAlone.Error() + ": another must have joined before", nil
	} else if err != nil {
		return nil, r, "", err
	}
	if r.own, err = p.memberOf(ctx, seen, node); err != nil || r.own == nil {
		return seen, r, "", err
	}
	r.gone = o.Gone
	if r.leaving, err = p.memberIDs(ctx, seen, o.Leaving); err != nil {
		return seen, r, "", err
	}
	if o.Replacement != "" && o.Replacement != node {
		if r.replacement, err = p.memberOf(ctx, seen, o.Replacement); err != nil {
			return seen, r, "", err
		}
		if r.replacement == nil {
			return seen, r, fmt.Sprintf("etcd has no member on node %s yet, which takes the place", o.Replacement), nil
		}
	}
	return seen, r, r.refused(seen.members), nil
}

// unowned says which members of etcd have no node and no running pod, or returns "".
func (p *Plane) unowned(ctx context.Context) (why string, err error) {
	seen, err := p.observe(ctx, "")
	if err != nil {
		return "", err
	}
	var all []string
	for i := range seen.members {
		m := &seen.members[i]
		if slices.ContainsFunc(seen.pods, func(e etcdPod) bool { return identity{clients: []string{e.endpoint}}.hasClient(m) }) {
			continue
		}
		if m.Name != "" {
			err := p.client.Get(ctx, client.ObjectKey{Name: m.Name}, &corev1.Node{})
			if err == nil {
				continue
			}
			if !apierrors.IsNotFound(err) {
				return "", fmt.Errorf("reading node %s, %w", m.Name, err)
			}
		}
		all = append(all, fmt.Sprintf("etcd member %s is of no node, and may be that of the machine: it must be removed before", m))
	}
	return strings.Join(all, "; "), nil
}

// moveLead moves the lead away from the member that leaves. Only that member can do it.
func (p *Plane) moveLead(ctx context.Context, seen *observation, r removal) (message string, err error) {
	next := r.nextLeader(seen.members) // A leader has told a URL for clients.
	if next == nil {
		return fmt.Sprintf("etcd member %s leads, and there is no other to take the lead", r.own), nil
	}
	if err := p.connected(r.own.Clients[0], func(c Conn) error { return c.MoveLeader(ctx, next.ID) }); err != nil {
		return "", fmt.Errorf("moving the lead of etcd from member %s to %s, %w", r.own, next, err)
	}
	return fmt.Sprintf("the lead of etcd was moved from member %s to %s", r.own, next), nil
}

// Joined says why the node's member is not a healthy voter yet, or returns "".
func (p *Plane) Joined(ctx context.Context, node string) (why string, err error) {
	seen, err := p.observe(ctx, "")
	if err != nil {
		return "", err
	}
	m, err := p.memberOf(ctx, seen, node)
	switch {
	case err != nil:
		return "", err
	case m == nil:
		return fmt.Sprintf("etcd has no member on node %s yet", node), nil
	case m.unhealthy() != "":
		return fmt.Sprintf("etcd member %s %s", m, m.unhealthy()), nil
	}
	return "", nil
}
