// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Report is what a Node tells of its host: what the operator wants of it, what its agent says, and what the kubelet says. What is not there
// is empty.
type Report struct {
	// Protocol is the keys by which operator and agent speak, and Interface the value of its label.
	Protocol  v1alpha1.HostProtocol
	Interface string
	// Wanted is what the operator said last.
	Wanted v1alpha1.HostAction
	// Active is what the agent has taken up, and State how that stands.
	Active v1alpha1.HostAction
	State  v1alpha1.HostState
	// Update is whether there is one: v1alpha1.HostUpdateTrue, False or Unknown, or empty.
	Update string
	// Version is what the host runs: by the kubelet where the host is a Bottlerocket, or else by its agent.
	Version string
	// Said is what its agent says that it runs.
	Said string
	// Booted is what the kubelet says that a Bottlerocket runs. After a boot that is known before its agent has looked.
	Booted string
	// Target is the version that the host has to offer.
	Target string
	// Error is why the agent's last action failed.
	Error string
	// BootID is that of the host's boot, by the kubelet.
	BootID string
	// RebootingFrom is the boot id of the boot in which the agent took up the order to reboot.
	RebootingFrom string
	// Attempts counts how often the target was begun to be prepared.
	Attempts int
	// Checked is when the host was last asked for updates and had another answer than before.
	Checked time.Time
}

// Read reads what a Node tells of its host, or false where no label names the host's interface.
func Read(n *corev1.Node) (Report, bool) {
	protocol, hostInterface, ok := v1alpha1.HostProtocolOf(n.Labels)
	if !ok {
		return Report{}, false
	}
	a := n.Annotations
	r := Report{
		Protocol: protocol, Interface: hostInterface,
		Wanted: v1alpha1.HostAction(a[protocol.Wanted]), Active: v1alpha1.HostAction(name(a[protocol.Active])), State: v1alpha1.HostState(a[protocol.State]),
		Update: a[protocol.Update], Said: name(a[v1alpha1.AnnotationHostVersion]), Target: name(a[v1alpha1.AnnotationHostTarget]),
		Error: cut(a[v1alpha1.AnnotationHostError]), BootID: n.Status.NodeInfo.BootID, RebootingFrom: a[v1alpha1.AnnotationHostBoot],
	}
	// An agent that has not come back after a boot cannot take its word back.
	r.Booted = versionOf(n.Status.NodeInfo.OSImage)
	r.Version = cmp.Or(r.Booted, r.Said)
	// What is no number, or no time, is not known.
	r.Attempts, _ = strconv.Atoi(a[v1alpha1.AnnotationHostAttempts])
	r.Checked, _ = time.Parse(time.RFC3339, a[v1alpha1.AnnotationHostChecked])
	return r, true
}

// What is longer than that, in bytes, is no version, and what of an error is longer is left out: both go into statuses.
const (
	longestName  = 64
	longestError = 1024
)

func name(version string) string {
	if len(version) > longestName {
		return ""
	}
	return version
}

func cut(text string) string {
	if len(text) <= longestError {
		return text
	}
	return strings.ToValidUTF8(text[:longestError-len("…")], "") + "…"
}

// versionOf is the version in a Bottlerocket's name, such as "Bottlerocket OS 1.20.3 (aws-k8s-1.31)"; empty of others.
func versionOf(image string) string {
	rest, ok := strings.CutPrefix(image, "Bottlerocket OS ")
	if !ok {
		return ""
	}
	version, _, _ := strings.Cut(rest, " ")
	if _, ok := parse(version); !ok {
		return ""
	}
	return version
}

// Fresh reports whether the agent is to be asked for what the host has to offer: nobody has said anything to it yet, or nothing that it can
// act upon, or what it said to it is not known.
func (r *Report) Fresh() bool {
	unknown := r.State != v1alpha1.HostStateBusy && r.State != v1alpha1.HostStateReady && r.State != v1alpha1.HostStateError
	switch r.Wanted {
	case v1alpha1.HostActionStabilize, v1alpha1.HostActionPrepare, v1alpha1.HostActionPerform, v1alpha1.HostActionReboot:
		return r.Active == r.Wanted && unknown
	case v1alpha1.HostActionReset:
		return r.Active == r.Wanted && r.State != v1alpha1.HostStateBusy
	case v1alpha1.HostActionUnknown:
	}
	return true
}

// Answers reports whether the agent has taken up this action, which is the one that is wanted, and ended it: with HostStateReady or
// HostStateError.
func (r *Report) Answers(action v1alpha1.HostAction) bool {
	return r.Wanted == action && r.Active == action && (r.State == v1alpha1.HostStateReady || r.State == v1alpha1.HostStateError)
}

// Ready reports whether the agent has ended this action well, which is the one that is wanted.
func (r *Report) Ready(action v1alpha1.HostAction) bool {
	return r.Answers(action) && r.State == v1alpha1.HostStateReady
}

// Knows reports whether the agent was asked last whether there is an update, and has said so.
func (r *Report) Knows() bool {
	return r.Ready(v1alpha1.HostActionStabilize) && (r.Update == v1alpha1.HostUpdateTrue || r.Update == v1alpha1.HostUpdateFalse)
}
