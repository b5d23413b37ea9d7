// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
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
	// Known is the same node in the fleet.
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
	State PodState
}

// Available reports whether there is a pod, and it is available.
func (p *Pod) Available() bool { return p != nil && p.State.Available }

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
	for _, rs := range append([]*ReplicaSet{j.Active, j.Target}, j.Owned...) {
		j.Counts[rs.Name] = &PodCounts{}
	}
	var err error
	if j.active, err = NewPlacer(j.Spec.Selector, &j.Active.Spec.Template); err != nil {
		return fmt.Errorf("reading where pods of revision %s belong, %w", j.Active.Name, err)
	}
	if j.target, err = NewPlacer(j.Spec.Selector, &j.Target.Spec.Template); err != nil {
		return fmt.Errorf("reading where pods of revision %s belong, %w", j.Target.Name, err)
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
		if s.Created = j.InFlight.Created[n.Name].At; !s.Created.IsZero() {
			j.WakeAt(s.Created.Add(UnseenFor))
		}
		s.assign(j, pods)
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

// assign gives each pod on the node its part in the state.
func (s *NodeState) assign(j *Judge, pods []*corev1.Pod) {
	var current, outdated []*Pod
	minReady := time.Duration(j.Spec.MinReadySeconds) * time.Second
	for _, pod := range pods {
		if counts := j.Counts[ReplicaSetOf(pod)]; counts != nil {
			counts.All++
		}
		p := &Pod{Pod: pod, State: StateOfPod(pod, minReady, j.Now)}
		j.WakeAt(p.State.Wake)
		switch {
		case j.Kept[pod.UID]:
			if !p.State.Terminating && !p.State.Failed {
				s.Outdated, s.Kept = p, true
			}
		case p.State.Terminating || j.InFlight.Deleted[pod.UID]:
			s.Terminating = p
			s.Stuck = s.Stuck || p.State.Unresponsive
		case !s.Placement.Keep:
			s.Extra = append(s.Extra, p)
		case p.State.Failed && j.Now.Before(pod.CreationTimestamp.Add(endedPodAge)):
			s.Ended = p
			j.WakeAt(pod.CreationTimestamp.Add(endedPodAge))
		case p.State.Failed:
			s.Extra = append(s.Extra, p)
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
	// There are two without surge: whatever created the second one did not see the first.
	if s.Current.Available() || !s.Outdated.Available() {
		s.Extra, s.Outdated = append(s.Extra, s.Outdated), nil
	} else {
		s.Extra, s.Current = append(s.Extra, s.Current), nil
	}
}

// endedPodAge is how old a pod is at least before it is deleted because it has ended. It bounds how often pods are created and deleted
// on a node where all end at once.
const endedPodAge = time.Minute

// keepBest returns the best of several pods. The others are extra.
func (s *NodeState) keepBest(pods []*Pod) *Pod {
	if len(pods) == 0 {
		return nil
	}
	rank := func(p *Pod) int {
		switch {
		case p.State.Available:
			return 0
		case p.State.Ready:
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

// count adds a node and its pods to those of their revisions, and to the total.
func (j *Judge) count(s *NodeState) {
	if s.Counts() {
		j.Total.Desired++
		j.Counts[s.Want.Name].Desired++
	}
	if s.Current != nil {
		j.Total.add(s.Current)
		j.Counts[s.Want.Name].add(s.Current)
	}
	if s.Outdated == nil || s.Kept {
		return
	}
	j.Total.add(s.Outdated)
	if counts := j.Counts[ReplicaSetOf(s.Outdated.Pod)]; counts != nil {
		counts.add(s.Outdated)
	}
}

func (c *PodCounts) add(p *Pod) {
	c.Current++
	if p.State.Ready {
		c.Ready++
	}
	if p.State.Available {
		c.Available++
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
	if ready := nodeCondition(n, corev1.NodeReady); ready == nil || ready.Status != corev1.ConditionTrue {
		return "the node is not ready"
	}
	for i := range n.Claims {
		if c := &n.Claims[i]; !c.Parked() {
			return "claimed by " + c.Rollout
		}
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained} {
		if c := nodeCondition(n, kind); c != nil && c.Status == corev1.ConditionTrue {
			return string(kind)
		}
	}
	return ""
}

func nodeCondition(n *rollout.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Conditions {
		if n.Conditions[i].Type == kind {
			return &n.Conditions[i]
		}
	}
	return nil
}

// readySince is since when a node is ready; zero when it is not, or that is unknown.
func readySince(n *rollout.Node) time.Time {
	if c := nodeCondition(n, corev1.NodeReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// settleTime is for how long after a node has become ready the node is the cause of restarts there.
const settleTime = time.Minute

// causesRestarts reports whether the node is the cause of what happens to a pod: it has a problem now, or the pod's last restart was
// before the node became ready again. A quick reboot does not show in the node's conditions, but in how the container ended.
func (s *NodeState) causesRestarts(p *Pod) bool {
	if s.NodeProblem != "" || p.State.Lost {
		return true
	}
	ready := readySince(s.Known)
	return !p.State.LastRestart.IsZero() && !ready.IsZero() && !p.State.LastRestart.After(ready.Add(settleTime)) && p.CreationTimestamp.Time.Before(ready)
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
