// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Explanation says of one unit what every check says of it, and where it stands among those that ask to be started.
type Explanation struct {
	// Place of the unit, from 1; 0 for one that does not ask to be started.
	Place int
	// Asking is how many units ask to be started, with this one.
	Asking int
	// Ahead holds the nodes of the units that come before it, in order.
	Ahead []string
	// Wave is the name of the unit's wave; empty for a rollout without waves.
	Wave string
	// Verdicts are those of all checks, in their order; none for a unit that does not ask.
	Verdicts []Verdict
}

// Verdict is what one check says of a unit.
type Verdict struct {
	// Check is the name of the check.
	Check string
	// Reason why the check does not let the unit start; empty when it does.
	Reason v1alpha1.Reason
	// Message says the same to people.
	Message string
}

// Step is a unit that asks to be started, and what Decide says of it.
type Step struct {
	Node string
	// Wave is the name of its wave; empty for a rollout without waves.
	Wave string
	// Reason and Message say why it waits; without a reason it starts.
	Reason  v1alpha1.Reason
	Message string
}

// Sequence holds every unit that asks to be started, in the order in which they are asked, with Decide's answer.
func Sequence(s Strategy, units []Unit, fleet Fleet, now time.Time) []Step {
	p, order := begin(&standard, &s, units, &fleet, now)
	steps := make([]Step, 0, len(order))
	for _, c := range order {
		step := Step{Node: c.Node, Wave: p.waveOf(c)}
		step.Reason, step.Message = p.admit(c)
		steps = append(steps, step)
	}
	return steps
}

// Explain decides like Decide as far as the node's place in the order, and then asks every check about it, whatever the
// ones before have said.
func Explain(s Strategy, units []Unit, fleet Fleet, now time.Time, node string) Explanation {
	p, order := begin(&standard, &s, units, &fleet, now)
	e := Explanation{Asking: len(order)}
	for i, c := range order {
		if c.Node != node {
			p.admit(c)
			e.Ahead = append(e.Ahead, c.Node)
			continue
		}
		e.Place, e.Wave = i+1, p.waveOf(c)
		for _, check := range p.checks {
			reason, message := check.ask(p, c)
			e.Verdicts = append(e.Verdicts, Verdict{Check: check.name, Reason: reason, Message: message})
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
	return p.nameOf(c.wave)
}
