// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// cluster makes members of a short form: a name for each, a star on the leader, and after a colon what is wrong: learner, unstarted, or a problem.
func cluster(text string) []*Member {
	var members []*Member
	for i, word := range strings.Fields(text) {
		name, state, _ := strings.Cut(word, ":")
		m := &Member{ID: uint64(i + 1), Name: strings.TrimSuffix(name, "*"), Leader: strings.HasSuffix(name, "*")}
		m.Peers = []string{fmt.Sprintf("https://10.0.0.%d:2380", i+1)}
		switch state {
		case "learner":
			m.Learner = true
		case "unstarted":
			m.Name = ""
		default:
			m.Problem = state
		}
		members = append(members, m)
	}
	return members
}

func named(members []*Member, name string) *Member {
	for _, m := range members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

func TestUnhealthy(t *testing.T) {
	for _, test := range []struct{ members, why string }{
		{"a*", ""},
		{"a* b c", ""},
		{"", "etcd has no members"},
		{"a* b c:sick", "etcd member c sick"},
		{"a* b c:learner", "etcd member c is a learner, and does not vote yet"},
		{"a* b c:unstarted", "etcd member 3 at https://10.0.0.3:2380 has not started yet"},
		{"a* b:sick c:learner d", "etcd member b sick; etcd member c is a learner, and does not vote yet"},
		{"a b c", "the members of etcd do not agree on which of them leads"},
		{"a* b* c", "the members of etcd do not agree on which of them leads"},
	} {
		if why := unhealthy(cluster(test.members), nil); why != test.why {
			t.Errorf("%s: got %q", test.members, why)
		}
	}
}

func TestRefused(t *testing.T) {
	const two, one, none = "the voters of etcd would go down to 2, which does not tolerate the failure of one: another must join first",
		"the voters of etcd would go down to 1, which does not tolerate the failure of one: another must join first",
		"the voters of etcd would go down to 0, and all data would be lost: another must join first"
	for _, test := range []struct {
		members, own, leaving, replacement string
		gone                               bool
		why                                string
	}{
		// The only one.
		{members: "a*", own: "a", why: none},
		{members: "a*", own: "a", gone: true, why: none},
		{members: "a* r", own: "a", why: one},
		{members: "a* r", own: "a", replacement: "r"},
		{members: "a* r:learner", own: "a", replacement: "r", why: "etcd member r is a learner, and does not vote yet"},
		{members: "a* r:sick", own: "a", replacement: "r", why: "etcd member r sick"},
		{members: "a:sick r*", own: "a", replacement: "r", why: "etcd member a sick"},
		// One that came in vain goes again.
		{members: "a* r", own: "r", replacement: "a"},
		{members: "a* r:sick", own: "r", replacement: "a", gone: true, why: "1 of 2 voters of etcd are healthy, which is no quorum"},
		{members: "a* b c r:sick", own: "r", replacement: "a", gone: true},
		{members: "a* b c r:unstarted", own: "", replacement: "a", gone: true},
		{members: "a* b c r", own: "r", replacement: "a"},
		// Two.
		{members: "a* b", own: "a", why: one},
		{members: "a* b r", own: "a", replacement: "r"},
		{members: "a* b r", own: "a", why: two},
		// Three, with surge, and without.
		{members: "a* b c r", own: "a", replacement: "r"},
		{members: "a* b c r", own: "a"},
		{members: "a* b c", own: "b", why: two},
		{members: "a* b c r", own: "a", replacement: "r", leaving: "b", why: two},
		{members: "a* b c r s", own: "a", replacement: "r", leaving: "b"},
		{members: "a* b c r s", own: "a", replacement: "r", leaving: "a b"},
		// More.
		{members: "a* b c d", own: "a"},
		{members: "a* b c d e", own: "a"},
		{members: "a* b c d e", own: "a", leaving: "b"},
		{members: "a* b c d e", own: "a", leaving: "b c", why: two},
		// Somebody else is not as they must be.
		{members: "a* b c r:sick", own: "a", why: "etcd member r sick"},
		{members: "a* b:sick c r", own: "a", replacement: "r", why: "etcd member b sick"},
		{members: "a* b:sick c r", own: "a", gone: true, why: "etcd member b sick"},
		{members: "a* b c r:unstarted", own: "a", why: "etcd member 4 at https://10.0.0.4:2380 has not started yet"},
		{members: "a b c r", own: "a", why: "the members of etcd do not agree on which of them leads"},
		// The one that leaves is not as it should be.
		{members: "a:sick b* c r", own: "a", replacement: "r", why: "etcd member a sick"},
		{members: "a:sick b* c r", own: "a", replacement: "r", gone: true},
		{members: "a:sick b* c", own: "a", gone: true},
		{members: "a:sick b*", own: "a", gone: true, why: "1 of 2 voters of etcd are healthy, which is no quorum"},
		{members: "a b* c", own: "a", gone: true, why: two}, // It lives, whatever is said.
		{members: "a:learner b*", own: "a"},
		{members: "a:learner b* c:sick", own: "a", why: "etcd member c sick"},
	} {
		members := cluster(test.members)
		r := removal{own: named(members, test.own), replacement: named(members, test.replacement), gone: test.gone}
		if r.own == nil {
			t.Fatalf("%+v has no such member", test)
		}
		for name := range strings.FieldsSeq(test.leaving) {
			r.leaving = append(r.leaving, named(members, name).ID)
		}
		if got := r.refused(members); got != test.why {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}

// TestRefusedAlways tries every cluster of up to seven voters: whoever may leave, in any order and number, there is a quorum, and it tolerates a
// failure where it did before.
func TestRefusedAlways(t *testing.T) {
	for before := 1; before <= 7; before++ {
		for sick := -1; sick < before; sick++ {
			var members []*Member
			for i := range before {
				members = append(members, &Member{ID: uint64(i + 1), Name: fmt.Sprint("n", i), Leader: i == 0})
			}
			if sick >= 0 {
				members[sick].Problem = "is sick"
			}
			bore, left := tolerates(before), before
			for i := 0; i < len(members); {
				r := removal{own: members[i]}
				if r.refused(members) != "" {
					i++
					continue
				}
				if sick >= 0 {
					t.Fatalf("%d voters, %d is sick: %d leaves", before, sick, i)
				}
				members, left = slices.Delete(members, i, i+1), left-1
				if left > 0 {
					members[0].Leader = true
				}
				if left < 1 || bore && !tolerates(left) {
					t.Fatalf("%d voters went down to %d", before, left)
				}
			}
			if want := max(min(before, tolerant), 1); sick < 0 && left != want {
				t.Errorf("%d voters went down to %d, want %d", before, left, want)
			}
		}
	}
}

// tolerates reports whether so many voters tolerate the failure of one.
func tolerates(voters int) bool { return voters-1 > voters/2 }

func TestNextLeader(t *testing.T) {
	for _, test := range []struct{ members, own, leaving, replacement, want string }{
		{"a* b c r", "a", "", "r", "r"},
		{"a* b c r", "a", "", "", "b"},
		{"a* b c r", "a", "b", "", "c"},
		{"a* b c r", "a", "b r", "r", "c"},
		{"a* b:sick c:learner r", "a", "", "", "r"},
		{"a*", "a", "", "", ""},
		{"a* b", "a", "b", "", ""},
	} {
		members := cluster(test.members)
		r := removal{own: named(members, test.own), replacement: named(members, test.replacement)}
		for name := range strings.FieldsSeq(test.leaving) {
			r.leaving = append(r.leaving, named(members, name).ID)
		}
		got := ""
		if next := r.nextLeader(members); next != nil {
			got = next.Name
		}
		if got != test.want {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}
