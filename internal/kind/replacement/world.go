// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Rules are what the rollout's spec comes to.
type Rules struct {
	// Surge is how many machines more than before a set may have.
	Surge rollout.Amount
	// OnFull says what happens where none can be added.
	OnFull v1alpha1.OnFull
	// Timeout is how long a replacement gets to be ready, and KeepFailed for how long one is kept that was not.
	Timeout, KeepFailed time.Duration
	// StartupTaints are keys of taints that a ready replacement does not have, beside those that are known to be of a node that starts.
	StartupTaints []string
	// MatchOSImage is true where the OS image of a node says whether its machine is outdated.
	MatchOSImage bool
	// ControlPlane is true where nodes leave the control plane before they go.
	ControlPlane bool
	// Drains is true where nodes are drained, and Wait how long load balancers get before.
	Drains bool
	Wait   time.Duration
	// DetectOnly touches nothing.
	DetectOnly bool
	// TurnTimeout is how long a turn may take from its claim; 0 is for ever.
	TurnTimeout time.Duration
	// Retries of failed turns; nil is none.
	Retries *v1alpha1.Retries
	// Ending is true once the rollout is being deleted.
	Ending bool
	// ScaleSets are those that the rollout is for; none is all that its nodes are in.
	ScaleSets []string
	// Waves is true where the rollout has waves: how far it has come through them counts for one revision.
	Waves bool
}

// State is the state of a machine.
type State string

// The states of machines.
const (
	Creating State = "Creating"
	Running  State = "Running"
	Failed   State = "Failed"
	Deleting State = "Deleting"
	Stopped  State = "Stopped"
)

// Machine is one machine of a set.
type Machine struct {
	ID, ProviderID, NodeName, Zone string
	// UpToDate is what the cloud says.
	UpToDate  bool
	State     State
	Protected bool
	// Aside says why one is protected that people have set aside.
	Aside   string
	Created time.Time
	Message string
}

// Ended is how an operation ended. The set was looked at afterwards.
type Ended struct {
	// OK is true when it has ended well. NoRoom is true when there was no quota or no room, and nothing was done.
	OK, NoRoom bool
	// Added are the machines that it has added.
	Added []string
	// Message says what went wrong.
	Message string
}

// Set is a scale set.
type Set struct {
	Name, Image, ImageName, Model string
	Capacity, Min, Max            int
	Zones                         []string
	Busy, Unfit                   string
	Machines                      []Machine
	// Known is false until the set was read, and Absent is true once it is deleted.
	Known, Absent bool
	// LookedAt is when, and Missing since when machines of turns are not listed any more.
	LookedAt time.Time
	Missing  map[string]time.Time
	// Heals is true where the cloud itself replaces machines that fail.
	Heals bool
	// Reason and Message say why the set can't be looked at or changed now, and NoRoom and NoRoomMessage why no machine can be added.
	Reason        v1alpha1.Reason
	Message       string
	NoRoom        v1alpha1.Reason
	NoRoomMessage string
	// Declined is why the cloud adds no machine whatever time it is given, by its last answer.
	Declined string
	// Trouble and TroubleMessage are the last of these, also while the request is repeated.
	Trouble        v1alpha1.Reason
	TroubleMessage string
	// Careful is true where machines that were ordered were not added: one is ordered at a time.
	Careful bool
	// Operations under way, and how those ended that have.
	Operations []v1alpha1.CloudOperation
	Ended      map[string]Ended
	// Added are the machines that additions under way have made so far, by their tokens, as far as that is known.
	Added map[string][]string
}

// Machine of that id; nil if it is not listed.
func (s *Set) Machine(id string) *Machine {
	if s == nil || id == "" {
		return nil
	}
	for i := range s.Machines {
		if s.Machines[i].ID == id {
			return &s.Machines[i]
		}
	}
	return nil
}

// Operation of that token; nil if there is none.
func (s *Set) Operation(token string) *v1alpha1.CloudOperation {
	if s == nil || token == "" {
		return nil
	}
	for i := range s.Operations {
		if s.Operations[i].Token == token {
			return &s.Operations[i]
		}
	}
	return nil
}

// MissingFor is how long a machine must not have been listed until it counts as gone.
const MissingFor = 15 * time.Second

// Node is a Node, and what the rollout has to do with it.
type Node struct {
	*corev1.Node
	// Claim is the rollout's own, or nil.
	Claim *v1alpha1.Claim
	// Unreadable is true when its claims can't be read.
	Unreadable bool
	// Selected by the rollout, and OptedOut of it.
	Selected, OptedOut bool
	// Marked is true when the rollout has cordoned it, or keeps it from load balancers.
	Marked bool
	// Shielded is true when the rollout keeps the cluster autoscaler from it.
	Shielded bool
	// Foreign is true when another rollout has a claim on it that still holds it.
	Foreign bool
	// Shieldable is true when the annotation that keeps the cluster autoscaler from it is free.
	Shieldable bool
}

// World is all that a rollout is judged by.
type World struct {
	Rules
	Now      time.Time
	Revision string
	Sets     map[string]*Set
	Nodes    map[string]*Node
	// Unhealthy says why a node is not healthy, "" if it is, and when the clock alone can change that.
	Unhealthy func(node string) (why string, next time.Time)
	// Unstable says why the pods of a node are not healthy since a turn's soak began.
	Unstable func(t *Turn, node string) (why string, next time.Time)
	// SoakEnd is when a node has soaked that was changed at this time.
	SoakEnd func(node string, since time.Time) time.Time
	// Attempt identifies what a turn in this set is begun for. Node may be nil.
	Attempt func(set *Set, node *Node) string
	// Rank orders what may start, by the uid of its Node.
	Rank func(uid types.UID) uint64
	// Drained are the nodes that are drained, by Key: those that were cordoned again are not. Left are those that have left the control plane, by LeftKey.
	Drained, Left map[string]bool
	// Held are the operations, by their tokens, that are written down and must not be sent yet: their node is not empty.
	Held map[string]bool
	// Unjoined says, by turn, why a replacement is no member of the control plane, and Waits why a node can't leave it.
	Unjoined, Waits map[string]string
	// Stays says, by turn, why a replacement that failed can't leave the control plane.
	Stays map[string]string
	// Closed says why no turn of the control plane can begin.
	Closed string
	// Blind and BlindMessage say why it is not known of all sets what their machines are made of.
	Blind        v1alpha1.Reason
	BlindMessage string

	index *index
	// turns are those that Judge was called with, and those that it has added.
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
	machine *Machine
}

// ids is the index, which is made when it is first needed: sets and nodes must not change after that.
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

// duplicateNodes says which Nodes have the machine's provider id, or "" if it is one at most. Which of them it is, and whose pods run there, is not known.
func (w *World) duplicateNodes(m *Machine) string {
	var names []string
	for _, n := range w.ids().nodes[strings.ToLower(m.ProviderID)] {
		names = append(names, n.Name)
	}
	if len(names) < 2 {
		return ""
	}
	slices.Sort(names)
	return "Nodes " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " both say that they are machine " + m.ID
}

// isFor reports whether the rollout is for a scale set of this name.
func (w *World) isFor(name string) bool {
	return len(w.ScaleSets) == 0 || slices.Contains(w.ScaleSets, name)
}

// set of a turn; never nil.
func (w *World) set(name string) *Set {
	if s := w.Sets[name]; s != nil {
		return s
	}
	return &Set{Name: name}
}

// oldNode is the Node that goes; nil where there is none.
func (w *World) oldNode(t *Turn) *Node {
	n := w.Nodes[t.Node]
	if n == nil || t.NodeUID != "" && n.UID != t.NodeUID {
		return nil
	}
	return n
}

// ReplacementNode is the Node of the replacement; nil where there is none.
func (w *World) ReplacementNode(t *Turn) *Node {
	m := w.set(t.ScaleSet).Machine(t.Replacement)
	if m == nil {
		if n := w.Nodes[t.ReplacementNode]; n != nil && t.Replacement != "" {
			return n
		}
		return nil
	}
	return w.NodeOf(m)
}

// NodeOf is the Node of a machine; nil while there is none.
func (w *World) NodeOf(m *Machine) *Node { return w.nodeWith(m.ProviderID) }

// nodeWith is the newest Node with this provider id, or nil.
func (w *World) nodeWith(providerID string) *Node {
	if nodes := w.ids().nodes[strings.ToLower(providerID)]; len(nodes) > 0 {
		return nodes[0]
	}
	return nil
}

// MachineOf is the machine of a Node, and its set; nil where it is not known.
func (w *World) MachineOf(n *Node) (*Set, *Machine) {
	m := w.ids().machines[strings.ToLower(n.Spec.ProviderID)]
	return m.set, m.machine
}

// Outdated reports whether a machine must be replaced. Its Node may be nil, and may not say yet what runs there: then that is not known.
func (w *World) Outdated(s *Set, m *Machine, n *Node) bool {
	if !w.MatchOSImage {
		return !m.UpToDate
	}
	return n != nil && s.ImageName != "" && n.Status.NodeInfo.OSImage != "" && n.Status.NodeInfo.OSImage != s.ImageName
}

// gone reports whether a machine is not there any more, and when that may be known: two lists without it are needed, some time apart. In a set that is not known
// nothing is gone.
func (w *World) gone(s *Set, id string) (gone bool, at time.Time) {
	if !s.Known || id == "" || s.Machine(id) != nil {
		return false, at
	}
	since, ok := s.Missing[id]
	if !ok {
		return false, w.Now.Add(MissingFor)
	}
	at = since.Add(MissingFor)
	if !s.LookedAt.Before(at) {
		return true, time.Time{}
	}
	if !w.Now.Before(at) {
		at = w.Now.Add(MissingFor) // It is time to look again, and that was not possible yet.
	}
	return false, at
}

// isGone reports whether a machine of a turn is gone. While that is uncertain the turn is judged again in time.
func (w *World) isGone(t *Turn, id string) (gone, uncertain bool) {
	gone, at := w.gone(w.set(t.ScaleSet), id)
	t.wakeAt(at)
	return gone, !at.IsZero()
}

// starting are taints of nodes that are not ready for pods yet; a key that ends in / is that of all below it.
var starting = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNetworkUnavailable, corev1.TaintNodeOutOfService,
	"node.cloudprovider.kubernetes.io/uninitialized", "node.cloudprovider.kubernetes.io/shutdown", "node.cilium.io/agent-not-ready",
	"readiness.k8s.io/", "startup-taint.cluster-autoscaler.kubernetes.io/",
}

// notReady says why a replacement can't take a place yet, or "".
func (w *World) notReady(t *Turn) string {
	n := w.ReplacementNode(t)
	if n == nil {
		return "the node of machine " + t.Replacement + " has not joined yet"
	}
	if _, m := w.MachineOf(n); m != nil && w.duplicateNodes(m) != "" {
		return w.duplicateNodes(m)
	}
	if w.MatchOSImage && w.mayRejectReplacement(t) && n.Status.NodeInfo.OSImage == "" {
		return "Node " + n.Name + " does not say yet what its OS image is"
	}
	if n.Spec.Unschedulable {
		return "Node " + n.Name + " is cordoned"
	}
	for i := range n.Spec.Taints {
		key := n.Spec.Taints[i].Key
		isStart := func(start string) bool {
			return key == start || strings.HasSuffix(start, "/") && strings.HasPrefix(key, start)
		}
		if slices.ContainsFunc(starting, isStart) || slices.Contains(w.StartupTaints, key) {
			return "Node " + n.Name + " has taint " + key
		}
	}
	why, next := w.Unhealthy(n.Name)
	if why == "" {
		return ""
	}
	t.wakeAt(next)
	return "Node " + n.Name + " is not healthy: " + why
}

func stamp(t time.Time) metav1.Time { return metav1.Time{Time: t.UTC().Truncate(time.Second)} }
