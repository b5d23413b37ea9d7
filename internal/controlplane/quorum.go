// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"
)

// bears is how many voters etcd needs to bear the failure of one.
const bears = 3

// unwell says which members are not as all must be before any may leave, but for the excused, or returns "".
func unwell(members []Member, excused *Member) string {
	var all []string
	leaders := 0
	for i := range members {
		m := &members[i]
		if m.Leader {
			leaders++
		}
		if ill := m.ill(); ill != "" && (excused == nil || m.ID != excused.ID) {
			all = append(all, fmt.Sprintf("etcd member %s %s", m, ill))
		}
	}
	switch {
	case len(members) == 0:
		return "etcd has no members"
	case len(all) > 0:
		return strings.Join(all, "; ")
	case leaders != 1:
		return "the members of etcd do not agree on which of them leads"
	}
	return ""
}

func voters(members []Member) int {
	n := 0
	for i := range members {
		if members[i].voter() {
			n++
		}
	}
	return n
}

// leavable is how many turns more may be under way, 0 with why not, where so many of the members are leaving already. As many as leave etcd
// enough voters to bear a failure, not counting those that may be there only because others leave; one at least.
func leavable(members []Member, leaving int) (n int, why string) {
	if why = unwell(members, nil); why != "" {
		return 0, why
	}
	all := voters(members)
	if n = max(1, all-leaving-bears) - leaving; n <= 0 {
		return 0, fmt.Sprintf("%d of the %d voters of etcd %s leaving, and no more may at once", leaving, all, plural(leaving, "is", "are"))
	}
	return n, ""
}

// departure is a member about to leave.
type departure struct {
	// own is the member.
	own *Member
	// leaving are the ids of others that are going to.
	leaving []uint64
	// replacement takes its place; nil when nothing does, or nothing is known.
	replacement *Member
	// gone is true when its machine is.
	gone bool
}

// refused is why the member can't leave, "" if it can. Everybody must be healthy; but a member that does not vote, or whose machine is gone, is no
// loss whatever its state. Then there must be as many voters left as bear a failure, or at least as many as there were before the
// replacement came.
func (d departure) refused(members []Member) string {
	lost := d.gone && d.own.ill() != ""
	harmless := d.own.Learner || lost
	excused := d.own
	if !harmless {
		excused = nil
	}
	if why := unwell(members, excused); why != "" {
		return why
	}
	if d.replacement != nil && d.replacement.Learner {
		return fmt.Sprintf("etcd member %s, which takes the place, does not vote yet", d.replacement)
	}
	before := voters(members)
	if harmless {
		if healthy := before - 1; !d.own.Learner && healthy < quorum(before) {
			return fmt.Sprintf("%d of %d voters of etcd are healthy, which is no quorum", healthy, before)
		}
		return ""
	}
	after := 0
	for i := range members {
		if m := &members[i]; m.voter() && m.ID != d.own.ID && !slices.Contains(d.leaving, m.ID) {
			after++
		}
	}
	if d.replacement != nil {
		before--
	}
	if need := min(bears, before); after < need || after == 0 {
		return fmt.Sprintf("etcd would be left with %d %s, and %s: another one must join before",
			after, plural(after, "voter", "voters"), shortage(after))
	}
	return ""
}

func quorum(voters int) int { return voters/2 + 1 }

// shortage says what that many voters are too few for.
func shortage(voters int) string {
	if voters == 0 {
		return "all that it knows would be lost"
	}
	return "would not bear the failure of one"
}

// heir is the member to lead in place of the one that leaves: the replacement, which stays longest, else the first by name that is not
// leaving. Nil when there is none.
func (d departure) heir(members []Member) *Member {
	var best *Member
	for i := range members {
		m := &members[i]
		if m.ID == d.own.ID || m.ill() != "" || slices.Contains(d.leaving, m.ID) {
			continue
		}
		if d.replacement != nil && m.ID == d.replacement.ID {
			return m
		}
		if best == nil || m.Name < best.Name {
			best = m
		}
	}
	return best
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
