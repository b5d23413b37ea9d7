// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// What must hold is computed here once more, from the API's objects and the words of their comments, and as simply as can
// be: nothing of it asks the engine.

// facts are what a rollout is decided by at one moment.
type facts struct {
	*world
	*party
	units map[string]*Unit
	// order holds the units that ask to be started, as they would go.
	order []*Unit
	total int
	// holders and busy count who holds a slot, and who of them does not ask to start over.
	holders, busy int
	lost          []string
	// groups are the waves, the last of which takes what is left; wave is that of each unit.
	groups [][]*Unit
	wave   map[string]int
	// unavailable holds by budget the nodes that are, and draining whether a drain is not over; begun is who has been started
	// just now.
	unavailable []map[string]bool
	draining    []bool
	begun       []string
}

func (w *world) facts(p *party, units []Unit) *facts {
	f := &facts{world: w, party: p, units: map[string]*Unit{}, wave: map[string]int{}}
	for i := range units {
		u := &units[i]
		f.units[u.Node] = u
		if !u.OptedOut {
			f.total++
		}
		if f.wantsStart(u) {
			f.order = append(f.order, u)
		}
		if u.State == v1alpha1.UnitFailed && u.RetryAt.IsZero() && !u.Skipped && !u.Excused && !u.OptedOut {
			f.lost = append(f.lost, u.Node)
		}
		if f.holds(u) {
			f.holders++
			if !f.wantsStart(u) {
				f.busy++
			}
		}
	}
	slices.SortFunc(f.order, f.compare)
	f.divide(units)
	for _, b := range w.budgets {
		down, draining := map[string]bool{}, false
		for name, m := range w.present() {
			if chosen(b, m) && (counts(b, v1alpha1.CountNodes) && w.down(b, m) || counts(b, v1alpha1.CountDaemonPods) && w.replaced(name, m) != "") {
				down[name] = true
			}
			draining = draining || chosen(b, m) && slices.ContainsFunc(m.claims, undrainedYet)
		}
		f.unavailable, f.draining = append(f.unavailable, down), append(f.draining, draining)
	}
	return f
}

func (f *facts) wantsStart(u *Unit) bool {
	return u.State == v1alpha1.UnitOutdated || u.State == v1alpha1.UnitFailed && !u.RetryAt.IsZero() && !u.RetryAt.After(f.now)
}

// holds: those in a turn, and failed ones unless they were released or there is a limit of failures and they are not tried
// again; but none that is excused.
func (f *facts) holds(u *Unit) bool {
	if u.Excused {
		return false
	}
	switch u.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
		return true
	case v1alpha1.UnitFailed:
		return !u.Skipped && (f.spec == nil || f.spec.MaxFailures == nil || !u.RetryAt.IsZero())
	default:
		return u.InTurn
	}
}

// amount is a count, or a share of the total.
func amount(of *intstr.IntOrString, total int, round func(float64) float64) int {
	if of.Type == intstr.Int {
		return int(of.IntVal)
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(of.StrVal, "%"))
	if err != nil {
		panic(err)
	}
	return int(round(float64(total) * float64(percent) / 100))
}

// atLeast is that rounded down, but 1 unless it is nothing.
func atLeast(of *intstr.IntOrString, total int) int {
	if of.Type == intstr.String && of.StrVal != "0%" {
		return max(1, amount(of, total, math.Floor))
	}
	return amount(of, total, math.Floor)
}

func (f *facts) limit() int {
	if f.spec != nil && f.spec.MaxConcurrent != nil {
		return atLeast(f.spec.MaxConcurrent, f.total)
	}
	return f.concurrency
}

// limitOf is how many units of a rollout may hold a slot at present.
func (w *world) limitOf(p *party) int {
	f := facts{world: w, party: p}
	for _, m := range w.present() {
		if m.brought[p.name] != optOut {
			f.total++
		}
	}
	return f.limit()
}

// halted: more has failed than maxFailures, or something of the first wave; and what has once failed there stays a failure of it
// until the wave is over, whoever else is updated by then.
func (f *facts) halted() bool {
	if f.spec == nil {
		return false
	}
	if f.spec.MaxFailures != nil && len(f.lost) > amount(f.spec.MaxFailures, f.total, math.Floor) {
		return true
	}
	return len(f.spec.Waves) > 0 && slices.ContainsFunc(f.lost, func(name string) bool {
		return f.wave[name] == 0 || f.trying() && f.taintMatches(0, name) && f.shadow.canaries[key2{f.name, name}] == f.wants()
	})
}

// trying: when it was last decided about, the first wave was not over.
func (f *facts) trying() bool {
	return f.stood(0, v1alpha1.WaveProgressing) || f.stood(0, v1alpha1.WaveHalted)
}

// compare: claimed first, then what is down, the operator's node last of these, by the strategy's criteria, by rank, by name.
func (f *facts) compare(a, b *Unit) int {
	first := func(is bool) int {
		if is {
			return -1
		}
		return 1
	}
	if a.Claimed != b.Claimed {
		return first(a.Claimed)
	}
	if !a.Claimed && a.Down != b.Down {
		return first(a.Down)
	}
	if (a.Node == f.own) != (b.Node == f.own) {
		return first(b.Node == f.own)
	}
	x, y := f.present()[a.Node], f.present()[b.Node]
	if f.spec != nil {
		for _, o := range f.spec.Order {
			var i, j string
			switch o.By {
			case v1alpha1.OrderZone:
				i, j = orLast(x, corev1.LabelTopologyZone), orLast(y, corev1.LabelTopologyZone)
			case v1alpha1.OrderLabel:
				i, j = orLast(x, o.Key), orLast(y, o.Key)
				if len(o.Values) > 0 {
					place := func(value string) string {
						if at := slices.Index(o.Values, strings.TrimPrefix(value, "+")); at >= 0 {
							return strconv.Itoa(at)
						}
						return "~"
					}
					i, j = place(i), place(j)
				}
			case v1alpha1.OrderOldestFirst:
				i, j = x.joined(), y.joined()
			case v1alpha1.OrderNewestFirst:
				i, j = y.joined(), x.joined()
			case v1alpha1.OrderControlPlaneFirst:
				i, j = orLast(x, "node-role.kubernetes.io/control-plane"), orLast(y, "node-role.kubernetes.io/control-plane")
			case v1alpha1.OrderControlPlaneLast:
				j, i = orLast(x, "node-role.kubernetes.io/control-plane"), orLast(y, "node-role.kubernetes.io/control-plane")
			case v1alpha1.OrderFewestEvictionsFirst:
				i, j = x.load(), y.load()
			}
			if i != j {
				return first(i < j)
			}
		}
	}
	if a.Rank != b.Rank {
		return first(a.Rank < b.Rank)
	}
	return strings.Compare(a.Node, b.Node)
}

// orLast is a label's value in a form that sorts before "~", which stands for none.
func orLast(m machine, label string) string {
	if value, ok := m.labels[label]; ok {
		return "+" + value
	}
	return "~"
}

// joined sorts as the time does; a node that is not there any more was created at the beginning of time.
func (m *machine) joined() string {
	if m.version == 0 {
		return ""
	}
	return m.created.UTC().Format(time.RFC3339)
}

// load sorts as the number does; of a node that is not there it is not known.
func (m *machine) load() string {
	if m.version == 0 {
		return "~"
	}
	return strings.Repeat("+", m.evictions)
}

// divide: each wave takes so many of those that its selector selects and no earlier one has; updated ones first, the oldest nodes before others, then those
// under way, failed ones, and the others in order; and then, in order, those that nothing is offered to, outdated ones before updated
// ones. What is left is the last. A first wave that is not over has what it has tried
// before all others.
func (f *facts) divide(units []Unit) {
	if f.spec == nil || len(f.spec.Waves) == 0 {
		return
	}
	var row []*Unit
	for _, state := range []v1alpha1.UnitState{v1alpha1.UnitUpdated, v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitFailed} {
		for i := range units {
			if units[i].State == state && !f.wantsStart(&units[i]) {
				row = append(row, &units[i])
			}
		}
	}
	age := func(u *Unit) time.Time { return f.present()[u.Node].created }
	slices.SortStableFunc(row, func(a, b *Unit) int {
		if a.State != v1alpha1.UnitUpdated || b.State != v1alpha1.UnitUpdated {
			return 0
		}
		return age(a).Compare(age(b))
	})
	row = slices.DeleteFunc(append(row, f.order...), func(u *Unit) bool { return u.OptedOut })
	slices.SortStableFunc(row, func(a, b *Unit) int { return f.unoffered(a) - f.unoffered(b) })
	f.groups = make([][]*Unit, len(f.spec.Waves)+1)
	for _, tried := range []func(*Unit) bool{
		func(u *Unit) bool { return slices.Contains(f.lost, u.Node) },
		func(u *Unit) bool { return u.Claimed && !u.Running },
	} {
		row = slices.DeleteFunc(row, func(u *Unit) bool {
			keeps := f.trying() && tried(u) && f.takes(0, u)
			if keeps {
				f.groups[0] = append(f.groups[0], u)
				f.wave[u.Node] = 0
			}
			return keeps
		})
	}
	for _, u := range row {
		i := 0
		for i < len(f.spec.Waves) && !f.takes(i, u) {
			i++
		}
		f.groups[i] = append(f.groups[i], u)
		f.wave[u.Node] = i
	}
}

// unoffered is 0 for a unit which is offered what is wanted, or has it; and of the others less for one that asks.
func (f *facts) unoffered(u *Unit) int {
	switch {
	case !u.Unoffered:
		return 0
	case f.wantsStart(u):
		return 1
	}
	return 2
}

func (f *facts) takes(i int, u *Unit) bool {
	wave := &f.spec.Waves[i]
	full := wave.Size != nil && len(f.groups[i]) >= max(1, amount(wave.Size, f.total, math.Ceil))
	return !full && f.taintMatches(i, u.Node)
}

func (f *facts) taintMatches(i int, name string) bool {
	selector := f.spec.Waves[i].NodeSelector
	if i == 0 && f.picked != nil && !f.picked[name] {
		return false
	}
	return !unreadable(selector) && (selector == nil || fitsSelector(selector, f.present()[name].labels))
}

func (f *facts) waveName(i int) string {
	switch {
	case i >= len(f.spec.Waves):
		return "remainder"
	case f.spec.Waves[i].Name == "":
		return "wave-" + strconv.Itoa(i+1)
	}
	return f.spec.Waves[i].Name
}

// reached is the wave that the rollout has come to by what it remembers.
func (f *facts) reached(status *v1alpha1.WaveStatus) int {
	if status == nil || status.Revision != f.wants() {
		return 0
	}
	found := 0
	for i := range slices.Backward(f.groups) {
		if f.waveName(i) == status.Name {
			found = i
			if int(status.Number) == i+1 {
				return i
			}
		}
	}
	return found
}

// may is the latest wave that may begin, given that this one has.
func (f *facts) may(wave int) int {
	for wave+1 < len(f.groups) && f.over(wave) {
		wave++
	}
	return wave
}

// done: every unit is updated, or was released. There is nothing left to try on a canary, nor that would follow it.
func (f *facts) done() bool {
	if len(f.groups[0]) == 0 && f.total > 0 {
		return false
	}
	for _, u := range f.units {
		if !u.OptedOut && u.State != v1alpha1.UnitUpdated && (u.State != v1alpha1.UnitFailed || !u.Skipped) {
			return false
		}
	}
	return true
}

// after reports whether later waves have such units.
func (f *facts) after(wave int, which func(*Unit) bool) bool {
	return slices.ContainsFunc(f.groups[wave+1:], func(group []*Unit) bool { return slices.ContainsFunc(group, which) })
}

// complete checks what is said of a rollout whose last wave soaks too: it is complete when that is over, and stays so.
func (f *facts) complete(next *v1alpha1.WaveStatus) {
	wave := f.reached(next)
	left := f.after(wave, func(u *Unit) bool {
		return u.State != v1alpha1.UnitUpdated && (u.State != v1alpha1.UnitFailed || !u.Skipped)
	})
	is := next.State == v1alpha1.WaveComplete
	tried := slices.ContainsFunc(f.groups[0], func(u *Unit) bool { return u.State != v1alpha1.UnitFailed || !u.Skipped })
	if wave == 0 && len(f.groups[0]) > 0 && !tried {
		if next.State != v1alpha1.WaveHalted {
			f.fail("%s has skipped every node of its canary, and stands at %+v", f.name, next)
		}
		return
	}
	if f.proven(wave) {
		if done := f.tried(wave) && !left && len(f.groups[0])+wave > 0; done != is {
			f.fail("%s was complete, and now stands at %+v", f.name, next)
		}
		again := next.State == v1alpha1.WaveSoaking && f.soaked(wave, time.Second) && !f.now.Before(f.status.Since.Time)
		if again || next.State == v1alpha1.WaveWaitingForApproval {
			f.fail("%s has been complete, and does it again: %+v", f.name, next)
		}
		return
	}
	if !is {
		return
	}
	if !f.over(wave) || f.after(wave, func(*Unit) bool { return true }) {
		f.fail("%s is complete, and is not over: %+v", f.name, next)
	}
	if wave == 0 && len(f.groups[0]) == 0 {
		f.fail("%s is complete, and nothing was tried: %+v", f.name, next)
	}
}

// proven: the wave has soaked and is approved, for the rollout was complete with it.
func (f *facts) proven(wave int) bool { return f.soakLast && f.stood(wave, v1alpha1.WaveComplete) }

// over: every unit of the wave, and of those before, is updated or tolerated; the wave has soaked in health, and is approved.
func (f *facts) over(wave int) bool {
	if wave == 0 && len(f.groups[0]) == 0 && f.total > 0 || !f.tried(wave) {
		return false
	}
	if wave >= len(f.spec.Waves) {
		return true
	}
	of := &f.spec.Waves[wave]
	return f.soaked(wave, 0) && (of.Approval != v1alpha1.ApprovalManual || f.proven(wave) || f.approved == f.waveName(wave)+"@"+f.wants())
}

// tried: every unit of the wave, and of those before, is updated or tolerated; and where anything is left for later ones, not all that is
// updated of the wave is so because nothing is offered to it.
func (f *facts) tried(wave int) bool {
	left := f.after(wave, func(u *Unit) bool {
		return u.State != v1alpha1.UnitUpdated && (u.State != v1alpha1.UnitFailed || !u.Skipped)
	})
	for i := range wave + 1 {
		failed, updated, idle := 0, 0, 0
		for _, u := range f.groups[i] {
			switch {
			case u.State == v1alpha1.UnitUpdated && u.Unoffered:
				idle++
			case u.State == v1alpha1.UnitUpdated:
				updated++
			case slices.Contains(f.lost, u.Node):
				failed++
			case u.State != v1alpha1.UnitFailed || !u.Skipped:
				return false
			}
		}
		if i == wave && idle > 0 && updated == 0 && left {
			return false
		}
		if failed > 0 && (i == 0 || f.spec.MaxFailures == nil || updated == 0) {
			return false
		}
	}
	return true
}

// soaked: every updated node of the wave has been that, and healthy, for the whole time, and for so much more.
func (f *facts) soaked(wave int, more time.Duration) bool {
	soak := f.spec.Waves[wave].Soak
	for _, u := range f.groups[wave] {
		if u.State == v1alpha1.UnitUpdated && (f.unwell(f.party, u.Node) || soak != nil && f.now.Sub(f.meetsSince(u.Node, wave)) < soak.Duration+more) {
			return false
		}
	}
	return true
}

// stood reports whether the rollout stood at the wave when it was last decided about, in this state.
func (f *facts) stood(wave int, state v1alpha1.WaveState) bool {
	return f.status != nil && f.status.State == state && f.status.Revision == f.wants() &&
		f.reached(f.status) == wave && f.waveName(wave) == f.status.Name
}

// waits reports whether the wave was waiting for approval already, or had it. It has soaked then, by the strategy of that time.
func (f *facts) waits(wave int) bool {
	return f.stood(wave, v1alpha1.WaveWaitingForApproval) || f.proven(wave)
}

// unwell: not ready, or not for long enough, or not as the rollout, or a budget that selects it, wants it.
func (w *world) unwell(p *party, name string) bool {
	m, there := w.present()[name]
	return !there || m.notReady || p.careful && m.offline || slices.ContainsFunc(w.budgets, func(b *v1alpha1.NodeDisruptionBudget) bool {
		return chosen(b, m) && w.ill(b, m)
	})
}

func (w *world) ill(b *v1alpha1.NodeDisruptionBudget, m machine) bool {
	least := time.Duration(b.Spec.MinReadySeconds) * time.Second
	if m.notReady || least > 0 && w.now.Sub(m.readySince) < least {
		return true
	}
	gates := b.Spec.Gates
	return gates != nil && gates.Nodes != nil && (len(gates.Nodes.AbsentTaints) > 0 && m.taint || len(gates.Nodes.Conditions) > 0 && m.offline)
}

// meetsSince is since when an updated node of the wave has been that, and healthy.
func (f *facts) meetsSince(name string, wave int) time.Time {
	m := f.present()[name]
	since := m.readySince
	if !f.waits(wave) {
		since = latest(since, f.shadow.unwell[key2{f.name, name}])
	}
	for _, b := range f.budgets {
		if chosen(b, m) {
			since = latest(since, m.readySince.Add(time.Duration(b.Spec.MinReadySeconds)*time.Second))
			if g := b.Spec.Gates; g != nil && g.Nodes != nil && len(g.Nodes.Conditions) > 0 {
				since = latest(since, m.offSince)
			}
		}
	}
	if f.careful {
		since = latest(since, m.offSince)
	}
	// Who came into the wave when it was updated already may have been so for any time.
	updated := f.shadow.updated[key2{f.name, name}]
	if joined, ok := f.shadow.joined[membership{f.name, name, f.wants(), f.waveName(wave)}]; ok && !f.waits(wave) && joined.Before(updated) {
		since = latest(since, updated)
	}
	return since
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// chosen: the budget selects the node; one whose selector can't be read selects all.
func chosen(b *v1alpha1.NodeDisruptionBudget, m machine) bool {
	return b.Spec.Selector == nil || unreadable(b.Spec.Selector) || fitsSelector(b.Spec.Selector, m.labels)
}

func unreadable(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchExpressions) > 0 && s.MatchExpressions[0].Operator == "Resembles"
}

// fitsSelector knows what selectors of the simulation consist of.
func fitsSelector(s *metav1.LabelSelector, of map[string]string) bool {
	for key, value := range s.MatchLabels {
		if got, ok := of[key]; !ok || got != value {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		got, ok := of[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			if !ok || !slices.Contains(e.Values, got) {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if ok && slices.Contains(e.Values, got) {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !ok {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if ok {
				return false
			}
		}
	}
	return true
}

// down: a node is unavailable when it is not ready, or not for long enough, unschedulable, claimed, or not healthy.
func (w *world) down(b *v1alpha1.NodeDisruptionBudget, m machine) bool {
	claimed := slices.ContainsFunc(m.claims, func(c v1alpha1.Claim) bool { return c.Failed == nil || !c.Failed.Skipped })
	return claimed || m.claimError != "" || m.cordoned || w.ill(b, m)
}

// counts says whether something uses up a budget.
func counts(b *v1alpha1.NodeDisruptionBudget, what v1alpha1.BudgetCount) bool {
	return slices.Contains(b.Spec.Counts, what) || len(b.Spec.Counts) == 0 && what == v1alpha1.CountNodes
}

// uses says whether what the rollout starts uses up a budget.
func (p *party) uses(b *v1alpha1.NodeDisruptionBudget) bool {
	if p.beside {
		return counts(b, v1alpha1.CountDaemonPods)
	}
	return counts(b, v1alpha1.CountNodes)
}

// left says for which budget, that selects the node, no further one may become unavailable: by number, and by domain.
func (f *facts) left(name string) (exhausted, domains *v1alpha1.NodeDisruptionBudget) {
	m := f.present()[name]
	for i, b := range f.budgets {
		if !chosen(b, m) || !f.uses(b) {
			continue
		}
		if b.Spec.MaxUnavailable != nil {
			matched := 0
			for _, other := range f.present() {
				if chosen(b, other) {
					matched++
				}
			}
			limit := atLeast(b.Spec.MaxUnavailable, matched)
			if len(f.unavailable[i]) >= limit {
				exhausted = b
			}
		}
		if b.Spec.TopologyKey != "" {
			hit := map[string]bool{m.labels[b.Spec.TopologyKey]: true}
			for other := range f.unavailable[i] {
				hit[f.present()[other].labels[b.Spec.TopologyKey]] = true
			}
			most := 1
			if b.Spec.MaxDomains != nil {
				most = int(*b.Spec.MaxDomains)
			}
			if len(hit) > most {
				domains = b
			}
		}
	}
	return exhausted, domains
}

// closed says what closes a budget that selects the node, beside the number of nodes.
func (f *facts) closed(name string) map[v1alpha1.Reason]bool {
	all := map[v1alpha1.Reason]bool{}
	m := f.present()[name]
	for i, b := range f.budgets {
		if !chosen(b, m) {
			continue
		}
		if unreadable(b.Spec.Selector) {
			all[v1alpha1.ReasonBudgetInvalid] = true
		}
		if b.Spec.Paused {
			all[v1alpha1.ReasonBudgetPaused] = true
		}
		if !open(b.Spec.Windows, f.now) {
			all[v1alpha1.ReasonOutsideBudgetWindow] = true
		}
		if g := b.Spec.Gates; g != nil {
			if g.Workloads != nil && (len(f.displaced) > 0 || f.draining[i]) {
				all[v1alpha1.ReasonWorkloadsUnavailable] = true
			}
			for i := range g.Pods {
				if g.Pods[i].Scope == v1alpha1.PodsInCluster && f.world.busy || g.Pods[i].Scope != v1alpha1.PodsInCluster && f.guarded[name] {
					all[v1alpha1.ReasonPodsBlock] = true
				}
			}
			if g.Alerts != nil && f.silent && g.Alerts.WhenUnreachable != v1alpha1.UnreachableOpen {
				all[v1alpha1.ReasonAlertsUnreachable] = true
			}
			if g.Alerts != nil && f.alerts && !f.silent {
				all[v1alpha1.ReasonAlertsActive] = true
			}
		}
	}
	return all
}

var gateReasons = []v1alpha1.Reason{
	v1alpha1.ReasonWorkloadsUnavailable, v1alpha1.ReasonPodsBlock, v1alpha1.ReasonAlertsActive, v1alpha1.ReasonAlertsUnreachable,
}

func (f *facts) outside() bool {
	return f.window != nil && !isOpen(f.window, f.now) || f.spec != nil && !open(f.spec.Windows, f.now)
}

// verify checks a decision against what it was asked.
func (w *world) verify(p *party, units []Unit, d Decision) {
	f := w.facts(p, units)
	w.shadow.facts = f
	p.allowed = max(p.allowed, f.limit())
	from := 0
	if f.groups != nil {
		from = f.may(f.reached(p.status))
		if d.Wave == nil || f.reached(d.Wave) > from {
			w.fail("%s has come to %+v, and may only to wave %d", p.name, d.Wave, from+1)
		}
		if i := f.reached(d.Wave); d.Wave.State == v1alpha1.WaveWaitingForApproval && !f.soaked(i, 0) {
			w.fail("%s waits for an approval of %+v, which has not soaked", p.name, d.Wave)
		}
		if p.soakLast {
			f.complete(d.Wave)
		} else if f.done() && (d.Wave.State != v1alpha1.WaveComplete || f.reached(d.Wave) != f.reached(p.status)) {
			w.fail("%s has nothing left to do, and goes on to %+v", p.name, d.Wave)
		}
	} else if d.Wave != nil {
		w.fail("%s has come to %+v, and has no waves", p.name, d.Wave)
	}
	answers := map[string]int{}
	var last *Unit
	for _, name := range d.Start {
		answers[name]++
		u := f.units[name]
		if u == nil {
			w.fail("%s starts %s, which it has not", p.name, name)
		}
		if last != nil && f.compare(last, u) >= 0 {
			w.fail("%s starts %s before %s", p.name, last.Node, name)
		}
		f.mayStart(u, from)
		last = u
	}
	for _, wait := range d.Waiting {
		answers[wait.Node]++
		f.verifyWait(wait, d)
	}
	for i := range units {
		u := &units[i]
		want := 0
		if u.State == v1alpha1.UnitOutdated || u.State == v1alpha1.UnitFailed {
			want = 1
		}
		if answers[u.Node] != want {
			w.fail("%s answers %d times for %s, which is %s", p.name, answers[u.Node], u.Node, u.State)
		}
	}
	if !d.Next.IsZero() && !d.Next.After(w.now) {
		w.fail("%s is to come back at %s, which is over", p.name, d.Next)
	}
	if (d.Halted != "") != f.halted() {
		w.fail("%s is said to be halted: %v, and is: %v", p.name, d.Halted, f.halted())
	}
	for name := range f.units {
		switch lost := slices.Contains(f.lost, name); {
		case !lost:
			delete(w.shadow.canaries, key2{p.name, name})
		case f.groups != nil && f.wave[name] == 0 && d.Wave.Number == 1:
			w.shadow.canaries[key2{p.name, name}] = p.wants()
		}
	}
}

// mayStart checks that a unit may start after those that have, and notes that it has.
func (f *facts) mayStart(u *Unit, wave int) {
	w, p := f.world, f.party
	refuse := func(is bool, why string) {
		if is {
			w.fail("%s starts %s, %s; unit %+v, node %+v", p.name, u.Node, why, *u, w.present()[u.Node])
		}
	}
	m := w.present()[u.Node]
	refuse(!f.wantsStart(u), "which does not ask for it")
	refuse(u.OptedOut, "which opted out")
	refuse(u.State == v1alpha1.UnitOutdated && u.Reason != "", "where it can't be carried out")
	refuse(p.spec != nil && p.spec.Paused, "and is paused")
	refuse(p.windowError != "" || p.spec != nil && unsound(p.spec), "and its strategy can't be read")
	refuse(f.outside(), "outside of its windows")
	refuse(m.claimError != "", "whose claims can't be read")
	refuse(w.inTheWay(p, m) != "", "which another rollout has")
	refuse(!p.beside && !u.Claimed && w.replaced(u.Node, m) != "", "whose pod another rollout replaces")
	closed := f.closed(u.Node)
	refuse(closed[v1alpha1.ReasonBudgetInvalid], "where a budget can't be read")
	refuse(closed[v1alpha1.ReasonBudgetPaused], "where a budget is paused")
	refuse(closed[v1alpha1.ReasonOutsideBudgetWindow], "outside of a budget's windows")
	if f.holds(u) {
		refuse(f.busy >= f.limit(), "beside as many as may be in a turn")
	} else {
		refuse(f.holders >= f.limit(), "beside as many as may be in a turn")
		f.holders++
	}
	f.busy++
	f.begun = append(f.begun, u.Node)
	later := f.groups != nil && f.wave[u.Node] > wave
	for i, b := range f.budgets {
		f.draining[i] = f.draining[i] || p.drains && !p.beside && chosen(b, m)
	}
	if u.Claimed {
		refuse(!u.InTurn && !m.cordoned && f.guarded[u.Node] && closed[v1alpha1.ReasonPodsBlock] && !f.world.busy, "which serves again, and has a pod that blocks")
		refuse(later && u.Running, "which runs something older, and whose wave has not begun")
		return
	}
	refuse(f.halted(), "and is halted")
	refuse(later && u.State != v1alpha1.UnitFailed, "whose wave has not begun")
	refuse(slices.ContainsFunc(gateReasons, func(r v1alpha1.Reason) bool { return closed[r] }), "behind a closed gate")
	exhausted, domains := f.left(u.Node)
	refuse(exhausted != nil, "where a budget is used up")
	refuse(domains != nil, "in a domain too many")
	for i, b := range f.budgets {
		if chosen(b, m) && p.uses(b) {
			f.unavailable[i][u.Node] = true
		}
	}
}

// unsound knows what strategies of the simulation can't be read.
func unsound(s *v1alpha1.Strategy) bool {
	return slices.ContainsFunc(s.Waves, func(w v1alpha1.Wave) bool { return unreadable(w.NodeSelector) })
}

// verifyWait checks that what a unit is said to wait for is true.
func (f *facts) verifyWait(wait Wait, d Decision) {
	w, p, u := f.world, f.party, f.units[wait.Node]
	if u == nil || wait.Message == "" {
		w.fail("%s has %+v wait", p.name, wait)
	}
	if wait.Holds != f.holds(u) {
		w.fail("%s has %+v wait, which is %s", p.name, wait, u.State)
	}
	m := w.present()[u.Node]
	waits, spec := f.wantsStart(u), p.spec
	if spec == nil {
		spec = &v1alpha1.Strategy{}
	}
	var is bool
	switch wait.Reason {
	case v1alpha1.ReasonOptedOut:
		is = u.OptedOut
	case v1alpha1.ReasonWindowsImageMissing, v1alpha1.ReasonNodeNotReady, v1alpha1.ReasonHostSilent:
		is = u.Reason == wait.Reason
	case v1alpha1.ReasonStrategyInvalid:
		is = unsound(spec)
	case v1alpha1.ReasonPaused:
		is = spec.Paused
	case v1alpha1.ReasonWindowInvalid:
		is = p.windowError != ""
	case v1alpha1.ReasonOutsideWindow:
		is = f.outside()
	case v1alpha1.ReasonHalted:
		is = !u.Claimed && f.halted() || d.Wave != nil && d.Wave.State == v1alpha1.WaveHalted && f.later(u, d) && f.anyUpTo(d, func(x *Unit) bool {
			return x.Skipped || slices.Contains(f.lost, x.Node)
		})
	case v1alpha1.ReasonWavePending:
		is = f.later(u, d) && (len(f.groups[0]) == 0 || f.anyUpTo(d, func(x *Unit) bool {
			return (x.State != v1alpha1.UnitUpdated || x.Unoffered) && !x.Skipped && !slices.Contains(f.lost, x.Node)
		}))
	case v1alpha1.ReasonWaveUnhealthy:
		is = f.later(u, d) && slices.ContainsFunc(f.groups[f.reached(d.Wave)], func(x *Unit) bool { return x.State == v1alpha1.UnitUpdated && f.unwell(f.party, x.Node) })
	case v1alpha1.ReasonWaveSoaking:
		i := f.reached(d.Wave)
		is = f.later(u, d) && spec.Waves[i].Soak != nil && f.now.Before(d.Wave.Since.Add(spec.Waves[i].Soak.Duration+time.Second))
	case v1alpha1.ReasonWaitingForApproval:
		i := f.reached(d.Wave)
		is = f.later(u, d) && spec.Waves[i].Approval == v1alpha1.ApprovalManual && f.approved != f.waveName(i)+"@"+f.wants() && d.Wave.ApproveWith != ""
	case v1alpha1.ReasonClaimUnreadable:
		is = m.claimError != ""
	case v1alpha1.ReasonClaimed:
		is = strings.Contains(wait.Message, "claimed by "+w.inTheWay(p, m)+" since") ||
			!p.beside && !u.Claimed && strings.Contains(wait.Message, "replaced by "+w.replaced(u.Node, m)+" since")
	case v1alpha1.ReasonMaxConcurrent:
		is = f.holders >= f.limit()
		if f.holds(u) {
			is = f.busy >= f.limit()
		} else if i := slices.IndexFunc(f.begun, func(name string) bool { x := f.units[name]; return !f.holds(x) && !x.Claimed && f.compare(u, x) < 0 }); i >= 0 {
			w.fail("%s starts %s, and lets %s wait for a slot, which comes before", p.name, f.begun[i], u.Node)
		}
	case v1alpha1.ReasonBudgetExhausted:
		b, _ := f.left(u.Node)
		is = b != nil && !u.Claimed
	case v1alpha1.ReasonMaxDomains:
		_, b := f.left(u.Node)
		is = b != nil && !u.Claimed
	case v1alpha1.ReasonJobFailed, v1alpha1.ReasonPodFailed, v1alpha1.ReasonTurnTimeout, v1alpha1.ReasonDrainTimeout:
		is, waits = u.State == v1alpha1.UnitFailed && !waits && u.Reason == wait.Reason, true
	default:
		is = f.closed(u.Node)[wait.Reason] && (!u.Claimed || !slices.Contains(gateReasons, wait.Reason) || wait.Reason == v1alpha1.ReasonPodsBlock && !u.InTurn && !m.cordoned)
	}
	if !is || !waits {
		w.fail("%s has %s wait for %s, which is not true: %s; unit %+v, node %+v, wave %+v", p.name, wait.Node, wait.Reason, wait.Message, *u, m, d.Wave)
	}
}

// later: the unit is in a wave after the one that the rollout has come to.
func (f *facts) later(u *Unit, d Decision) bool {
	begun := u.State == v1alpha1.UnitFailed || u.Claimed && !u.Running
	return f.groups != nil && d.Wave != nil && !begun && f.wave[u.Node] > f.reached(d.Wave)
}

func (f *facts) anyUpTo(d Decision, which func(*Unit) bool) bool {
	return slices.ContainsFunc(f.groups[:f.reached(d.Wave)+1], func(group []*Unit) bool { return slices.ContainsFunc(group, which) })
}

// inTheWay names the first rollout whose claim on the node keeps this one off.
func (w *world) inTheWay(p *party, m machine) string {
	for _, c := range m.claims {
		if c.UID != p.uid && (!c.Shared || !p.shared || p.beside) && (c.Failed == nil || !c.Failed.Skipped) {
			return c.Rollout
		}
	}
	return ""
}

// progress checks that a rollout does not go back within a revision, unless a person has changed its waves.
func (w *world) progress(p *party, next *v1alpha1.WaveStatus) {
	before := p.status
	if before == nil || next == nil || before.Revision != next.Revision || w.shadow.waves[p.name] != p.spec {
		w.shadow.waves[p.name] = p.spec
		return
	}
	if next.Number < before.Number {
		w.fail("%s goes back from %+v to %+v", p.name, *before, *next)
	}
}

// verifyClaims checks each state of the nodes since the last check: with a claim that is new in it, no more nodes are unavailable than each budget
// of the node allows.
func (w *world) verifyClaims() {
	for ; w.verified < len(w.history)-1; w.verified++ {
		is := w.history[w.verified+1]
		m, was := is.machines[is.changed], w.history[w.verified].machines[is.changed]
		if !slices.ContainsFunc(m.claims, func(c v1alpha1.Claim) bool {
			return !c.RecordsResult() && !slices.ContainsFunc(was.claims, func(old v1alpha1.Claim) bool { return old.UID == c.UID && !old.RecordsResult() })
		}) {
			continue
		}
		for _, b := range w.budgets {
			if !chosen(b, m) || !counts(b, v1alpha1.CountNodes) {
				continue
			}
			matched, down, domains := 0, 0, map[string]bool{}
			for _, other := range is.machines {
				if chosen(b, other) {
					matched++
					if w.down(b, other) {
						down++
						domains[other.labels[b.Spec.TopologyKey]] = true
					}
				}
			}
			if most := b.Spec.MaxUnavailable; most != nil && down > atLeast(most, matched) {
				w.fail("with the claims %+v of %s %d nodes of %s are unavailable, and %s may be", m.claims, is.changed, down, b.Name, most)
			}
			if most := b.Spec.MaxDomains; b.Spec.TopologyKey != "" && len(domains) > max(1, int(ptr.Deref(most, 1))) {
				w.fail("with the claims %+v of %s nodes of %d domains of %s are unavailable", m.claims, is.changed, len(domains), b.Name)
			}
		}
	}
}

// check looks at the whole world between two steps.
func (w *world) check() {
	w.verifyClaims()
	for name, m := range w.present() {
		there := 0
		for i, c := range m.claims {
			if c.Failed == nil || !c.Failed.Skipped {
				there++
			}
			if slices.ContainsFunc(m.claims[:i], func(other v1alpha1.Claim) bool { return other.UID == c.UID }) {
				w.fail("%s has two claims of %s", name, c.Rollout)
			}
		}
		for _, c := range m.claims {
			if !c.Shared && there > 1 && (c.Failed == nil || !c.Failed.Skipped) {
				w.fail("%s has an exclusive claim of %s beside others: %+v", name, c.Rollout, m.claims)
			}
		}
	}
	f := w.fleet(w.history[len(w.history)-1])
	for _, p := range w.parties {
		for name, run := range p.changes {
			// A node may leave while something is being started there; that is taken away later.
			m, there := w.present()[name]
			if c := m.claim(p); there && run.outcome == running && (c == nil || c.Turn != run.turn) {
				w.fail("%s runs on %s without a claim for that: %+v", p.name, name, c)
			}
		}
		holders := 0
		asked := facts{world: w, party: p}
		for name, m := range w.present() {
			if u, next := w.judge(p, name, &m, &f); asked.holds(&u) && next != giveUp {
				holders++
			}
		}
		if p.beside {
			// Pods fail by themselves as well; what counts is what the rollout has taken away.
			w.forgive(p, &f)
			if holders = w.claims(p); !p.strict {
				holders = 0
			}
		}
		if holders > p.allowed {
			w.fail("%s holds %d slots, and %d are allowed", p.name, holders, p.allowed)
		}
		p.allowed = max(w.limitOf(p), min(p.allowed, w.claims(p)))
	}
}

// forgive forgets the pods that a rollout has taken away, where there is one again, or where it is not its doing any more
// that there is none.
func (w *world) forgive(p *party, f *Fleet) {
	for at := range w.shadow.taken {
		m, there := w.present()[at.node]
		if at.rollout != p.name || !there {
			if !there {
				delete(w.shadow.taken, at)
			}
			continue
		}
		u, _ := w.judge(p, at.node, &m, f)
		lost := u.State == v1alpha1.UnitFailed && u.RetryAt.IsZero() && p.spec != nil && p.spec.MaxFailures != nil
		if of, has := m.pods[p.name]; u.Excused || lost || !has || of.available {
			delete(w.shadow.taken, at)
		}
	}
}

// finished reports whether a rollout has brought every node where it should be, and let go of it.
func (w *world) finished(p *party) bool {
	waves, total := p.spec != nil && len(p.spec.Waves) > 0, 0
	for _, m := range w.present() {
		if m.brought[p.name] == optOut {
			continue
		}
		total++
		if of := m.pods[p.name]; p.beside && (of.to != p.wants() || !of.available) && (!p.unfit || !m.windows) {
			return false
		}
	}
	if waves && total > 0 && (p.status == nil || p.status.State != v1alpha1.WaveComplete) {
		return false
	}
	for _, m := range w.present() {
		if p.beside {
			break
		}
		if m.claim(p) != nil || m.brought[p.name] != p.wants() && m.brought[p.name] != optOut && (!p.unfit || !m.windows) {
			return false
		}
	}
	return true
}

// shadow is what the test remembers, and the controllers do not.
type shadow struct {
	facts *facts
	// updated is when a rollout has released a node as updated, and unwell when it last saw it not healthy in its current wave.
	updated, unwell map[key2]time.Time
	// joined is when a node was first seen in the wave that was the current one.
	joined map[membership]time.Time
	// taken are the nodes where a rollout has replaced an available pod, and there is none since.
	taken map[key2]bool
	// canaries are the nodes where a rollout has failed in its first wave, with the revision that it was to.
	canaries map[key2]string
	waves    map[string]*v1alpha1.Strategy
}

type key2 struct{ rollout, node string }

type membership struct{ rollout, node, revision, wave string }

func newShadow() shadow {
	return shadow{
		updated: map[key2]time.Time{}, unwell: map[key2]time.Time{}, joined: map[membership]time.Time{}, taken: map[key2]bool{},
		canaries: map[key2]string{}, waves: map[string]*v1alpha1.Strategy{},
	}
}

// note remembers what a rollout has seen, and written down.
func (s *shadow) note(w *world, p *party) {
	f := s.facts
	if f == nil || f.groups == nil || p.status == nil {
		return
	}
	wave := f.reached(p.status)
	for m := range s.joined {
		if at, ok := f.wave[m.node]; m.rollout == p.name && (!ok || at != wave) {
			delete(s.joined, m)
		}
	}
	for name, u := range f.units {
		if at := (key2{p.name, name}); p.beside && u.State != v1alpha1.UnitUpdated {
			delete(s.updated, at)
		} else if _, known := s.updated[at]; p.beside && !known {
			s.updated[at] = w.now
		}
	}
	for _, u := range f.groups[wave] {
		if f.waits(wave) && u.State == v1alpha1.UnitUpdated {
			// It has soaked, whatever a strategy says that comes later.
			s.updated[key2{p.name, u.Node}], s.unwell[key2{p.name, u.Node}] = time.Time{}, time.Time{}
		}
		if w.unwell(p, u.Node) {
			s.unwell[key2{p.name, u.Node}] = w.now
		}
		m := membership{p.name, u.Node, p.wants(), f.waveName(wave)}
		if _, ok := s.joined[m]; !ok {
			s.joined[m] = w.now
		}
	}
}

// back is when the clock goes back: what the test remembers was not later than now.
func (s *shadow) back(now time.Time) {
	for _, all := range []map[key2]time.Time{s.updated, s.unwell} {
		for k, at := range all {
			if at.After(now) {
				all[k] = now
			}
		}
	}
	for k, at := range s.joined {
		if at.After(now) {
			s.joined[k] = now
		}
	}
}
