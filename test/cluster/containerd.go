// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
)

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
