// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
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

// waves is how the units are divided into waves, and their progress.
type waves struct {
	// all are those of the strategy, and the remainder.
	all    []Wave
	status *v1alpha1.WaveStatus
	// current is the index of the wave whose units may start, with those of earlier ones.
	current int
	reason  v1alpha1.Reason
	// soaksSince is the time from which the current wave soaks. waveSoaked sets it.
	soaksSince time.Time
	// waiting caches the message for the units of each later wave.
	waiting []string
	// units are those of all waves, without those that opted out. There is a tally for each wave.
	units []*candidate
	tally []tally
}

// tally counts the units of one wave.
type tally struct {
	nodes, updated, pending, skipped int
	// unproven counts the updated units that do not run the revision.
	unproven int
	failed   []string
}

// proven counts the updated units that run the revision.
func (t *tally) proven() int { return t.updated - t.unproven }

// ending is one condition for the end of a wave. While the condition is not met, it returns the wave's state and a message. Otherwise the
// state is "". before is the wave's stored status; nil at its beginning.
type ending func(p *pass, index int, before *v1alpha1.WaveStatus) (v1alpha1.WaveState, string)

// waveReasons are why units of later waves wait, by the state of the current wave.
var waveReasons = map[v1alpha1.WaveState]v1alpha1.Reason{
	v1alpha1.WaveProgressing:        v1alpha1.ReasonWavePending,
	v1alpha1.WaveHalted:             v1alpha1.ReasonHalted,
	v1alpha1.WaveUnhealthy:          v1alpha1.ReasonWaveUnhealthy,
	v1alpha1.WaveSoaking:            v1alpha1.ReasonWaveSoaking,
	v1alpha1.WaveWaitingForApproval: v1alpha1.ReasonWaitingForApproval,
}

// inWave lets the units of the current and earlier waves start. Failed units may be retried in any wave, so that their
// nodes are released. A running turn for an earlier revision ends first, and restarts in its wave.
func inWave(p *pass, c *candidate) (v1alpha1.Reason, string) {
	w := &p.wave
	begun := c.wave <= w.current || c.State == v1alpha1.UnitFailed || c.begun() && !c.Running
	if len(p.strategy.Waves) == 0 || begun {
		return "", ""
	}
	if w.waiting[c.wave] == "" {
		w.waiting[c.wave] = "wave " + p.waveName(c.wave) + " has not begun: " + w.status.Message
	}
	return w.reason, w.waiting[c.wave]
}

// ApprovalOf returns the value that approves a wave for this revision and template only. The template may be empty.
func ApprovalOf(wave, revision, template string) string {
	short := shortRevision(revision)
	if template != "" {
		short = shortRevision(short + "/" + template[:min(len(template), shortHash)])
	}
	return wave + "@" + short
}

func (p *pass) approvalOf(w *Wave) string {
	return ApprovalOf(w.Name, p.strategy.Revision, p.strategy.Template)
}

// Approvals returns the approvals of a rollout: the one in its status, and the value of its annotation.
func Approvals(annotations map[string]string, status *v1alpha1.WaveApproval) []string {
	all := []string{annotations[v1alpha1.AnnotationApprove]}
	if status != nil {
		all = append(all, status.Of)
	}
	return all
}

const (
	// shortHash is how many characters identify a hash, and minHash is the minimum length of a hash.
	shortHash, minHash = 10, 32
	// maxRevision is the maximum length of a revision that is not shortened, and keptPrefix is how much of a longer one is kept.
	maxRevision, keptPrefix = 63, 40
)

// shortRevision identifies a revision in few characters. The beginning of a hash suffices. Names and versions, such as those of
// images, often differ only at the end.
func shortRevision(revision string) string {
	switch {
	case len(revision) >= minHash && strings.Trim(revision, "0123456789abcdef") == "":
		return revision[:shortHash]
	case len(revision) <= maxRevision:
		return revision
	}
	sum := sha256.Sum256([]byte(revision))
	return revision[:keptPrefix] + "-" + hex.EncodeToString(sum[:])[:shortHash]
}

// divideIntoWaves assigns every unit to its wave, and finds the current wave. A wave takes updated units first, by the age of their nodes, then
// failed ones, then those in a turn, then the others in the strategy's order. So the first nodes that a rollout changes are its first
// wave, and no list of them is stored: a node that joins updated replaces none, and the turns of the next wave do not take the places of failed ones
// while the stored wave is still the one before. Units without an offered update come last. Until the first wave is
// complete it keeps the units that have failed or are in a turn. So a node that was updated by other means does not replace them.
func (p *pass) divideIntoWaves(units []Unit, order []*candidate) {
	if len(p.strategy.Waves) == 0 {
		return
	}
	p.wave.units = p.inWaveOrder(units, order)
	p.wave.all = append(slices.Clip(p.strategy.Waves), Wave{Name: remainder})
	p.wave.tally, p.wave.waiting = make([]tally, len(p.wave.all)), make([]string, len(p.wave.all))
	left := slices.Clone(p.wave.units)
	if index, before := p.storedWave(); index == 0 && before != nil && (before.State == v1alpha1.WaveProgressing || before.State == v1alpha1.WaveHalted) {
		left = p.fillWave(0, left, func(c *candidate) bool { return c.failedForGood() })
		left = p.fillWave(0, left, func(c *candidate) bool { return c.begun() && !c.Running })
	}
	for i := range p.wave.all {
		left = p.fillWave(i, left, nil)
	}
	p.findCurrentWave()
}

// inWaveOrder returns the units in the order in which waves take them.
func (p *pass) inWaveOrder(units []Unit, order []*candidate) []*candidate {
	others := make([]candidate, 0, len(units)-len(order))
	line := make([]*candidate, 0, len(units))
	var unoffered []*candidate
	for _, state := range []v1alpha1.UnitState{v1alpha1.UnitUpdated, v1alpha1.UnitFailed, v1alpha1.UnitUpdating, v1alpha1.UnitSoaking} {
		for i := range units {
			if u := &units[i]; u.State == state && !u.OptedOut && !u.wantsStart(p.now) {
				others = append(others, candidate{Unit: u, node: p.node(u.Node)})
				c := &others[len(others)-1]
				if u.State == v1alpha1.UnitUpdated && u.Unoffered {
					unoffered = append(unoffered, c)
				} else {
					line = append(line, c)
				}
			}
		}
		if state == v1alpha1.UnitUpdated {
			slices.SortStableFunc(line, func(a, b *candidate) int { return a.node.Created.Compare(b.node.Created) })
		}
	}
	for _, isLate := range []bool{false, true} {
		for _, c := range order {
			if !c.OptedOut && c.Unoffered == isLate {
				line = append(line, c)
			}
		}
	}
	return append(line, unoffered...)
}

// fillWave adds units to a wave, only those that may accepts if it is not nil, and returns the remaining units.
func (p *pass) fillWave(index int, from []*candidate, may func(*candidate) bool) []*candidate {
	w, t := &p.wave.all[index], &p.wave.tally[index]
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

// selects reports whether the wave selects the candidate's node.
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
	case c.failedForGood():
		t.failed = append(t.failed, c.Unit.Node)
	case c.State == v1alpha1.UnitFailed && c.Skipped:
		t.skipped++
	default:
		t.pending++
	}
}

// findCurrentWave goes from the stored wave to the current one.
func (p *pass) findCurrentWave() {
	index, before := p.storedWave()
	for ; ; index, before = index+1, nil {
		if state, message := p.waveState(index, before); state != "" {
			p.wave.current, p.wave.reason = index, cmp.Or(waveReasons[state], v1alpha1.ReasonWavePending)
			p.wave.status = p.waveStatus(index, before, state, message)
			return
		}
	}
}

// waveState returns the state of a wave, or "" if the next one begins. The last wave never ends; with SoakLast neither
// does the last wave with units.
func (p *pass) waveState(index int, before *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	for i := range p.endings {
		if state, message := p.endings[i].apply(p, index, before); state != "" {
			return state, message
		}
	}
	later := p.wave.tally[index+1:]
	if len(later) == 0 || p.strategy.SoakLast && !slices.ContainsFunc(later, func(t tally) bool { return t.nodes > 0 }) {
		return v1alpha1.WaveComplete, ""
	}
	return "", ""
}

// storedWave returns the index and the status of the wave in the rollout's status. A wave that has moved since is found by
// name. If it no longer exists, the rollout starts at the first wave; waves whose nodes are all updated then only soak. With
// another template the rollout returns to the first wave that was approved, because its approval was for the earlier template.
func (p *pass) storedWave() (int, *v1alpha1.WaveStatus) {
	before := p.strategy.Wave
	if before == nil || before.Revision != p.strategy.Revision {
		return 0, nil
	}
	at := int(before.Number) - 1
	if at < 0 || at >= len(p.wave.all) || p.wave.all[at].Name != before.Name {
		at = slices.IndexFunc(p.wave.all, func(w Wave) bool { return w.Name == before.Name })
	}
	if at < 0 {
		return 0, nil
	}
	if manual := p.firstManual(); manual >= 0 && manual < at && before.Template != "" && before.Template != p.strategy.Template {
		return manual, nil
	}
	return at, before
}

// firstManual returns the index of the first wave that needs approval, or -1.
func (p *pass) firstManual() int {
	return slices.IndexFunc(p.strategy.Waves, func(w Wave) bool { return w.Manual })
}

// waveHasNode: the first wave is the canary. The rollout waits until it has a node.
func waveHasNode(p *pass, index int, _ *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	if index > 0 || p.wave.tally[0].nodes > 0 || len(p.wave.units) == 0 && !p.strategy.SoakLast {
		return "", ""
	}
	return v1alpha1.WaveProgressing, fmt.Sprintf("wave %s has no node; the rollout starts when this canary has one", p.waveName(index))
}

// waveUpdated: no unit of the wave or of earlier ones is outdated. A wave that must not fail and has failures is left to
// waveAllowed.
func waveUpdated(p *pass, index int, _ *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	for i := range index + 1 {
		t := &p.wave.tally[i]
		if t.pending == 0 || len(t.failed) > 0 && !p.mayFail(i) {
			continue
		}
		return v1alpha1.WaveProgressing, fmt.Sprintf("%d of %d nodes of wave %s are updated", t.updated, t.nodes, p.waveName(i))
	}
	return "", ""
}

// waveOffered: a unit of the wave runs the revision, unless later waves have no work. A wave with failures is left to
// waveAllowed. Earlier waves are not checked, because their units may be gone.
func waveOffered(p *pass, index int, _ *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	if t := &p.wave.tally[index]; t.unproven > 0 && t.proven() == 0 && len(t.failed) == 0 && p.laterWork(index) {
		return v1alpha1.WaveProgressing, fmt.Sprintf("no node of wave %s runs %s yet: it is not offered to them", p.waveName(index), p.strategy.Revision)
	}
	return "", ""
}

// waveAllowed: the strategy allows the failures of the wave and of earlier ones, and not every canary was skipped.
func waveAllowed(p *pass, index int, _ *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	if t := &p.wave.tally[0]; index == 0 && t.skipped > 0 && t.proven() == 0 && len(t.failed) == 0 && (p.laterWork(index) || p.strategy.SoakLast) {
		return v1alpha1.WaveHalted, fmt.Sprintf("every node of wave %s was skipped, so the canary tested nothing", p.waveName(index))
	}
	for i := range index + 1 {
		t := &p.wave.tally[i]
		if len(t.failed) == 0 || p.mayFail(i) && t.proven() > 0 {
			continue
		}
		return v1alpha1.WaveHalted, fmt.Sprintf("in wave %s the change failed on %s", p.waveName(i), list(t.failed, len(t.failed)))
	}
	return "", ""
}

// waveComplete: if later waves have no work, and no unit has failed, the rollout is complete without a soak, unless SoakLast requires one. Units in
// no wave need no soak.
func waveComplete(p *pass, index int, before *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	switch t := &p.wave.tally[index]; {
	case p.laterWork(index):
		return "", ""
	case len(t.failed) > 0:
		return v1alpha1.WaveProgressing, fmt.Sprintf("%d of %d nodes of wave %s are updated, and %d failed", t.updated, t.nodes, p.waveName(index), len(t.failed))
	case p.strategy.SoakLast && index < len(p.strategy.Waves) && !p.wasComplete(before):
		return "", ""
	}
	return v1alpha1.WaveComplete, ""
}

// wasComplete reports whether the wave of a rollout with SoakLast was complete at the last decision. It had soaked then, and
// was approved.
func (p *pass) wasComplete(before *v1alpha1.WaveStatus) bool {
	return p.strategy.SoakLast && before != nil && before.State == v1alpha1.WaveComplete
}

// laterWork reports whether later waves have outdated or failed units.
func (p *pass) laterWork(index int) bool {
	return slices.ContainsFunc(p.wave.tally[index+1:], func(t tally) bool { return t.pending > 0 || len(t.failed) > 0 })
}

// waveHealthy: all updated nodes of the wave are healthy.
func waveHealthy(p *pass, index int, _ *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	var who []string
	for _, c := range p.updated(index) {
		if why, end := p.fleet.health(c.Unit.Node, &p.strategy.Health, p.now); why != "" {
			p.wake(end)
			who = append(who, c.Unit.Node+" ("+why+")")
		}
	}
	if len(who) == 0 {
		return "", ""
	}
	return v1alpha1.WaveUnhealthy, fmt.Sprintf("in wave %s not all nodes are healthy: %s", p.waveName(index), list(who, len(who)))
}

// waveSoaked: all updated nodes of the wave have been updated and healthy for the soak.
func waveSoaked(p *pass, index int, before *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	soak := p.wave.all[index].Soak
	if soak <= 0 || p.wave.tally[index].nodes == 0 {
		return "", ""
	}
	since := p.now
	switch {
	case before == nil:
	case before.State == v1alpha1.WaveSoaking:
		since = before.Since.Time
	case before.State == v1alpha1.WaveWaitingForApproval, p.wasComplete(before):
		since = before.Since.Add(-soak) // It had soaked by then.
	}
	for _, c := range p.updated(index) {
		since = Later(since, p.fleet.healthySince(c.Unit.Node, &p.strategy.Health))
	}
	// The stored time has no fractions of a second.
	if whole := since.Truncate(time.Second); whole.Before(since) {
		since = whole.Add(time.Second)
	}
	end := since.Add(soak)
	if !p.now.Before(end) {
		return "", ""
	}
	p.wake(end)
	p.wave.soaksSince = since
	return v1alpha1.WaveSoaking, fmt.Sprintf("wave %s soaks until %s", p.waveName(index), end.UTC().Format(time.RFC3339))
}

// waveApproved: a person has approved the wave, if it needs approval. A wave without a node needs it too: the next must not begin because
// a selector is wrong, or because nodes join late.
func waveApproved(p *pass, index int, before *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
	w := &p.wave.all[index]
	if !w.Manual || p.wasComplete(before) || slices.Contains(p.strategy.Approved, p.approvalOf(w)) {
		return "", ""
	}
	message := fmt.Sprintf("wave %s waits for approval", p.waveName(index))
	if p.wave.tally[index].nodes == 0 {
		message = fmt.Sprintf("wave %s has no node, and waits for approval", p.waveName(index))
	}
	return v1alpha1.WaveWaitingForApproval, message
}

// updated returns the updated units of a wave.
func (p *pass) updated(index int) []*candidate {
	all := make([]*candidate, 0, p.wave.tally[index].updated)
	for _, c := range p.wave.units {
		if c.wave == index && c.State == v1alpha1.UnitUpdated {
			all = append(all, c)
		}
	}
	return all
}

// mayFail reports whether a wave may end with failures. The canary may not.
func (p *pass) mayFail(index int) bool { return index > 0 && p.strategy.MaxFailures != nil }

// remainder is the name of the wave for units in no other wave.
const remainder = "remainder"

func (p *pass) waveName(index int) string {
	return strconv.Itoa(index+1) + " (" + p.wave.all[index].Name + ")"
}

// waveStatus returns the status of a wave. It keeps the time at which the wave entered the state.
func (p *pass) waveStatus(index int, before *v1alpha1.WaveStatus, state v1alpha1.WaveState, message string) *v1alpha1.WaveStatus {
	w, t, since := &p.wave.all[index], &p.wave.tally[index], p.now
	switch {
	case state == v1alpha1.WaveSoaking:
		since = p.wave.soaksSince
	case before != nil && before.State == state:
		since = before.Since.Time
	}
	s := &v1alpha1.WaveStatus{
		Name: w.Name, Number: int32(index + 1), Of: int32(len(p.wave.tally)), Revision: p.strategy.Revision,
		State: state, Since: metav1.Time{Time: since.UTC().Truncate(time.Second)}, Message: message,
		Nodes: int32(t.nodes), Updated: int32(t.updated),
	}
	if last := len(p.strategy.Waves); p.wave.tally[last].nodes == 0 && index < last {
		s.Of--
	}
	if w.Manual && state != v1alpha1.WaveComplete {
		s.ApproveWith = p.approvalOf(w)
	}
	if p.firstManual() >= 0 {
		s.Template = p.strategy.Template
	}
	return s
}
