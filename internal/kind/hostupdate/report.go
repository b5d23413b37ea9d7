// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// Report is what a Node says of its host: the operator's order, the agent's answer, and what the kubelet says. An absent part is empty.
type Report struct {
	// Protocol has the keys that operator and agent use. Interface is the value of the protocol's label.
	Protocol  v1alpha1.HostProtocol
	Interface string
	// Wanted is the operator's last order.
	Wanted v1alpha1.HostAction
	// Active is the order that the agent has acknowledged or carried out. State is the progress of that order.
	Active v1alpha1.HostAction
	State  v1alpha1.HostState
	// Update says whether there is an update: v1alpha1.HostUpdateTrue, False or Unknown, or empty.
	Update string
	// Version is the version that the host runs. On Bottlerocket the kubelet reports it, elsewhere the agent.
	Version string
	// Booted is the version that the kubelet reports on Bottlerocket. After a boot it is known before the agent has checked.
	Booted string
	// Target is the version that the host offers.
	Target string
	// Error is why the agent's last action failed.
	Error string
	// BootID is the id of the present boot, by the kubelet.
	BootID string
	// RebootingFrom is the id of the boot in which the agent acknowledged the order to reboot.
	RebootingFrom string
	// Attempts is how often the agent began to prepare the target.
	Attempts int
	// Checked is when the agent last answered an order to look for updates, or found another answer by itself.
	Checked time.Time
}

// Read reads what a Node says of its host. It returns false if no label names the host's interface.
func Read(n *corev1.Node) (Report, bool) {
	protocol, hostInterface, ok := v1alpha1.HostProtocolOf(n.Labels)
	if !ok {
		return Report{}, false
	}
	a := n.Annotations
	r := Report{
		Protocol: protocol, Interface: hostInterface,
		Wanted: v1alpha1.HostAction(a[protocol.Wanted]), Active: v1alpha1.HostAction(name(a[protocol.Active])), State: v1alpha1.HostState(a[protocol.State]),
		Update: a[protocol.Update], Target: name(a[v1alpha1.AnnotationHostTarget]),
		Error: nodeturn.Short(a[v1alpha1.AnnotationHostError]), BootID: n.Status.NodeInfo.BootID, RebootingFrom: a[v1alpha1.AnnotationHostBoot],
	}
	if hostInterface == v1alpha1.InterfaceSentinel { // Its versions have no names, whatever an agent writes.
		a = maps.Clone(a)
		delete(a, v1alpha1.AnnotationHostVersion)
		r.Target = ""
	}
	// The kubelet also reports when the agent has not started after a boot.
	r.Booted = versionOf(n.Status.NodeInfo.OSImage)
	r.Version = cmp.Or(r.Booted, name(a[v1alpha1.AnnotationHostVersion]))
	// An invalid number or time counts as none.
	attempts, _ := strconv.Atoi(a[v1alpha1.AnnotationHostAttempts])
	r.Attempts = max(attempts, 0)
	r.Checked, _ = time.Parse(time.RFC3339, a[v1alpha1.AnnotationHostChecked])
	return r, true
}

// longestName bounds a version, in bytes: versions go into statuses.
const longestName = 64

// name returns the version, or "" if the text is too long for a version.
func name(version string) string {
	if len(version) > longestName {
		return ""
	}
	return version
}

// versionOf returns the version in Bottlerocket's OS image, such as "Bottlerocket OS 1.20.3 (aws-k8s-1.31)"; "" for other systems.
func versionOf(image string) string {
	rest, ok := strings.CutPrefix(image, "Bottlerocket OS ")
	if !ok {
		return ""
	}
	version, _, _ := strings.Cut(rest, " ")
	if parse(version) == nil {
		return ""
	}
	return name(version)
}

// MustBeAsked reports whether the agent needs an order to look for updates: it has no known order, its state was removed, or a reset has
// succeeded. An agent repeats a reset that failed.
func (r *Report) MustBeAsked() bool {
	unknown := r.State != v1alpha1.HostStateBusy && r.State != v1alpha1.HostStateReady && r.State != v1alpha1.HostStateError
	switch {
	case r.Wanted == v1alpha1.HostActionReset:
		return r.Active == r.Wanted && (unknown || r.State == v1alpha1.HostStateReady)
	case r.Wanted == v1alpha1.HostActionStabilize || slices.Contains(v1alpha1.HostActionsOfTurn, r.Wanted):
		return r.Active == r.Wanted && unknown
	}
	return true
}

// Answers reports whether the order is this action, and the agent has ended the action with HostStateReady or HostStateError.
func (r *Report) Answers(action v1alpha1.HostAction) bool {
	return r.Wanted == action && r.Active == action && (r.State == v1alpha1.HostStateReady || r.State == v1alpha1.HostStateError)
}

// Ready reports whether the order is this action, and the agent has ended the action with HostStateReady.
func (r *Report) Ready(action v1alpha1.HostAction) bool {
	return r.Answers(action) && r.State == v1alpha1.HostStateReady
}

// Knows reports whether the last order was to look for updates, and the agent has said whether there is one.
func (r *Report) Knows() bool {
	return r.Ready(v1alpha1.HostActionStabilize) && (r.Update == v1alpha1.HostUpdateTrue || r.Update == v1alpha1.HostUpdateFalse)
}

// wasUpdated reports whether the agent looks for updates again, and found none in its last answer. Agents of other operators do not report when
// they answered, so it is false for them.
func (r *Report) wasUpdated() bool {
	return r.Wanted == v1alpha1.HostActionStabilize && !r.MustBeAsked() && !r.Answers(v1alpha1.HostActionStabilize) &&
		!r.Checked.IsZero() && (r.Target == "" || sameVersion(r.Target, r.Version))
}

// said returns why the last action of the agent failed.
func (r *Report) said() string { return cmp.Or(r.Error, "the host's agent does not say why") }
