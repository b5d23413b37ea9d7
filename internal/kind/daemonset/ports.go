// SPDX-License-Identifier: Apache-2.0

package daemonset

import corev1 "k8s.io/api/core/v1"

// port is one of the host's.
type port struct {
	protocol corev1.Protocol
	number   int32
}

// portsConflict reports whether pods of two specs can't run on one node beside each other, because both want the same port of
// the host. That they would want it on different addresses is not looked at.
func portsConflict(a, b *corev1.PodSpec) bool {
	taken := map[port]bool{}
	for _, p := range hostPorts(a) {
		taken[p] = true
	}
	for _, p := range hostPorts(b) {
		if taken[p] {
			return true
		}
	}
	return false
}

// hostPorts are the ports of the host that a pod takes: with the host's network all that it names.
func hostPorts(s *corev1.PodSpec) []port {
	var all []port
	add := func(containers []corev1.Container) {
		for i := range containers {
			for _, c := range containers[i].Ports {
				p := port{c.Protocol, c.HostPort}
				if p.protocol == "" {
					p.protocol = corev1.ProtocolTCP
				}
				if p.number == 0 && s.HostNetwork {
					p.number = c.ContainerPort
				}
				if p.number != 0 {
					all = append(all, p)
				}
			}
		}
	}
	add(s.InitContainers)
	add(s.Containers)
	return all
}
