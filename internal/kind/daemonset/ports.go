// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// port is a port of the host.
type port struct {
	protocol corev1.Protocol
	number   int32
}

// portsConflict reports whether the outdated pod and the new pod need the same port of the host. Then they can't run side by side.
// It ignores hostIP.
func (s *NodeState) portsConflict() bool {
	taken := hostPorts(&s.Outdated.Spec)
	return slices.ContainsFunc(hostPorts(&s.Want.Spec.Template.Spec), func(p port) bool { return slices.Contains(taken, p) })
}

// hostPorts returns the ports of the host that a pod uses. With hostNetwork these are all its container ports.
func hostPorts(s *corev1.PodSpec) []port {
	var all []port
	for _, container := range slices.Concat(s.InitContainers, s.Containers) {
		for _, c := range container.Ports {
			p := port{cmp.Or(c.Protocol, corev1.ProtocolTCP), c.HostPort}
			if p.number == 0 && s.HostNetwork {
				p.number = c.ContainerPort
			}
			if p.number != 0 {
				all = append(all, p)
			}
		}
	}
	return all
}
