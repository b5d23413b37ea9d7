// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Limits are how many pods may be created now.
type Limits struct {
	// Creation is how many pods may be in creation, and Creating how many are. Missing is on how many nodes a pod is still missing.
	Creation, Creating, Missing int
	// AfterCanary is set while pods of the canary are replaced: budgets do not count these yet, so no other pod is.
	AfterCanary bool
	// NextCreation is when Creation grows, or zero.
	NextCreation time.Time
}

// Actions are what is done to pods.
type Actions struct {
	// Clean are deleted in any case. Superseded are deleted because a new pod runs. Replace are deleted to make way for a new pod.
	Clean, Superseded, Replace []*corev1.Pod
	// Relabel are pods that get the canary's label, or lose it if they have it.
	Relabel []*corev1.Pod
	// Create are the nodes that get a pod.
	Create []*NodeState
}

// Decide decides what is done. Pods are created on nodes without one, as fast as the slow start allows. The engine decides which
// outdated pods are replaced.
func (j *Judge) Decide() {
	j.makeUnits()
	j.limitCreation()
	j.Actions.Clean = j.Orphans
	states := slices.Clone(j.States) // Those whose pod was refused come last, so that they do not delay others; the earliest refusal first.
	slices.SortStableFunc(states, func(a, b *NodeState) int { return a.Refused.At.Compare(b.Refused.At) })
	for _, s := range states {
		for _, pod := range s.Extra {
			j.Actions.Clean = append(j.Actions.Clean, pod.Pod)
		}
		switch {
		case s.Canary:
			j.decideCanaryNode(s)
		case s.Current.Available() && s.Outdated != nil && !s.Recreated:
			j.Actions.Superseded = append(j.Actions.Superseded, s.Outdated.Pod)
		case s.lacksPod() && s.Outdated == nil:
			j.createMissing(s)
		}
		j.relabel(s)
	}
	j.Limits.AfterCanary = len(j.Actions.Replace) > 0
	j.Rolling = j.rollingStrategy()
	j.decideRollingUpdate()
	j.replaceOutdated()
}

// createMissing creates a pod on a node without one if the slow start allows that. Otherwise it says why not.
func (j *Judge) createMissing(s *NodeState) {
	switch {
	case !s.isEmpty():
	case j.Annotated(edsv1.AnnotationRolloutFrozen):
		s.NoPod = rollout.Wait{Node: s.Node.Name, Reason: v1alpha1.ReasonPaused, Message: "the rollout is frozen, so no pod is created"}
	case j.Limits.Creating < j.Limits.Creation:
		j.Limits.Creating++
		j.Actions.Create = append(j.Actions.Create, s)
		return
	default:
		s.NoPod = rollout.Wait{
			Node: s.Node.Name, Reason: v1alpha1.ReasonSlowStart,
			Message: fmt.Sprintf("no pod yet: %d are in creation, and the slow start allows %d now", j.Limits.Creating, j.Limits.Creation),
		}
	}
	if !s.Stuck && s.Ended == nil && s.NodeProblem == "" && s.Refused.At.IsZero() {
		j.Limits.Missing++ // Only the slow start delays this pod, so replacements on other nodes wait.
	}
}

// decideCanaryNode decides what is done on a node of the canary. An outdated pod is deleted at once, unless another node waits for the
// canary's first pod, or it is held, and the new one is created at once. With maxSurge the new one is created beside the old one, which is deleted
// when the new one is available. While the node has a problem, an old pod stays, and only a missing one is created.
func (j *Judge) decideCanaryNode(s *NodeState) {
	may := s.lacksPod() && !j.Canary.Paused()
	replaces := may && s.NodeProblem == "" && j.Canary.WaitOf(s.Node.Name).Reason == ""
	switch {
	case may && s.isEmpty(), replaces && s.Recreated:
		j.Actions.Create = append(j.Actions.Create, s)
	case s.Outdated == nil || s.Recreated:
	case replaces && j.surgesOn(s):
		if s.Terminating == nil {
			j.Actions.Create = append(j.Actions.Create, s)
		}
	case replaces && !j.awaitsFirst():
		j.Actions.Replace = append(j.Actions.Replace, s.Outdated.Pod)
	case s.Current.Available():
		j.Actions.Superseded = append(j.Actions.Superseded, s.Outdated.Pod)
	}
}

// awaitsFirst reports whether a node of the canary waits for the canary's first pod. Until it is created no other node loses its old pod, because
// the API server may refuse them all.
func (j *Judge) awaitsFirst() bool {
	return j.counts(j.Target.Name).All == 0 &&
		(len(j.Actions.Replace) > 0 || slices.ContainsFunc(j.States, func(s *NodeState) bool { return s.Canary && s.Outdated == nil && s.lacksPod() }))
}

// relabel finds pods that must get or lose the canary's label.
func (j *Judge) relabel(s *NodeState) {
	for _, p := range []*Pod{s.Current, s.Outdated} {
		if p != nil && IsLabelledCanary(p.Pod) != (s.Canary && p == s.Current) {
			j.Actions.Relabel = append(j.Actions.Relabel, p.Pod)
		}
	}
}

// IsLabelledCanary reports whether a pod has the canary's label.
func IsLabelledCanary(pod *corev1.Pod) bool {
	return pod.Labels[edsv1.LabelReplicaSetCanary] == edsv1.True
}

// isOnlyCanary reports whether an outdated pod is of a revision that was a canary, and was never active.
func (j *Judge) isOnlyCanary(p *Pod) bool {
	rs := j.Find(ReplicaSetOf(p.Pod))
	if rs == nil || rs == j.Active {
		return false
	}
	conditions := rs.Status.Conditions
	wasCanary, wasActive := edsv1.FindCondition(conditions, edsv1.ConditionCanary), edsv1.FindCondition(conditions, edsv1.ConditionActive)
	return wasCanary != nil && wasActive == nil || HasFailed(rs)
}

// decideRollingUpdate decides which outdated pods are replaced now. Pods of a failed canary come first, and the others wait for them. Slots
// and pauses delay these pods. Waves, windows, failures and budgets do not: the damage of the canary must be undone.
func (j *Judge) decideRollingUpdate() {
	strategy, units, fleet := j.Rolling, j.Units, j.Fleet
	starts := func(u rollout.Unit) bool { return u.State == v1alpha1.UnitOutdated && u.Reason == "" }
	reverts := slices.ContainsFunc(j.States, func(s *NodeState) bool { return s.WasOnlyCanary }) &&
		slices.ContainsFunc(units, func(u rollout.Unit) bool {
			return starts(u) && j.State(u.Node).WasOnlyCanary && j.State(u.Node).claim() < 0
		})
	if reverts {
		units = slices.Clone(units)
		strategy.Waves, strategy.Wave, strategy.Windows, strategy.WindowError, strategy.Error = nil, nil, nil, "", ""
		if strategy.MaxFailures != nil {
			strategy.MaxFailures = ptr.To(math.MaxInt) // Failed units release their slots, and halt nothing.
		}
		fleet.Budgets = nil
		for i := range units {
			if u := &units[i]; starts(*u) && !j.State(u.Node).WasOnlyCanary {
				u.Reason, u.Message = v1alpha1.ReasonWavePending, "pods of a canary that has ended are replaced first"
			}
		}
	}
	j.Decision = rollout.Decide(strategy, units, fleet, j.Now)
	j.WakeAt(j.Decision.Next)
	if j.Canary == nil && !reverts {
		j.EDS.Status.Wave = j.Decision.Wave
	}
}

// rollingStrategy is the strategy of the rolling update.
func (j *Judge) rollingStrategy() rollout.Strategy {
	from := j.Strategy
	atOnce := from.RollingUpdate.MaxUnavailable
	if j.Surges() {
		atOnce = from.RollingUpdate.MaxSurge
	}
	paused, _ := j.IsPaused()
	s := rollout.New(&v1alpha1.Strategy{
		Order: from.Order, Waves: from.Waves, MaxFailures: from.MaxFailures, Windows: from.Windows, Paused: paused,
	}, Count(atOnce, len(j.Units)), len(j.Units))
	s.UID, s.Revision, s.Claimless = j.EDS.UID, j.Active.Spec.TemplateGeneration, true
	s.Approved = rollout.Approvals(j.EDS.Annotations, j.EDS.Status.Approval)
	if j.Canary == nil {
		s.Wave = j.EDS.Status.Wave
	}
	return s
}

// IsPaused reports whether the rolling update is paused, and by which annotation; "" means by the spec.
func (j *Judge) IsPaused() (paused bool, annotation string) {
	for _, key := range []string{edsv1.AnnotationRolloutFrozen, edsv1.AnnotationRollingUpdatePaused} {
		if j.Annotated(key) {
			return true, key
		}
	}
	return j.Strategy.Paused, ""
}

// CreationTime is how long a pod that is not ready counts as in creation: reconcileFrequency, by default 10s. ExtendedDaemonSet applies its
// creation limit once in this interval.
func (j *Judge) CreationTime() time.Duration { return cmp.Or(j.batchInterval(), 10*time.Second) }

// batchInterval is the least time between two batches of replaced pods: reconcileFrequency, by default 0.
func (j *Judge) batchInterval() time.Duration {
	return ptr.Deref(j.Strategy.ReconcileFrequency, metav1.Duration{}).Duration
}

// CreationLimitAt returns how many pods may be in creation at this time, and when that limit grows.
func (j *Judge) CreationLimitAt(since, at time.Time) (limit int, next time.Time) {
	return CreationLimit(&j.Strategy.RollingUpdate, since, at, max(1, j.eligible()))
}

// limitCreation finds how many pods may be created and replaced now.
func (j *Judge) limitCreation() {
	j.Limits.Creation, j.Limits.NextCreation = j.CreationLimitAt(j.SlowStartBegan(), j.Now)
	for _, s := range j.States {
		if s.Canary || s.Current == nil || s.Current.State.Ready {
			continue
		}
		if !j.HasPassed(s.Current.CreationTimestamp.Add(j.CreationTime())) {
			j.Limits.Creating++
		}
	}
	if j.Limits.Creating >= j.Limits.Creation {
		j.WakeAt(j.Limits.NextCreation)
	}
}

// SlowStartBegan is when the slow start began: when the revision became active, or a pause was over.
func (j *Judge) SlowStartBegan() time.Time {
	since := j.Now
	conditions := j.Active.Status.Conditions
	if c := edsv1.TrueCondition(conditions, edsv1.ConditionActive); c != nil {
		since = c.LastTransitionTime.Time
	}
	for _, kind := range []string{edsv1.ConditionRolloutFrozen, edsv1.ConditionRollingUpdatePaused} {
		if c := edsv1.FindCondition(conditions, kind); c != nil && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// replaceOutdated turns the engine's decision into actions. It deletes no more pods than can be created, so no node is without a pod
// needlessly. With reconcileFrequency there is one batch per interval.
func (j *Judge) replaceOutdated() {
	if len(j.Decision.Start) == 0 {
		return
	}
	room, message := j.Room()
	if room < len(j.Decision.Start) {
		j.WakeAt(j.Limits.NextCreation)
		j.HasPassed(j.nextBatch()) // It sets Wake.
		held := make([]rollout.Wait, 0, len(j.Decision.Start)-room+len(j.Decision.Waiting))
		for _, name := range j.Decision.Start[room:] {
			held = append(held, rollout.Wait{Node: name, Reason: v1alpha1.ReasonSlowStart, Message: message})
		}
		j.Decision.Waiting = append(held, j.Decision.Waiting...) // They would go first.
		j.Decision.Start = j.Decision.Start[:room]
	}
	for _, name := range j.Decision.Start {
		if s := j.State(name); s.Recreated || j.surgesOn(s) {
			j.Actions.Create = append(j.Actions.Create, s)
		} else {
			j.Actions.Replace = append(j.Actions.Replace, s.Outdated.Pod)
		}
	}
}

// Room is how many outdated pods may be replaced now, and why no more.
func (j *Judge) Room() (n int, message string) {
	if next := j.nextBatch(); j.Now.Before(next) {
		return 0, fmt.Sprintf("spec.strategy.reconcileFrequency is %s: the next pods are replaced at %s",
			j.batchInterval(), next.UTC().Format(time.RFC3339))
	}
	if j.Limits.AfterCanary {
		return 0, "pods of the canary are replaced first"
	}
	used := j.Limits.Creating + j.Limits.Missing
	return max(0, j.Limits.Creation-used), fmt.Sprintf("%d pods are in creation or missing, and the slow start allows %d now", used, j.Limits.Creation)
}

// nextBatch is when outdated pods may be replaced again; zero without reconcileFrequency.
func (j *Judge) nextBatch() time.Time {
	last := j.Batches[edsv1.ConditionPodDeletion]
	if c := edsv1.FindCondition(j.Active.Status.Conditions, edsv1.ConditionPodDeletion); c != nil {
		last = rollout.Later(last, c.LastUpdateTime.Time)
	}
	if interval := j.batchInterval(); interval > 0 && !last.IsZero() {
		return last.Add(interval)
	}
	return time.Time{}
}

// Count returns a count as it is, or a percentage of this number, rounded up. It is 0 if v is absent, invalid or negative.
func Count(v *intstr.IntOrString, of int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, of, true)
	if err != nil {
		return 0
	}
	return max(0, n)
}

// CreationLimit is how many pods may be in creation at once on so many nodes, by a valid strategy with defaults:
//
//	min((1 + ⌊(now - since) / slowStartIntervalDuration⌋) * slowStartAdditiveIncrease, maxParallelPodCreation)
//
// since is when the slow start began. next is when the limit grows by the clock alone; zero: never. The increase is at least one pod.
func CreationLimit(ru *edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate, since, now time.Time, nodes int) (limit int, next time.Time) {
	most, increase := int64(*ru.MaxParallelPodCreation), int64(max(1, Count(ru.SlowStartAdditiveIncrease, nodes)))
	interval := max(ru.SlowStartIntervalDuration.Duration, 1) // Validate refuses 0.
	intervals := min(int64(max(0, now.Sub(since))/interval), math.MaxInt32) + 1
	if intervals*increase >= most {
		return int(most), time.Time{}
	}
	return int(intervals * increase), since.Add(time.Duration(intervals) * interval)
}
