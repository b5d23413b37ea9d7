// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HostProtocol is the keys by which the operator and the agent of one host speak to each other on its Node. The key of the
// label that names the host's interface tells which protocol it is. The first two are those of the Bottlerocket update
// operator and of Dogswatch; hosts of both may be in one cluster.
type HostProtocol struct {
	// InterfaceLabel is the label whose value names the interface by which the agent reaches the host: one of Interface….
	InterfaceLabel string
	// Wanted is the annotation in which the operator says what is to be done: one of HostAction….
	Wanted string
	// Active is the annotation in which the agent says what it has taken up.
	Active string
	// State is the annotation in which the agent says how that stands: one of HostState….
	State string
	// Update is the annotation, and the label, in which the agent says whether there is an update: one of HostUpdate….
	Update string
}

// HostProtocols are all there are. A Node that has the label of several speaks the first of them.
var HostProtocols = []HostProtocol{
	hostProtocol("bottlerocket.aws", "updater-interface-version"),
	hostProtocol("thar.amazonaws.com", "platform-version"),
	hostProtocol(GroupName, "updater-interface-version"),
}

func hostProtocol(prefix, label string) HostProtocol {
	return HostProtocol{
		InterfaceLabel: prefix + "/" + label, Wanted: prefix + "/action-wanted", Active: prefix + "/action-active",
		State: prefix + "/action-state", Update: prefix + "/update-available",
	}
}

// HostProtocolOf tells from a Node's labels which protocol its host speaks, and the value of the label; false if none.
func HostProtocolOf(labels map[string]string) (p HostProtocol, hostInterface string, ok bool) {
	for _, p := range HostProtocols {
		if value, ok := labels[p.InterfaceLabel]; ok {
			return p, value, true
		}
	}
	return HostProtocol{}, "", false
}

// The interfaces of hosts. Dogswatch's label has any value; what is none of these there is Updog.
const (
	// InterfaceUpdog is Bottlerocket's updog, run in the host's root directory.
	InterfaceUpdog = "1.0.0"
	// InterfaceUpdateAPI is Bottlerocket's Update API, on its Unix socket.
	InterfaceUpdateAPI = "2.0.0"
	// InterfaceSentinel is any Linux host: a file or a command says that a reboot is needed, and a command reboots.
	InterfaceSentinel = "sentinel"
)

// HostAction is what a host is to do, or does.
type HostAction string

// What a host is to do. The operator asks for them in this order.
const (
	// HostActionUnknown: nothing is known; the operator is about to say HostActionStabilize.
	HostActionUnknown HostAction = "unknown"
	// HostActionStabilize: find out whether there is an update. Nothing on the host is changed.
	HostActionStabilize HostAction = "stabilize"
	// HostActionPrepare: fetch the update. The host goes on with what it runs.
	HostActionPrepare HostAction = "prepare-update"
	// HostActionPerform: make the next boot one into the update.
	HostActionPerform HostAction = "perform-update"
	// HostActionReboot: reboot. Only this disrupts what runs on the node.
	HostActionReboot HostAction = "reboot-update"
	// HostActionReset: take back what was performed, so that the next boot is one into what runs, and find out whether there is an update. It
	// ends a turn that is given up after HostActionPerform. Only Moult's agents do more than for HostActionStabilize.
	HostActionReset HostAction = "reset-state"
)

// HostState is how an action stands.
type HostState string

// How an action stands.
const (
	HostStateUnknown HostState = "unknown"
	HostStateBusy    HostState = "busy"
	HostStateReady   HostState = "ready"
	HostStateError   HostState = "error"
)

// Whether there is an update, as values of HostProtocol.Update.
const (
	HostUpdateTrue    = "true"
	HostUpdateFalse   = "false"
	HostUpdateUnknown = "unknown"
)

// Keys of Moult's own beside those of the protocol, on the Node. All but the first three are the agent's.
const (
	// AnnotationHostWanted is the version that the host is to be brought to, which the operator writes with HostActionPrepare. An agent
	// whose host has another one to offer by then does nothing and says HostStateError. Absent: whatever the host offers.
	AnnotationHostWanted = "moult.dev/host-wanted"
	// LabelBeforeReboot is "true" while the operator waits for the annotations of spec.hostUpdate.hooks.beforeReboot.
	LabelBeforeReboot = "moult.dev/before-reboot"
	// LabelAfterReboot is "true" while it waits for those of afterReboot.
	LabelAfterReboot = "moult.dev/after-reboot"

	// AnnotationHostVersion is the version that the host runs.
	AnnotationHostVersion = "moult.dev/host-version"
	// AnnotationHostTarget is the version that the host has to offer; absent where there is none, or none that has a name.
	AnnotationHostTarget = "moult.dev/host-target"
	// AnnotationHostPrevious is the version that the host ran before its last update.
	AnnotationHostPrevious = "moult.dev/host-previous"
	// AnnotationHostAttempts counts how often the target was begun to be prepared. It goes when the host runs it.
	AnnotationHostAttempts = "moult.dev/host-attempts"
	// AnnotationHostError says why the last action ended in HostStateError, in at most 1024 bytes. It goes with the next that succeeds.
	AnnotationHostError = "moult.dev/host-error"
	// AnnotationHostChecked is when the host was last asked for updates and had another answer than before (RFC 3339).
	AnnotationHostChecked = "moult.dev/host-checked"
	// AnnotationHostBoot is the boot id of the boot in which the agent took up HostActionReboot. While the host still has it, it has not rebooted.
	AnnotationHostBoot = "moult.dev/host-boot"
)
