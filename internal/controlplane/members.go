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
	// Name is the node's, where kubeadm made it. It is empty until the member has started for the first time.
	Name string
	// Peers and Clients are the URLs that it is reached at by the other members, and by clients.
	Peers, Clients []string
	// Learner is true until it may vote.
	Learner bool
	// Leader is true for the one that leads.
	Leader bool
	// Problem says what is wrong with it; empty when it is healthy.
	Problem string
}

// String is how people know it.
func (m *Member) String() string {
	if m.Name != "" {
		return m.Name
	}
	return fmt.Sprintf("%x at %s", m.ID, strings.Join(m.Peers, ","))
}

// voter reports whether it counts for the quorum.
func (m *Member) voter() bool { return !m.Learner }

// ill says what is wrong with it, or returns "".
func (m *Member) ill() string {
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

// identity is what a node's member is known by.
type identity struct {
	// node is its name.
	node string
	// hosts are its addresses.
	hosts []string
	// clients are the URLs that its pod of etcd listens at.
	clients []string
}

// of finds the node's member: by its name, else by its address among peers, else by what its pod says. Nil: it has none.
func (i identity) of(members []Member) (*Member, error) {
	var found []*Member
	for _, is := range []func(*Member) bool{
		func(m *Member) bool { return m.Name == i.node },
		func(m *Member) bool { return slices.ContainsFunc(m.Peers, i.at) },
		func(m *Member) bool { return slices.ContainsFunc(m.Clients, i.listens) },
	} {
		among := found
		if len(found) == 0 {
			for k := range members {
				among = append(among, &members[k])
			}
		}
		var match []*Member
		for _, m := range among {
			if is(m) {
				match = append(match, m)
			}
		}
		if len(match) == 1 {
			return match[0], nil
		}
		if len(match) > 1 {
			found = match
		}
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // It has none.
	}
	var ids []string
	for _, m := range found {
		ids = append(ids, fmt.Sprintf("%x at %s", m.ID, strings.Join(m.Peers, ",")))
	}
	return nil, fmt.Errorf("%d members of etcd could be that of node %s (%s): remove those that are not", len(found), i.node, strings.Join(ids, ", "))
}

// at reports whether a peer URL is of one of the node's own addresses.
func (i identity) at(peer string) bool {
	u, err := url.Parse(peer)
	if err != nil || u.Hostname() == "" {
		return false
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		return slices.ContainsFunc(i.hosts, func(host string) bool { return ip.Equal(net.ParseIP(host)) })
	}
	return slices.ContainsFunc(i.hosts, func(host string) bool { return strings.EqualFold(host, u.Hostname()) })
}

// listens reports whether a client URL is one of the node's pod.
func (i identity) listens(client string) bool {
	return slices.ContainsFunc(i.clients, func(own string) bool { return sameURL(own, client) })
}

func sameURL(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "/"), strings.TrimSuffix(b, "/"))
}
