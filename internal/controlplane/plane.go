// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Plane is a control plane whose nodes run members of etcd. It is safe for concurrent use. Its methods say why something can't be done now, or return "".
type Plane struct {
	client  client.Client
	connect Connector
}

// New makes a Plane. The client must read from the API server, not from a cache: Nodes, the pods of namespace kube-system, and ConfigMap
// kubeadm-config there, which it patches.
func New(c client.Client, connect Connector) *Plane { return &Plane{client: c, connect: connect} }

// Options say how a node leaves.
type Options struct {
	// Replacement is the node that takes over, if it is known. When a replacement itself is removed, it is the old node, which stays. Without it no node can
	// leave a control plane of one or two.
	Replacement string
	// Leaving are other nodes that will leave. Their members do not count, and do not become leader.
	Leaving []string
	// Gone is true if the node's machine does not return, or is deleted in any case. Then its own member need not be healthy.
	Gone bool
}

// Leavable returns "" if a node may begin to leave, and otherwise which members of etcd are not healthy voters.
func (p *Plane) Leavable(ctx context.Context) (why string, err error) {
	o, err := p.observe(ctx, "")
	if err != nil {
		return "", err
	}
	return unhealthy(o.members, nil), nil
}

// MayLeave says why the node can't leave now. It is called before the node is disrupted; Leave checks the same again.
func (p *Plane) MayLeave(ctx context.Context, node string, o Options) (why string, err error) {
	_, _, why, err = p.removalOf(ctx, node, o)
	return why, err
}

// Leave takes a node out of etcd, one step a call, and never waits. It is done when the node has no member. Until then the message says what it has done, or
// why it has done nothing. It can be called again at any time. With an empty name (the name of the node is not known) it does nothing. It is then done once
// every member of etcd has a node.
func (p *Plane) Leave(ctx context.Context, node string, o Options) (done bool, message string, err error) {
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
	_, err = call(ctx, p, seen.listed, func(ctx context.Context, c Conn) (any, error) { return c.MemberRemove(ctx, r.own.ID) })
	if err != nil {
		return false, "", fmt.Errorf("removing etcd member %s, %w", r.own, err)
	}
	return false, fmt.Sprintf("etcd member %s was removed", r.own), nil
}

// removalOf observes etcd, and says why the node can't leave. The node has no member where own is nil.
func (p *Plane) removalOf(ctx context.Context, node string, o Options) (seen *observation, r removal, why string, err error) {
	if seen, err = p.observe(ctx, node); err != nil {
		return nil, r, "", err
	}
	if r.own, err = p.memberOf(ctx, seen, node); err != nil || r.own == nil {
		return seen, r, "", err
	}
	r.gone = o.Gone
	for _, leaving := range o.Leaving {
		m, err := p.memberOf(ctx, seen, leaving)
		if err != nil {
			return seen, r, "", err
		}
		if m != nil {
			r.leaving = append(r.leaving, m.ID)
		}
	}
	if o.Replacement != "" && o.Replacement != node {
		if r.replacement, err = p.memberOf(ctx, seen, o.Replacement); err != nil {
			return seen, r, "", err
		}
		if r.replacement == nil {
			return seen, r, fmt.Sprintf("etcd has no member on the replacement %s yet", o.Replacement), nil
		}
	}
	return seen, r, r.refused(seen.members), nil
}

// unowned says which members of etcd have no node and no running pod.
func (p *Plane) unowned(ctx context.Context) (why string, err error) {
	seen, err := p.observe(ctx, "")
	if err != nil {
		return "", err
	}
	var all []string
	for _, m := range seen.members {
		if slices.ContainsFunc(seen.pods, func(e etcdPod) bool { return m.listensAt(e.endpoint) }) {
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
		all = append(all, fmt.Sprintf("etcd member %s has no node, and may be that of the machine: it must be removed first", m))
	}
	return strings.Join(all, "; "), nil
}

// moveLead makes another member the leader. Only the leader can do it.
func (p *Plane) moveLead(ctx context.Context, seen *observation, r removal) (message string, err error) {
	next := r.nextLeader(seen.members)
	if next == nil {
		return fmt.Sprintf("etcd member %s leads, and no other can become the leader", r.own), nil
	}
	_, err = call(ctx, p, r.own.Clients[0], func(ctx context.Context, c Conn) (any, error) { return c.MoveLeader(ctx, next.ID) })
	if err != nil {
		return "", fmt.Errorf("moving the leader of etcd from member %s to %s, %w", r.own, next, err)
	}
	return fmt.Sprintf("the leader of etcd was moved from member %s to %s", r.own, next), nil
}

// Joined says why the node's member is not a healthy voter yet.
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
