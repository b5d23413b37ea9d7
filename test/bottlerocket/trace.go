// SPDX-License-Identifier: Apache-2.0

package bottlerocket

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Intent is what operator and agent say of a host on its Node, as "wanted,active,state update", with "cordoned" at the end where
// the Node is unschedulable. It is empty for a Node that has no host's label.
func Intent(n *corev1.Node) string {
	protocol, _, ok := v1alpha1.HostProtocolOf(n.Labels)
	if !ok {
		return ""
	}
	a := n.Annotations
	text := fmt.Sprintf("%s,%s,%s", a[protocol.Wanted], a[protocol.Active], a[protocol.State])
	if update := a[protocol.Update]; update != "" {
		text += " " + update
	}
	if n.Spec.Unschedulable {
		text += " cordoned"
	}
	return text
}

// Trace is the intents of a Node in its states, in order, each of them once in a row.
func Trace(states []*corev1.Node) []string {
	var trace []string
	for _, n := range states {
		if intent := Intent(n); intent != "" {
			trace = append(trace, intent)
		}
	}
	return slices.Compact(trace)
}

// The parts of the trace of a host that is updated. It is what the Bottlerocket update operator's is, but that no agent acknowledges
// stabilize, and that a host looks for updates after the reboot, before its turn ends. There is no soak.
var (
	// Labelled is a Node whose host no one has said anything of.
	Labelled = []string{",,"}
	// Found is how an update is found.
	Found = []string{
		"stabilize,unknown,unknown unknown",
		"stabilize,stabilize,ready true",
	}
	// Updated is how a host comes to that update.
	Updated = []string{
		"prepare-update,stabilize,ready true",
		"prepare-update,prepare-update,busy true",
		"prepare-update,prepare-update,ready true",
		"perform-update,prepare-update,ready true",
		"perform-update,perform-update,busy true",
		"perform-update,perform-update,ready true",
		"perform-update,perform-update,ready true cordoned",
		"reboot-update,perform-update,ready true cordoned",
		"reboot-update,reboot-update,busy true cordoned",
		"reboot-update,reboot-update,ready false cordoned",
		UpToDate,
	}
)

// UpToDate is what is said of a host that has no update.
const UpToDate = "stabilize,stabilize,ready false"

// Serves reports whether a pod serves: its containers are ready, and no one has asked it to end. That the cluster has not heard of
// its node for a while, as happens to busy machines, does not count.
func Serves(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
		return false
	}
	return !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready })
}

// Ended reports whether nothing of a pod runs any more.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
