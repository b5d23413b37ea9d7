// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"testing"
)

func TestIdentity(t *testing.T) {
	member := func(id uint64, name, peer, client string) *Member {
		return &Member{ID: id, Name: name, Peers: []string{peer}, Clients: []string{client}}
	}
	members := []*Member{
		member(1, "cp-1", "https://10.0.0.1:2380", "https://10.0.0.1:2379"),
		member(2, "etcd-two", "https://10.0.0.2:2380", "https://10.0.0.2:2379"),
		member(3, "etcd-three", "https://[fd00::3]:2380", "https://10.9.0.3:2379"),
		member(4, "", "https://cp-4.example:2380", ""),
		member(5, "twin", "https://10.0.0.5:2380", "https://10.0.0.5:2379"),
		member(6, "twin", "https://10.0.0.6:2380", "https://10.0.0.6:2379"),
	}
	for _, test := range []struct {
		name string
		who  identity
		want uint64
		err  string
	}{
		{name: "by name, whatever the address", who: identity{node: "cp-1", hosts: []string{"10.0.0.2"}}, want: 1},
		{name: "by address", who: identity{node: "cp-2", hosts: []string{"192.168.0.1", "10.0.0.2"}}, want: 2},
		{name: "by address of IPv6, however written", who: identity{node: "cp-3", hosts: []string{"fd00:0::0003"}}, want: 3},
		{name: "by name of the host, before it started", who: identity{node: "cp-4", hosts: []string{"CP-4.example"}}, want: 4},
		{name: "by its pod", who: identity{node: "cp-3", clients: []string{"https://10.9.0.3:2379"}}, want: 3},
		{name: "none", who: identity{node: "cp-9", hosts: []string{"10.0.0.9"}, clients: []string{"https://10.0.0.9:2379"}}},
		{name: "an address that begins alike", who: identity{node: "cp-9", hosts: []string{"10.0.0"}}},
		{name: "twins", who: identity{node: "twin"}, err: "2 members of etcd could be that of node twin (5 at https://10.0.0.5:2380, 6 at https://10.0.0.6:2380)"},
	} {
		m, err := test.who.memberIn(members)
		if test.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s: got %v, %v", test.name, m, err)
			}
			continue
		}
		var got uint64
		if m != nil {
			got = m.ID
		}
		if got != test.want || err != nil {
			t.Errorf("%s: got %v, %v", test.name, m, err)
		}
	}
}
