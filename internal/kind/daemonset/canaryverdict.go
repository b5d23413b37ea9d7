// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// PickCanaries returns the nodes of a canary, sorted by name. They may be fewer than wanted.
//
// A node of the canary stays, unless it is gone, being deleted, cordoned, unfit, or not selected by canary.nodeSelector any more. A node
// that is not ready, or claimed, also stays, even if the claim's rollout has cordoned it. If fewer nodes are wanted, these are removed
// first, and then the last by name.
//
// A new node must also be ready and unclaimed. Nodes where a budget lets no canary start come last, and only if they have a pod: on others
// nothing would hold the canary's pod. Nodes where the daemon is available come first, then those with the fewest restarts, then by name. With
// canary.nodeAntiAffinityKeys, at most wanted/values nodes, rounded up, have the same values of these labels. If that leaves too
// few nodes, the limit is raised by one until there are enough.
func PickCanaries(c *edsv1.ExtendedDaemonSetSpecStrategyCanary, want int, current []string, states []*NodeState) []string {
	selector, err := metav1.LabelSelectorAsSelector(c.NodeSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	var before, busy, others []*NodeState
	values, valueOf := map[string]bool{}, map[*NodeState]string{} // of canary.nodeAntiAffinityKeys
	for _, s := range states {
		has, claimed := slices.Contains(current, s.Node.Name), s.claim() >= 0
		cordoned := s.Node.Spec.Unschedulable && (!has || !claimed)
		if s.Node.DeletionTimestamp != nil || cordoned || !s.Fits || !selector.Matches(labels.Set(s.Node.Labels)) {
			continue
		}
		switch isBusy := claimed || nodeCondition(s.Node, corev1.NodeReady).Status != corev1.ConditionTrue; {
		case has && isBusy:
			busy = append(busy, s)
		case has:
			before = append(before, s)
		case !isBusy && (!s.Held || s.Current != nil || s.Outdated != nil):
			others = append(others, s)
		default:
			continue
		}
		for _, key := range c.NodeAntiAffinityKeys {
			valueOf[s] += s.Node.Labels[key] + "\x00"
		}
		values[valueOf[s]] = true
	}
	slices.SortStableFunc(others, func(a, b *NodeState) int {
		if a.Held != b.Held {
			if a.Held {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.broken(), b.broken()), cmp.Compare(a.restarts(), b.restarts()))
	})
	var names []string
	used := map[string]int{}
	for _, from := range [][]*NodeState{append(before, busy...), others} {
		most := (max(want, 0) + len(values) - 1) / max(len(values), 1)
		for ; len(names) < want && len(from) > 0; most++ {
			from = slices.DeleteFunc(from, func(s *NodeState) bool {
				if len(names) >= want || used[valueOf[s]] >= most {
					return false
				}
				names = append(names, s.Node.Name)
				used[valueOf[s]]++
				return true
			})
		}
	}
	slices.Sort(names)
	return names
}

// CanaryHistory is what earlier passes recorded about a canary.
type CanaryHistory struct {
	// Began is when it began, and NodesReady since when all its nodes are ready.
	Began, NodesReady time.Time
	// Held is when a budget last held a node of it. SoakEnds is when it is over by its duration, while it soaks; else zero.
	Held, SoakEnds time.Time
	// FirstRestart and LastRestart are from an earlier Verdict.
	FirstRestart, LastRestart time.Time
	// Unpaused is true when a person has overruled autoPause.
	Unpaused bool
	// Paused is why autoPause has paused it, if that was for more restarts than it allows now. The pod that restarted may be gone since.
	Paused finding
}

// Verdict is what the canary's pods show about it.
type Verdict struct {
	// Failed is set by autoFail, Paused by autoPause. Never both.
	Failed, Paused bool
	// Reason and Message are why, for one of these.
	Reason  edsv1.StatusReason
	Message string
	// Wake is when the clock alone changes the verdict; zero: never.
	Wake time.Time
	// CannotStart is why a pod does not start, even if it may take longer; empty when all pods start. CannotStartMessage has
	// the details.
	CannotStart        edsv1.StatusReason
	CannotStartMessage string
	// FirstRestart and LastRestart are of all pods that the canary had; zero when none restarted.
	FirstRestart, LastRestart time.Time
	// RestartMessage names the pod that restarted last, unless it is gone.
	RestartMessage string
}

// restarting begins the message of a finding about restarts, and allowed ends it.
const restarting = "pod on node "

func allowed(restarts int32) string { return fmt.Sprintf(", and %d are allowed", restarts) }

// finding is why a canary fails or pauses.
type finding struct {
	reason  edsv1.StatusReason
	message string
}

// JudgeCanary says whether a canary has failed or pauses now, by the current pods on its nodes. It ignores restarts before the canary began. It checks in this order, worst
// pod first:
//
//	failed  a pod restarted more than autoFail.maxRestarts times
//	        pods have restarted over more than autoFail.maxRestartsDuration    RestartsTimeoutExceeded
//	        autoFail.canaryTimeout has passed                                  TimeoutExceeded
//	paused  a pod can't start (for autoPause.maxSlowStartDuration, if set), or
//	        has not started for autoPause.maxSlowStartDuration                 SlowStartTimeoutExceeded
//	        a pod restarted more than autoPause.maxRestarts times
func JudgeCanary(c *edsv1.ExtendedDaemonSetSpecStrategyCanary, nodes []*NodeState, h CanaryHistory, now time.Time) Verdict {
	v := Verdict{FirstRestart: h.FirstRestart, LastRestart: h.LastRestart}
	worst, worstNode := &PodState{}, ""
	for _, n := range nodes {
		state := &n.Current.State
		at := state.LastRestart
		if !at.IsZero() && at.Before(h.Began) || state.Restarts == 0 {
			continue // The pod was there already, or has not restarted.
		}
		if state.Restarts > worst.Restarts {
			worst, worstNode = state, n.Node.Name
		}
		if !at.Before(v.LastRestart) {
			v.RestartMessage = "Pod " + n.Current.Name + " restarting with reason: " + string(state.RestartReason)
		}
		v.FirstRestart, v.LastRestart = rollout.Earlier(v.FirstRestart, at), rollout.Later(v.LastRestart, at)
	}
	restarts := func(limit int32) finding {
		if worst.Restarts <= limit {
			return finding{}
		}
		return finding{worst.RestartReason, restarting + worstNode + ": " + worst.restartMessage() + allowed(limit)}
	}
	var pause, fail finding
	startProblem := v.findStartProblem(c.AutoPause, nodes, now)
	if *c.AutoPause.Enabled {
		pause = cmp.Or(startProblem, restarts(*c.AutoPause.MaxRestarts), h.Paused)
	}
	if pause.reason != "" && !h.Unpaused {
		h.SoakEnds = time.Time{} // It is not promoted at the end of the soak.
	}
	if *c.AutoFail.Enabled {
		limit, timeout := c.AutoFail.MaxRestartsDuration, c.AutoFail.CanaryTimeout
		fail = restarts(*c.AutoFail.MaxRestarts)
		switch {
		case fail.reason != "":
		case limit != nil && v.LastRestart.Sub(v.FirstRestart) > limit.Duration:
			fail = finding{edsv1.StatusReasonRestartsTimeoutExceeded, "pods have gone on restarting for more than " + limit.Duration.String()}
		case timeout != nil && hasPassed(&v.Wake,
			rollout.Later(rollout.Later(rollout.Later(h.Began, h.Held), h.NodesReady).Add(timeout.Duration), h.SoakEnds), now):
			fail = finding{edsv1.StatusReasonTimeoutExceeded, "the canary has taken more than " + timeout.Duration.String()}
		}
	}
	switch {
	case fail.reason != "":
		v.Failed, v.Reason, v.Message = true, fail.reason, fail.message
	case pause.reason != "" && !h.Unpaused:
		v.Paused, v.Reason, v.Message = true, pause.reason, pause.message
	}
	return v
}

// findStartProblem returns why a pod that does not start pauses the canary. It also sets CannotStart.
func (v *Verdict) findStartProblem(a *edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause, nodes []*NodeState, now time.Time) (pause finding) {
	for _, n := range nodes {
		state := &n.Current.State
		limited := *a.Enabled && a.MaxSlowStartDuration != nil && !state.Creating.IsZero()
		late := limited && hasPassed(&v.Wake, state.Creating.Add(a.MaxSlowStartDuration.Duration), now)
		reason, detail := state.CannotStart, state.Message
		if reason == "" && late {
			reason = edsv1.StatusReasonSlowStartTimeoutExceeded
			detail = withDetail("it has not started within "+a.MaxSlowStartDuration.Duration.String(), detail)
		}
		if reason == "" {
			continue
		}
		this := finding{reason, cannotStartMessage(n.Current.Name, reason, "on node "+n.Node.Name+": "+detail)}
		if v.CannotStart == "" {
			v.CannotStart, v.CannotStartMessage = this.reason, this.message
		}
		if late || !limited {
			pause = cmp.Or(pause, this)
		}
	}
	return pause
}
