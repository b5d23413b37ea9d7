// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// Defaults of how many restarts of a pod are allowed.
const (
	defaultPauseRestarts = 2
	defaultFailRestarts  = 5
)

// CanaryNode is a node that the ExtendedDaemonSet selects.
type CanaryNode struct {
	Node *corev1.Node
	// Fits is that the new template's pod can run there.
	Fits bool
	// Claimed is that a rollout has it in hand.
	Claimed bool
	// Restarts is how often the containers of the daemon's pods restarted there.
	Restarts int32
}

// PickCanaries returns, sorted, on which nodes a canary runs. It may be fewer than are wanted: all that can be had.
//
// A node that the canary runs on stays, unless it is gone or being deleted, cordoned, does not fit, or is not selected by
// canary.nodeSelector any more. One that is not ready or claimed stays, also when who has claimed it cordons it: it comes back, and
// meanwhile nothing on it counts. When fewer are wanted those go first, and then the last by name.
//
// A new one must be ready and unclaimed, too. Those with the fewest restarts come first, and then by name. With
// canary.nodeAntiAffinityKeys no more than wanted/values, rounded up, have the same values of these labels. Only where that leaves
// too few it may be one more, and so on. A nodeSelector that can't be read selects nothing.
func PickCanaries(c *edsv1.ExtendedDaemonSetSpecStrategyCanary, want int, current []string, nodes []CanaryNode) []string {
	selector, keys := labels.Everything(), []string(nil)
	if c != nil {
		keys = c.NodeAntiAffinityKeys
		if c.NodeSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(c.NodeSelector); err != nil {
				selector = labels.Nothing()
			}
		}
	}
	was := map[string]bool{}
	for _, name := range current {
		was[name] = true
	}
	var before, others []candidate
	values := map[string]bool{}
	for i := range nodes {
		n := nodes[i].Node
		if n == nil || n.DeletionTimestamp != nil || n.Spec.Unschedulable && (!was[n.Name] || !nodes[i].Claimed) || !nodes[i].Fits || !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		d := candidate{CanaryNode: &nodes[i], name: n.Name, value: valuesOf(n, keys), busy: nodes[i].Claimed || !nodeReady(n)}
		switch {
		case was[n.Name]:
			before = append(before, d)
		case !d.busy:
			others = append(others, d)
		default:
			continue
		}
		values[d.value] = true
	}
	slices.SortFunc(before, func(a, b candidate) int {
		if a.busy != b.busy {
			return first(b.busy)
		}
		return cmp.Compare(a.name, b.name)
	})
	slices.SortFunc(others, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.Restarts, b.Restarts), cmp.Compare(a.name, b.name))
	})
	p := pick{want: want, used: map[string]int{}}
	most := (max(want, 0) + len(values) - 1) / max(len(values), 1)
	p.take(before, most)
	p.take(others, most)
	slices.Sort(p.names)
	return p.names
}

// candidate is a node that may be a canary.
type candidate struct {
	*CanaryNode
	name, value string
	busy        bool
}

// pick is the nodes taken so far, and how many of them have which values.
type pick struct {
	want  int
	names []string
	used  map[string]int
}

// take takes nodes in this order until there are enough: so many at most with the same values at first, then one more, and so on.
func (p *pick) take(from []candidate, most int) {
	for ; len(p.names) < p.want && len(from) > 0; most++ {
		var left []candidate
		for _, d := range from {
			if len(p.names) >= p.want || p.used[d.value] >= most {
				left = append(left, d)
				continue
			}
			p.names = append(p.names, d.name)
			p.used[d.value]++
		}
		from = left
	}
}

// valuesOf is a node's values of these labels, in one. One that it has not counts as empty.
func valuesOf(n *corev1.Node, keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		// No value has such a byte.
		b.WriteString(n.Labels[key])
		b.WriteByte(0)
	}
	return b.String()
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func first(yes bool) int {
	if yes {
		return -1
	}
	return 1
}

// CanaryPod is a pod of the canary's revision on one of its nodes.
type CanaryPod struct {
	// Node that it is on; nil when that is gone.
	Node *corev1.Node
	// Excused is that its node is to blame for what is wrong with it.
	Excused bool
	Look    Look
}

// CanaryHistory is what is known of a canary from before.
type CanaryHistory struct {
	// Began is when it began; zero: it has not.
	Began time.Time
	// FirstRestart and LastRestart are those of a Verdict before.
	FirstRestart, LastRestart time.Time
	// Unpaused is that autoPause is overruled by hand.
	Unpaused bool
}

// Verdict is how a canary does.
type Verdict struct {
	// Failed is by autoFail, Paused by autoPause. Never both.
	Failed, Paused bool
	// Reason and Message are why, for one of these.
	Reason  edsv1.StatusReason
	Message string
	// Wake is when the clock alone changes the verdict; zero: never.
	Wake time.Time
	// CannotStart is why a pod does not start, also one that may still take its time; empty when all do. CannotStartMessage says
	// more, whatever pauses the canary.
	CannotStart        edsv1.StatusReason
	CannotStartMessage string
	// FirstRestart and LastRestart are of all pods that the canary had; zero when none restarted.
	FirstRestart, LastRestart time.Time
}

// JudgeCanary says whether a canary has failed or is to be paused. Pods that are excused, or being deleted, do not count, and restarts
// from before it began do not either. In this order, worst pod first:
//
//	failed  a pod restarted more than autoFail.maxRestarts times
//	        pods have restarted over more than autoFail.maxRestartsDuration    RestartsTimeoutExceeded
//	        autoFail.canaryTimeout has passed                                  TimeoutExceeded
//	paused  a pod can't start (for autoPause.maxSlowStartDuration, where set)
//	        a pod has not started for autoPause.maxSlowStartDuration           SlowStartTimeoutExceeded
//	        a pod restarted more than autoPause.maxRestarts times
//
// It tells how the canary does now. That one which is paused or failed remains so is the caller's business.
func JudgeCanary(c *edsv1.ExtendedDaemonSetSpecStrategyCanary, pods []CanaryPod, h CanaryHistory, now time.Time) Verdict {
	j := canaryJudge{history: h, now: now}
	for i := range pods {
		if p := &pods[i]; !p.Excused && p.Node != nil && !p.Look.Terminating {
			j.pods = append(j.pods, p)
		}
	}
	slices.SortFunc(j.pods, func(a, b *CanaryPod) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	j.remember()
	if c == nil {
		return j.verdict
	}
	// What pauses it is looked at in any case, for what it tells of pods that can't start.
	pause := j.pause(ptr.Deref(c.AutoPause, edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{}))
	fail := j.fail(ptr.Deref(c.AutoFail, edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{}))
	v := &j.verdict
	switch {
	case fail.reason != "":
		v.Failed, v.Reason, v.Message = true, fail.reason, fail.message
	case pause.reason != "" && !h.Unpaused:
		v.Paused, v.Reason, v.Message = true, pause.reason, pause.message
	}
	return *v
}

// canaryJudge is what a verdict is made from, and what of it there is.
type canaryJudge struct {
	history CanaryHistory
	// pods that count, by the names of their nodes.
	pods    []*CanaryPod
	now     time.Time
	verdict Verdict
}

// finding is why a canary fails or is paused.
type finding struct {
	reason  edsv1.StatusReason
	message string
}

// remember adds the restarts of pods to those from before.
func (j *canaryJudge) remember() {
	v := &j.verdict
	v.FirstRestart, v.LastRestart = j.history.FirstRestart, j.history.LastRestart
	if v.FirstRestart.IsZero() {
		v.FirstRestart = v.LastRestart
	}
	for _, p := range j.pods {
		at := p.Look.LastRestart
		if at.IsZero() || j.restarts(p) == 0 {
			continue
		}
		if v.FirstRestart.IsZero() || at.Before(v.FirstRestart) {
			v.FirstRestart = at
		}
		if at.After(v.LastRestart) {
			v.LastRestart = at
		}
	}
}

// restarts is how often a pod has restarted; 0 when all of that was before the canary began: the pod was there already.
func (j *canaryJudge) restarts(p *CanaryPod) int32 {
	if last := p.Look.LastRestart; !last.IsZero() && last.Before(j.history.Began) {
		return 0
	}
	return p.Look.Restarts
}

// fail says why the canary fails.
func (j *canaryJudge) fail(a edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail) finding {
	if !ptr.Deref(a.Enabled, true) {
		return finding{}
	}
	if f := j.tooManyRestarts(ptr.Deref(a.MaxRestarts, defaultFailRestarts)); f.reason != "" {
		return f
	}
	if d := a.MaxRestartsDuration; d != nil && j.verdict.LastRestart.Sub(j.verdict.FirstRestart) > d.Duration {
		return finding{edsv1.StatusReasonRestartsTimeoutExceeded, "pods have gone on restarting for more than " + d.Duration.String()}
	}
	began := j.history.Began
	if d := a.CanaryTimeout; d != nil && !began.IsZero() && j.passed(began.Add(d.Duration)) {
		return finding{edsv1.StatusReasonTimeoutExceeded, "the canary has taken more than " + d.Duration.String()}
	}
	return finding{}
}

// pause says why the canary is to be paused, and notes which pods can't start.
func (j *canaryJudge) pause(a edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause) finding {
	on, limit := ptr.Deref(a.Enabled, true), a.MaxSlowStartDuration
	var waiting, stopped, slow finding
	for _, p := range j.pods {
		l := &p.Look
		patient := on && limit != nil && !l.Creating.IsZero()
		late := patient && j.passed(l.Creating.Add(limit.Duration))
		switch {
		case l.CannotStart != "":
			this := finding{l.CannotStart, p.says(cmp.Or(l.Message, string(l.CannotStart)))}
			waiting = cmp.Or(waiting, this)
			if late || !patient {
				stopped = cmp.Or(stopped, this)
			}
		case late:
			message := withDetail("it has not started within "+limit.Duration.String(), l.Message)
			slow = cmp.Or(slow, finding{edsv1.StatusReasonSlowStartTimeoutExceeded, p.says(message)})
		}
	}
	waiting = cmp.Or(waiting, slow)
	j.verdict.CannotStart, j.verdict.CannotStartMessage = waiting.reason, waiting.message
	if !on {
		return finding{}
	}
	return cmp.Or(stopped, slow, j.tooManyRestarts(ptr.Deref(a.MaxRestarts, defaultPauseRestarts)))
}

// tooManyRestarts tells of the pod that has restarted most often, if that is more than allowed.
func (j *canaryJudge) tooManyRestarts(limit int32) finding {
	var worst *CanaryPod
	most := limit
	for _, p := range j.pods {
		if n := j.restarts(p); n > most {
			worst, most = p, n
		}
	}
	if worst == nil {
		return finding{}
	}
	message := fmt.Sprintf("%s, and %d are allowed", worst.Look.restarted(), limit)
	return finding{cmp.Or(worst.Look.RestartReason, edsv1.StatusReasonUnknown), worst.says(message)}
}

func (j *canaryJudge) passed(at time.Time) bool { return passed(&j.verdict.Wake, at, j.now) }

// says begins a message with the node.
func (p *CanaryPod) says(message string) string { return "pod on node " + p.Node.Name + ": " + message }
