// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// world is a fleet with some rollouts in it. Who acts does so as the controllers do: it looks at a state of the nodes,
// settles what its turns need, asks Decide, and writes claims, each on condition that the node is still as it was seen. A
// state may be an old one, but not one from before the rollout's own last write. All memory is in the nodes' claims and
// labels: whoever acts keeps nothing.
type world struct {
	t    testing.TB
	now  time.Time
	zone *time.Location
	// history holds every state of the nodes since the beginning; the last is the present one.
	history  []nodes
	parties  []*party
	turns    int
	moves    int // writes that were tried
	story    strings.Builder
	headline string
}

// nodes is a state of the fleet. It is never changed: a write makes another.
type nodes map[string]machine

// machine is what the API holds of a node.
type machine struct {
	uid        types.UID
	version    int
	windows    bool
	claims     []v1alpha1.Claim
	claimError string
	// labels say by rollout what the node has been brought to; optOut keeps the rollout away.
	labels map[string]string
	retry  int
}

const optOut = "disabled"

// party is a rollout, and what it has running on nodes.
type party struct {
	Strategy
	name string
	// revision and generation are raised by whoever changes the rollout: one outdates every node, both ask for a retry.
	revision, generation int
	soak                 time.Duration
	// unfit is true when Windows nodes can't be changed.
	unfit   bool
	changes map[string]*change
	// seen is the latest state of the nodes that it knows.
	seen int
	// allowed is how many units may hold a slot: the concurrency, or those of what was claimed before that was lowered.
	allowed int
}

// change is what runs, or ran, on a node for one turn.
type change struct {
	turn    string
	to      string
	outcome outcome
	ended   time.Time
}

type outcome int

const (
	running outcome = iota
	succeeded
	broken
)

func newWorld(t testing.TB, names ...string) *world {
	w := &world{t: t, now: noon, zone: time.UTC, history: []nodes{{}}}
	for _, name := range names {
		w.join(name)
	}
	return w
}

func (w *world) present() nodes { return w.history[len(w.history)-1] }

// put makes a new state in which one node is another, or is gone.
func (w *world) put(name string, m *machine) {
	next := maps.Clone(w.present())
	if m == nil {
		delete(next, name)
	} else {
		m.version = len(w.history)
		next[name] = *m
	}
	w.history = append(w.history, next)
}

func (w *world) join(name string) {
	w.put(name, &machine{uid: types.UID(fmt.Sprintf("uid-%s-%d", name, len(w.history))), windows: strings.HasPrefix(name, "win")})
}

// leave takes a node away, and with it what ran there.
func (w *world) leave(name string) {
	w.put(name, nil)
	for _, p := range w.parties {
		delete(p.changes, name)
	}
}

// edit is what a person does to a node.
func (w *world) edit(name string, how func(*machine)) {
	m := w.present()[name]
	m.labels = maps.Clone(m.labels)
	how(&m)
	w.put(name, &m)
}

// label puts a rollout's label on a node; "" takes it off.
func (w *world) label(name string, p *party, value string) {
	w.edit(name, func(m *machine) { m.set(p, value) })
}

func (m *machine) set(p *party, value string) {
	if m.labels == nil {
		m.labels = map[string]string{}
	}
	m.labels[p.name] = value
}

// write changes a node on condition that it is as it was seen, and says whether that was so.
func (w *world) write(p *party, name string, seen machine, how func(*machine)) bool {
	if m, ok := w.present()[name]; !ok || m.version != seen.version {
		return false
	}
	w.edit(name, how)
	p.seen = len(w.history) - 1
	return true
}

func (w *world) add(p *party) *party {
	p.UID = types.UID("uid-" + p.name)
	p.changes = map[string]*change{}
	p.revision, p.allowed = 1, p.MaxConcurrent
	w.parties = append(w.parties, p)
	return p
}

func (p *party) wants() string { return "v" + strconv.Itoa(p.revision) }

func (p *party) attempt(m machine) string {
	return fmt.Sprintf("%d/%d/%d", p.revision, p.generation, m.retry)
}

// limit changes the concurrency. What holds a slot then goes on.
func (w *world) limit(p *party, concurrency int) {
	p.MaxConcurrent = concurrency
	p.allowed = max(concurrency, w.claims(p))
}

// step is what a turn needs before anything new is started.
type step int

const (
	nothing step = iota
	stop
	fail
	keep
	release
	abandon
)

// judge tells the state of a rollout's unit on a node, as a controller does, and what it needs.
func (w *world) judge(p *party, name string, m machine) (Unit, step) {
	u := Unit{Node: name, State: v1alpha1.UnitUpdating, OptedOut: m.labels[p.name] == optOut}
	claim := m.claim(p)
	if claim == nil {
		p.outdated(&u, m)
		return u, nothing
	}
	run := p.changes[name]
	if run != nil && run.turn != claim.Turn {
		run = nil
	}
	switch updated := m.labels[p.name] == p.wants(); {
	case run != nil && run.outcome == succeeded:
		u.State = v1alpha1.UnitSoaking
		switch {
		case !w.now.Before(run.ended.Add(p.soak)):
			return u, release
		case claim.Soaking == nil:
			return u, keep
		}
	case u.OptedOut || updated:
		if run != nil && run.outcome == running {
			return u, stop
		}
		return u, abandon
	case claim.Failed != nil && claim.Attempt == p.attempt(m):
		u.State, u.Reason, u.Message = v1alpha1.UnitFailed, claim.Failed.Reason, claim.Failed.Message
	case claim.Failed != nil:
		u.State = v1alpha1.UnitOutdated
	case run == nil:
		// Claimed, and nothing runs there yet, or no more: it holds its slot, and asks for leave to begin like all others.
		u.State, u.InTurn = v1alpha1.UnitOutdated, true
	case run.outcome == broken:
		return u, fail
	case run.to != p.wants():
		u.State, u.InTurn = v1alpha1.UnitOutdated, true
	}
	return u, nothing
}

// outdated is a unit that has no turn.
func (p *party) outdated(u *Unit, m machine) {
	u.State = v1alpha1.UnitOutdated
	if m.labels[p.name] == p.wants() {
		u.State = v1alpha1.UnitUpdated
		return
	}
	u.Rank = max(1, Rank(m.uid, p.UID, p.wants()))
	if p.unfit && m.windows {
		u.Reason, u.Message = v1alpha1.ReasonWindowsImageMissing, "no image for Windows"
	}
}

func (m *machine) claim(p *party) *v1alpha1.Claim {
	if m.claimError != "" {
		return nil
	}
	for i := range m.claims {
		if m.claims[i].UID == p.UID {
			return &m.claims[i]
		}
	}
	return nil
}

// reclaim takes the rollout's claim off, and puts another in its place, if one is given.
func (m *machine) reclaim(p *party, claim *v1alpha1.Claim) {
	m.claims = slices.DeleteFunc(slices.Clone(m.claims), func(c v1alpha1.Claim) bool { return c.UID == p.UID })
	if claim != nil {
		m.claims = append(m.claims, *claim)
	}
}

// act is one reconcile of a rollout that sees this state of the nodes. It ends early when it may write so often only, as
// a controller does that is killed.
func (w *world) act(p *party, view, writes int) Decision {
	seen := w.history[view]
	p.seen = view
	spend := func() bool {
		writes--
		w.moves++
		return writes >= 0
	}
	units := make([]Unit, 0, len(seen))
	fleet := Fleet{}
	maps.DeleteFunc(p.changes, func(name string, _ *change) bool { _, there := seen[name]; return !there })
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		m := seen[name]
		fleet[name] = Node{Claims: m.claims, ClaimError: m.claimError}
		u, next := w.judge(p, name, m)
		if next != nothing {
			if !spend() {
				return Decision{}
			}
			w.settle(p, &u, m, next)
		}
		units = append(units, u)
	}
	d := Decide(p.Strategy, units, fleet, w.now)
	w.verify(p, units, fleet, d)
	w.tell(p, d)
	for _, name := range d.Start {
		i := slices.IndexFunc(units, func(u Unit) bool { return u.Node == name })
		if !spend() {
			return Decision{}
		}
		m := seen[name]
		if w.runs(p, name, m) && units[i].InTurn {
			w.say(p, "stops what runs on %s, to start it over.", name)
			delete(p.changes, name)
			continue
		}
		if old := m.claim(p); units[i].InTurn && old.Attempt == p.attempt(m) {
			w.say(p, "had claimed %s before, and nothing runs there.", name)
			p.changes[name] = &change{turn: old.Turn, to: p.wants()}
			continue
		}
		w.turns++
		claim := v1alpha1.Claim{
			Rollout: p.name, UID: p.UID, Shared: p.Shared, Revision: p.wants(), Attempt: p.attempt(m),
			Turn: strconv.Itoa(w.turns), Since: metav1.Time{Time: w.now},
		}
		if !w.write(p, name, m, func(m *machine) { m.reclaim(p, &claim) }) {
			w.say(p, "loses %s to another writer.", name)
			continue
		}
		if !spend() {
			return Decision{}
		}
		p.changes[name] = &change{turn: claim.Turn, to: p.wants()}
	}
	for i := range units {
		u := &units[i]
		m := seen[u.Node]
		claim := m.claim(p)
		untouched := u.InTurn && claim != nil && claim.Attempt == p.attempt(m) && !w.runs(p, u.Node, m)
		if !untouched || slices.Contains(d.Start, u.Node) {
			continue
		}
		if !spend() {
			return Decision{}
		}
		// Claimed, and nothing has been done to it: it is given back until it may start.
		w.settle(p, u, m, abandon)
	}
	return d
}

// runs reports whether a turn has something running on its node.
func (w *world) runs(p *party, name string, m machine) bool {
	run, claim := p.changes[name], m.claim(p)
	return run != nil && claim != nil && run.turn == claim.Turn && run.outcome == running
}

// settle does what a turn needs, and leaves the unit as it is afterwards.
func (w *world) settle(p *party, u *Unit, m machine, next step) {
	claim := *m.claim(p)
	switch next {
	case stop:
		w.say(p, "stops what runs on %s.", u.Node)
		delete(p.changes, u.Node)
	case fail:
		claim.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "the change on " + u.Node + " failed", Time: metav1.Time{Time: w.now}}
		if p.changes[u.Node].to == p.wants() {
			claim.Attempt = p.attempt(m)
		}
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, &claim) }) {
			w.say(p, "notes that %s failed.", u.Node)
			u.State, u.Reason, u.Message = v1alpha1.UnitFailed, claim.Failed.Reason, claim.Failed.Message
		}
	case keep:
		claim.Soaking = &metav1.Time{Time: p.changes[u.Node].ended}
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, &claim) }) {
			w.say(p, "keeps %s to soak for %s.", u.Node, p.soak)
		}
	case release:
		done := p.changes[u.Node]
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, nil); m.set(p, done.to) }) {
			w.say(p, "releases %s, which now has %s.", u.Node, done.to)
			m = w.present()[u.Node]
			u.OptedOut = false
			p.outdated(u, m)
		}
	case abandon:
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, nil) }) {
			w.say(p, "gives %s up.", u.Node)
			p.outdated(u, w.present()[u.Node])
		}
	case nothing:
	}
}

// ends says how what runs on a node ends.
func (w *world) ends(p *party, name string, how outcome) {
	w.t.Helper()
	if p.changes[name] == nil {
		w.t.Fatalf("%s runs nothing on %s:\n%s", p.name, name, w.story.String())
	}
	p.changes[name].outcome, p.changes[name].ended = how, w.now
}

// claims counts the nodes that a rollout has a claim on.
func (w *world) claims(p *party) int {
	n := 0
	for _, m := range w.present() {
		if m.claim(p) != nil {
			n++
		}
	}
	return n
}

// holders counts the units that hold a slot now, without those that only have to let go of their node.
func (w *world) holders(p *party) int {
	n := 0
	for name, m := range w.present() {
		if u, next := w.judge(p, name, m); u.HoldsSlot() && next != abandon {
			n++
		}
	}
	return n
}

// say tells what happens, in a story that people can read.
func (w *world) say(p *party, format string, args ...any) {
	who := ""
	if p != nil {
		who = p.name + " "
	}
	clock := w.now.In(w.zone).Format("Mon Jan _2 15:04")
	if clock == w.headline {
		clock = strings.Repeat(" ", len(clock))
	} else {
		w.headline = clock
	}
	fmt.Fprintf(&w.story, "%s  %s%s\n", clock, who, fmt.Sprintf(format, args...))
}

// tell says what was decided, with the same words for all that wait for the same reason.
func (w *world) tell(p *party, d Decision) {
	if len(d.Start) > 0 {
		w.say(p, "starts %s.", enumerate(d.Start))
	}
	var told []Wait
	for _, wait := range d.Waiting {
		i := slices.IndexFunc(told, func(t Wait) bool { return t.Reason == wait.Reason && t.Message == wait.Message })
		if i < 0 {
			told = append(told, wait)
			continue
		}
		told[i].Node += "," + wait.Node
	}
	for _, wait := range told {
		verb := "wait"
		if !strings.Contains(wait.Node, ",") {
			verb = "waits"
		}
		w.say(p, "says that %s %s: %s (%s).", enumerate(strings.Split(wait.Node, ",")), verb, wait.Message, wait.Reason)
	}
	if len(d.Start)+len(d.Waiting) == 0 {
		w.say(p, "has nothing to start.")
	}
}

// enumerate puts names in a row, as people do.
func enumerate(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
