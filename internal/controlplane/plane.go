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

// New makes a Plane. The client must read what is, not what was: Nodes, the pods of namespace kube-system, and ConfigMap kubeadm-config there, which
// it patches.
func New(c client.Client, connect Connector) *Plane { return &Plane{client: c, connect: connect} }

// Options say how a node leaves.
type Options struct {
	// Etcd is true where a member of etcd runs on each node.
	Etcd bool
	// Kubeadm takes the node out of kubeadm's ClusterStatus, where there is one.
	Kubeadm bool
	// Replacement is the node that takes the place, if that is known; for one that came in vain, the node that stays. A control plane of one or
	// two nodes can be left only if it is.
	Replacement string
	// Leaving are other nodes that are going to leave. They don't count any more, and don't get the lead.
	Leaving []string
	// Gone is true when the node's machine does not come back, or is deleted in any case: its own member need not be healthy then.
	Gone bool
}

// Leavable is how many of these nodes may leave now at once, 0 with why not. leaving are those that are members still and on their way. It is
// for the begin of turns, and says one at least where all is healthy and nobody is leaving: MayLeave tells whether one node may go now.
func (p *Plane) Leavable(ctx context.Context, leaving []string) (n int, why string, err error) {
	s, err := p.look(ctx, "")
	if err != nil {
		return 0, "", err
	}
	ids, err := p.ids(ctx, s, leaving)
	if err != nil {
		return 0, "", err
	}
	n, why = leavable(s.members, len(ids))
	return n, why, nil
}

// MayLeave is why the node can't leave now, "" if it can. Leave asks the same again. It is to be asked before the node is disrupted.
func (p *Plane) MayLeave(ctx context.Context, node string, o Options) (why string, err error) {
	if o.Etcd {
		if _, _, why, err = p.judge(ctx, node, o); err != nil || why != "" {
			return why, err
		}
	}
	if !o.Kubeadm {
		return "", nil
	}
	cm, err := p.readKubeadm(ctx)
	if err != nil {
		return "", err
	}
	// What can't be changed would be found out too late: once the node is drained, and nothing goes back.
	if _, err := editIn(cm, clusterStatus, withoutNode(node)); err != nil {
		why = err.Error()
	}
	return why, nil
}

// withoutNode takes a node out of a ClusterStatus.
func withoutNode(node string) func(text string) (string, error) {
	return func(text string) (string, error) { return withoutEndpoint(text, node) }
}

// Leave takes a node out of the control plane, a step each call, and never waits: done when nothing of it is left, in kubeadm-config and in etcd.
// Until then the message says what has been done, or why nothing may be: then nothing was. It can be called again at any time. For a node whose name is
// not known, which is empty, nothing is done, and it is done once there is no member of etcd that could be its.
func (p *Plane) Leave(ctx context.Context, node string, o Options) (done bool, message string, err error) {
	if node == "" {
		message, err = p.stray(ctx, o)
		return message == "" && err == nil, message, err
	}
	var s *survey
	var d departure
	if o.Etcd {
		var why string
		if s, d, why, err = p.judge(ctx, node, o); err != nil || why != "" {
			return false, why, err
		}
	}
	if o.Kubeadm {
		changed, err := p.editKubeadm(ctx, clusterStatus, withoutNode(node))
		if err != nil || changed {
			return false, "its API endpoint was taken out of kubeadm's " + clusterStatus, err
		}
	}
	if d.own == nil {
		return true, "", nil
	}
	if d.own.Leader {
		return p.abdicate(ctx, s, d)
	}
	err = p.with(s.asked, func(c Conn) error { return c.Remove(ctx, d.own.ID) })
	if err != nil {
		return false, "", fmt.Errorf("removing etcd member %s, %w", d.own, err)
	}
	return false, fmt.Sprintf("etcd member %s was removed", d.own), nil
}

// stray says which members of etcd are of no node, or returns "". One whose pod runs is of that one's.
func (p *Plane) stray(ctx context.Context, o Options) (why string, err error) {
	if !o.Etcd {
		return "", nil
	}
	s, err := p.look(ctx, "")
	if err != nil {
		return "", err
	}
	var all []string
	for i := range s.members {
		m := &s.members[i]
		if slices.ContainsFunc(s.pods, func(one pod) bool { return slices.ContainsFunc(m.Clients, identity{clients: one.endpoints}.listens) }) {
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

// abdicate moves the lead away from the member that leaves. Only its own end can be asked for that.
func (p *Plane) abdicate(ctx context.Context, s *survey, d departure) (bool, string, error) {
	heir := d.heir(s.members)
	if heir == nil {
		return false, fmt.Sprintf("etcd member %s leads, and there is no other to take the lead", d.own), nil
	}
	var errs []error
	for _, endpoint := range d.own.Clients {
		err := p.with(endpoint, func(c Conn) error { return c.MoveLeader(ctx, heir.ID) })
		if err == nil {
			return false, fmt.Sprintf("the lead of etcd was moved from member %s to %s", d.own, heir), nil
		}
		errs = append(errs, err)
	}
	return false, "", fmt.Errorf("moving the lead of etcd from member %s to %s, %w", d.own, heir, errors.Join(errs...))
}

// Joined says why the node's member is not a healthy voter yet, "" once it is.
func (p *Plane) Joined(ctx context.Context, node string) (why string, err error) {
	s, err := p.look(ctx, "")
	if err != nil {
		return "", err
	}
	m, err := p.of(ctx, s, node)
	switch {
	case err != nil:
		return "", err
	case m == nil:
		return fmt.Sprintf("etcd has no member on node %s yet", node), nil
	case m.ill() != "":
		return fmt.Sprintf("etcd member %s %s", m, m.ill()), nil
	}
	return "", nil
}

// SetVersion writes kubernetesVersion of kubeadm-config, which machines join by, if it really differs. A newer one becomes older only where older is
// true. Without kubeadm-config nothing is done.
func (p *Plane) SetVersion(ctx context.Context, version string, older bool) error {
	_, err := p.editKubeadm(ctx, clusterConfiguration, func(text string) (string, error) { return withVersion(text, version, older) })
	return err
}

// judge looks at etcd, and tells why the node can't leave. It has no member where own is nil.
func (p *Plane) judge(ctx context.Context, node string, o Options) (s *survey, d departure, why string, err error) {
	if s, err = p.look(ctx, node); errors.Is(err, errAlone) {
		return nil, d, errAlone.Error() + ": another must have joined before", nil
	} else if err != nil {
		return nil, d, "", err
	}
	if d.own, err = p.of(ctx, s, node); err != nil || d.own == nil {
		return s, d, "", err
	}
	d.gone = o.Gone
	if d.leaving, err = p.ids(ctx, s, o.Leaving); err != nil {
		return s, d, "", err
	}
	if o.Replacement != "" && o.Replacement != node {
		if d.replacement, err = p.of(ctx, s, o.Replacement); err != nil {
			return s, d, "", err
		}
		if d.replacement == nil {
			return s, d, fmt.Sprintf("etcd has no member on node %s yet, which takes the place", o.Replacement), nil
		}
	}
	return s, d, d.refused(s.members), nil
}

// ids are those of the members of these nodes, of those that have one.
func (p *Plane) ids(ctx context.Context, s *survey, nodes []string) ([]uint64, error) {
	var ids []uint64
	for _, node := range nodes {
		m, err := p.of(ctx, s, node)
		if err != nil {
			return nil, err
		}
		if m != nil {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}
