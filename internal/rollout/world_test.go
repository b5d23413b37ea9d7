// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// world is a fleet with some rollouts and budgets in it. Who acts does so as the controllers do: it looks at a state of the
// nodes, settles what its turns need, asks for a decision on the present state, and writes claims, each on condition that the
// node is still as it was seen. The state that it settles by may be an old one, but not one from before the rollout's own
// last write. All memory is in the nodes' claims and labels and in the rollout's status: whoever acts keeps nothing.
type world struct {
	now  time.Time
	zone *time.Location
	by   *subject
	// history holds every state of the nodes since the beginning; the last is the present one.
	history []state
	budgets []*v1alpha1.NodeDisruptionBudget
	made    map[*v1alpha1.NodeDisruptionBudget]Budget
	parties []*party
	// displaced holds the nodes from which workloads were evicted that are not available again; the others are gates too.
	displaced      map[string]bool
	guarded        map[string]bool
	busy           bool
	alerts, silent bool

	turns int
	moves int // writes that were tried, or status that changed
	// verified is up to which state of the nodes all claims were checked.
	verified int

	shadow shadow
	mute   bool
	story  strings.Builder
	clock  string
}

// subject is an engine that is tried: its rules, and what it is not told of a question, if anything.
type subject struct {
	rules
	deaf func(*Strategy, []Unit)
}

var whole = subject{rules: standard}

// state is the fleet at one moment. It is never changed: a write makes another.
type state struct {
	machines map[string]machine
	fleet    map[string]*Node
	// changed is the node that differs from the state before.
	changed string
}

// machine is what the API holds of a node.
type machine struct {
	uid        types.UID
	version    int
	created    time.Time
	windows    bool
	labels     map[string]string
	claims     []v1alpha1.Claim
	claimError string
	// brought says by rollout what the node has been brought to; optOut keeps the rollout away.
	brought map[string]string
	// pods are those of rollouts that work beside, by rollout.
	pods       map[string]pod
	retry      int
	cordoned   bool
	cordonedBy string
	notReady   bool
	readySince time.Time
	taint      bool
	offline    bool
	offSince   time.Time
	evictions  int
}

const (
	optOut = "disabled"
	// The taint and the condition that nodes may have.
	agentTaint      = "readiness.k8s.io/agent"
	networkPresence = "NetworkUnavailable"
)

// pod is what a rollout that works beside runs on a node.
type pod struct {
	to, attempt       string
	available, broken bool
	failures          int32
	failed            time.Time
}

// party is a rollout, and what it has running on nodes.
type party struct {
	name        string
	uid         types.UID
	spec        *v1alpha1.Strategy
	concurrency int
	window      []CronWindow
	windowError string
	shared      bool
	// drains is true when a turn cordons the node and evicts what runs there.
	drains bool
	// beside is true for one that claims no nodes: it replaces a pod on each. Where it is strict, an outdated pod that is not
	// available holds a slot; where it is patient, one is not replaced on a node that is not ready.
	beside, strict, patient bool
	// replaces is true for one that replaces the machine of a node: the node leaves, and another joins.
	replaces bool
	// careful is true for one that finds nodes without network not healthy, whatever the budgets say.
	careful bool
	// shy is true for one whose units find out by themselves what it brings them to; hidden are the nodes whose units have not yet. They are
	// outdated and silent, or updated with what they have.
	shy    bool
	hidden map[string]v1alpha1.UnitState
	own    string
	// revision and generation are raised by whoever changes the rollout: one outdates every node, both ask for a retry.
	revision, generation int
	// unfit is true when Windows nodes can't be changed.
	unfit    bool
	approved string
	// picked are the nodes of the first wave, by name; nil is what the wave itself says.
	picked   map[string]bool
	soakLast bool
	// status is what is remembered of the waves.
	status  *v1alpha1.WaveStatus
	changes map[string]*change
	// seen is the latest state of the nodes that it knows.
	seen int
	// allowed is how many units may hold a slot: the limit, or those of what was claimed before that was lowered.
	allowed int
	// strategy is the one made of spec for so many nodes.
	strategy   Strategy
	madeOf     *v1alpha1.Strategy
	madeFor    int
	madeAtMost int
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
	skipped
)

// violation is what must not be.
type violation struct{ text string }

func (w *world) fail(format string, args ...any) { panic(violation{fmt.Sprintf(format, args...)}) }

func newWorld(by *subject, names ...string) *world {
	w := &world{
		now: noon, zone: time.UTC, by: by, history: []state{{machines: map[string]machine{}, fleet: map[string]*Node{}}},
		made: map[*v1alpha1.NodeDisruptionBudget]Budget{}, displaced: map[string]bool{}, guarded: map[string]bool{}, shadow: newShadow(),
	}
	for _, name := range names {
		w.join(name, nil)
	}
	return w
}

func (w *world) present() map[string]machine { return w.history[len(w.history)-1].machines }

// put makes a new state in which one node is another, or is gone.
func (w *world) put(name string, m *machine) {
	before := w.history[len(w.history)-1]
	next := state{machines: maps.Clone(before.machines), fleet: maps.Clone(before.fleet), changed: name}
	if m == nil {
		delete(next.machines, name)
		delete(next.fleet, name)
	} else {
		m.version = len(w.history)
		next.machines[name], next.fleet[name] = *m, m.node(name)
	}
	w.history = append(w.history, next)
}

// node is the machine as the engine sees it.
func (m *machine) node(name string) *Node {
	n := &Node{
		Name: name, Labels: m.labels, Created: m.created, Unschedulable: m.cordoned, Claims: m.claims, ClaimError: m.claimError,
		Conditions: []corev1.NodeCondition{
			{Type: networkPresence, Status: truth(m.offline), LastTransitionTime: metav1.Time{Time: m.offSince}},
			{Type: corev1.NodeReady, Status: truth(!m.notReady), LastTransitionTime: metav1.Time{Time: m.readySince}},
		},
	}
	n.Draining = slices.ContainsFunc(m.claims, undrainedYet)
	if m.taint {
		n.Taints = []corev1.Taint{{Key: agentTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// undrainedYet: the node of the claim is being drained, or is to be.
func undrainedYet(c v1alpha1.Claim) bool {
	return c.Drains && c.Drained == nil && c.Soaking == nil && c.Failed == nil
}

func truth(is bool) corev1.ConditionStatus {
	if is {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func (w *world) join(name string, labels map[string]string) {
	w.put(name, &machine{
		uid: types.UID(fmt.Sprintf("uid-%s-%d", name, len(w.history))), windows: strings.HasPrefix(name, "win"), labels: labels,
		created: w.now, readySince: w.now.Add(-24 * time.Hour), offSince: w.now.Add(-24 * time.Hour),
	})
}

// leave takes a node away, and with it what ran there.
func (w *world) leave(name string) {
	w.put(name, nil)
	delete(w.displaced, name)
	delete(w.guarded, name)
	for _, p := range w.parties {
		delete(p.changes, name)
	}
}

// edit is what a person, or the node itself, does to a node.
func (w *world) edit(name string, how func(*machine)) {
	m := w.present()[name]
	m.brought, m.pods = maps.Clone(m.brought), maps.Clone(m.pods)
	how(&m)
	w.put(name, &m)
}

// label puts a rollout's label on a node; "" takes it off.
func (w *world) label(name string, p *party, value string) {
	w.edit(name, func(m *machine) { m.set(p, value) })
}

func (m *machine) set(p *party, value string) {
	if m.brought == nil {
		m.brought = map[string]string{}
	}
	m.brought[p.name] = value
}

// ready lets a node become ready, or not. What runs on one that is not counts as not available.
func (w *world) ready(name string, is bool) {
	if w.present()[name].notReady != is {
		return
	}
	w.edit(name, func(m *machine) {
		m.notReady, m.readySince = !is, w.now
		for of, pod := range m.pods {
			pod.available = false
			m.pods[of] = pod
		}
	})
}

// put gives a rollout another pod on the node.
func (m *machine) put(p *party, next pod) {
	if m.pods == nil {
		m.pods = map[string]pod{}
	}
	m.pods[p.name] = next
}

// serve lets a rollout's pod on a node be available, or not.
func (w *world) serve(p *party, name string, is bool) {
	w.edit(name, func(m *machine) {
		pod := m.pods[p.name]
		pod.available, pod.broken = is, pod.broken && !is
		m.put(p, pod)
	})
}

// crash lets a rollout's pod on a node fail for good.
func (w *world) crash(p *party, name string) {
	w.edit(name, func(m *machine) {
		pod := m.pods[p.name]
		pod.available, pod.broken, pod.failed = false, true, w.now
		pod.failures++
		m.put(p, pod)
	})
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
	p.uid = types.UID("uid-" + p.name)
	p.changes = map[string]*change{}
	p.revision = 1
	w.parties = append(w.parties, p)
	if p.beside {
		for name, m := range w.present() {
			w.edit(name, func(of *machine) { of.put(p, pod{to: "v0", available: !m.notReady}) })
		}
	}
	p.allowed = w.limitOf(p)
	return p
}

// reset gives a rollout another strategy or concurrency. What holds a slot then goes on.
func (w *world) reset(p *party, how func()) {
	how()
	p.allowed = max(w.limitOf(p), w.claims(p))
}

func (w *world) addBudget(name string, spec v1alpha1.NodeDisruptionBudgetSpec) {
	w.budgets = append(w.budgets, &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
}

// editBudget replaces a budget by a changed one.
func (w *world) editBudget(i int, how func(*v1alpha1.NodeDisruptionBudgetSpec)) {
	next := w.budgets[i].DeepCopy()
	how(&next.Spec)
	w.budgets[i] = next
}

// fleet is what the engine gets to see.
func (w *world) fleet(of state) Fleet {
	f := Fleet{Nodes: of.fleet, Evictions: map[string]int{}, Replaced: map[string][]Replacement{}}
	for name, m := range of.machines {
		f.Evictions[name] = m.evictions
		if by := w.replaced(name, m); by != "" {
			f.Replaced[name] = []Replacement{{By: by, Since: w.now}}
		}
	}
	for _, from := range w.budgets {
		b, ok := w.made[from]
		if !ok {
			b = NewBudget(from)
			w.made[from] = b
		}
		b.Blocks, b.NodeBlocks = w.gates(from)
		f.Budgets = append(f.Budgets, b)
	}
	return f
}

// gates are those of a budget that are closed now.
func (w *world) gates(of *v1alpha1.NodeDisruptionBudget) (blocks []Block, byNode map[string]Block) {
	g := of.Spec.Gates
	if g == nil {
		return nil, nil
	}
	if g.Workloads != nil && len(w.displaced) > 0 {
		blocks = append(blocks, Block{v1alpha1.ReasonWorkloadsUnavailable, w.lacking()})
	}
	for i := range g.Pods {
		if g.Pods[i].Scope == v1alpha1.PodsInCluster {
			if w.busy {
				blocks = append(blocks, Block{v1alpha1.ReasonPodsBlock, "pod jobs/backup is there"})
			}
			continue
		}
		for name := range w.guarded {
			if byNode == nil {
				byNode = map[string]Block{}
			}
			byNode[name] = Block{v1alpha1.ReasonPodsBlock, "pod jobs/train is on it"}
		}
	}
	if a := g.Alerts; a != nil {
		switch {
		case w.silent && a.WhenUnreachable != v1alpha1.UnreachableOpen:
			blocks = append(blocks, Block{v1alpha1.ReasonAlertsUnreachable, "Prometheus does not answer: dial 10.96.4.7:9090: connect: connection refused"})
		case !w.silent && w.alerts:
			blocks = append(blocks, Block{v1alpha1.ReasonAlertsActive, "1 alert is active: CartErrors"})
		}
	}
	return blocks, byNode
}

// lacking says what has been evicted and is not available again: of each node one of the five pods of shop/cart.
func (w *world) lacking() string {
	const want = 5
	short := fmt.Sprintf("has %d of %d available", max(0, want-len(w.displaced)), want)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(w.displaced)) {
		all = append(all, "evicted from "+name+": ReplicaSet shop/cart-5d4f "+short)
	}
	all = append(all, "Deployment shop/cart "+short)
	text := strings.Join(all[:min(len(all), maxListed)], "; ")
	if more := len(all) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (p *party) wants() string { return "v" + strconv.Itoa(p.revision) }

func (p *party) attempt(m machine) string {
	return fmt.Sprintf("%d/%d/%d", p.revision, p.generation, m.retry)
}

func (p *party) soak() time.Duration {
	if p.spec == nil || p.spec.Soak == nil {
		return 0
	}
	return p.spec.Soak.Duration
}

// decidesBy is the rollout's strategy for so many nodes, with what it remembers.
func (p *party) decidesBy(total int) Strategy {
	if p.madeOf != p.spec || p.madeFor != total || p.madeAtMost != p.concurrency || p.strategy.UID == "" {
		p.strategy = New(p.spec, p.concurrency, total)
		p.madeOf, p.madeFor, p.madeAtMost = p.spec, total, p.concurrency
	}
	p.strategy.UID, p.strategy.Shared, p.strategy.OwnNode = p.uid, p.shared, p.own
	s := p.strategy
	s.Drains, s.Claimless, s.SoakLast = p.drains, p.beside, p.soakLast
	if p.careful {
		s.Health.Conditions = []v1alpha1.NodeConditionRequirement{{Type: networkPresence, Status: metav1.ConditionFalse}}
	}
	if p.picked != nil && len(s.Waves) > 0 {
		s.Waves = slices.Clone(s.Waves)
		s.Waves[0].Nodes = p.picked
	}
	s.Revision, s.Window, s.Wave, s.Approved = p.wants(), p.window, p.status, []string{p.approved}
	if p.windowError != "" {
		s.WindowError = p.windowError
	}
	return s
}

// step is what a turn needs before anything new is started.
type step int

const (
	nothing step = iota
	stop
	fail
	keep
	release
	giveUp
	create
)

// judge tells the state of a rollout's unit on a node, as a controller does, and what it needs.
func (w *world) judge(p *party, name string, m *machine, f *Fleet) (Unit, step) {
	u := Unit{Node: name, State: v1alpha1.UnitUpdating, OptedOut: m.brought[p.name] == optOut}
	if p.beside {
		return u, w.look(p, &u, m)
	}
	claim := m.claim(p)
	if claim == nil {
		p.outdated(&u, *m)
		return u, nothing
	}
	u.Claimed = !claim.RecordsResult()
	run := p.changes[name]
	if run != nil && run.turn != claim.Turn {
		run = nil
	}
	late := p.spec != nil && p.spec.TurnTimeout != nil && !w.now.Before(claim.Since.Add(p.spec.TurnTimeout.Duration))
	switch updated := m.brought[p.name] == p.wants(); {
	case run != nil && run.outcome == succeeded && claim.Failed == nil:
		switch why, _ := f.Unhealthy(name, w.now); {
		case why != "" && late:
			return u, fail
		case why != "":
			return u, nothing
		}
		u.State = v1alpha1.UnitSoaking
		switch {
		case !w.now.Before(f.SoakEnd(name, run.ended, p.soak())):
			return u, release
		case claim.Soaking == nil:
			return u, keep
		}
	case u.OptedOut || updated:
		if run != nil && run.outcome == running {
			return u, stop
		}
		return u, giveUp
	case claim.Failed != nil && claim.Attempt == p.attempt(*m):
		u.State, u.Reason, u.Message, u.Skipped = v1alpha1.UnitFailed, claim.Failed.Reason, claim.Failed.Message, claim.Failed.Skipped
		if p.spec != nil && !u.Skipped {
			u.RetryAt = RetryAt(p.spec.Retries, claim.Failures, claim.Failed.Time.Time)
		}
		u.Rank = Rank(m.uid, p.uid, p.wants())
	case claim.Failed != nil:
		u.State, u.Rank = v1alpha1.UnitOutdated, Rank(m.uid, p.uid, p.wants())
	case run == nil:
		// Claimed, and nothing runs there yet, or no more: it holds its slot, and asks for leave to begin like all others.
		u.State, u.InTurn, u.Rank = v1alpha1.UnitOutdated, true, Rank(m.uid, p.uid, p.wants())
	case run.outcome != running || late:
		return u, fail
	case run.to != p.wants():
		u.State, u.InTurn, u.Running, u.Rank = v1alpha1.UnitOutdated, true, true, Rank(m.uid, p.uid, p.wants())
	}
	return u, nothing
}

// look tells the state of the unit of a rollout that works beside, by its pod on the node.
func (w *world) look(p *party, u *Unit, m *machine) step {
	u.Excused = m.notReady || w.inTheWay(p, *m) != ""
	u.Rank = Rank(m.uid, p.uid, p.wants())
	pod, there := m.pods[p.name]
	if !there {
		return create
	}
	switch {
	case pod.to == p.wants() && pod.available:
		u.State = v1alpha1.UnitUpdated
	case pod.to == p.wants() && pod.broken && pod.attempt == p.attempt(*m):
		u.State, u.Reason, u.Message = v1alpha1.UnitFailed, v1alpha1.ReasonPodFailed, "the pod on "+u.Node+" restarts again and again"
		if p.spec != nil {
			u.RetryAt = RetryAt(p.spec.Retries, pod.failures, pod.failed)
		}
	case pod.to != p.wants() || pod.broken:
		u.State, u.Down = v1alpha1.UnitOutdated, !pod.available
		u.InTurn = p.strict && u.Down
		switch {
		case p.unfit && m.windows:
			u.Reason, u.Message = v1alpha1.ReasonWindowsImageMissing, "no image for Windows"
		case p.patient && m.notReady:
			u.Reason, u.Message = v1alpha1.ReasonNodeNotReady, "the node is not ready"
		}
	}
	return nothing
}

// replaced names the first rollout that replaces its pod on the node.
func (w *world) replaced(name string, m machine) string {
	for _, p := range w.parties {
		u := Unit{Node: name, State: v1alpha1.UnitUpdating}
		if p.beside && w.look(p, &u, &m) == nothing && u.State == v1alpha1.UnitUpdating && !u.Excused {
			return p.name
		}
	}
	return ""
}

// outdated is a unit that has no turn.
func (p *party) outdated(u *Unit, m machine) {
	u.State = v1alpha1.UnitOutdated
	if m.brought[p.name] == p.wants() {
		u.State = v1alpha1.UnitUpdated
		return
	}
	if state := p.hidden[u.Node]; state != "" {
		if u.State, u.Unoffered = state, true; state == v1alpha1.UnitOutdated {
			u.Rank, u.Reason, u.Message = Rank(m.uid, p.uid, p.wants()), v1alpha1.ReasonHostSilent, "its agent has not answered"
		}
		return
	}
	u.Rank = Rank(m.uid, p.uid, p.wants())
	if p.unfit && m.windows {
		u.Reason, u.Message = v1alpha1.ReasonWindowsImageMissing, "no image for Windows"
	}
}

func (m *machine) claim(p *party) *v1alpha1.Claim {
	if m.claimError != "" {
		return nil
	}
	for i := range m.claims {
		if m.claims[i].UID == p.uid {
			return &m.claims[i]
		}
	}
	return nil
}

// reclaim takes the rollout's claim off, and puts another in its place, if one is given. A turn that cordons does so with
// its claim, and gives the node back with it.
func (m *machine) reclaim(p *party, claim *v1alpha1.Claim) {
	m.claims = slices.DeleteFunc(slices.Clone(m.claims), func(c v1alpha1.Claim) bool { return c.UID == p.uid })
	if claim != nil {
		m.claims = append(m.claims, *claim)
	}
	switch holds := claim != nil && !claim.RecordsResult(); {
	case holds && p.drains && !m.cordoned:
		m.cordoned, m.cordonedBy = true, p.name
	case !holds && m.cordonedBy == p.name:
		m.cordoned, m.cordonedBy = false, ""
	}
}

// acting is one reconcile of a rollout.
type acting struct {
	*world
	*party
	writes int
	units  []Unit
}

// spend notes a write, and says whether whoever acts lives so long.
func (a *acting) spend() bool {
	a.writes--
	a.moves++
	return a.writes >= 0
}

// act is one reconcile of a rollout that settles by this state of the nodes. It ends early when it may write so often only,
// as a controller does that is killed.
func (w *world) act(p *party, view, writes int) Decision {
	seen := w.history[view].machines
	p.seen = view
	a := &acting{world: w, party: p, writes: writes}
	maps.DeleteFunc(p.changes, func(name string, _ *change) bool { _, there := seen[name]; return !there })
	f := w.fleet(w.history[view])
	total := 0
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		m := seen[name]
		u, next := w.judge(p, name, &m, &f)
		if next != nothing {
			if !a.spend() {
				return Decision{}
			}
			w.settle(p, &u, m, next)
		}
		a.units = append(a.units, u)
		if !u.OptedOut {
			total++
		}
	}
	// From here to the last claim no one else decides: the fleet shows every claim that was made.
	strategy, units := p.decidesBy(total), a.units
	if w.by.deaf != nil {
		strategy.Waves, units = slices.Clone(strategy.Waves), slices.Clone(units)
		w.by.deaf(&strategy, units)
	}
	d := decide(&w.by.rules, strategy, units, w.fleet(w.history[len(w.history)-1]), w.now)
	w.verify(p, a.units, d)
	w.tell(p, d)
	for _, name := range d.Start {
		i := slices.IndexFunc(a.units, func(u Unit) bool { return u.Node == name })
		if !a.begin(&a.units[i], seen[name]) {
			return Decision{}
		}
	}
	for i := range a.units {
		u := &a.units[i]
		m := seen[u.Node]
		claim := m.claim(p)
		untouched := u.InTurn && claim != nil && claim.Attempt == p.attempt(m) && !w.runs(p, u.Node, m)
		if !untouched || slices.Contains(d.Start, u.Node) {
			continue
		}
		if !a.spend() {
			return Decision{}
		}
		// Claimed, and nothing has been done to it: it is released until it may start.
		w.settle(p, u, m, giveUp)
	}
	if !same(p.status, d.Wave) {
		if !a.spend() {
			return Decision{}
		}
		w.progress(p, d.Wave)
		p.status = d.Wave
	}
	w.shadow.note(w, p)
	return d
}

// same compares without the message, which a status may say anew at any time.
func same(a, b *v1alpha1.WaveStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.Number == b.Number && a.Of == b.Of && a.Revision == b.Revision && a.State == b.State && a.Since.Equal(&b.Since)
}

// begin starts a unit, or starts it over, and says whether whoever acts has lived so long.
func (a *acting) begin(u *Unit, m machine) bool {
	w, p, name := a.world, a.party, u.Node
	if !a.spend() {
		return false
	}
	if p.beside {
		w.replace(p, name, m)
		return true
	}
	old := m.claim(p)
	switch {
	case w.runs(p, name, m) && u.InTurn:
		w.say(p, "stops what runs on %s, to start it over.", name)
		delete(p.changes, name)
		return true
	case u.InTurn && old.Attempt == p.attempt(m):
		w.say(p, "had claimed %s before, and nothing runs there.", name)
		p.changes[name] = &change{turn: old.Turn, to: p.wants()}
		return true
	}
	w.turns++
	claim := v1alpha1.Claim{
		Rollout: p.name, UID: p.uid, Shared: p.shared, Revision: p.wants(), Attempt: p.attempt(m),
		Turn: strconv.Itoa(w.turns), Since: metav1.Time{Time: w.now}, Drains: p.drains,
	}
	if old != nil && old.Attempt == claim.Attempt {
		claim.Failures = old.Failures
	}
	if !w.write(p, name, m, func(m *machine) { m.reclaim(p, &claim) }) {
		w.say(p, "loses %s to another writer.", name)
		return true
	}
	if p.drains && m.evictions > 0 {
		w.displaced[name] = true
	}
	if !a.spend() {
		return false
	}
	p.changes[name] = &change{turn: claim.Turn, to: p.wants()}
	return true
}

// replace gives a node another pod, which is not available yet.
func (w *world) replace(p *party, name string, m machine) {
	old := m.pods[p.name]
	next := pod{to: p.wants(), attempt: p.attempt(m)}
	if old.attempt == next.attempt {
		next.failures = old.failures
	}
	if w.write(p, name, m, func(m *machine) { m.put(p, next) }) {
		if old.available {
			w.shadow.taken[key2{p.name, name}] = true
		}
	} else {
		w.say(p, "loses %s to another writer.", name)
	}
}

// young is the revision that a node gets which has none: the one that is wanted, unless it is still being tried elsewhere on nodes
// that were picked for it.
func (p *party) young(name string) string {
	if p.status == nil || p.status.State == v1alpha1.WaveComplete || p.picked == nil || p.picked[name] {
		return p.wants()
	}
	return "v" + strconv.Itoa(p.revision-1)
}

// runs reports whether a turn has something running on its node.
func (w *world) runs(p *party, name string, m machine) bool {
	run, claim := p.changes[name], m.claim(p)
	return run != nil && claim != nil && run.turn == claim.Turn && run.outcome == running
}

// settle does what a turn needs, and leaves the unit as it is afterwards.
func (w *world) settle(p *party, u *Unit, m machine, next step) {
	if next == create {
		to := p.young(u.Node)
		if w.write(p, u.Node, m, func(m *machine) { m.put(p, pod{to: to, attempt: p.attempt(*m)}) }) {
			w.say(p, "puts %s on %s, which has none.", to, u.Node)
			m = w.present()[u.Node]
			w.look(p, u, &m)
		}
		return
	}
	claim := *m.claim(p)
	switch next {
	case stop:
		w.say(p, "stops what runs on %s.", u.Node)
		delete(p.changes, u.Node)
	case fail:
		w.failed(p, u, m, claim)
	case keep:
		claim.Soaking = &metav1.Time{Time: p.changes[u.Node].ended}
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, &claim) }) {
			w.say(p, "keeps %s to soak for %s.", u.Node, short(p.soak()))
		}
	case release:
		done := p.changes[u.Node]
		if p.replaces {
			w.swap(p, u.Node, m, done.to)
			return
		}
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, nil); m.set(p, done.to) }) {
			w.say(p, "releases %s, which now has %s.", u.Node, done.to)
			w.shadow.updated[key2{p.name, u.Node}] = w.now
			m = w.present()[u.Node]
			u.OptedOut, u.Claimed = false, false
			p.outdated(u, m)
		}
	case giveUp:
		if w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, nil) }) {
			w.say(p, "gives %s up.", u.Node)
			u.Claimed, u.InTurn = false, false
			p.outdated(u, w.present()[u.Node])
		}
	case nothing, create:
	}
}

// swap lets a node leave with its machine, and another join that has what the rollout brings nodes to.
func (w *world) swap(p *party, name string, seen machine, to string) {
	if m, ok := w.present()[name]; !ok || m.version != seen.version {
		return
	}
	next := fmt.Sprintf("%s-%d", strings.Join(strings.SplitN(name, "-", 3)[:2], "-"), w.turns)
	w.leave(name)
	w.join(next, seen.labels)
	w.edit(next, func(m *machine) {
		m.readySince, m.evictions = w.now, seen.evictions
		m.set(p, to)
	})
	for _, other := range w.parties {
		if other.picked[name] {
			other.picked = maps.Clone(other.picked)
			other.picked[next] = true
		}
	}
	p.seen = len(w.history) - 1
	w.say(p, "has replaced %s by %s, which has %s.", name, next, to)
}

// failed notes in the claim that a turn has failed.
func (w *world) failed(p *party, u *Unit, m machine, claim v1alpha1.Claim) {
	run := p.changes[u.Node]
	failure := &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "the change on " + u.Node + " failed", Time: metav1.Time{Time: w.now}}
	switch {
	case run.outcome == skipped:
		failure.Reason, failure.Message, failure.Skipped = v1alpha1.ReasonDrainTimeout, u.Node+" could not be drained, and is skipped", true
	case run.outcome != broken:
		failure.Reason, failure.Message = v1alpha1.ReasonTurnTimeout, "the turn on "+u.Node+" took too long"
	}
	if run.to == p.wants() && claim.Attempt != p.attempt(m) {
		claim.Attempt, claim.Failures = p.attempt(m), 0
	}
	claim.Failed = failure
	claim.Failures++
	if !w.write(p, u.Node, m, func(m *machine) { m.reclaim(p, &claim) }) {
		return
	}
	delete(p.changes, u.Node)
	w.say(p, "notes that %s failed.", u.Node)
	m = w.present()[u.Node]
	*u, _ = w.judge(p, u.Node, &m, &Fleet{})
}

// ends says how what runs on a node ends.
func (w *world) ends(p *party, name string, how outcome) {
	if p.changes[name] == nil {
		w.fail("%s runs nothing on %s", p.name, name)
	}
	p.changes[name].outcome, p.changes[name].ended = how, w.now
	w.drained(p, name)
}

// drained ends the drain with which a turn begins, and says whether there was one.
func (w *world) drained(p *party, name string) bool {
	m := w.present()[name]
	if c := m.claim(p); c == nil || !undrainedYet(*c) {
		return false
	}
	w.edit(name, func(m *machine) {
		m.claims = slices.Clone(m.claims)
		m.claim(p).Drained = &metav1.Time{Time: w.now}
	})
	return true
}

// claims counts the nodes that a rollout has a claim on, or has taken a pod from.
func (w *world) claims(p *party) int {
	n := 0
	for name, m := range w.present() {
		if m.claim(p) != nil || w.shadow.taken[key2{p.name, name}] {
			n++
		}
	}
	return n
}

// say tells what happens, in a story that people can read.
func (w *world) say(p *party, format string, args ...any) {
	if w.mute {
		return
	}
	who := ""
	if p != nil {
		who = p.name + " "
	}
	clock := w.now.In(w.zone).Format("Mon Jan _2 15:04")
	if clock == w.clock {
		clock = strings.Repeat(" ", len(clock))
	} else {
		w.clock = clock
	}
	fmt.Fprintf(&w.story, "%s  %s%s\n", clock, who, fmt.Sprintf(format, args...))
}

// tell says what was decided, with the same words for all that wait for the same reason.
func (w *world) tell(p *party, d Decision) {
	if w.mute {
		return
	}
	if len(d.Start) > 0 {
		w.say(p, "starts %s.", enumerate(d.Start))
	}
	type group struct {
		Wait
		names []string
	}
	var told []group
	for _, wait := range d.Waiting {
		i := slices.IndexFunc(told, func(t group) bool { return t.Reason == wait.Reason && t.Message == wait.Message })
		if i < 0 {
			i = len(told)
			told = append(told, group{Wait: wait})
		}
		told[i].names = append(told[i].names, wait.Node)
	}
	for _, wait := range told {
		verb := "wait"
		if len(wait.names) == 1 {
			verb = "waits"
		}
		w.say(p, "says that %s %s: %s (%s).", enumerate(wait.names), verb, wait.Message, wait.Reason)
	}
	if d.Halted != "" {
		w.say(p, "says that it is halted: %s.", d.Halted)
	}
	if d.Wave != nil && (p.status == nil || p.status.State != d.Wave.State || p.status.Name != d.Wave.Name) {
		of := fmt.Sprintf("wave %d of %d, %s", d.Wave.Number, d.Wave.Of, d.Wave.Name)
		switch d.Wave.State {
		case v1alpha1.WaveComplete:
			w.say(p, "is complete.")
		default:
			w.say(p, "is at %s: %s (%s).", of, d.Wave.Message, d.Wave.State)
		}
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
	if len(names) > 6 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// short is a duration as people write it.
func short(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "m0s")
	if text != d.String() {
		text += "m"
	}
	if hours, ok := strings.CutSuffix(text, "h0m"); ok {
		return hours + "h"
	}
	return text
}
