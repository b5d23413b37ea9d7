// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// said is what is said of a host on its Node, as far as the agent acts on it.
type said struct {
	protocol      v1alpha1.HostProtocol
	hostInterface string

	// By the operator. orderedIn is the boot id that the Node had when the operator told the host to reboot, if it is known;
	// unreadable, why that can't be told.
	wanted     v1alpha1.HostAction
	version    string
	orderedIn  string
	unreadable error

	// By the agent, and by what ran here before.
	active v1alpha1.HostAction
	state  v1alpha1.HostState
	update string
	target string
	runs   string
	boot   string
	tries  int

	// meta is where all that was read from.
	meta *metav1.PartialObjectMetadata
}

// hear reads a Node. It returns false if no label names the interface of its host.
func hear(n *metav1.PartialObjectMetadata) (*said, bool) {
	protocol, hostInterface, ok := v1alpha1.HostProtocolOf(n.Labels)
	if !ok {
		return nil, false
	}
	// What can't be read as a number is none.
	tries, _ := strconv.Atoi(n.Annotations[v1alpha1.AnnotationHostAttempts])
	s := &said{
		protocol:      protocol,
		hostInterface: hostInterface,
		wanted:        v1alpha1.HostAction(n.Annotations[protocol.Wanted]),
		version:       n.Annotations[v1alpha1.AnnotationHostWanted],
		active:        v1alpha1.HostAction(n.Annotations[protocol.Active]),
		state:         v1alpha1.HostState(n.Annotations[protocol.State]),
		update:        n.Annotations[protocol.Update],
		target:        n.Annotations[v1alpha1.AnnotationHostTarget],
		runs:          n.Annotations[v1alpha1.AnnotationHostVersion],
		boot:          n.Annotations[v1alpha1.AnnotationHostBoot],
		tries:         max(tries, 0),
		meta:          n,
	}
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	s.unreadable = err
	for i := range claims {
		if claims[i].Failed == nil && claims[i].BootID != "" {
			s.orderedIn = claims[i].BootID
		}
	}
	return s, true
}

// intent is all that the protocol says, in one word: "wanted,active,state update:available".
func (s *said) intent() string {
	return fmt.Sprintf("%s,%s,%s update:%s", s.wanted, s.active, s.state, s.update)
}

// step is what an agent does next.
type step int

const (
	// idle: nothing is asked that is not done.
	idle step = iota
	// acknowledge: say that what is asked is taken up.
	acknowledge
	// carryOn: do what has been taken up, perhaps by a process before this one.
	carryOn
)

// next is what to do about what is said.
func (s *said) next() step {
	switch {
	case !known(s.wanted):
		return idle
	case s.active != s.wanted:
		return acknowledge
	case s.state == v1alpha1.HostStateBusy:
		return carryOn
	}
	return idle
}

// known reports whether an action is one that an agent can take up.
func known(action v1alpha1.HostAction) bool {
	switch action {
	case v1alpha1.HostActionPrepare, v1alpha1.HostActionPerform, v1alpha1.HostActionReboot:
		return true
	}
	return looks(action)
}

// looks reports whether an action only finds out whether there is an update.
func looks(action v1alpha1.HostAction) bool {
	return action == v1alpha1.HostActionStabilize || action == v1alpha1.HostActionUnknown || action == v1alpha1.HostActionReset
}

// mayCheck reports whether the host may be asked for updates without being told to: it was told to before, and is not in a turn.
func (s *said) mayCheck() bool {
	return s.next() == idle && looks(s.wanted) && (s.state == v1alpha1.HostStateReady || s.state == v1alpha1.HostStateError)
}

// rebootStep is what is left to do of a reboot that was taken up.
type rebootStep int

const (
	// order: the host is in the boot in which the reboot was taken up. If it was told already, nothing came of it yet.
	order rebootStep = iota
	// verify: the host has rebooted since; what does it run?
	verify
	// verifyOnly: another agent took the reboot up, and did not say in which boot. A second reboot must not be.
	verifyOnly
)

// reboot is what is left to do of a reboot, in this boot.
func (s *said) reboot(boot string) rebootStep {
	switch s.boot {
	case "":
		return verifyOnly
	case boot:
		return order
	}
	return verify
}

// goal is the version that the host is to run in the end; empty if that is not known, or versions have no name.
func (s *said) goal() string {
	if s.version != "" {
		return s.version
	}
	return s.target
}
