// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// NodeState is one node, the pods that the ExtendedDaemonSet has there, and those that it should have.
type NodeState struct {
	Node *corev1.Node
	// Known is the node as budgets and checks see it.
	Known *rollout.Node
	// Want is the revision that the node should have.
	Want      *ReplicaSet
	Placement Placement
	Overrides Overrides
	// Canary is true for a node of the canary.
	Canary bool
	// Current is the pod of that revision, and Outdated another one. Each may be nil.
	Current, Outdated *Pod
	// Kept is true while the outdated pod belongs to a DaemonSet that would make it again.
	Kept bool
	// Terminating is a pod that was deleted and still exists, and Ended one that has ended and is deleted at a later time.
	Terminating, Ended *Pod
	// Stuck is true when a pod terminates for longer than it should.
	Stuck bool
	// Created is when a pod was created that the caches do not show yet.
	Created time.Time
	// Refused is when the API server last refused the missing pod; zero: it did not.
	Refused time.Time
	// Extra pods are deleted in any case.
	Extra []*Pod
	// NodeProblem says why the node, and not its pods, is the cause of what happens there, or "".
	NodeProblem string
	// NoPod says why no pod is created yet on a node that has none. Its Reason is "" on all others.
	NoPod rollout.Wait
}

// Pod is a pod and its state.
type Pod struct {
	*corev1.Pod
	Look Look
}

// Available reports whether there is a pod, and it is available.
func (p *Pod) Available() bool { return p != nil && p.Look.Available }

// PodCounts are the pods of one revision.
type PodCounts struct {
	// All includes pods that terminate.
	All, Current, Ready, Available int
	// Desired is on how many nodes the revision should run, and Ignored on how many of them a pod is missing that nothing waits for.
	Desired, Ignored int
}

// CanaryNodes are the nodes of the canary, as the status has them.
func (j *Judge) CanaryNodes() []string {
	if c := j.EDS.Status.Canary; c != nil && c.ReplicaSet == j.Target.Name && j.CanaryWanted() {
		return c.Nodes
	}
	return nil
}

// Survey finds the state of each node. The nodes of the canary should have the target revision, and all others the active one.
func (j *Judge) Survey(canaryNodes []string) error {
	for _, rs := range []*ReplicaSet{j.Active, j.Target} {
		j.Counts[rs.Name] = &PodCounts{}
	}
	for _, rs := range j.Owned {
		j.Counts[rs.Name] = &PodCounts{}
	}
	var err error
	if j.active, err = j.newPlacer(j.Active); err != nil {
		return err
	}
	if j.target, err = j.newPlacer(j.Target); err != nil {
		return err
	}
	onNode := map[string][]*corev1.Pod{}
	for _, pod := range j.Pods {
		onNode[NodeOf(pod)] = append(onNode[NodeOf(pod)], pod)
	}
	key := types.NamespacedName{Namespace: j.EDS.Namespace, Name: j.EDS.Name}
	j.States, j.Orphans, j.invalidAnnotations = make([]NodeState, 0, len(j.Nodes)), nil, map[string]string{}
	for _, n := range j.Nodes {
		s := NodeState{Node: n, Known: j.Fleet.Nodes[n.Name], Want: j.Active, Canary: slices.Contains(canaryNodes, n.Name)}
		placer := j.active
		if s.Canary {
			s.Want, placer = j.Target, j.target
		}
		s.Placement = placer.Place(n)
		pods := onNode[n.Name]
		delete(onNode, n.Name)
		if !s.Placement.Keep && len(pods) == 0 && (!j.CanaryWanted() || !j.target.Place(n).Create) {
			continue
		}
		if s.Placement.Keep {
			var invalid error
			if s.Overrides, invalid = OverridesOf(key, s.Want.Spec.Template.Spec.Containers, n, j.settings); invalid != nil {
				j.invalidAnnotations[n.Name] = invalid.Error()
			}
		}
		s.NodeProblem = nodeProblem(s.Known)
		if s.Created = j.InFlight.Created[n.Name]; !s.Created.IsZero() {
			j.WakeAt(s.Created.Add(UnseenFor))
		}
		s.sort(j, pods)
		if s.lacksPod() {
			s.Refused = j.InFlight.Refused[n.Name].At
		}
		j.States = append(j.States, s)
		j.count(&j.States[len(j.States)-1])
	}
	for _, pods := range onNode {
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil && !j.InFlight.Deleted[pod.UID] {
				j.Orphans = append(j.Orphans, pod)
			}
		}
	}
	return nil
}

// UnseenFor is how long the caches may not show a created pod. After that it was deleted before they did.
const UnseenFor = time.Minute

// sort assigns each pod on the node its part in the state.
func (s *NodeState) sort(j *Judge, pods []*corev1.Pod) {
	var current, outdated []*Pod
	minReady := time.Duration(j.Spec.MinReadySeconds) * time.Second
	for _, pod := range pods {
		if counts := j.Counts[ReplicaSetOf(pod)]; counts != nil {
			counts.All++
		}
		p := &Pod{Pod: pod, Look: LookAt(pod, minReady, j.Now)}
		j.WakeAt(p.Look.Wake)
		switch {
		case j.Kept[pod.UID]:
			if !p.Look.Terminating && !p.Look.Failed {
				s.Outdated, s.Kept = p, true
			}
		case p.Look.Terminating || j.InFlight.Deleted[pod.UID]:
			s.Terminating = p
			s.Stuck = s.Stuck || p.Look.Unresponsive
		case !s.Placement.Keep:
			s.Extra = append(s.Extra, p)
		case p.Look.Failed:
			s.end(j, p)
		case ReplicaSetOf(pod) == s.Want.Name && UpToDate(pod, HashOf(s.Want), s.Overrides):
			current = append(current, p)
		default:
			outdated = append(outdated, p)
		}
	}
	s.Current = s.keepBest(current)
	if best := s.keepBest(outdated); best != nil {
		s.Outdated, s.Kept = best, false
	}
	if s.Current == nil || s.Outdated == nil || s.Kept || j.Surges() {
		return
	}
	// There are two without surge: one was created by something that did not see the other.
	if s.Current.Available() || !s.Outdated.Available() {
		s.Extra, s.Outdated = append(s.Extra, s.Outdated), nil
	} else {
		s.Extra, s.Current = append(s.Extra, s.Current), nil
	}
}

// endedPodAge is how old a pod is at least before it is deleted because it has ended. It bounds how often pods are created and deleted
// on a node where all end at once.
const endedPodAge = time.Minute

// end deletes a pod that has ended, when it is old enough.
func (s *NodeState) end(j *Judge, p *Pod) {
	if at := p.CreationTimestamp.Add(endedPodAge); j.Now.Before(at) {
		s.Ended = p
		j.WakeAt(at)
		return
	}
	s.Extra = append(s.Extra, p)
}

// keepBest returns the best of several pods. The others are extra.
func (s *NodeState) keepBest(pods []*Pod) *Pod {
	if len(pods) == 0 {
		return nil
	}
	rank := func(p *Pod) int {
		switch {
		case p.Look.Available:
			return 0
		case p.Look.Ready:
			return 1
		case p.Spec.NodeName != "":
			return 2
		}
		return 3
	}
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(rank(a)-rank(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	s.Extra = append(s.Extra, pods[1:]...)
	return pods[0]
}

// count adds a node and its pods to those of their revisions.
func (j *Judge) count(s *NodeState) {
	if s.Counts() {
		j.Counts[s.Want.Name].Desired++
	}
	for _, p := range []*Pod{s.Current, s.Outdated} {
		if p == nil {
			continue
		}
		counts := j.Counts[ReplicaSetOf(p.Pod)]
		if counts == nil {
			continue
		}
		counts.Current++
		if p.Look.Ready {
			counts.Ready++
		}
		if p.Look.Available {
			counts.Available++
		}
	}
}

// Surges reports whether new pods are started beside old ones.
func (j *Judge) Surges() bool {
	return j.Strategy.Type != edsv1.StrategyOnDelete && Count(j.Strategy.RollingUpdate.MaxSurge, max(len(j.Nodes), 1)) > 0
}

// nodeProblem says why what happens to pods on a node is not caused by them, or "": it is not ready, or it is under maintenance.
func nodeProblem(n *rollout.Node) string {
	if n == nil {
		return "there is no such node"
	}
	if readyCondition(n) == nil {
		return "the node is not ready"
	}
	for i := range n.Claims {
		if c := &n.Claims[i]; !c.Parked() {
			return "claimed by " + c.Rollout
		}
	}
	for i := range n.Conditions {
		c := &n.Conditions[i]
		switch c.Type {
		case corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained:
			if c.Status == corev1.ConditionTrue {
				return string(c.Type)
			}
		default:
		}
	}
	return ""
}

// settleTime is for how long after a node has become ready the node is the cause of restarts there.
const settleTime = time.Minute

// excuses reports whether the node is the cause of what happens to a pod: it has a problem now, or it has rebooted since the pod's
// container last ended. A quick reboot is not seen in the node's conditions, but in how the container ended.
func (s *NodeState) excuses(p *Pod) bool {
	if s.NodeProblem != "" || p != nil && p.Look.Lost {
		return true
	}
	ready := readySince(s.Known)
	return p != nil && !p.Look.LastRestart.IsZero() && !ready.IsZero() && !p.Look.LastRestart.After(ready.Add(settleTime)) &&
		p.CreationTimestamp.Time.Before(ready)
}

// readyCondition is the condition by which a node is ready, or nil.
func readyCondition(n *rollout.Node) *corev1.NodeCondition {
	for i := range n.Conditions {
		if c := &n.Conditions[i]; c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// readySince is since when a node is ready; zero when it is not, or that is not known.
func readySince(n *rollout.Node) time.Time {
	if c := readyCondition(n); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// isClaimed reports whether a rollout has the node.
func (s *NodeState) isClaimed() bool {
	return slices.ContainsFunc(s.Known.Claims, func(c v1alpha1.Claim) bool { return !c.Parked() })
}

// Counts reports whether the node should have a pod, or has one. A DaemonSet's pod does not count where the ExtendedDaemonSet's own may
// not be.
func (s *NodeState) Counts() bool {
	return s.Placement.Create || s.Current != nil || s.Outdated != nil && s.Placement.Keep
}

// lacksPod reports whether a pod of the wanted revision is missing, and none was created.
func (s *NodeState) lacksPod() bool {
	return s.Placement.Create && s.Current == nil && s.Created.IsZero()
}

// isEmpty reports whether there is no pod on the node, and none is about to be.
func (s *NodeState) isEmpty() bool {
	return s.Current == nil && s.Outdated == nil && s.Terminating == nil && s.Ended == nil && s.Created.IsZero() && len(s.Extra) == 0
}

// hasOtherCause reports whether another cause than the slow start keeps a pod from being created. Then other nodes do not wait
// for this one.
func (s *NodeState) hasOtherCause() bool {
	return s.Stuck || s.Ended != nil || s.NodeProblem != "" || !s.Refused.IsZero()
}

// UnitState is the state of the node in the rolling update.
func (s *NodeState) UnitState() v1alpha1.UnitState {
	switch {
	case s.Current.Available() && (s.Outdated == nil || s.Kept):
		return v1alpha1.UnitUpdated
	case s.Current == nil && s.Outdated != nil && s.Terminating == nil && s.Created.IsZero():
		return v1alpha1.UnitOutdated
	}
	return v1alpha1.UnitUpdating
}
