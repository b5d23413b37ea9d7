// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
)

// alerts holds the alerts of Prometheus, by budget. One poller for each budget queries them in the background.
type alerts struct {
	gates *gates

	mu      sync.Mutex
	pollers map[string]*poller
}

// poller queries Prometheus for one budget.
type poller struct {
	gates *gates
	rule  *alertsRule
	taken bool
	ended chan struct{}

	mu sync.Mutex
	// asked is true after the first query.
	asked bool
	// answered is the time of the last valid answer, and active its number of alerts by name.
	answered time.Time
	active   map[string]int
	// err is the error of the last query, if it failed.
	err error
}

func newAlerts(g *gates) *alerts { return &alerts{gates: g, pollers: map[string]*poller{}} }

// Poll starts the poller of a budget's alerts gate, or stops it if the budget has none. Only the leader calls it.
func (f *Fleet) Poll(from *v1alpha1.NodeDisruptionBudget) {
	if r := f.gates.read(from); r.alerts != nil {
		f.gates.alerts.poll(from.Name, r.alerts)
	} else {
		f.gates.alerts.stop(from.Name)
	}
}

func (a *alerts) poll(budget string, rule *alertsRule) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.pollers[budget]
	if last != nil && last.serves(rule) {
		return
	}
	if last != nil {
		close(last.ended)
	}
	a.pollers[budget] = &poller{gates: a.gates, rule: rule, ended: make(chan struct{})}
	a.gates.start()
}

// serves reports whether the poller's query is that of the gate.
func (p *poller) serves(rule *alertsRule) bool {
	return p.rule == rule || equality.Semantic.DeepEqual(p.rule.gate, rule.gate)
}

func (a *alerts) stop(budget string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pollers[budget]; p != nil {
		close(p.ended)
		delete(a.pollers, budget)
	}
}

// takeNew returns the pollers to start now.
func (a *alerts) takeNew() []*poller {
	a.mu.Lock()
	defer a.mu.Unlock()
	var next []*poller
	for _, p := range a.pollers {
		if !p.taken {
			p.taken = true
			next = append(next, p)
		}
	}
	return next
}

// run queries repeatedly, until ctx ends or the poller is stopped.
func (p *poller) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	from, err := newPrometheus(p.rule.gate.URL)
	if err != nil {
		p.store(nil, err)
		return
	}
	defer from.close()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-clock.RealClock{}.After(p.query(ctx, from)):
		}
	}
}

// query queries once, and returns the pause until the next query. It is short after an error.
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
	p.mu.Lock()
	news := !p.asked || err != nil || p.err != nil || !equality.Semantic.DeepEqual(active, p.active)
	p.asked, p.err = true, err
	if err == nil {
		p.answered, p.active = p.gates.clock.Now(), active
	}
	p.mu.Unlock()
	if news {
		p.gates.notice()
	}
}

// look adds to an answer whether the gate is closed.
func (a *alerts) look(budget string, rule *alertsRule, to *answer) {
	if p := a.of(budget, rule); p == nil {
		to.close(v1alpha1.ReasonAlertsUnreachable, "Prometheus has not been queried yet")
	} else if gate, why := p.closed(a.gates.clock.Now()); gate != "" && (gate != v1alpha1.ReasonAlertsUnreachable || rule.gate.WhenUnreachable != v1alpha1.UnreachableOpen) {
		to.close(gate, why)
	}
}

// of returns the poller of a budget, if it has queried.
func (a *alerts) of(budget string, rule *alertsRule) *poller {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pollers[budget]
	if p == nil || !p.serves(rule) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		return nil
	}
	return p
}

// Unreachable returns why Prometheus does not answer, for a budget whose alerts gate is open then; or "".
func (f *Fleet) Unreachable(from *v1alpha1.NodeDisruptionBudget) string {
	r := f.gates.read(from)
	if r.alerts == nil || r.alerts.gate.WhenUnreachable != v1alpha1.UnreachableOpen {
		return ""
	}
	p := f.gates.alerts.of(from.Name, r.alerts)
	if p == nil {
		return ""
	}
	if gate, why := p.closed(f.gates.clock.Now()); gate == v1alpha1.ReasonAlertsUnreachable {
		return why
	}
	return ""
}

// closed returns why the gate is closed. A valid answer counts for some time if later queries fail.
func (p *poller) closed(now time.Time) (gate v1alpha1.Reason, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answered.IsZero() || now.Sub(p.answered) > p.rule.patience() {
		err := p.err
		if err == nil {
			err = fmt.Errorf("the last answer was at %s", p.answered.UTC().Format(time.RFC3339))
		}
		return v1alpha1.ReasonAlertsUnreachable, "Prometheus does not answer: " + short(err.Error())
	}
	if len(p.active) == 0 {
		return "", ""
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
	if total == 1 {
		return v1alpha1.ReasonAlertsActive, "1 alert is active: " + names[0]
	}
	return v1alpha1.ReasonAlertsActive, fmt.Sprintf("%d alerts are active: %s", total, firstOf(names, ", "))
}
