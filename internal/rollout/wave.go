// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
)

// waves is how the units are divided, and how far they have come.
type waves struct {
	status *v1alpha1.WaveStatus
	// current is the index of the wave whose units may start, with those of earlier ones.
	current int
	reason  v1alpha1.Reason
	message string
	// waiting is what is said to the units of each later wave, once one has asked.
	waiting []string
	// units are those of all waves, without those that opted out. The last tally is of those that no wave takes.
	units []*candidate
	tally []tally
}

// tally counts the units of one wave.
type tally struct {
	nodes, updated, pending, skipped int
	// unproven counts those of the updated ones that do not run the revision.
	unproven int
	failed   []string
}

// proven counts the updated units that run the revision.
func (t *tally) proven() int { return t.updated - t.unproven }

// standing is how a wave stands that is not over.
type standing struct {
	state   v1alpha1.WaveState
	since   time.Time
	reason  v1alpha1.Reason
	message string
}

// ending is one condition under which a wave ends and the next begins: it says how the wave stands for lack of it, or nil.
// What was written down about the wave before is nil at its beginning.
type ending struct {
	name string
	ask  func(p *pass, index int, before *v1alpha1.WaveStatus) *standing
}

// inWave lets the units of the current wave start, and those of earlier ones that have come to be outdated since. What has
// failed may be tried again, whatever its wave: it is how the rollout lets go of the node. But what still runs for an earlier
// revision ends as it began, and starts over in its wave.
func inWave(p *pass, c *candidate) (v1alpha1.Reason, string) {
	w := &p.wave
	begun := c.wave <= w.current || c.State == v1alpha1.UnitFailed || c.Claimed && !c.Running
	if len(p.strategy.Waves) == 0 || begun {
		return "", ""
	}
	if w.waiting[c.wave] == "" {
		w.waiting[c.wave] = "wave " + p.waveName(c.wave) + " has not begun: " + w.message
	}
	return w.reason, w.waiting[c.wave]
}

// ApprovalOf is what approves a wave of a rollout to this revision, and to no other.
func ApprovalOf(wave, revision string) string { return wave + "@" + brief(revision) }

const (
	// digest is how many characters of a hash tell it from others, and hash how many a hash has at least.
	digest, hash = 10, 32
	// longest is how long a revision may be that is not abridged, and begins how much of a longer one is left.
	longest, begins = 63, 40
)

// brief identifies a revision in few characters. The beginning of a hash does; names and versions, such as those of images, often differ at
// their ends alone.
func brief(revision string) string {
	switch {
	case len(revision) >= hash && strings.Trim(revision, "0123456789abcdef") == "":
		return revision[:digest]
	case len(revision) <= longest:
		return revision
	}
	sum := sha256.Sum256([]byte(revision))
	return revision[:begins] + "-" + hex.EncodeToString(sum[:])[:digest]
}

// divide gives every unit its wave, and sees which of them is the current one. A wave takes units that are updated first,
// then those under way, then those that have failed, and then those that come next by the strategy's order: the first nodes
// that a rollout changes are its first wave, whichever they are, without anybody having to remember them. Those to which nothing is
// offered come last, and machines that have no Node are in no wave that the strategy names. But until the first wave has gone well it keeps what it has tried: no node
// that is updated by other means takes the place of a canary.
func (p *pass) divide(units []Unit, order []*candidate) {
	if len(p.strategy.Waves) == 0 {
		return
	}
	p.wave.units = p.lineUp(units, order)
	nodes := slices.DeleteFunc(slices.Clone(p.wave.units), func(c *candidate) bool { return c.Nodeless })
	nodeless := slices.DeleteFunc(slices.Clone(p.wave.units), func(c *candidate) bool { return !c.Nodeless })
	all := len(p.strategy.Waves) + 1
	p.wave.tally, p.wave.waiting = make([]tally, all), make([]string, all)
	left := nodes
	if index, before := p.remembered(); index == 0 && before != nil && (before.State == v1alpha1.WaveProgressing || before.State == v1alpha1.WaveHalted) {
		left = p.take(&p.strategy.Waves[0], 0, left, func(c *candidate) bool { return c.lost() })
		left = p.take(&p.strategy.Waves[0], 0, left, func(c *candidate) bool { return c.Claimed && !c.Running })
	}
	for i := range p.strategy.Waves {
		left = p.take(&p.strategy.Waves[i], i, left, nil)
	}
	p.take(&Wave{}, all-1, append(left, nodeless...), nil)
	p.advance()
}

// lineUp is the order in which waves take units.
func (p *pass) lineUp(units []Unit, order []*candidate) []*candidate {
	others := make([]candidate, 0, len(units)-len(order))
	line := make([]*candidate, 0, len(units))
	var unoffered []*candidate
	for _, state := range []v1alpha1.UnitState{v1alpha1.UnitUpdated, v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitFailed} {
		for i := range units {
			if u := &units[i]; u.State == state && !u.OptedOut && !u.asks(p.now) {
				others = append(others, candidate{Unit: u, node: p.node(u.Node)})
				c := &others[len(others)-1]
				if u.State == v1alpha1.UnitUpdated && u.Unoffered {
					unoffered = append(unoffered, c)
				} else {
					line = append(line, c)
				}
			}
		}
	}
	for _, c := range order {
		if !c.OptedOut && !c.Unoffered {
			line = append(line, c)
		}
	}
	for _, c := range order {
		if !c.OptedOut && c.Unoffered {
			line = append(line, c)
		}
	}
	return append(line, unoffered...)
}

// take gives a wave its units, of those that it may have if that is given, and returns those that are left for the next.
func (p *pass) take(w *Wave, index int, from []*candidate, may func(*candidate) bool) []*candidate {
	t := &p.wave.tally[index]
	if w.Selector == nil && w.Nodes == nil && may == nil {
		n := len(from)
		if w.Size > 0 {
			n = min(n, w.Size-t.nodes)
		}
		for _, c := range from[:n] {
			t.add(c, index)
		}
		return from[n:]
	}
	left := make([]*candidate, 0, len(from))
	for i, c := range from {
		if w.Size > 0 && t.nodes == w.Size {
			return append(left, from[i:]...)
		}
		if (may == nil || may(c)) && w.selects(c) {
			t.add(c, index)
		} else {
			left = append(left, c)
		}
	}
	return left
}

// selects reports whether the wave is for the candidate's node.
func (w *Wave) selects(c *candidate) bool {
	return (w.Nodes == nil || w.Nodes[c.Unit.Node]) && (w.Selector == nil || w.Selector.Matches(labels.Set(c.node.Labels)))
}

func (t *tally) add(c *candidate, index int) {
	c.wave = index
	t.nodes++
	switch {
	case c.State == v1alpha1.UnitUpdated:
		if t.updated++; c.Unoffered {
			t.unproven++
		}
	case c.lost():
		t.failed = append(t.failed, c.Unit.Node)
	case c.State == v1alpha1.UnitFailed && c.Skipped:
		t.skipped++
	default:
		t.pending++
	}
}

// advance goes from the wave where the rollout was to the one where it is now.
func (p *pass) advance() {
	w := &p.wave
	index, before := p.remembered()
	for ; ; index, before = index+1, nil {
		if s := p.stands(index, before); s != nil {
			w.current, w.reason, w.message = index, s.reason, s.message
			w.status = p.describe(index, s)
			return
		}
	}
}

// stands is how a wave stands, or nil when it is over. The last one stands for ever, and so does the last with units where that
// had to soak.
func (p *pass) stands(index int, before *v1alpha1.WaveStatus) *standing {
	for i := range p.endings {
		if s := p.endings[i].ask(p, index, before); s != nil {
			return s
		}
	}
	if index+1 == len(p.wave.tally) || p.strategy.SoakLast && !p.follows(index) {
		return p.enter(v1alpha1.WaveComplete, before)
	}
	return nil
}

// remembered is the index of the wave that the rollout had come to, and what was written down about it. Waves that have been
// changed since are found by name. One that is not there any more makes the rollout go through all of them again: those
// whose nodes are updated do not last longer than their soak.
func (p *pass) remembered() (int, *v1alpha1.WaveStatus) {
	before := p.strategy.Wave
	if before == nil || before.Revision != p.strategy.Revision {
		return 0, nil
	}
	if i := int(before.Number) - 1; i >= 0 && i < len(p.wave.tally) && p.nameOf(i) == before.Name {
		return i, before
	}
	for i := range p.wave.tally {
		if p.nameOf(i) == before.Name {
			return i, before
		}
	}
	return 0, nil
}

// enter makes a standing that lasts since the wave first had this state.
func (p *pass) enter(state v1alpha1.WaveState, before *v1alpha1.WaveStatus) *standing {
	s := &standing{state: state, since: p.now}
	if before != nil && before.State == state {
		s.since = before.Since.Time
	}
	return s
}

// waveThere: the first wave is the canary, and nothing begins without one.
func waveThere(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	if index > 0 || p.wave.tally[0].nodes > 0 || len(p.wave.units) == 0 && !p.strategy.SoakLast {
		return nil
	}
	s := p.enter(v1alpha1.WaveProgressing, before)
	s.reason = v1alpha1.ReasonWavePending
	s.message = fmt.Sprintf("wave %s has no node; it is the canary, and without one nothing begins", p.waveName(index))
	return s
}

// waveUpdated: nothing of the wave, and of earlier ones, is still to be updated. Where a wave has failed that may not, that
// is what is said.
func waveUpdated(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	for i := range index + 1 {
		t := &p.wave.tally[i]
		if t.pending == 0 || len(t.failed) > 0 && !p.bears(i) {
			continue
		}
		s := p.enter(v1alpha1.WaveProgressing, before)
		s.reason = v1alpha1.ReasonWavePending
		s.message = fmt.Sprintf("%d of %d nodes of wave %s are updated", t.updated, t.nodes, p.waveName(i))
		return s
	}
	return nil
}

// waveOffered: something of the wave runs the revision, unless nothing is to be done in later ones. Where it has failed, that is what is
// said. Earlier waves are not asked: what ran it there may have gone since.
func waveOffered(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	if t := &p.wave.tally[index]; t.unproven > 0 && t.proven() == 0 && len(t.failed) == 0 && p.more(index) {
		s := p.enter(v1alpha1.WaveProgressing, before)
		s.reason = v1alpha1.ReasonWavePending
		s.message = fmt.Sprintf("no node of wave %s runs %s yet: it is not offered to them", p.waveName(index), p.strategy.Revision)
		return s
	}
	return nil
}

// waveBorne: nothing of the wave, and of earlier ones, has failed, or the strategy bears it; and of the canary not all has
// been skipped.
func waveBorne(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	if t := &p.wave.tally[0]; index == 0 && t.skipped > 0 && t.proven() == 0 && len(t.failed) == 0 && (p.more(index) || p.strategy.SoakLast) {
		s := p.enter(v1alpha1.WaveHalted, before)
		s.reason = v1alpha1.ReasonHalted
		s.message = fmt.Sprintf("every node of wave %s was skipped; it is the canary, and nothing has been tried", p.waveName(index))
		return s
	}
	for i := range index + 1 {
		t := &p.wave.tally[i]
		if len(t.failed) == 0 || p.bears(i) && t.proven() > 0 {
			continue
		}
		s := p.enter(v1alpha1.WaveHalted, before)
		s.reason = v1alpha1.ReasonHalted
		s.message = fmt.Sprintf("in wave %s the change has failed on %s", p.waveName(i), list(t.failed, len(t.failed)))
		return s
	}
	return nil
}

// waveComplete: where nothing is to be done in later waves, the rollout is complete, and need not soak; unless it has to all
// the same, and has not yet. What no wave takes has nothing to soak for.
func waveComplete(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	if p.more(index) || p.strategy.SoakLast && index < len(p.strategy.Waves) && !p.proven(before) {
		return nil
	}
	return p.enter(v1alpha1.WaveComplete, before)
}

// proven reports whether the wave had soaked, and was approved, when it was last decided about: else it would not have been
// complete.
func (p *pass) proven(before *v1alpha1.WaveStatus) bool {
	return p.strategy.SoakLast && before != nil && before.State == v1alpha1.WaveComplete
}

// follows reports whether later waves have any units.
func (p *pass) follows(index int) bool {
	return slices.ContainsFunc(p.wave.tally[index+1:], func(t tally) bool { return t.nodes > 0 })
}

// more reports whether anything is to be done in later waves.
func (p *pass) more(index int) bool {
	return slices.ContainsFunc(p.wave.tally[index+1:], func(t tally) bool { return t.pending > 0 || len(t.failed) > 0 })
}

// waveHealthy: all updated nodes of the wave are healthy.
func waveHealthy(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	n := 0
	var who []string
	for _, c := range p.updated(index) {
		why, end := p.fleet.health(c.Unit.Node, &p.strategy.Health, p.now)
		if why == "" {
			continue
		}
		p.wake(end)
		if n++; n <= named {
			who = append(who, c.Unit.Node+" ("+why+")")
		}
	}
	if n == 0 {
		return nil
	}
	s := p.enter(v1alpha1.WaveUnhealthy, before)
	s.reason = v1alpha1.ReasonWaveUnhealthy
	s.message = fmt.Sprintf("in wave %s not all nodes are healthy: %s", p.waveName(index), list(who, n))
	return s
}

// waveSoaked: for so long now, all updated nodes of the wave have been that and healthy.
func waveSoaked(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	soak := p.waveAt(index).Soak
	if soak <= 0 || p.wave.tally[index].nodes == 0 {
		return nil
	}
	since := p.now
	switch {
	case before == nil:
	case before.State == v1alpha1.WaveSoaking:
		since = before.Since.Time
	case before.State == v1alpha1.WaveWaitingForApproval, p.proven(before):
		since = before.Since.Add(-soak) // It had soaked by then.
	}
	for _, c := range p.updated(index) {
		if healthy := p.fleet.healthySince(c.Unit.Node, &p.strategy.Health); healthy.After(since) {
			since = healthy
		}
	}
	// What is remembered has no fractions of a second.
	if whole := since.Truncate(time.Second); whole.Before(since) {
		since = whole.Add(time.Second)
	}
	end := since.Add(soak)
	if !p.now.Before(end) {
		return nil
	}
	p.wake(end)
	return &standing{
		state: v1alpha1.WaveSoaking, since: since, reason: v1alpha1.ReasonWaveSoaking,
		message: fmt.Sprintf("wave %s soaks until %s", p.waveName(index), end.UTC().Format(time.RFC3339)),
	}
}

// waveApproved: somebody has approved the wave, where that is asked for.
func waveApproved(p *pass, index int, before *v1alpha1.WaveStatus) *standing {
	w := p.waveAt(index)
	if !w.Manual || p.wave.tally[index].nodes == 0 || p.proven(before) || p.strategy.Approved == ApprovalOf(w.Name, p.strategy.Revision) {
		return nil
	}
	s := p.enter(v1alpha1.WaveWaitingForApproval, before)
	s.reason = v1alpha1.ReasonWaitingForApproval
	s.message = fmt.Sprintf("wave %s waits for somebody's approval", p.waveName(index))
	return s
}

// updated are the updated units of a wave.
func (p *pass) updated(index int) []*candidate {
	all := make([]*candidate, 0, p.wave.tally[index].updated)
	for _, c := range p.wave.units {
		if c.wave == index && c.State == v1alpha1.UnitUpdated {
			all = append(all, c)
		}
	}
	return all
}

// bears reports whether the strategy lets a wave pass with failures: never the canary.
func (p *pass) bears(index int) bool { return index > 0 && p.strategy.MaxFailures != nil }

func (p *pass) waveAt(index int) *Wave {
	if index < len(p.strategy.Waves) {
		return &p.strategy.Waves[index]
	}
	return &Wave{Name: remainder}
}

// remainder is the name of the wave of those that no other takes.
const remainder = "remainder"

func (p *pass) nameOf(index int) string { return p.waveAt(index).Name }

func (p *pass) waveName(index int) string {
	return strconv.Itoa(index+1) + " (" + p.nameOf(index) + ")"
}

func (p *pass) describe(index int, stands *standing) *v1alpha1.WaveStatus {
	t := &p.wave.tally[index]
	s := &v1alpha1.WaveStatus{
		Name: p.nameOf(index), Number: int32(index + 1), Of: int32(len(p.wave.tally)), Revision: p.strategy.Revision,
		State: stands.state, Since: metav1.Time{Time: stands.since.UTC().Truncate(time.Second)}, Message: stands.message,
		Nodes: int32(t.nodes), Updated: int32(t.updated),
	}
	if last := len(p.strategy.Waves); p.wave.tally[last].nodes == 0 && index < last {
		s.Of--
	}
	if w := p.waveAt(index); w.Manual && stands.state != v1alpha1.WaveComplete {
		s.ApproveWith = ApprovalOf(w.Name, p.strategy.Revision)
	}
	return s
}
