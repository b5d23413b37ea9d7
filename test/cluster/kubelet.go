// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
)

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

// pauseImage is the image of ours that holds every pod's namespaces.
const pauseImage = "moult.dev/test/pause:1"

// containerdConfig returns a machine's container runtime configuration.
func containerdConfig(plugins string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  # Not every machine may lower the score of a process, and then no pod starts.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "/etc/containerd/base.json"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`, pauseImage, plugins)
}

// cniConfig returns the pods' network: a bridge inside the machine.
func cniConfig(subnet string) string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": true,
    "ipMasq": true,
    "hairpinMode": true,
    "ipam": {
      "type": "host-local",
      "dataDir": "/run/cni",
      "ranges": [[{"subnet": %q}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }, {
    "type": "portmap",
    "capabilities": {"portMappings": true}
  }]
}
`, subnet)
}

// hookPath is a program that the container runtime runs while it makes a container.
const hookPath = "/etc/containerd/kernel-files"

// kernelFilesHook shows a container the machine's boot id, as it would see it on a machine with a kernel of its own: what a container has
// mounted on /proc is new, and without the files that the machine has mounted over it.
const kernelFilesHook = `#!/bin/busybox sh
bundle=$(/bin/busybox sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')
for file in /proc/sys/kernel/random/boot_id /proc/sysrq-trigger; do
	if [ -e "$bundle/rootfs$file" ]; then
		/bin/busybox mount -o bind "$file" "$bundle/rootfs$file" || exit 1
	fi
done
`

// containerSpec returns what every container's specification begins with: the runtime's own default, and the hook.
func containerSpec(ctx context.Context) ([]byte, error) {
	data, err := exec.CommandContext(ctx, findTool("ctr"), "oci", "spec").Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the default container specification, %w", err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, err
	}
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{"path": hookPath}}}
	return json.Marshal(spec)
}
