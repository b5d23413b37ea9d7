// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// portsConflict reports whether the outdated pod and the new pod need the same port of the host. Then they can't run side by side.
// It ignores hostIP.
func (s *NodeState) portsConflict() bool {
	taken := hostPorts(&s.Outdated.Spec)
	return slices.ContainsFunc(hostPorts(&s.Want.Spec.Template.Spec), func(port string) bool { return slices.Contains(taken, port) })
}

// hostPorts returns the ports of the host that a pod uses, such as TCP/80. With hostNetwork these are all its container ports.
func hostPorts(s *corev1.PodSpec) (ports []string) {
	for _, container := range slices.Concat(s.InitContainers, s.Containers) {
		for _, c := range container.Ports {
			number := c.HostPort
			if s.HostNetwork {
				number = cmp.Or(number, c.ContainerPort)
			}
			if number != 0 {
				ports = append(ports, fmt.Sprintf("%s/%d", cmp.Or(c.Protocol, corev1.ProtocolTCP), number))
			}
		}
	}
	return ports
}
