// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// makeUnits finds the unit of each node outside of the canary. A node with an outdated pod waits to be started. A node without an
// available pod of the active revision is in its turn. A unit that is excused holds no slot.
func (j *Judge) makeUnits() {
	j.Units = make([]rollout.Unit, 0, len(j.States))
	unresponsive := Count(j.Strategy.RollingUpdate.MaxPodSchedulerFailure, j.eligible()) // how many unresponsive nodes may be ignored
	for _, s := range j.States {
		if s.Canary && j.Active == j.Target { // A preview of the rolling update after the canary.
			j.Units = append(j.Units, rollout.Unit{Node: s.Node.Name, State: v1alpha1.UnitUpdated})
		}
		if s.Canary || !s.IsCounted() && s.Terminating == nil {
			continue
		}
		isUnresponsive := s.isUnresponsive()
		if isUnresponsive {
			j.counts(s.Want.Name).Unresponsive++
		}
		ignored := unresponsive > 0 && isUnresponsive
		u := rollout.Unit{Node: s.Node.Name, State: s.UnitState(), Rank: rollout.Rank(s.Node.UID, j.EDS.UID, j.Active.Spec.TemplateGeneration)}
		switch u.State {
		case v1alpha1.UnitOutdated:
			u.Down = !s.Outdated.Available()
			u.Reason, u.Message = j.whyUnfit(s)
			u.Unoffered = s.NodeProblem != "" || !s.Placement.Create // Waves take it last.
			if ignored {                                             // The node may have no room for a new pod either. Until that is certain, the unit would hold a slot.
				u.Down, u.Rank = false, math.MaxUint64
			}
		case v1alpha1.UnitUpdated:
			ignored = false
			j.soak(s, &u)
		default:
			ignored = ignored && s.NodeProblem == ""
			u.Excused = ignored || s.NodeProblem != "" && !s.mayHaveBroken()
			if why := j.whyFailed(s); why != "" && !u.Excused {
				u.State, u.Reason, u.Message = v1alpha1.UnitFailed, v1alpha1.ReasonPodFailed, why
			}
		}
		if ignored {
			unresponsive--
		}
		j.Units = append(j.Units, u)
	}
}

// soak makes an updated unit soak for the time in the strategy. In the first rollout there is no soak.
func (j *Judge) soak(s *NodeState, u *rollout.Unit) {
	u.Since = s.Current.State.ReadySince
	if j.Strategy.Soak == nil || j.Strategy.Soak.Duration <= 0 || len(j.Owned) <= 1 && len(j.Recreated) == 0 {
		return
	}
	if !j.HasPassed(j.Fleet.SoakEnd(s.Node.Name, u.Since, j.Strategy.Soak.Duration)) {
		u.State = v1alpha1.UnitSoaking
	}
}

// isUnresponsive reports whether a pod on the node is not scheduled, or does not terminate in time.
func (s *NodeState) isUnresponsive() bool {
	pod := cmp.Or(s.Current, s.Outdated)
	return s.Stuck || pod != nil && pod.State.Unresponsive
}

// whyUnfit says why an outdated pod may not be replaced, besides limits of the strategy.
func (j *Judge) whyUnfit(s *NodeState) (v1alpha1.Reason, string) {
	switch {
	case j.Strategy.Type == edsv1.StrategyOnDelete && !s.WasOnlyCanary:
		return v1alpha1.ReasonOnDelete, "spec.strategy.type is OnDelete: the pod is replaced when it is deleted"
	case s.Recreated && s.portsConflict():
		return v1alpha1.ReasonNodeUnfit, "pod " + s.Outdated.Name + " has a port of the host that the new pod needs, " +
			"and its DaemonSet would make it again: delete the DaemonSet with --cascade=orphan"
	case !s.Placement.Create && s.NodeProblem != "" && s.claim() < 0: // It has taints because it is not ready.
		return v1alpha1.ReasonNodeNotReady, s.NodeProblem
	case !s.Placement.Create:
		return v1alpha1.ReasonNodeUnfit, "no new pod would be made on the node: " + s.Placement.Why
	case !s.Refused.At.IsZero() && !j.HasPassed(s.Refused.At.Add(refusedFor)):
		return v1alpha1.ReasonNodeUnfit, MessageRefused
	case s.NodeProblem != "" && s.claim() < 0: // The engine says itself that a node is claimed.
		return v1alpha1.ReasonNodeNotReady, s.NodeProblem
	case j.CanaryWanted() && ReplicaSetOf(s.Outdated.Pod) != j.Active.Name && !s.WasOnlyCanary:
		return v1alpha1.ReasonWavePending, "while the canary of " + j.Target.Name + " runs, " + j.Active.Name +
			" goes to no further node: the new template may be there to replace it"
	}
	return "", ""
}

// MessageRefused says why an outdated pod stays when its new pod was refused.
const MessageRefused = "the API server refuses the new pod"

// refusedFor is how long an old pod stays after its new pod was refused.
const refusedFor = 30 * time.Second

// defaultRestarts is how often a pod may restart in a rolling update without a canary.
const defaultRestarts = 5

// whyFailed says why a new pod counts as failed, or "". Without maxFailures no pod does.
func (j *Judge) whyFailed(s *NodeState) string {
	limit := int32(defaultRestarts)
	if c := j.Strategy.Canary; c != nil {
		limit = *c.AutoFail.MaxRestarts
	}
	switch pod := s.Current; {
	case j.Strategy.MaxFailures == nil || pod == nil:
		return ""
	case s.mayHaveBroken():
		return "the node has not been ready since soon after pod " + pod.Name + " was created"
	case s.isToBlame(pod):
		return ""
	case pod.State.CannotStart != "":
		return cannotStartMessage(pod.Name, pod.State.CannotStart, pod.State.Message)
	case pod.State.Restarts > limit:
		return "pod " + pod.Name + " restarts again and again: " + string(pod.State.RestartReason)
	}
	return ""
}

// eligible returns the number of nodes in the rolling update.
func (j *Judge) eligible() int {
	return rollout.Count(j.States, func(s **NodeState) bool { return !(*s).Canary && (*s).IsCounted() })
}

// UpToDate reports whether NewPod would create the same pod today, with this template hash and these overrides. Later changes of
// the pod, and values that the API server filled in, do not count.
//
// Pods that ExtendedDaemonSet created have no hash of the overrides. They are compared by their labels, annotations and container
// resources, so that taking them over replaces no pod.
func UpToDate(p *corev1.Pod, revision string, want Overrides) bool {
	if p.Annotations[edsv1.AnnotationTemplateHash] != revision {
		return false
	}
	if hash, ok := p.Annotations[edsv1.AnnotationOverrides]; ok {
		return hash == cmp.Or(want.Hash, noOverrides)
	}
	setting, node := p.Labels[edsv1.LabelSettingName], p.Annotations[edsv1.AnnotationNodeHash]
	switch {
	case setting == "" && node == "" && want.Hash == "":
		return true // Annotations that override no container, or can't be read, change no pod.
	case setting != want.SettingName, node != want.NodeHash:
		return false
	}
	for name, r := range want.Resources {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 || !includes(p.Spec.Containers[i].Resources.Limits, r.Limits) || !includes(p.Spec.Containers[i].Resources.Requests, r.Requests) {
			return false
		}
	}
	return true
}

// includes reports whether a container has all wanted resources. It may have more: the API server copies a limit to a missing request,
// and a LimitRange fills in missing values.
func includes(got, want corev1.ResourceList) bool {
	for name, q := range want {
		if has, ok := got[name]; !ok || has.Cmp(q) != 0 {
			return false
		}
	}
	return true
}
