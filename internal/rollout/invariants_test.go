// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

// verify checks a decision against what it was asked.
func (w *world) verify(p *party, units []Unit, fleet Fleet, d Decision) {
	w.t.Helper()
	asked := map[string]*Unit{}
	holders := 0
	for i := range units {
		u := &units[i]
		asked[u.Node] = u
		if u.HoldsSlot() {
			holders++
		}
	}
	answers := map[string]int{}
	taken := holders
	var last *Unit
	for _, name := range d.Start {
		answers[name]++
		u := asked[name]
		switch {
		case u == nil || u.State != v1alpha1.UnitOutdated:
			w.t.Fatalf("%s starts %s, which is %+v", p.name, name, u)
		case last != nil && cmp.Or(cmp.Compare(last.Rank, u.Rank), strings.Compare(last.Node, u.Node)) >= 0:
			w.t.Fatalf("%s starts %s (rank %d) before %s (rank %d)", p.name, last.Node, last.Rank, name, u.Rank)
		case p.WindowError != "" || p.Window != nil && !p.Window.Contains(w.now):
			w.t.Fatalf("%s starts %s outside of its window", p.name, name)
		case u.OptedOut || u.Reason != "" || fleet[name].ClaimError != "" || w.inTheWay(p, fleet[name]) != "":
			w.t.Fatalf("%s starts %s, which it should not: %+v, %+v", p.name, name, u, fleet[name])
		}
		if !u.HoldsSlot() {
			taken++
			if taken > p.MaxConcurrent {
				w.t.Fatalf("%s starts %s as number %d of %d", p.name, name, taken, p.MaxConcurrent)
			}
		}
		last = u
	}
	for _, wait := range d.Waiting {
		answers[wait.Node]++
		w.verifyWait(p, asked[wait.Node], fleet[wait.Node], wait, taken)
		if u := asked[wait.Node]; wait.Reason == v1alpha1.ReasonMaxConcurrent && last != nil && !last.HoldsSlot() && u.Rank < last.Rank {
			w.t.Fatalf("%s starts %s and lets %s wait for a slot, whose rank is lower", p.name, last.Node, u.Node)
		}
	}
	for i := range units {
		u := &units[i]
		want := 0
		if u.State == v1alpha1.UnitOutdated || u.State == v1alpha1.UnitFailed {
			want = 1
		}
		if answers[u.Node] != want {
			w.t.Fatalf("%s answers %d times for %s, which is %s", p.name, answers[u.Node], u.Node, u.State)
		}
	}
	closed := p.WindowError == "" && p.Window != nil && !p.Window.Contains(w.now)
	if closed != !d.Next.IsZero() || closed && (!d.Next.After(w.now) || !p.Window.Contains(d.Next)) {
		w.t.Fatalf("%s is to come back at %s, and its window is closed: %v", p.name, d.Next, closed)
	}
}

// verifyWait checks that what a unit is said to wait for is true.
func (w *world) verifyWait(p *party, u *Unit, n Node, wait Wait, taken int) {
	w.t.Helper()
	if u == nil || wait.Message == "" {
		w.t.Fatalf("%s has %+v wait", p.name, wait)
	}
	if wait.Holds != u.HoldsSlot() {
		w.t.Fatalf("%s has %+v wait, which is %s", p.name, wait, u.State)
	}
	holds := map[v1alpha1.Reason]bool{
		v1alpha1.ReasonOptedOut:            u.OptedOut,
		v1alpha1.ReasonWindowsImageMissing: u.Reason == v1alpha1.ReasonWindowsImageMissing,
		v1alpha1.ReasonWindowInvalid:       p.WindowError != "",
		v1alpha1.ReasonOutsideWindow:       p.Window != nil && !p.Window.Contains(w.now),
		v1alpha1.ReasonClaimUnreadable:     n.ClaimError != "",
		v1alpha1.ReasonClaimed:             strings.Contains(wait.Message, "claimed by "+w.inTheWay(p, n)+" since"),
		v1alpha1.ReasonMaxConcurrent:       taken >= p.MaxConcurrent,
		v1alpha1.ReasonJobFailed:           u.State == v1alpha1.UnitFailed,
	}
	if !holds[wait.Reason] {
		w.t.Fatalf("%s has %s wait for %s, which is not true: %s; %+v, %+v", p.name, wait.Node, wait.Reason, wait.Message, u, n)
	}
}

// inTheWay names the first rollout whose claim on the node keeps this one off.
func (w *world) inTheWay(p *party, n Node) string {
	for _, c := range n.Claims {
		if c.UID != p.UID && (!c.Shared || !p.Shared) {
			return c.Rollout
		}
	}
	return ""
}

// check looks at the whole world between two steps.
func (w *world) check() {
	w.t.Helper()
	for name, m := range w.present() {
		for i, c := range m.claims {
			if !c.Shared && len(m.claims) > 1 {
				w.t.Fatalf("%s has an exclusive claim of %s beside others: %+v", name, c.Rollout, m.claims)
			}
			if slices.ContainsFunc(m.claims[:i], func(other v1alpha1.Claim) bool { return other.UID == c.UID }) {
				w.t.Fatalf("%s has two claims of %s", name, c.Rollout)
			}
		}
	}
	for _, p := range w.parties {
		for name, run := range p.changes {
			// A node may leave while something is being started there; that is taken away later.
			m, there := w.present()[name]
			if c := m.claim(p); there && run.outcome == running && (c == nil || c.Turn != run.turn) {
				w.t.Fatalf("%s runs on %s without a claim for that: %+v", p.name, name, c)
			}
		}
		if holders := w.holders(p); holders > p.allowed {
			w.t.Fatalf("%s holds %d slots, and %d are allowed", p.name, holders, p.allowed)
		}
		p.allowed = max(p.MaxConcurrent, min(p.allowed, w.claims(p)))
	}
}

// finished reports whether a rollout has brought every node where it should be, and let go of it.
func (w *world) finished(p *party) bool {
	for _, m := range w.present() {
		if m.claim(p) != nil || m.labels[p.name] != p.wants() && m.labels[p.name] != optOut && (!p.unfit || !m.windows) {
			return false
		}
	}
	return true
}
