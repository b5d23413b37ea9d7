// SPDX-License-Identifier: Apache-2.0

package cluster

import "fmt"

// kubeletConfig returns the kubelet's configuration: quick to notice and to tell,
// and never short of a resource that it shares with this machine.
func kubeletConfig(cgroup, providerID string) string {
	if unifiedCgroups() {
		cgroup = "/" // the machine's own is all that it sees
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
resolvConf: /etc/resolv.conf
providerID: %q
clusterDomain: cluster.local
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/pki/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/kubelet.key
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
syncFrequency: 10s
serializeImagePulls: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
imageMinimumGCAge: 24h
evictionHard: {memory.available: 1Mi, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%}
logging: {verbosity: 1}
`, cgroup, providerID)
}

// kubelet returns the kubelet's command line.
func (c machineConfig) kubelet() []string {
	return []string{
		kubeletPath,
		"--config=/etc/kubernetes/kubelet.yaml",
		"--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
		"--hostname-override=" + c.Name,
		"--node-ip=" + c.IP,
		"--node-labels=" + c.Labels,
	}
}

// kubeletEnvironment makes a client notice within seconds that a connection is
// dead, so that a machine that was cut off is back as soon as its cable is.
var kubeletEnvironment = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=3", "HTTP2_PING_TIMEOUT_SECONDS=2"}
