// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// The interval of queries to Prometheus, the longest interval after an error, the longest timeout of a query, and the
// longest grace for an overdue answer.
const (
	defaultInterval = 15 * time.Second
	retryInterval   = 15 * time.Second
	longestTimeout  = 10 * time.Second
	longestGrace    = time.Minute
)

// alertsRule is an alerts gate.
type alertsRule struct {
	gate              v1alpha1.AlertsGate
	allow, deny       *regexp.Regexp
	interval, timeout time.Duration
}

func newAlertsRule(from *v1alpha1.AlertsGate) (*alertsRule, error) {
	r := &alertsRule{gate: *from.DeepCopy(), interval: defaultInterval}
	for _, e := range []struct {
		field string
		from  string
		to    **regexp.Regexp
	}{{"allow", from.Allow, &r.allow}, {"deny", from.Deny, &r.deny}} {
		if e.from == "" {
			continue
		}
		// First compiled without the anchors, so that a ")" can't close their group.
		if _, err := regexp.Compile(e.from); err != nil {
			return nil, fmt.Errorf("%s: %w", e.field, err)
		}
		*e.to = regexp.MustCompile("^(?:" + e.from + ")$")
	}
	if from.IntervalSeconds != nil {
		r.interval = time.Duration(max(1, *from.IntervalSeconds)) * time.Second
	}
	r.timeout = min(r.interval, longestTimeout)
	return r, nil
}

// matters reports whether an alert of this name closes the gate.
func (r *alertsRule) matters(name string) bool {
	switch {
	case r.deny != nil:
		return r.deny.MatchString(name)
	case r.allow != nil:
		return !r.allow.MatchString(name)
	}
	return true
}

// patience is how long an answer is valid: one interval, and a grace for another query.
func (r *alertsRule) patience() time.Duration {
	return r.interval + min(r.interval, longestGrace) + r.timeout
}

// poller queries Prometheus for one budget in the background.
type poller struct {
	gates   *gates
	rule    *alertsRule
	stopped chan struct{}

	mu sync.Mutex
	// asked is true after the first query.
	asked bool
	// answered is the time of the last valid answer, and active its number of alerts by name.
	answered time.Time
	active   map[string]int
	// err is the error of the last query, if it failed.
	err error
}

// Poll starts the poller of a budget's alerts gate, or stops it if the budget has none. Only the leader calls it.
func (f *Fleet) Poll(from *v1alpha1.NodeDisruptionBudget) {
	g := f.gates
	rule := g.read(from).alerts
	g.mu.Lock()
	defer g.mu.Unlock()
	if rule == nil {
		g.stop(from.Name)
		return
	}
	if last := g.pollers[from.Name]; last == nil || !last.serves(rule) {
		g.stop(from.Name)
		p := &poller{gates: g, rule: rule, stopped: make(chan struct{})}
		g.pollers[from.Name] = p
		g.start(p.run)
	}
}

// stop stops the poller of a budget, if it has one. The caller holds the lock.
func (g *gates) stop(budget string) {
	if p := g.pollers[budget]; p != nil {
		close(p.stopped)
		delete(g.pollers, budget)
	}
}

// serves reports whether the poller was made for this gate.
func (p *poller) serves(rule *alertsRule) bool {
	return equality.Semantic.DeepEqual(p.rule.gate, rule.gate)
}

// run queries repeatedly, until ctx ends or the poller is stopped.
func (p *poller) run(ctx context.Context) {
	from, err := newPrometheus(p.rule.gate.URL)
	if err != nil {
		p.store(nil, err)
		return
	}
	defer from.close()
	for {
		pause := p.query(ctx, from)
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case <-clock.RealClock{}.After(pause):
		}
	}
}

// query queries once, and returns the pause until the next query. The pause is short after an error.
func (p *poller) query(ctx context.Context, from *prometheus) (pause time.Duration) {
	short, cancel := context.WithTimeout(ctx, p.rule.timeout)
	defer cancel()
	all, err := from.alerts(short)
	if ctx.Err() == nil {
		p.store(all, err)
	}
	if err != nil {
		return min(p.rule.interval, retryInterval)
	}
	return p.rule.interval
}

// store keeps an answer.
func (p *poller) store(all []alert, err error) {
	active := map[string]int{}
	for _, a := range all {
		if (a.firing || !p.rule.gate.FiringOnly) && p.rule.matters(a.name) {
			active[a.name]++
		}
	}
	now := p.gates.clock.Now()
	p.mu.Lock()
	overdue := now.Sub(p.answered) > p.rule.patience() // Then the gate may have closed.
	changed := !p.asked || err != nil || p.err != nil || overdue || !equality.Semantic.DeepEqual(active, p.active)
	p.asked, p.err = true, err
	if err == nil {
		p.answered, p.active = now, active
	}
	p.mu.Unlock()
	if changed {
		p.gates.notice()
	}
}

// closedByAlerts returns the closed alerts gate. A gate that opens when Prometheus is unreachable is still closed before
// the first query.
func (g *gates) closedByAlerts(budget string, rule *alertsRule) rollout.Block {
	block, asked := g.judgeAlerts(budget, rule)
	if asked && block.Gate == v1alpha1.ReasonAlertsUnreachable && rule.gate.WhenUnreachable == v1alpha1.UnreachableOpen {
		return rollout.Block{}
	}
	return block
}

// Unreachable returns why Prometheus does not answer, for a budget whose alerts gate is open then; or "".
func (f *Fleet) Unreachable(from *v1alpha1.NodeDisruptionBudget) string {
	rule := f.gates.read(from).alerts
	if rule == nil || rule.gate.WhenUnreachable != v1alpha1.UnreachableOpen {
		return ""
	}
	if block, asked := f.gates.judgeAlerts(from.Name, rule); asked && block.Gate == v1alpha1.ReasonAlertsUnreachable {
		return block.Message
	}
	return ""
}

// judgeAlerts returns why the gate is closed by the answers of a budget's poller, and whether there was a query. A valid
// answer counts for some time if later queries fail.
func (g *gates) judgeAlerts(budget string, rule *alertsRule) (block rollout.Block, asked bool) {
	g.mu.Lock()
	p := g.pollers[budget]
	g.mu.Unlock()
	if p == nil || !p.serves(rule) {
		p = &poller{rule: rule}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := g.clock.Now(); {
	case !p.asked:
		return rollout.Block{Gate: v1alpha1.ReasonAlertsUnreachable, Message: "Prometheus has not been queried yet"}, false
	case p.answered.IsZero() || now.Sub(p.answered) > rule.patience():
		err := p.err
		if err == nil {
			err = fmt.Errorf("the last answer was at %s", p.answered.UTC().Format(time.RFC3339))
		}
		return rollout.Block{Gate: v1alpha1.ReasonAlertsUnreachable, Message: "Prometheus does not answer: " + short(err.Error())}, true
	case len(p.active) == 0:
		return rollout.Block{}, true
	}
	var names []string
	total := 0
	for name, n := range p.active {
		total += n
		if name == "" {
			name = "(no name)"
		}
		if n > 1 {
			name += fmt.Sprintf(" (%d)", n)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d alerts are active: ", total)
	if total == 1 {
		text = "1 alert is active: "
	}
	return rollout.Block{Gate: v1alpha1.ReasonAlertsActive, Message: text + firstOf(names, ", ")}, true
}
