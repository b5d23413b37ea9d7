// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// install prepares the machine's disks. Its root file system is this machine's,
// seen through a layer of its own, in which this writes what differs:
//
//	upper/       what the machine has written, beginning with its configuration
//	work/        the overlay's own
//	root/        where it is mounted, in the machine's namespace
//	kubelet/     /var/lib/kubelet
//	containerd/  /var/lib/containerd: an overlay cannot lie upon another
//	faces/       files that are mounted over some of the kernel's, see rootfs.go
func (m *machine) install(containerSpec []byte) error {
	s := m.supervisor
	for _, dir := range []string{"upper", "work", "root", "kubelet", "containerd", "faces"} {
		if err := os.MkdirAll(filepath.Join(m.dir, dir), 0o755); err != nil {
			return err
		}
	}
	server := fmt.Sprintf("https://%s:%d", s.apiAddress(), s.record.Ports[portAPI])
	ip := s.machineIP(m.index)
	node := identityOf{user: "system:node:" + m.name, group: "system:nodes", hosts: []string{m.name, ip}}
	kubeconfig := s.ca.path(m.name + ".kubeconfig")
	if err := s.ca.writeKubeconfig(kubeconfig, server, m.name, node); err != nil {
		return err
	}
	files := map[string]string{
		"etc/hostname":                     m.name + "\n",
		"etc/hosts":                        fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", ip, m.name),
		"etc/resolv.conf":                  "# There is nothing to resolve: no network but the cluster's can be reached.\n",
		"etc/machine-id":                   strings.ReplaceAll(uuid.NewString(), "-", "") + "\n",
		"etc/containerd/config.toml":       containerdConfig(cniDir()),
		"etc/cni/net.d/10-bridge.conflist": cniConfig(podSubnet(m.index)),
		"etc/kubernetes/kubelet.yaml":      kubeletConfig("/moult-"+s.spec.ID+"-"+m.name, m.options.ProviderID),
	}
	if m.options.OSImage != "" {
		files["etc/os-release"] = fmt.Sprintf("ID=moult-test\nPRETTY_NAME=%q\n", m.options.OSImage)
	}
	if m.options.NotReady {
		delete(files, "etc/cni/net.d/10-bridge.conflist") // a kubelet is not ready without a network for its pods
	}
	for path, content := range files {
		if err := m.write(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for path, source := range map[string]string{
		"etc/kubernetes/kubelet.kubeconfig": kubeconfig,
		"etc/kubernetes/pki/ca.crt":         s.ca.path("ca.crt"),
		"etc/kubernetes/pki/kubelet.crt":    s.ca.path(m.name + ".crt"),
		"etc/kubernetes/pki/kubelet.key":    s.ca.path(m.name + ".key"),
	} {
		data, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if err := m.write(path, data, 0o600); err != nil {
			return err
		}
	}
	err := errors.Join(
		m.write("etc/containerd/base.json", containerSpec, 0o644),
		m.write(hookPath, []byte(kernelFilesHook), 0o755),
		m.write("usr/sbin/reboot", []byte(rebootScript), 0o755),
		m.write("usr/bin/systemctl", []byte(systemctlScript), 0o755),
	)
	if err != nil || s.spec.MachineFiles == "" {
		return err
	}
	if err := copyFiles(filepath.Join(m.dir, "upper"), s.spec.MachineFiles); err != nil {
		return fmt.Errorf("copying the machine's files, %w", err)
	}
	return nil
}

// copyFiles copies directories, files and symbolic links, over those that are there.
func copyFiles(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if entry.Type() == fs.ModeSymlink {
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, info.Mode().Perm())
	})
}

// What on another machine asks systemd asks this machine's kernel, which for a process in a namespace means that namespace.
const (
	rebootScript    = "#!/bin/busybox sh\nexec /bin/busybox reboot -f\n"
	systemctlScript = `#!/bin/busybox sh
case " $* " in
*" reboot "*) exec /bin/busybox reboot -f ;;
*" poweroff "*) exec /bin/busybox poweroff -f ;;
*) echo "this machine knows only reboot and poweroff" >&2; exit 1 ;;
esac
`
)

// write puts a file into the machine's layer.
func (m *machine) write(path string, data []byte, mode os.FileMode) error {
	path = filepath.Join(m.dir, "upper", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}
