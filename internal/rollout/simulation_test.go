// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/test/tier"
)

// TestSimulation runs rollouts on random fleets, with random events. It checks the invariants after every step, and that
// every rollout completes. Every other world is mixed. Each run has the same worlds. MOULT_SEED=n repeats one that failed.
// MOULT_SEEDS=n runs n other worlds, and `make simulate` runs many.
func TestSimulation(t *testing.T) {
	first, worlds := uint64(1001), uint64(30)
	if tier.All {
		worlds = 10_000
	}
	if seeds := number(t, "MOULT_SEEDS"); seeds > 0 {
		first, worlds = rand.Uint64N(1_000_000_000), seeds
	}
	if seed := number(t, "MOULT_SEED"); seed > 0 {
		first = seed
		if os.Getenv("MOULT_SEEDS") == "" {
			worlds = 1
		}
	}
	t.Logf("seeds from %d on", first)
	seed, steps, ok := simulate(&whole, first, worlds, func(done uint64) {
		if os.Getenv("MOULT_SEEDS") != "" {
			fmt.Fprintf(os.Stderr, "%d of %d worlds\n", done, worlds)
		}
	})
	t.Logf("%d steps", steps)
	if !ok {
		w, what := run(&whole, seed, false)
		t.Fatalf("%s\nMOULT_SEED=%d repeats this:\n%s", what, seed, tail(w.story.String(), 80))
	}
}

func number(t *testing.T, name string) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("reading $%s, %v", name, err)
	}
	return n
}

// simulate runs so many worlds on all cores. When something is wrong in one of them it returns the lowest seed known of.
func simulate(by *subject, first, worlds uint64, progress func(done uint64)) (seed uint64, steps int64, ok bool) {
	openingsOf()
	var next, done atomic.Uint64
	var walked atomic.Int64
	var mu sync.Mutex
	ok = true
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= worlds {
					return
				}
				s, what := run(by, first+i, true)
				walked.Add(int64(s.moves))
				if what != "" {
					next.Store(worlds)
					mu.Lock()
					if ok || first+i < seed {
						seed, ok = first+i, false
					}
					mu.Unlock()
				}
				if n := done.Add(1); n%1000 == 0 {
					progress(n)
				}
			}
		})
	}
	group.Wait()
	return seed, walked.Load(), ok
}

// run runs one world, and says what was wrong in it, or "".
func run(by *subject, seed uint64, mute bool) (w *world, what string) {
	s := &simulation{world: newWorld(by), Rand: rand.New(rand.NewPCG(seed, 0)), mixed: seed%2 == 1}
	s.mute = mute
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			w, what = s.world, v.text
		default:
			panic(fmt.Sprintf("with MOULT_SEED=%d: %v", seed, v))
		}
	}()
	s.populate()
	for range 160 {
		s.mayRestart()
		s.happen()
		s.check()
	}
	s.settleDown()
	return s.world, ""
}

type simulation struct {
	*world
	*rand.Rand
	nodes int
	// mixed is true for a world in which every kind of rollouts goes over the fleet at once, and whose operator is restarted now and then.
	mixed bool
}

func (s *simulation) chance(percent int) bool { return s.IntN(100) < percent }

func pick[T any](s *simulation, from ...T) T { return from[s.IntN(len(from))] }

func (s *simulation) names() []string { return slices.Sorted(maps.Keys(s.present())) }

func (s *simulation) joins() {
	s.nodes++
	name := "lin-" + strconv.Itoa(s.nodes)
	if s.chance(15) {
		name = "win-" + strconv.Itoa(s.nodes)
	}
	labels := map[string]string{"pool": pick(s, "web", "web", "db", "canary")}
	if s.chance(85) {
		labels[corev1.LabelTopologyZone] = pick(s, "a", "b", "c")
	}
	if s.chance(20) {
		labels["node-role.kubernetes.io/control-plane"] = ""
	}
	s.join(name, labels)
	s.edit(name, func(m *machine) {
		m.created = s.now.Add(-time.Duration(s.IntN(5)) * time.Hour)
		m.evictions = s.IntN(4)
	})
	s.say(nil, "Node %s joins, with %v.", name, labels)
	if s.chance(25) {
		for _, p := range s.parties {
			s.label(name, p, p.wants())
		}
		s.say(nil, "It has all that is wanted already.")
	}
}

func (s *simulation) populate() {
	s.now = s.now.Add(time.Duration(s.IntN(360*24*60)) * time.Minute)
	for range pick(s, 1, 2, 1+s.IntN(12), 1+s.IntN(12), 1+s.IntN(12)) {
		s.joins()
	}
	if s.mixed {
		s.populateMixed()
		return
	}
	for i := range s.IntN(4) {
		s.addBudget("budget-"+strconv.Itoa(i), s.budget())
		s.say(nil, "There is budget-%d: %s.", i, show(s.budgets[i].Spec))
	}
	for i := range 2 + s.IntN(2) {
		p := &party{
			name: "rollout-" + strconv.Itoa(i), unfit: s.chance(15), concurrency: s.IntN(5), shared: s.chance(50), drains: s.chance(40),
			beside: s.chance(35), strict: s.chance(50), patient: s.chance(50), soakLast: s.chance(50),
			careful: s.chance(40), shy: true,
		}
		s.enter(p)
	}
}

// populateMixed adds a rollout of each kind, two budgets that overlap, and nodes that a person has cordoned.
func (s *simulation) populateMixed() {
	for len(s.present()) < 4 {
		s.joins()
	}
	for i, of := range []metav1.LabelSelectorRequirement{
		{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "canary"}},
		pick(s, metav1.LabelSelectorRequirement{Key: "pool", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}},
			metav1.LabelSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: metav1.LabelSelectorOpExists}),
	} {
		b := s.budget()
		b.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{of}}
		b.MaxUnavailable = ptr.To(pick(s, intstr.FromInt32(int32(1+s.IntN(4))), intstr.FromString(pick(s, "25%", "50%"))))
		s.addBudget("budget-"+strconv.Itoa(i), b)
		s.say(nil, "There is budget-%d: %s.", i, show(b))
	}
	for range 1 + s.IntN(2) {
		name := pick(s, s.names()...)
		s.edit(name, func(m *machine) { m.cordoned = true })
		s.say(nil, "A person has cordoned %s.", name)
	}
	for _, p := range []*party{
		{name: "plan", shared: s.chance(50), unfit: s.chance(15)},
		{name: "draining-plan", drains: true},
		{name: "host-update", drains: true, careful: s.chance(40), shy: true},
		{name: "replacement", drains: true, replaces: true, careful: s.chance(40)},
		{name: "daemon", beside: true, soakLast: true, strict: s.chance(50), patient: s.chance(50)},
	} {
		p.concurrency = 1 + s.IntN(4)
		s.enter(p)
		for _, name := range s.names() {
			if p.replaces && s.present()[name].cordoned && s.chance(80) {
				s.label(name, p, optOut)
				s.say(p, "is kept away from %s, which a person has cordoned.", name)
			}
		}
	}
}

// enter gives a rollout what each kind may have, and lets it begin.
func (s *simulation) enter(p *party) {
	if s.chance(20) {
		p.own = pick(s, s.names()...)
	}
	s.window(p)
	if s.chance(70) {
		p.spec = s.strategy()
	}
	if s.chance(30) && !p.replaces { // A replacement has another name.
		s.pick(p)
	}
	p.shy, p.hidden = p.shy && !p.beside && !p.soakLast && s.chance(50), map[string]v1alpha1.UnitState{}
	s.hides(p)
	s.add(p)
	s.describe(p)
}

// mayRestart ends the operator of a mixed world now and then, and starts another. That one knows only what the API holds, and decides the same.
func (s *simulation) mayRestart() {
	if !s.mixed || !s.chance(5) {
		return
	}
	is := s.history[len(s.history)-1]
	fresh := state{machines: is.machines, fleet: map[string]*Node{}}
	for name, m := range is.machines {
		fresh.fleet[name] = m.node(name)
	}
	before := s.decisions(is)
	clear(s.made)
	for _, p := range s.parties {
		p.strategy, p.seen = Strategy{}, len(s.history)-1
	}
	for i, after := range s.decisions(fresh) {
		if !reflect.DeepEqual(before[i], after) {
			s.fail("%s decides %+v, and after a restart %+v", s.parties[i].name, before[i], after)
		}
	}
	s.say(nil, "The operator is restarted.")
}

// decisions are those that each rollout would make now.
func (s *simulation) decisions(of state) (all []Decision) {
	for _, p := range s.parties {
		f, total := s.fleet(of), 0
		var units []Unit
		for _, name := range s.names() {
			m := of.machines[name]
			u, _ := s.judge(p, name, &m, &f)
			if units = append(units, u); !u.OptedOut {
				total++
			}
		}
		all = append(all, decide(&s.by.rules, p.decidesBy(total), units, f, s.now))
	}
	return all
}

// hides lets some of the units not know yet what a rollout brings them to.
func (s *simulation) hides(p *party) {
	if !p.shy {
		return
	}
	for _, name := range s.names() {
		if s.chance(50) {
			p.hidden[name] = pick(s, v1alpha1.UnitUpdated, v1alpha1.UnitUpdated, v1alpha1.UnitOutdated)
		}
	}
	s.say(p, "is not known to %v.", p.hidden)
}

// finds lets a unit find out what a rollout brings it to, or at least that this is nothing yet.
func (s *simulation) finds(p *party) {
	for _, name := range slices.Sorted(maps.Keys(p.hidden)) {
		switch {
		case s.chance(70):
		case p.hidden[name] == v1alpha1.UnitOutdated && s.chance(50):
			p.hidden[name] = v1alpha1.UnitUpdated
			s.say(p, "has nothing yet for %s.", name)
		default:
			delete(p.hidden, name)
			s.say(p, "has something for %s.", name)
		}
	}
}

func (s *simulation) describe(p *party) {
	s.say(p, "wants %s, %d at once, shared: %v, drains: %v, beside: %v, strict: %v, window: %v, first on: %v, the last soaks: %v, careful: %v, by %s.",
		p.wants(), p.concurrency, p.shared, p.drains, p.beside, p.strict, p.window != nil, slices.Sorted(maps.Keys(p.picked)), p.soakLast, p.careful, show(p.spec))
}

// pick says by name on which nodes a rollout begins.
func (s *simulation) pick(p *party) {
	p.picked = map[string]bool{}
	for _, name := range s.names() {
		if s.chance(30) {
			p.picked[name] = true
		}
	}
	if all := s.names(); len(p.picked) == 0 && len(all) > 0 && s.chance(95) {
		p.picked[pick(s, all...)] = true
	}
}

// window gives a rollout a random window, or none.
func (s *simulation) window(p *party) {
	p.window, p.windowError = nil, ""
	switch s.IntN(14) {
	case 0:
		p.window = windows["nights in Berlin"]
	case 1:
		p.window = windows["days in New York"]
	case 2:
		p.window = windows["some nights"]
	case 3:
		p.windowError = "what is 25:00?"
	}
}

var windows = func() map[string][]CronWindow {
	all := map[string][]CronWindow{}
	for name, w := range map[string]struct {
		days             []string
		start, end, zone string
	}{
		"nights in Berlin": {everyDay, "22:00", "04:00", "Europe/Berlin"},
		"days in New York": {everyDay, "09:00", "17:00", "America/New_York"},
		"some nights":      {[]string{"fri", "sat", "tue"}, "20:00", "06:00", "UTC"},
	} {
		made, err := NewWindow(w.days, w.start, w.end, w.zone)
		if err != nil {
			panic(err)
		}
		all[name] = made
	}
	return all
}()

// strategy is a random one.
func (s *simulation) strategy() *v1alpha1.Strategy {
	spec := &v1alpha1.Strategy{}
	if s.chance(50) {
		spec.MaxConcurrent = ptr.To(pick(s, intstr.FromInt32(int32(s.IntN(5))), intstr.FromString(pick(s, "0%", "10%", "25%", "50%", "100%"))))
	}
	for range s.IntN(3) {
		o := v1alpha1.Order{By: pick(s,
			v1alpha1.OrderZone, v1alpha1.OrderLabel, v1alpha1.OrderOldestFirst, v1alpha1.OrderNewestFirst,
			v1alpha1.OrderControlPlaneFirst, v1alpha1.OrderControlPlaneLast, v1alpha1.OrderFewestEvictionsFirst)}
		if o.By == v1alpha1.OrderLabel {
			o.Key = "pool"
			if s.chance(50) {
				o.Values = []string{"web", "canary"}
			}
		}
		spec.Order = append(spec.Order, o)
	}
	if s.chance(50) {
		s.waves(spec)
	}
	if s.chance(25) {
		spec.Soak = duration(pick(s, 5*time.Minute, time.Hour))
	}
	if s.chance(40) {
		spec.MaxFailures = ptr.To(pick(s, intstr.FromInt32(int32(s.IntN(3))), intstr.FromString("20%")))
	}
	if s.chance(40) {
		spec.Retries = &v1alpha1.Retries{Limit: int32(1 + s.IntN(3))}
		if s.chance(50) {
			spec.Retries.Backoff, spec.Retries.MaxBackoff = duration(10*time.Minute), duration(30*time.Minute)
		}
	}
	if s.chance(20) {
		spec.TurnTimeout = duration(2 * time.Hour)
	}
	if s.chance(15) {
		spec.Windows = s.cron()
	}
	spec.Paused = s.chance(4)
	return spec
}

func (s *simulation) cron() []v1alpha1.Window {
	var all []v1alpha1.Window
	for range 1 + s.IntN(2) {
		all = append(all, pick(s, schedules...).Window)
	}
	return all
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func (s *simulation) waves(spec *v1alpha1.Strategy) {
	spec.Waves = nil
	for i := range 1 + s.IntN(3) {
		var w v1alpha1.Wave
		if s.chance(50) {
			w.Name = pick(s, "canary", "early", "late") + strconv.Itoa(i)
		}
		if s.chance(75) {
			w.Size = ptr.To(pick(s, intstr.FromInt32(int32(1+s.IntN(3))), intstr.FromString(pick(s, "10%", "30%", "50%"))))
		}
		if w.Size == nil || s.chance(25) {
			w.NodeSelector = &metav1.LabelSelector{MatchLabels: pick(s, map[string]string{"pool": "canary"}, map[string]string{corev1.LabelTopologyZone: "a"})}
		}
		if s.chance(2) {
			w.NodeSelector = gibberish()
		}
		if s.chance(50) {
			w.Soak = duration(pick(s, 10*time.Minute, time.Hour))
		}
		if s.chance(25) {
			w.Approval = v1alpha1.ApprovalManual
		}
		spec.Waves = append(spec.Waves, w)
	}
}

// gibberish is a selector that can't be read.
func gibberish() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Resembles"}}}
}

// budget is a random one.
func (s *simulation) budget() v1alpha1.NodeDisruptionBudgetSpec {
	var b v1alpha1.NodeDisruptionBudgetSpec
	switch s.IntN(10) {
	case 0, 1:
		b.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "web"}}
	case 2:
		b.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}}}}
	case 3:
		b.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: metav1.LabelSelectorOpExists}}}
	case 4:
		if s.chance(20) {
			b.Selector = gibberish()
		}
	}
	if s.chance(70) {
		b.MaxUnavailable = ptr.To(pick(s, intstr.FromInt32(int32(s.IntN(4))), intstr.FromString(pick(s, "0%", "10%", "25%", "50%"))))
	}
	if s.chance(35) {
		b.TopologyKey = corev1.LabelTopologyZone
		if s.chance(50) {
			b.MaxDomains = ptr.To(int32(1 + s.IntN(2)))
		}
	}
	if s.chance(35) {
		b.Counts = pick(s, []v1alpha1.BudgetCount{v1alpha1.CountDaemonPods}, []v1alpha1.BudgetCount{v1alpha1.CountNodes, v1alpha1.CountDaemonPods})
	}
	if s.chance(15) {
		b.Windows = s.cron()
	}
	b.Paused = s.chance(5)
	if s.chance(25) {
		b.MinReadySeconds = 600
	}
	if s.chance(50) {
		b.Gates = &v1alpha1.Gates{}
		if s.chance(35) {
			b.Gates.Workloads = &v1alpha1.WorkloadsGate{}
		}
		if s.chance(25) {
			b.Gates.Pods = []v1alpha1.PodsGate{{Scope: pick(s, v1alpha1.PodsOnNode, v1alpha1.PodsInCluster)}}
		}
		if s.chance(25) {
			b.Gates.Alerts = &v1alpha1.AlertsGate{WhenUnreachable: pick(s, "", v1alpha1.UnreachableClosed, v1alpha1.UnreachableOpen)}
		}
		if s.chance(35) {
			b.Gates.Nodes = &v1alpha1.NodesGate{}
			if s.chance(60) {
				b.Gates.Nodes.AbsentTaints = []string{pick(s, "readiness.k8s.io/*", agentTaint)}
			}
			if s.chance(60) {
				b.Gates.Nodes.Conditions = []v1alpha1.NodeConditionRequirement{{Type: networkPresence, Status: metav1.ConditionFalse}}
			}
		}
	}
	return b
}

// happen is one step: mostly a rollout acts or something that runs ends, and now and then a person interferes.
func (s *simulation) happen() {
	p := pick(s, s.parties...)
	switch n := s.IntN(100); {
	case n < 42:
		s.reconcile(p)
	case n < 60:
		s.end(p)
	case n < 70:
		s.pass()
	case n < 76:
		s.change(p)
	case n < 80:
		s.regulate()
	case n < 90:
		s.weather()
	default:
		s.interfere(p)
	}
}

// pass lets time go by; now and then the clock is put back.
func (s *simulation) pass() {
	if s.chance(4) {
		s.now = s.now.Add(-time.Duration(1+s.IntN(120)) * time.Minute)
		s.shadow.back(s.now)
		s.say(nil, "The clock is put back.")
		return
	}
	s.now = s.now.Add(pick(s, time.Duration(1+s.IntN(15))*time.Minute, time.Duration(1+s.IntN(15))*time.Minute, time.Duration(1+s.IntN(8*60))*time.Minute) +
		time.Duration(s.IntN(60_000))*time.Millisecond)
}

// reconcile lets a rollout act, on what is true now or on what was a while ago. Sometimes it is killed in the middle.
func (s *simulation) reconcile(p *party) {
	view, writes := len(s.history)-1, math.MaxInt
	if s.chance(40) {
		view -= s.IntN(view - p.seen + 1)
	}
	killed := s.chance(10)
	if killed {
		writes = s.IntN(4)
	}
	s.act(p, view, writes)
	if killed {
		s.say(p, "is killed after at most %d writes.", writes)
		p.seen = len(s.history) - 1
	}
}

// end ends one of the changes that run.
func (s *simulation) end(p *party) {
	if p.beside {
		s.endPod(p)
		return
	}
	var at []string
	for _, name := range slices.Sorted(maps.Keys(p.changes)) {
		if p.changes[name].outcome == running {
			at = append(at, name)
		}
	}
	if len(at) == 0 {
		return
	}
	name, how, word := pick(s, at...), succeeded, "succeeds"
	if s.chance(40) && s.drained(p, name) {
		s.say(p, "has drained %s.", name)
		return
	}
	switch n := s.IntN(100); {
	case n < 20:
		how, word = broken, "fails"
	case n < 35:
		how, word = skipped, "can't begin"
	}
	s.ends(p, name, how)
	s.say(p, "is told that the change on %s %s.", name, word)
}

// endPod lets a pod that is not available be that, or fail for good.
func (s *simulation) endPod(p *party) {
	var at []string
	for _, name := range s.names() {
		m := s.present()[name]
		if pod, there := m.pods[p.name]; there && !pod.available && !m.notReady {
			at = append(at, name)
		}
	}
	if len(at) == 0 {
		return
	}
	name := pick(s, at...)
	if s.chance(20) {
		s.crash(p, name)
		s.say(p, "has a pod on %s that fails again and again.", name)
		return
	}
	s.serve(p, name, true)
	s.say(p, "has an available pod on %s.", name)
}

// change is a person who changes a rollout.
func (s *simulation) change(p *party) {
	s.finds(p)
	switch s.IntN(10) {
	case 0:
		p.revision++
		p.generation++
		s.say(p, "now wants %s.", p.wants())
		s.hides(p)
	case 1:
		p.generation++
		s.say(p, "is to try again what failed.")
	case 2:
		s.reset(p, func() { p.concurrency = s.IntN(5) })
		p.generation += s.IntN(2)
		s.say(p, "now starts %d at once.", p.concurrency)
	case 3:
		s.window(p)
		s.say(p, "has another window (%v), error %q.", p.window != nil, p.windowError)
	case 4, 5:
		s.reset(p, func() { p.spec = s.strategy() })
		p.generation++
		s.describe(p)
	case 6:
		if p.spec != nil && len(p.spec.Waves) > 0 {
			next := p.spec.DeepCopy()
			s.waves(next)
			s.reset(p, func() { p.spec = next })
			p.generation++
			s.say(p, "has other waves: %s.", show(p.spec.Waves))
		}
	case 7:
		if p.spec != nil {
			next := p.spec.DeepCopy()
			next.Paused = !next.Paused
			s.reset(p, func() { p.spec = next })
			p.generation++
			s.say(p, "is paused: %v.", next.Paused)
		}
	case 8:
		if p.status != nil {
			p.approved = ApprovalOf(p.status.Name, pick(s, p.status.Revision, p.status.Revision, "v0"), "")
			s.say(p, "is approved: %s.", p.approved)
		}
	case 9:
		if p.picked != nil {
			s.pick(p)
			s.reset(p, func() {})
			s.say(p, "is to begin on %v.", slices.Sorted(maps.Keys(p.picked)))
		}
	}
}

// regulate is a person who changes budgets.
func (s *simulation) regulate() {
	switch n := len(s.budgets); {
	case n == 0 || n < 3 && s.chance(20):
		s.addBudget("budget-"+strconv.Itoa(n)+"x", s.budget())
		s.say(nil, "There is another budget: %s.", show(s.budgets[n].Spec))
	case s.chance(15):
		s.budgets = s.budgets[:n-1]
		s.say(nil, "A budget is gone.")
	default:
		i := s.IntN(n)
		s.editBudget(i, func(b *v1alpha1.NodeDisruptionBudgetSpec) { *b = s.budget() })
		s.say(nil, "%s now is: %s.", s.budgets[i].Name, show(s.budgets[i].Spec))
	}
}

// weather is what happens to nodes, workloads and alerts by itself.
func (s *simulation) weather() {
	if len(s.present()) == 0 {
		return
	}
	name := pick(s, s.names()...)
	switch s.IntN(11) {
	case 0, 1, 2:
		is := s.present()[name].notReady
		s.ready(name, is)
		s.say(nil, "Node %s is ready: %v.", name, is)
	case 3:
		s.edit(name, func(m *machine) { m.taint = !m.taint })
		s.say(nil, "Node %s has the taint: %v.", name, s.present()[name].taint)
	case 4:
		s.edit(name, func(m *machine) { m.offline, m.offSince = !m.offline, s.now })
		s.say(nil, "Node %s has no network: %v.", name, s.present()[name].offline)
	case 5:
		s.alerts = !s.alerts
		s.say(nil, "There are alerts: %v.", s.alerts)
	case 6:
		s.silent = !s.silent
		s.say(nil, "Prometheus does not answer: %v.", s.silent)
	case 7:
		if s.busy = !s.busy; s.guarded[name] {
			delete(s.guarded, name)
		} else {
			s.guarded[name] = true
		}
		s.say(nil, "A pod that blocks runs on %s: %v; one that blocks all: %v.", name, s.guarded[name], s.busy)
	case 8:
		s.available()
	case 9, 10:
		p := pick(s, s.parties...)
		if s.present()[name].pods[p.name].available {
			s.serve(p, name, false)
			s.say(p, "has a pod on %s that is not available any more.", name)
		}
	}
}

// available lets everything that was evicted be available again.
func (s *simulation) available() {
	if len(s.displaced) > 0 {
		clear(s.displaced)
		s.say(nil, "What was evicted is available again.")
	}
}

// interfere is a person, or a machine, that changes a node.
func (s *simulation) interfere(p *party) {
	if len(s.present()) == 0 {
		s.joins()
		return
	}
	name := pick(s, s.names()...)
	m := s.present()[name]
	switch s.IntN(10) {
	case 0:
		s.label(name, p, optOut)
		s.say(p, "is kept away from %s by its label.", name)
	case 1, 2:
		s.label(name, p, "")
		s.say(p, "is let on %s: its label is taken off.", name)
	case 3:
		s.edit(name, func(m *machine) { m.retry++ })
		s.say(nil, "Somebody asks to try again on %s.", name)
	case 4:
		if len(s.present()) < 15 {
			s.joins()
		}
	case 5:
		s.leave(name)
		s.say(nil, "Node %s leaves.", name)
	case 6:
		if len(m.claims) == 0 {
			s.edit(name, func(m *machine) { m.claimError = "reading annotation, bad" })
			s.say(nil, "Somebody scribbles over the claims on %s.", name)
		}
	case 7:
		delete(p.changes, name)
		s.edit(name, func(m *machine) { delete(m.pods, p.name) })
		s.say(p, "loses what ran on %s: a person deletes it.", name)
	case 8, 9:
		if m.cordonedBy == "" {
			s.edit(name, func(m *machine) { m.cordoned = !m.cordoned })
			s.say(nil, "Somebody cordons %s: %v.", name, !m.cordoned)
		}
	}
}

// settleDown is when people leave the fleet alone, and nothing fails for good any more: every rollout must get there, and wake by
// itself when there is nothing left but to wait.
func (s *simulation) settleDown() {
	s.say(nil, "From now on no one interferes, and nothing fails for good.")
	s.alerts, s.silent, s.busy = false, false, false
	clear(s.guarded)
	for _, name := range s.names() {
		s.edit(name, func(m *machine) {
			m.claimError, m.taint = "", false
			if m.offline {
				m.offline, m.offSince = false, s.now
			}
			if m.cordonedBy == "" && !s.mixed {
				m.cordoned = false
			}
		})
		s.ready(name, true)
	}
	for _, p := range s.parties {
		clear(p.hidden)
		// What has failed and is not noted yet would count as a failure of the new attempt.
		for range 2 {
			s.act(p, len(s.history)-1, math.MaxInt)
		}
		s.reason(p)
	}
	s.reasonBudgets()
	if s.mixed {
		s.makeRoom()
	}
	fruitless, flaps, late := 0, s.IntN(6), s.IntN(3)
	for range 3000 {
		s.mayRestart()
		before, happened := s.moves, 0
		if name := pick(s, append(s.names(), "")...); flaps > 0 && name != "" && s.chance(20) {
			flaps--
			s.ready(name, false)
			s.ready(name, true)
			s.say(nil, "Node %s flaps.", name)
		}
		var wake time.Time
		for _, p := range s.parties {
			d := s.act(p, len(s.history)-1, math.MaxInt)
			s.check()
			happened += s.succeed(p) + s.approve(p)
			for _, at := range append(s.soaks(p), d.Next) {
				if at.After(s.now) && (wake.IsZero() || at.Before(wake)) {
					wake = at
				}
			}
		}
		if len(s.displaced) > 0 {
			happened++
			s.available()
		}
		if !slices.ContainsFunc(s.parties, func(p *party) bool { return !s.finished(p) }) {
			if late == 0 {
				return
			}
			late--
			s.joins()
			for _, p := range s.parties {
				p.approved = ""
			}
			s.say(nil, "What was approved is forgotten.")
			happened++
		}
		if s.moves > before || happened > 0 {
			fruitless = 0
			continue
		}
		if wake.IsZero() {
			s.fail("nothing moves any more, and no process will start again")
		}
		if fruitless++; fruitless > 100 {
			s.fail("it wakes again and again, and nothing moves")
		}
		s.now = wake
	}
	s.fail("it never ends")
}

// reason makes a rollout one that can finish.
func (s *simulation) reason(p *party) {
	p.generation++
	p.windowError = ""
	s.reset(p, func() {
		p.concurrency = max(1, p.concurrency)
		if p.spec == nil {
			return
		}
		next := p.spec.DeepCopy()
		next.Paused, next.TurnTimeout = false, nil
		if m := next.MaxConcurrent; m != nil && (m.IntVal == 0 && m.Type == intstr.Int || m.StrVal == "0%") {
			next.MaxConcurrent = nil
		}
		next.Windows = slices.DeleteFunc(next.Windows, func(w v1alpha1.Window) bool { return w == never })
		if len(next.Waves) > 0 {
			p.unfit = false
			next.Waves = slices.DeleteFunc(next.Waves, func(w v1alpha1.Wave) bool { return unreadable(w.NodeSelector) })
		}
		if len(next.Waves) > 0 && !slices.ContainsFunc(s.names(), func(name string) bool {
			m, first := s.present()[name], next.Waves[0].NodeSelector
			return m.brought[p.name] != optOut && (first == nil || fitsSelector(first, m.labels)) && (p.picked == nil || p.picked[name])
		}) {
			next.Waves = nil
		}
		p.spec = next
	})
	s.describe(p)
}

// reasonBudgets makes budgets that let every rollout finish: windows of one kind only, lest they are never open together.
func (s *simulation) reasonBudgets() {
	keep := s.IntN(3)
	for _, p := range s.parties {
		if keep != 0 {
			p.window = nil
		}
		if keep != 1 && p.spec != nil {
			next := p.spec.DeepCopy()
			next.Windows = nil
			s.reset(p, func() { p.spec = next })
		}
	}
	for i := range s.budgets {
		s.editBudget(i, func(b *v1alpha1.NodeDisruptionBudgetSpec) {
			b.Paused = false
			if unreadable(b.Selector) {
				b.Selector = nil
			}
			if m := b.MaxUnavailable; m != nil && (m.IntVal == 0 && m.Type == intstr.Int || m.StrVal == "0%") {
				b.MaxUnavailable = ptr.To(intstr.FromInt32(1))
			}
			if keep != 2 || i > 0 {
				b.Windows = nil
			}
			b.Windows = slices.DeleteFunc(b.Windows, func(w v1alpha1.Window) bool { return w == never })
		})
		s.say(nil, "%s now is: %s.", s.budgets[i].Name, show(s.budgets[i].Spec))
	}
}

// makeRoom lets each budget allow one node more, and one domain, than what people have cordoned uses up.
func (s *simulation) makeRoom() {
	for i := range s.budgets {
		s.editBudget(i, func(b *v1alpha1.NodeDisruptionBudgetSpec) {
			matched, cordoned, domains := 0, 0, map[string]bool{}
			for _, m := range s.present() {
				if !chosen(s.budgets[i], m) {
					continue
				}
				matched++
				if m.cordoned && m.cordonedBy == "" {
					cordoned++
					domains[m.labels[b.TopologyKey]] = true
				}
			}
			if b.MaxUnavailable != nil && atLeast(b.MaxUnavailable, matched) <= cordoned {
				b.MaxUnavailable = ptr.To(intstr.FromInt32(int32(cordoned + 1)))
			}
			if most := int32(len(domains) + 1); b.TopologyKey != "" && cordoned > 0 && ptr.Deref(b.MaxDomains, 1) < most {
				b.MaxDomains = &most
			}
		})
		s.say(nil, "%s now is: %s.", s.budgets[i].Name, show(s.budgets[i].Spec))
	}
}

// succeed lets everything that a rollout runs succeed; what is tried again by itself fails the first time now and then.
func (s *simulation) succeed(p *party) int {
	n := 0
	for _, name := range s.names() {
		m := s.present()[name]
		pod, there := m.pods[p.name]
		fails := pod.to == p.wants() && pod.attempt == p.attempt(m)
		if !there || pod.available || fails && pod.broken || m.notReady {
			continue
		}
		n++
		if fails && pod.failures == 0 && p.spec != nil && p.spec.Retries != nil && s.chance(30) {
			s.crash(p, name)
			s.say(p, "has a pod on %s that fails.", name)
			continue
		}
		s.serve(p, name, true)
	}
	for _, name := range slices.Sorted(maps.Keys(p.changes)) {
		if p.changes[name].outcome != running {
			continue
		}
		how := succeeded
		m := s.present()[name]
		if c := m.claim(p); p.spec != nil && p.spec.Retries != nil && c != nil && c.Attempt == p.attempt(m) && c.Failures == 0 && s.chance(30) {
			how = broken
			s.say(p, "is told that the change on %s fails.", name)
		}
		s.ends(p, name, how)
		n++
	}
	return n
}

// approve is a person who approves what waits for that.
func (s *simulation) approve(p *party) int {
	if p.status == nil || p.status.State != v1alpha1.WaveWaitingForApproval || p.approved == p.status.ApproveWith {
		return 0
	}
	p.approved = p.status.ApproveWith
	s.say(nil, "Somebody approves %s of %s.", p.approved, p.name)
	return 1
}

// soaks are the instants at which nodes have soaked.
func (s *simulation) soaks(p *party) []time.Time {
	f := s.fleet(s.history[len(s.history)-1])
	var all []time.Time
	for name, run := range p.changes {
		if run.outcome == succeeded {
			all = append(all, f.SoakEnd(name, run.ended, p.soak()))
		}
	}
	return all
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
