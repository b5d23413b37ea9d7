// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// HostProtocol is the set of keys by which the operator and a host's agent communicate on its Node. The interface label's
// key identifies the protocol. The first two protocols are those of the Bottlerocket update operator and of Dogswatch; a
// cluster may have both.
type HostProtocol struct {
	// InterfaceLabel is the label whose value names the agent's interface to the host: one of Interface….
	InterfaceLabel string
	// Wanted is the annotation with the action that the operator requests: one of HostAction….
	Wanted string
	// Active is the annotation with the action that the agent has begun.
	Active string
	// State is the annotation with the state of the active action: one of HostState….
	State string
	// Update is the annotation, and the label, with which the agent reports whether there is an update: one of HostUpdate….
	Update string
}

// HostProtocols are all protocols. The first one whose label a Node has applies.
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

// HostProtocolOf returns the protocol that a Node's labels select, and the value of the interface label; false if there is
// none.
func HostProtocolOf(labels map[string]string) (p HostProtocol, hostInterface string, ok bool) {
	for _, p := range HostProtocols {
		if value, ok := labels[p.InterfaceLabel]; ok {
			return p, value, true
		}
	}
	return HostProtocol{}, "", false
}

// The interfaces of hosts. Dogswatch's label may have any value; unknown values mean Updog.
const (
	// InterfaceUpdog is Bottlerocket's updog, run in the host's root directory.
	InterfaceUpdog = "1.0.0"
	// InterfaceUpdateAPI is Bottlerocket's Update API, on its Unix socket.
	InterfaceUpdateAPI = "2.0.0"
	// InterfaceSentinel is any Linux host: a file or a command says that a reboot is needed, and a command reboots.
	InterfaceSentinel = "sentinel"
)

// HostAction is an action that a host's agent performs.
type HostAction string

// The actions of a host, in the order in which the operator requests them.
const (
	// HostActionUnknown: nothing is known; the operator requests HostActionStabilize next.
	HostActionUnknown HostAction = "unknown"
	// HostActionStabilize: find out whether there is an update. Nothing on the host is changed.
	HostActionStabilize HostAction = "stabilize"
	// HostActionPrepare: fetch the update. The running system does not change.
	HostActionPrepare HostAction = "prepare-update"
	// HostActionPerform: let the next boot start the update.
	HostActionPerform HostAction = "perform-update"
	// HostActionRollback: let the next boot start the other partitions, which hold AnnotationHostWanted. The operator requests it in place
	// of the two above, on a drained node. Only Moult's agents know it.
	HostActionRollback HostAction = "rollback-update"
	// HostActionReboot: reboot, and find out whether there is a further update. Only this disrupts what runs on the node. Agents of other
	// operators only reboot.
	HostActionReboot HostAction = "reboot-update"
	// HostActionReset: undo HostActionPerform or HostActionRollback, so that the next boot starts the running version, and find out whether there
	// is an update. It ends a turn that is stopped after one of these. Only Moult's agents undo anything; others treat
	// it like HostActionStabilize.
	HostActionReset HostAction = "reset-state"
)

// HostActionsOfTurn are the actions that change a host. The operator requests them only in a turn.
var HostActionsOfTurn = []HostAction{HostActionPrepare, HostActionPerform, HostActionRollback, HostActionReboot}

// HostState is the state of an action.
type HostState string

// The states of an action.
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

// Moult's own keys on the Node, besides those of the protocol. The operator writes the first three, the agent the others.
const (
	// AnnotationHostWanted is the target version of the host. The operator writes it with HostActionPrepare, or HostActionRollback. If the
	// host now offers another version, its agent does nothing and reports HostStateError. Absent: the version that the host
	// offers.
	AnnotationHostWanted = "moult.dev/host-wanted"
	// LabelBeforeReboot is "true" while the operator waits for the annotations of spec.hostUpdate.hooks.beforeReboot.
	LabelBeforeReboot = "moult.dev/before-reboot"
	// LabelAfterReboot is "true" while it waits for those of afterReboot.
	LabelAfterReboot = "moult.dev/after-reboot"

	// AnnotationHostVersion is the version that the host runs.
	AnnotationHostVersion = "moult.dev/host-version"
	// AnnotationHostTarget is the version that the host offers; absent if there is none, or it has no name.
	AnnotationHostTarget = "moult.dev/host-target"
	// AnnotationHostPrevious is the version that the host ran before its last update.
	AnnotationHostPrevious = "moult.dev/host-previous"
	// AnnotationHostAttempts counts how often HostActionPrepare began for the target. It is removed when the host runs the
	// target.
	AnnotationHostAttempts = "moult.dev/host-attempts"
	// AnnotationHostError says why the last action ended in HostStateError, in at most 1024 bytes. The next successful
	// action removes it.
	AnnotationHostError = "moult.dev/host-error"
	// AnnotationHostChecked is when the result of the host's check for updates last changed (RFC 3339).
	AnnotationHostChecked = "moult.dev/host-checked"
	// AnnotationHostBoot is the host's boot id when the agent began HostActionReboot. While the boot id is the same, the
	// host has not rebooted.
	AnnotationHostBoot = "moult.dev/host-boot"
)
