// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/rollout"
)

// Rules are the settings in the rollout's spec.
type Rules struct {
	// Surge is how many extra machines a set may have.
	Surge rollout.Amount
	// OnFull says what happens if no machine can be added.
	OnFull v1alpha1.OnFull
	// Timeout is how long a replacement has to become ready. KeepFailed is how long a failed replacement is kept.
	Timeout, KeepFailed time.Duration
	// StartupTaints are keys of taints that a ready replacement must not have, in addition to the list starting.
	StartupTaints []string
	// MatchOSImage is true where the OS image of a node says whether its machine is outdated.
	MatchOSImage bool
	// ControlPlane is true if nodes leave the control plane before their machines are deleted.
	ControlPlane bool
	// Drains is true if nodes are drained. Wait is how long load balancers have to remove a node before that.
	Drains bool
	Wait   time.Duration
	// DetectOnly touches nothing.
	DetectOnly bool
	// Strategy of the rollout, or nil: its retries, turnTimeout and waves. The progress of waves counts for one revision only.
	Strategy *v1alpha1.Strategy
	// Ending is true once the rollout is being deleted.
	Ending bool
	// ScaleSets are the scale sets of the rollout; none means all scale sets of its nodes.
	ScaleSets []string
}

// Ended is how an operation ended. The set was read after that.
type Ended struct {
	// OK is true if it succeeded. NoRoom is true if the cloud had no quota or no room: it may have added fewer machines.
	OK, NoRoom bool
	// Added are the machines that it has added.
	Added []string
	// Message says what went wrong.
	Message string
}

// Set is a scale set as it was read last.
type Set struct {
	cloud.Set
	Machines []cloud.Machine
	// Known is true after the set was read. Deleted is true after the set was deleted.
	Known, Deleted bool
	// LookedAt is when the set was read. Missing is since when machines of turns are not listed, by id.
	LookedAt time.Time
	Missing  map[string]time.Time
	// Reason and Message say why the set can't be read or changed now. NoRoom and NoRoomMessage say why no machine can be added.
	Reason        v1alpha1.Reason
	Message       string
	NoRoom        v1alpha1.Reason
	NoRoomMessage string
	// Declined is the cloud's last answer if it refuses to add machines for a reason that waiting does not remove.
	Declined string
	// Trouble and TroubleMessage are the first problem that is not solved yet, also while the request is repeated.
	Trouble        v1alpha1.Reason
	TroubleMessage string
	// Careful is true after an addition failed: then one machine is ordered at a time.
	Careful bool
	// Refused is how many additions failed in a row. Each time another turn comes first.
	Refused int
	// Operations under way. Ended are the results of others.
	Operations []v1alpha1.CloudOperation
	Ended      map[string]Ended
	// Added are the machines that additions under way have made so far, by token, if known.
	Added map[string][]string
}

// Machine of that id; nil if it is not listed.
func (s *Set) Machine(id string) *cloud.Machine {
	return rollout.Find(s.Machines, func(m *cloud.Machine) bool { return m.ID == id && id != "" })
}

// Operation of that token; nil if there is none.
func (s *Set) Operation(token string) *v1alpha1.CloudOperation {
	return rollout.Find(s.Operations, func(o *v1alpha1.CloudOperation) bool { return o.Token == token && token != "" })
}

// MissingFor is how long a machine must be missing from the list before it counts as gone.
const MissingFor = 15 * time.Second

// isMissing reports whether the last list of machines lacks this one. It is false in a set that was not read.
func (s *Set) isMissing(id string) bool { return id != "" && s.Known && s.Machine(id) == nil }

// isGone reports whether a machine no longer exists: it is missing from two lists, MissingFor apart.
func (s *Set) isGone(id string) bool {
	since, ok := s.Missing[id]
	return ok && s.isMissing(id) && !s.LookedAt.Before(since.Add(MissingFor))
}

// Node is a Node, with its claim and marks by the rollout.
type Node struct {
	*corev1.Node
	// Claim is the rollout's own, or nil.
	Claim *v1alpha1.Claim
	// Unreadable is true when its claims can't be read.
	Unreadable bool
	// Selected by the rollout, and OptedOut of it.
	Selected, OptedOut bool
	// Marked is true when the rollout has cordoned it, or excludes it from load balancers.
	Marked bool
	// NoScaleDown is true if the rollout disabled its scale-down by the cluster autoscaler.
	NoScaleDown bool
	// Foreign is true if another rollout holds a claim on it.
	Foreign bool
	// MayDisableScaleDown is true if the rollout may set the annotation that disables scale-down.
	MayDisableScaleDown bool
}

// World is the input of all decisions about a rollout.
type World struct {
	Rules
	Now      time.Time
	Revision string
	Sets     map[string]*Set
	Nodes    map[string]*Node
	// Unhealthy says why a node is not healthy, or "", and when the passing of time can change that.
	Unhealthy func(node string) (why string, next time.Time)
	// Unstable says why the pods of a node are not healthy since a turn's soak began.
	Unstable func(t *Turn, node string) (why string, next time.Time)
	// SoakEnd is when the soak of a node that was changed at this time ends.
	SoakEnd func(node string, since time.Time) time.Time
	// Attempt is a hash of what a turn in this set depends on. Node may be nil.
	Attempt func(set *Set, node *Node) string
	// Rank orders the nodes that may start, by their uid.
	Rank func(uid types.UID) uint64
	// Drained are the drained nodes, by Key, without those that were cordoned again since. Left are the nodes that have left the control plane, by
	// LeftKey.
	Drained, Left map[string]bool
	// Unreadable and UnreadableMessage say why the cloud or a scale set can't be read: then the model of some set is not known.
	Unreadable        v1alpha1.Reason
	UnreadableMessage string

	index *index
	// turns are the turns that Judge was given, and those that it has added.
	turns []*Turn
}

// index finds machines and Nodes by their provider ids, in lower case.
type index struct {
	machines map[string]member
	// nodes has the newest Node of an id first.
	nodes map[string][]*Node
}

// member is a machine of a set.
type member struct {
	set     *Set
	machine *cloud.Machine
}

// ids returns the index. Judge builds it before turns are carried out in parallel. Machines and Nodes must not be added after that.
func (w *World) ids() *index {
	if w.index != nil {
		return w.index
	}
	w.index = &index{map[string]member{}, map[string][]*Node{}}
	for _, s := range w.Sets {
		for i := range s.Machines {
			w.index.machines[strings.ToLower(s.Machines[i].ProviderID)] = member{s, &s.Machines[i]}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.Nodes)) {
		n := w.Nodes[name]
		id := strings.ToLower(n.Spec.ProviderID)
		w.index.nodes[id] = append(w.index.nodes[id], n)
	}
	for _, nodes := range w.index.nodes {
		slices.SortStableFunc(nodes, func(a, b *Node) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	}
	delete(w.index.machines, "")
	delete(w.index.nodes, "")
	return w.index
}

// duplicateNodes says which Nodes have the machine's provider id, or returns "" for at most one. It is not known which Node is the right one.
func (w *World) duplicateNodes(m *cloud.Machine) string {
	nodes := w.ids().nodes[strings.ToLower(m.ProviderID)]
	if len(nodes) < 2 {
		return ""
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return "several Nodes have the provider id of machine " + m.ID + ": " + strings.Join(names, ", ")
}

// isFor reports whether the rollout is for a scale set of this name.
func (w *World) isFor(name string) bool {
	return len(w.ScaleSets) == 0 || slices.Contains(w.ScaleSets, name)
}

// SetOf is the scale set of a turn; never nil.
func (w *World) SetOf(t *Turn) *Set {
	if s := w.Sets[t.ScaleSet]; s != nil {
		return s
	}
	return &Set{Set: cloud.Set{Name: t.ScaleSet}}
}

// oldNode is the old Node of a turn, or nil.
func (w *World) oldNode(t *Turn) *Node {
	n := w.Nodes[t.Node]
	if n == nil || t.NodeUID != "" && n.UID != t.NodeUID {
		return nil
	}
	return n
}

// ReplacementNode is the Node of the replacement; nil where there is none.
func (w *World) ReplacementNode(t *Turn) *Node {
	switch m := w.SetOf(t).Machine(t.Replacement); {
	case m != nil:
		return w.NodeOf(m)
	case t.Replacement == "":
		return nil
	}
	return w.Nodes[t.ReplacementNode]
}

// NodeOf is the Node of a machine; nil while there is none.
func (w *World) NodeOf(m *cloud.Machine) *Node { return w.nodeWith(m.ProviderID) }

// nodeWith is the newest Node with this provider id, or nil.
func (w *World) nodeWith(providerID string) *Node {
	if nodes := w.ids().nodes[strings.ToLower(providerID)]; len(nodes) > 0 {
		return nodes[0]
	}
	return nil
}

// MachineOf is the machine of a Node, and its set; nil where it is not known.
func (w *World) MachineOf(n *Node) (*Set, *cloud.Machine) {
	m := w.ids().machines[strings.ToLower(n.Spec.ProviderID)]
	return m.set, m.machine
}

// Outdated reports whether a machine must be replaced. With MatchOSImage the answer is false while the OS image of its Node is not known.
func (w *World) Outdated(s *Set, m *cloud.Machine, n *Node) bool {
	if !w.MatchOSImage {
		return !m.UpToDate
	}
	return n != nil && s.ImageName != "" && n.Status.NodeInfo.OSImage != "" && n.Status.NodeInfo.OSImage != s.ImageName
}

// starting are taints of nodes that are not ready for pods yet; a key that ends in / is a prefix of keys.
var starting = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeOutOfService,
	"node.cloudprovider.kubernetes.io/uninitialized", "node.cloudprovider.kubernetes.io/shutdown", "node.cilium.io/agent-not-ready",
	"readiness.k8s.io/", "startup-taint.cluster-autoscaler.kubernetes.io/",
}

// notReady says why a replacement is not ready yet, or "".
func (w *World) notReady(t *Turn) string {
	n, m := w.ReplacementNode(t), w.SetOf(t).Machine(t.Replacement)
	switch {
	case n == nil:
		return "the node of machine " + t.Replacement + " has not joined yet"
	case m != nil && w.duplicateNodes(m) != "":
		return w.duplicateNodes(m)
	case w.MatchOSImage && w.mayRejectReplacement(t) && n.Status.NodeInfo.OSImage == "":
		return "Node " + n.Name + " does not say yet what its OS image is"
	case n.Spec.Unschedulable:
		return "Node " + n.Name + " is cordoned"
	}
	for _, taint := range n.Spec.Taints {
		isStart := func(start string) bool {
			return taint.Key == start || strings.HasSuffix(start, "/") && strings.HasPrefix(taint.Key, start)
		}
		if slices.ContainsFunc(starting, isStart) || slices.Contains(w.StartupTaints, taint.Key) {
			return "Node " + n.Name + " has taint " + taint.Key
		}
	}
	why, next := w.Unhealthy(n.Name)
	if why == "" {
		return ""
	}
	t.wakeAt(next)
	return "Node " + n.Name + " is not healthy: " + why
}
