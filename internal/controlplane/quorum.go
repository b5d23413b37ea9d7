// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"slices"
	"strings"
)

// tolerant is how many voters etcd needs to tolerate the failure of one.
const tolerant = 3

// unhealthy says which members, except one, are not healthy voters, or that they do not agree on one leader. It returns "" if all are healthy.
func unhealthy(members []*Member, except *Member) string {
	var all []string
	leaders := 0
	for _, m := range members {
		if m.Leader {
			leaders++
		}
		if why := m.unhealthy(); why != "" && (except == nil || m.ID != except.ID) {
			all = append(all, fmt.Sprintf("etcd member %s %s", m, why))
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

// voters counts the members that vote, except these ids.
func voters(members []*Member, without ...uint64) int {
	return len(slices.DeleteFunc(slices.Clone(members), func(m *Member) bool { return m.Learner || slices.Contains(without, m.ID) }))
}

// removal is a member about to be removed.
type removal struct {
	// own is the member.
	own *Member
	// leaving are the ids of other members that will be removed.
	leaving []uint64
	// replacement is the member that takes its place; nil when there is none or it is not known.
	replacement *Member
	// gone is true when the member's machine is gone.
	gone bool
}

// refused says why the member must not be removed, or returns "". All others must be healthy. The member itself must be too, unless it does not vote or its
// machine is gone: then etcd loses nothing. At least three voters must stay, or as many as there were before the replacement joined.
func (r removal) refused(members []*Member) string {
	dead := r.gone && r.own.unhealthy() != ""
	var except *Member
	if r.own.Learner || dead {
		except = r.own
	}
	if why := unhealthy(members, except); why != "" {
		return why
	}
	before := voters(members)
	switch {
	case dead && !r.own.Learner && before < tolerant:
		return fmt.Sprintf("%d of %d voters of etcd are healthy, which is no quorum", before-1, before)
	case dead, r.own.Learner:
		return ""
	}
	after := voters(members, append(slices.Clone(r.leaving), r.own.ID)...)
	if r.replacement != nil {
		before--
	}
	if after > 0 && after >= min(tolerant, before) {
		return ""
	}
	loss := "which does not tolerate the failure of one"
	if after == 0 {
		loss = "and all data would be lost"
	}
	return fmt.Sprintf("the voters of etcd would go down to %d, %s: another must join first", after, loss)
}

// nextLeader returns the member to lead next: the replacement, which stays longest, else the first by name of the members that are not leaving. Nil if there is
// none.
func (r removal) nextLeader(members []*Member) *Member {
	var best *Member
	for _, m := range members {
		if m.ID == r.own.ID || m.unhealthy() != "" || slices.Contains(r.leaving, m.ID) {
			continue
		}
		if r.replacement != nil && m.ID == r.replacement.ID {
			return m
		}
		if best == nil || m.Name < best.Name {
			best = m
		}
	}
	return best
}
