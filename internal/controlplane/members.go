// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Member is one member of etcd.
type Member struct {
	// ID is etcd's own.
	ID uint64
	// Name is the node's name if kubeadm made it. It is empty until the member has started for the first time.
	Name string
	// Peers and Clients are the URLs that other members, and clients, reach it at.
	Peers, Clients []string
	// Learner is true until the member may vote.
	Learner bool
	// Leader is true for the member that leads.
	Leader bool
	// Problem says what is wrong with the member; empty when it is healthy.
	Problem string
}

// String is the member's name in messages.
func (m *Member) String() string {
	if m.Name != "" {
		return m.Name
	}
	return m.address()
}

func (m *Member) address() string {
	return fmt.Sprintf("%x at %s", m.ID, strings.Join(m.Peers, ","))
}

// listensAt reports whether a URL is one of those for clients.
func (m *Member) listensAt(client string) bool { return slices.Contains(m.Clients, client) }

// unhealthy says why the member is not a healthy voter, or returns "".
func (m *Member) unhealthy() string {
	switch {
	case m.Name == "":
		return "has not started yet"
	case m.Problem != "":
		return m.Problem
	case m.Learner:
		return "is a learner, and does not vote yet"
	}
	return ""
}

// identity is what identifies a node's member: the node's name, its addresses, and the client URLs of its etcd pod.
type identity struct {
	node           string
	hosts, clients []string
}

// memberIn finds the node's member: by its name, else by the address of its peer URL, else by its client URL. Nil: the node has none.
func (i identity) memberIn(members []*Member) (*Member, error) {
	for _, matches := range []func(*Member) bool{
		func(m *Member) bool { return m.Name == i.node },
		func(m *Member) bool { return slices.ContainsFunc(m.Peers, i.hasAddress) },
		func(m *Member) bool { return slices.ContainsFunc(i.clients, m.listensAt) },
	} {
		var found *Member
		var addresses []string
		for _, m := range members {
			if matches(m) {
				found, addresses = m, append(addresses, m.address())
			}
		}
		if len(addresses) > 1 {
			return nil, fmt.Errorf("%d members of etcd could be that of node %s (%s): remove those that are not",
				len(addresses), i.node, strings.Join(addresses, ", "))
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, nil //nolint:nilnil // The node has none.
}

// hasAddress reports whether a peer URL has one of the node's addresses.
func (i identity) hasAddress(peer string) bool {
	u, err := url.Parse(peer)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return slices.ContainsFunc(i.hosts, func(host string) bool {
		return strings.EqualFold(host, u.Hostname()) || ip != nil && ip.Equal(net.ParseIP(host))
	})
}
