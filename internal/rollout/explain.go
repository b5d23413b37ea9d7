// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Explanation is the result of every check for one unit, and the unit's place among the candidates.
type Explanation struct {
	// Place of the unit, from 1; 0 for one that does not wait for its start.
	Place int
	// Asking is how many units wait for their start, including this one.
	Asking int
	// Ahead holds the nodes of the units before it, in order.
	Ahead []string
	// Wave is the name of the unit's wave; empty for a rollout without waves.
	Wave string
	// Verdicts are the results of all checks, in order; empty for a unit that does not wait for its start.
	Verdicts []Verdict
}

// Verdict is the result of one check for a unit.
type Verdict struct {
	// Name of the check.
	Name string `json:"name"`
	// Reason why the check does not let the unit start; empty when it does.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Message says the same to people.
	Message string `json:"message,omitempty"`
}

// Step is a unit that waits for its start, with Decide's answer.
type Step struct {
	Node string `json:"node"`
	// Wave is the name of its wave; empty for a rollout without waves.
	Wave string `json:"wave,omitempty"`
	// Reason and Message say why it waits; without a reason it starts.
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Sequence returns every unit that waits for its start, in order, with Decide's answer.
func Sequence(s Strategy, units []Unit, fleet Fleet, now time.Time) []Step {
	p, order := newPass(&standard, &s, units, &fleet, now)
	steps := make([]Step, 0, len(order))
	for _, c := range order {
		step := Step{Node: c.Node, Wave: p.waveOf(c)}
		step.Reason, step.Message = p.admit(c)
		steps = append(steps, step)
	}
	return steps
}

// Explain decides like Decide up to the node's place in the order. Then it runs every check for the node, also after a
// refusal.
func Explain(s Strategy, units []Unit, fleet Fleet, now time.Time, node string) Explanation {
	p, order := newPass(&standard, &s, units, &fleet, now)
	e := Explanation{Asking: len(order)}
	for i, c := range order {
		if c.Node != node {
			p.admit(c)
			e.Ahead = append(e.Ahead, c.Node)
			continue
		}
		e.Place, e.Wave = i+1, p.waveOf(c)
		for _, check := range p.checks {
			reason, message := check.apply(p, c)
			e.Verdicts = append(e.Verdicts, Verdict{check.name, reason, message})
		}
		return e
	}
	e.Ahead = nil
	return e
}

func (p *pass) waveOf(c *candidate) string {
	if len(p.strategy.Waves) == 0 || c.OptedOut {
		return ""
	}
	return p.wave.all[c.wave].Name
}
