// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// oldestUpdateAPI is the first version of Bottlerocket whose Update API is complete.
const oldestUpdateAPI = "0.4.1"

// InterfaceLabel returns the label for the interface of a Node's host, by the OS image that the kubelet reports. It returns false if the
// Node already has such a label, and for hosts that are neither Bottlerocket nor Thar.
func InterfaceLabel(n *corev1.Node) (key, value string, ok bool) {
	if _, _, labelled := v1alpha1.HostProtocolOf(n.Labels); labelled {
		return "", "", false
	}
	image := n.Status.NodeInfo.OSImage
	switch version := versionOf(image); {
	case version != "" && CompareVersions(version, oldestUpdateAPI) < 0:
		return v1alpha1.HostProtocols[0].InterfaceLabel, v1alpha1.InterfaceUpdog, true
	case version != "":
		return v1alpha1.HostProtocols[0].InterfaceLabel, v1alpha1.InterfaceUpdateAPI, true
	case strings.HasPrefix(image, "Thar, ") || strings.HasPrefix(image, "Thar "):
		return v1alpha1.HostProtocols[1].InterfaceLabel, v1alpha1.InterfaceUpdog, true
	}
	return "", "", false
}
