// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// nodeState is the part of a Node that the agent reads: what operator and agent have written.
type nodeState struct {
	protocol      v1alpha1.HostProtocol
	hostInterface string

	// Written by the operator. orderedIn is the boot id at the time of the order to reboot, if known. claimError says why the claims
	// can't be read.
	wanted     v1alpha1.HostAction
	version    string
	orderedIn  string
	claimError error

	// Written by the agent, or by another agent before it.
	active   v1alpha1.HostAction
	state    v1alpha1.HostState
	target   string
	runs     string
	previous string
	boot     string
	attempts int

	// meta is the Node that was read.
	meta *metav1.PartialObjectMetadata
}

// readNode reads a Node. It returns false if no label names the interface of its host.
func readNode(n *metav1.PartialObjectMetadata) (*nodeState, bool) {
	protocol, hostInterface, ok := v1alpha1.HostProtocolOf(n.Labels)
	if !ok {
		return nil, false
	}
	attempts, _ := strconv.ParseInt(n.Annotations[v1alpha1.AnnotationHostAttempts], 10, 32) // An invalid number counts as 0, a large one as the largest.
	s := &nodeState{
		protocol:      protocol,
		hostInterface: hostInterface,
		wanted:        v1alpha1.HostAction(n.Annotations[protocol.Wanted]),
		version:       n.Annotations[v1alpha1.AnnotationHostWanted],
		active:        v1alpha1.HostAction(n.Annotations[protocol.Active]),
		state:         v1alpha1.HostState(n.Annotations[protocol.State]),
		target:        n.Annotations[v1alpha1.AnnotationHostTarget],
		runs:          n.Annotations[v1alpha1.AnnotationHostVersion],
		previous:      n.Annotations[v1alpha1.AnnotationHostPrevious],
		boot:          n.Annotations[v1alpha1.AnnotationHostBoot],
		attempts:      max(int(attempts), 0),
		meta:          n,
	}
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	s.claimError = err
	for i := range claims {
		if claims[i].Failed == nil && claims[i].BootID != "" {
			s.orderedIn = claims[i].BootID
		}
	}
	return s, true
}

// intent returns the protocol's keys in one word: "wanted,active,state update:available".
func (s *nodeState) intent() string {
	return fmt.Sprintf("%s,%s,%s update:%s", s.wanted, s.active, s.state, s.meta.Annotations[s.protocol.Update])
}

// step is what an agent does next.
type step int

const (
	// idle: every wanted action is done.
	idle step = iota
	// acknowledge: acknowledge the wanted action on the Node. The write shows that it is still wanted.
	acknowledge
	// act: do the wanted action, which an earlier process may have begun.
	act
)

// next returns the agent's next step.
func (s *nodeState) next() step {
	switch {
	case !isKnown(s.wanted), s.active == s.wanted && s.state != v1alpha1.HostStateBusy:
		return idle
	case s.active != s.wanted && (s.wanted == v1alpha1.HostActionReset || !isCheck(s.wanted)):
		return acknowledge // Other checks change nothing on the host, and only their result is written.
	}
	return act
}

// isKnown reports whether the agent knows the action.
func isKnown(action v1alpha1.HostAction) bool {
	return isCheck(action) || slices.Contains(v1alpha1.HostActionsOfTurn, action)
}

// isCheck reports whether an action only finds out whether there is an update, or also reverts one that was performed.
func isCheck(action v1alpha1.HostAction) bool {
	return action == v1alpha1.HostActionStabilize || action == v1alpha1.HostActionUnknown || action == v1alpha1.HostActionReset
}

// mayCheck reports whether a periodic check may run: the operator has requested a check before, and the host is not in a turn.
func (s *nodeState) mayCheck() bool {
	return s.next() == idle && isCheck(s.wanted) && (s.state == v1alpha1.HostStateReady || s.state == v1alpha1.HostStateError)
}
