// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// NodeState is one node, the pods that the ExtendedDaemonSet has there, and those that it should have.
type NodeState struct {
	Node *corev1.Node
	// Claims are those of all rollouts on the node.
	Claims []v1alpha1.Claim
	// Want is the revision that the node should have.
	Want      *ReplicaSet
	Placement Placement
	Overrides Overrides
	// Canary is true for a node of the canary. Fits is true if the canary's pod can run there. Held is true for another node if a budget lets
	// no canary start there. StartCanary sets both.
	Canary, Fits, Held bool
	// Current is the pod of the wanted revision, Outdated a pod of another. Each may be nil.
	Current, Outdated *Pod
	// Recreated is true while the outdated pod belongs to a DaemonSet that would create it again.
	Recreated bool
	// WasOnlyCanary is true where the outdated pod is of a revision that was only ever a canary.
	WasOnlyCanary bool
	// Terminating is a pod that was deleted and still exists. Ended is a pod that has ended and is deleted later.
	Terminating, Ended *Pod
	// Stuck is true when a pod terminates for longer than it should.
	Stuck bool
	// Refused is when and why the API server last refused the missing pod; zero if it did not.
	Refused Refusal
	// Invalid says which of the node's annotations can't be read, or "".
	Invalid string
	// Extra pods are deleted in any case.
	Extra []*Pod
	// NodeProblem says why problems on the node are not caused by its pods, or is "".
	NodeProblem string
	// NoPod says why a node without a pod gets none yet. Its Reason is "" on all other nodes.
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
	All, Current, Ready, Available int32
	// Desired is the number of nodes that should run the revision. Unresponsive is on how many of them a pod is not
	// scheduled, or does not terminate in time.
	Desired, Unresponsive int32
}

// counts returns the counts of a revision; "" is for pods without a revision.
func (j *Judge) counts(revision string) *PodCounts {
	if j.Counts[revision] == nil {
		j.Counts[revision] = &PodCounts{}
	}
	return j.Counts[revision]
}

// total returns the sum of the counts of all revisions.
func (j *Judge) total() (sum PodCounts) {
	for _, c := range j.Counts {
		sum.Desired, sum.Unresponsive = sum.Desired+c.Desired, sum.Unresponsive+c.Unresponsive
		sum.Current, sum.Ready, sum.Available = sum.Current+c.Current, sum.Ready+c.Ready, sum.Available+c.Available
	}
	return sum
}

// State returns the state of a node, or nil.
func (j *Judge) State(node string) *NodeState {
	i, ok := slices.BinarySearchFunc(j.States, node, func(s *NodeState, name string) int { return strings.Compare(s.Node.Name, name) })
	if !ok {
		return nil
	}
	return j.States[i]
}

// CanaryNodes returns the canary's nodes, from the status.
func (j *Judge) CanaryNodes() []string {
	if c := j.EDS.Status.Canary; c != nil && c.ReplicaSet == j.Target.Name && j.CanaryWanted() {
		return c.Nodes
	}
	return nil
}

// PlacerOf returns on which nodes pods of a revision belong.
func (j *Judge) PlacerOf(rs *ReplicaSet) (*Placer, error) {
	placer, err := NewPlacer(j.Spec.Selector, &rs.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("reading where pods of revision %s belong, %w", rs.Name, err)
	}
	return placer, nil
}

// Survey finds the state of each node. The nodes of the canary should have the target revision, and all others the active one.
func (j *Judge) Survey(canaryNodes []string) (err error) {
	if j.active, err = j.PlacerOf(j.Active); err != nil {
		return err
	}
	if j.target, err = j.PlacerOf(j.Target); err != nil {
		return err
	}
	onNode := make(map[string][]*corev1.Pod, len(j.Pods))
	for i, pod := range j.Pods {
		node := NodeOf(pod)
		if there := onNode[node]; there != nil {
			onNode[node] = append(there, pod)
		} else {
			onNode[node] = j.Pods[i : i+1 : i+1] // Most nodes have one pod.
		}
	}
	j.States, j.Orphans, j.Counts = make([]*NodeState, 0, len(j.Nodes)), nil, map[string]*PodCounts{}
	for _, n := range j.Nodes {
		s := &NodeState{Node: n, Claims: j.Fleet.Nodes[n.Name].Claims, Want: j.Active, Canary: slices.Contains(canaryNodes, n.Name)}
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
			if s.Overrides, invalid = OverridesOf(j.key, s.Want.Spec.Template.Spec.Containers, n, j.settings); invalid != nil {
				s.Invalid = "node " + n.Name + ": " + invalid.Error()
			}
		}
		s.NodeProblem = s.nodeProblem()
		s.assign(j, pods)
		if s.lacksPod() {
			s.Refused = j.Refused[n.Name]
		}
		if s.IsCounted() && !s.IsMisplaced() {
			j.counts(s.Want.Name).Desired++
		}
		j.States = append(j.States, s)
	}
	for _, pods := range onNode {
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" { // Kubernetes deletes the others.
				j.Orphans = append(j.Orphans, pod)
			}
		}
	}
	return nil
}

// assign sorts the pods on the node into the fields of the state.
func (s *NodeState) assign(j *Judge, pods []*corev1.Pod) {
	var space [2]*Pod
	current, outdated := space[:0:1], space[1:1]
	minReady := time.Duration(j.Spec.MinReadySeconds) * time.Second
	for _, pod := range pods {
		j.counts(ReplicaSetOf(pod)).All++
		p := &Pod{Pod: pod, State: StateOfPod(pod, minReady, j.Now)}
		j.WakeAt(p.State.Wake)
		switch {
		case j.Recreated[pod.UID]:
			if !p.State.Terminating && !p.State.Failed {
				s.Outdated, s.Recreated = p, true
			}
		case p.State.Terminating:
			s.Terminating = p
			s.Stuck = s.Stuck || p.State.Unresponsive
		case !s.Placement.Keep:
			s.Extra = append(s.Extra, p)
		case p.State.Failed && !j.HasPassed(pod.CreationTimestamp.Add(endedPodAge)):
			s.Ended = p
		case p.State.Failed:
			s.Extra = append(s.Extra, p)
		case ReplicaSetOf(pod) == s.Want.Name && UpToDate(pod, s.Want.Spec.TemplateGeneration, s.Overrides):
			current = append(current, p)
		default:
			outdated = append(outdated, p)
		}
	}
	s.Current = s.keepBest(current)
	if best := s.keepBest(outdated); best != nil {
		s.Outdated, s.Recreated = best, false
	}
	if s.Current != nil && s.Outdated != nil && !s.Recreated && !j.Surges() {
		// Two pods without surge: the second was created by a process that did not see the first.
		if s.Current.Available() || !s.Outdated.Available() {
			s.Extra, s.Outdated = append(s.Extra, s.Outdated), nil
		} else {
			s.Extra, s.Current = append(s.Extra, s.Current), nil
		}
	}
	if s.Current != nil {
		j.counts(s.Want.Name).add(s.Current)
	}
	if s.Outdated != nil && !s.Recreated {
		s.WasOnlyCanary = j.isOnlyCanary(s.Outdated)
		if !s.IsMisplaced() {
			j.counts(ReplicaSetOf(s.Outdated.Pod)).add(s.Outdated)
		}
	}
}

// endedPodAge is the least age of an ended pod before it is deleted. It limits how often pods are created and deleted on a node where they
// end at once.
const endedPodAge = time.Minute

// keepBest returns the best of several pods: an available one, or else the oldest. The others are extra.
func (s *NodeState) keepBest(pods []*Pod) *Pod {
	if len(pods) == 0 {
		return nil
	}
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	best := max(0, slices.IndexFunc(pods, (*Pod).Available))
	for i, p := range pods {
		if i != best {
			s.Extra = append(s.Extra, p)
		}
	}
	return pods[best]
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

// surgesOn reports whether the node's new pod is started beside its outdated one.
func (j *Judge) surgesOn(s *NodeState) bool { return j.Surges() && !s.portsConflict() }

// nodeProblem says why problems on a node are not caused by its pods: the node is not ready, or under maintenance. Else it is "".
func (s *NodeState) nodeProblem() string {
	if ready := nodeCondition(s.Node, corev1.NodeReady); ready.Status != corev1.ConditionTrue {
		return "the node is not ready"
	}
	if i := s.claim(); i >= 0 {
		return "claimed by " + s.Claims[i].Rollout
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained} {
		if nodeCondition(s.Node, kind).Status == corev1.ConditionTrue {
			return string(kind)
		}
	}
	return ""
}

// nodeCondition is a condition of a node; its Status is "" where the node does not have it.
func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	return ptr.Deref(rollout.NodeCondition(n.Status.Conditions, kind), corev1.NodeCondition{})
}

// readySince returns since when a node is ready; zero if it is not ready.
func readySince(n *corev1.Node) time.Time {
	if c := nodeCondition(n, corev1.NodeReady); c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// settleTime is how long after a node becomes ready restarts there are still blamed on the node.
const settleTime = time.Minute

// isToBlame reports whether the node caused the restarts of a pod. The node has a problem now, or the last restart was before
// the node became ready, or at most settleTime later. A quick reboot does not show in the node's conditions, but in how the container ended.
func (s *NodeState) isToBlame(p *Pod) bool {
	if s.NodeProblem != "" || p.State.Lost {
		return true
	}
	ready := readySince(s.Node)
	return !p.State.LastRestart.IsZero() && !ready.IsZero() && !p.State.LastRestart.After(ready.Add(settleTime)) && p.CreationTimestamp.Time.Before(ready)
}

// suspectTime is how long after the creation of a pod its node may break because of it.
const suspectTime = 10 * time.Minute

// mayHaveBroken reports whether the current pod may be why the node is not ready: the node was ready when the pod was created, the pod has not been
// ready since soon after that, and no rollout has a claim on the node.
func (s *NodeState) mayHaveBroken() bool {
	if s.Current == nil || s.Current.State.Ready || len(s.Claims) > 0 {
		return false
	}
	node, created := nodeCondition(s.Node, corev1.NodeReady), s.Current.CreationTimestamp.Time
	c := podCondition(s.Current.Pod, corev1.PodReady) // It keeps the time, while the node's condition changes between False and Unknown.
	return node.Status != corev1.ConditionTrue && !node.LastTransitionTime.Time.Before(created) && c != nil && s.Current.startsOrReady()
}

// MayReplace reports whether a pod waits to be replaced.
func (j *Judge) MayReplace() bool {
	return slices.ContainsFunc(j.States, func(s *NodeState) bool { return s.UnitState() == v1alpha1.UnitOutdated })
}

// Replaced returns the nodes on which a pod is being replaced, and since when: those of actions, and those where a pod terminates or the new one
// is not available yet. A first pod counts too. The node's own problems do not count, and neither does a pod that was ready long after its creation.
func (j *Judge) Replaced() map[string]time.Time {
	nodes := map[string]time.Time{}
	for _, s := range j.States {
		switch {
		case s.NodeProblem != "" || s.UnitState() != v1alpha1.UnitUpdating:
		case s.Current != nil && s.Current.startsOrReady():
			nodes[s.Node.Name] = s.Current.CreationTimestamp.Time
		case s.Current == nil && s.Terminating != nil:
			nodes[s.Node.Name] = DeletedAt(s.Terminating.Pod)
		}
	}
	for _, pod := range j.Actions.Replace {
		nodes[NodeOf(pod)] = j.Now
	}
	for _, s := range j.Actions.Create {
		if s.Refused.At.IsZero() || s.Outdated != nil { // Another attempt to create a missing pod replaces nothing.
			nodes[s.Node.Name] = j.Now
		}
	}
	return nodes
}

// startsOrReady reports whether a pod is ready, or has not been ready since soon after its creation.
func (p *Pod) startsOrReady() bool {
	c := podCondition(p.Pod, corev1.PodReady)
	return p.State.Ready || c == nil || c.LastTransitionTime.Sub(p.CreationTimestamp.Time) < suspectTime
}

// claim returns the index of the claim whose turn is in progress, or -1.
func (s *NodeState) claim() int {
	return slices.IndexFunc(s.Claims, func(c v1alpha1.Claim) bool { return !c.RecordsResult() })
}

// IsCounted reports whether the node should have a pod, or has one. An outdated pod, also of a DaemonSet, counts only if the ExtendedDaemonSet
// may have a pod there.
func (s *NodeState) IsCounted() bool {
	return s.Placement.Create || s.Current != nil || s.Outdated != nil && s.Placement.Keep
}

// IsMisplaced reports whether the node has only an outdated pod, and may not get another one. The pod stays, and the status does not count it.
func (s *NodeState) IsMisplaced() bool {
	return s.Outdated != nil && s.Current == nil && !s.Placement.Create && s.NodeProblem == ""
}

// lacksPod reports whether a pod of the wanted revision is missing.
func (s *NodeState) lacksPod() bool { return s.Placement.Create && s.Current == nil }

// isEmpty reports whether there is no pod on the node.
func (s *NodeState) isEmpty() bool {
	return s.Current == nil && s.Outdated == nil && s.Terminating == nil && s.Ended == nil && len(s.Extra) == 0
}

// UnitState is the state of the node in the rolling update.
func (s *NodeState) UnitState() v1alpha1.UnitState {
	switch {
	case s.Current.Available() && (s.Outdated == nil || s.Recreated):
		return v1alpha1.UnitUpdated
	case s.Current == nil && s.Outdated != nil && s.Terminating == nil:
		return v1alpha1.UnitOutdated
	}
	return v1alpha1.UnitUpdating
}
